"""`helix check --stage` on the offline cloud. A healthy stage passes, and a broken one fails with the reason. The check
leaves nothing."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from dataclasses import replace

import pytest
from tests.e2e.cloud_executor import AdminApplication
from tests.support.offline_cloud import CloudForTests

from helix._version import __version__
from helix.cli.cloud import checks
from helix.cli.cloud.check import run_checks
from helix.cli.cloud.checks import AS_DEPLOYED, CHECKS, USER, Finding, Probe, SocketAccess, StageClients
from helix.cli.output import COMPLETED
from helix.gateway.authoriser import ApiKeys

pytestmark = pytest.mark.timeout(300)


def found(clients: StageClients, door: SocketAccess, *names: str) -> list[Finding]:
    async def look() -> list[Finding]:
        async with Probe(clients, door) as probe:
            return [await probe.run_check(name, CHECKS[name]) for name in names]

    return asyncio.run(look())


def test_a_stage_that_is_well(cloud: CloudForTests, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_checks(cloud.aws, cloud.cloud.stage, SocketAccess(cloud.url), as_json=True)
    text = capsys.readouterr().out
    head, *findings = [json.loads(line) for line in text.splitlines()]
    assert {f["check"]: f["detail"] for f in findings if f["result"] != "ok"} == {}
    assert [f["check"] for f in findings] == list(CHECKS) and code == COMPLETED
    assert (head["stage"], head["region"], head["helix"]) == ("test", "us-east-1", __version__)
    assert findings[3]["detail"] == f"deployed version {__version__}"
    assert "000000000000" not in text and "helix_" not in text, "neither account nor key"
    with closing(AdminApplication(cloud)) as app:
        assert app.run(app.executor.sessions.list_sessions(user_id=USER)).sessions == []
        keys = [key for key in app.run(ApiKeys(app.store, app.clock).list()) if key.principal.user_id == USER]
    assert keys and all(key.revoked_at is not None and key.expires_at is not None for key in keys)


def test_what_is_broken_is_named(cloud: CloudForTests, monkeypatch: pytest.MonkeyPatch) -> None:
    """CloudWatch may not publish an alarm, which no metric shows, and a key cannot decrypt anything."""
    monkeypatch.setattr(checks, "PATIENCE_S", 13.0)
    clients = StageClients.of(cloud.aws, cloud.cloud.stage)
    topics, topic = cloud.aws("sns"), clients.outputs["AlarmTopicArn"]
    policy = topics.get_topic_attributes(TopicArn=topic)["Attributes"]["Policy"]
    changed = policy.replace("cloudwatch.amazonaws.com", "s3.amazonaws.com")
    assert changed != policy
    alarm, connection, calls = "an alarm is set and received", "a connection", "a step with 40 calls"
    topics.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=changed)
    try:
        (lost,) = found(clients, AS_DEPLOYED, alarm)
    finally:
        topics.set_topic_attributes(TopicArn=topic, AttributeName="Policy", AttributeValue=policy)
    assert lost.result == "failed" and "govern has not received alarm helix-test-" in lost.detail
    refused, unasked = found(clients, SocketAccess(cloud.url, "helix_nobody"), connection, calls)
    assert (refused.result, unasked.result) == ("failed", "not run")
    (tokens,) = found(replace(clients, auth="jwt"), SocketAccess(cloud.url), connection)
    assert (tokens.result, tokens.detail) == ("not run", "the stage accepts tokens only: give one with --key")
