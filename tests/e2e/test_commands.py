"""The session commands against the deployed app offline: by its URL, and by its stage with AWS credentials."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.command_line import CommandLine, Done
from tests.support.offline_cloud import CloudForTests

from helix.local.cloud import REGION

pytestmark = pytest.mark.timeout(300)
USER = "commander"


def alike(done: Done) -> str:
    text = re.sub(r"--(url|stage) \S+|ws://\S+|stage \S+", "PLACE", done.out)
    text = re.sub(r"approved \((by commander, )?[^)]*\)", "approved", text)  # who answered is known at the URL alone
    text = re.sub(r"commander:[us]\w*", "SESSION", re.sub(r"run_\d+_\w+", "RUN", text))
    return re.sub(r" +", " ", re.sub(r"-t\d+-|\d+ s ago|\d+\.\d s", "-", text))


def test_a_stage_answers_as_its_url_does(cloud: CloudForTests, tmp_path: Path) -> None:
    credentials = {**cloud.cloud.emulator.credentials.variables, "AWS_DEFAULT_REGION": REGION}
    helix = CommandLine(tmp_path, AWS_ENDPOINT_URL=cloud.cloud.emulator.url, **credentials)
    places = {"u": ["--url", cloud.url, "--key", cloud.key(USER)], "s": ["--stage", cloud.cloud.stage]}
    message = plan(use(call("gated", topic="A7")), say("It is done."))
    told = {}
    for name, place in places.items():
        session = f"{USER}:{name}"
        assert helix("run", "talker", message, "--session", session, *places["u"]).code == 4
        waiting = helix("sessions", "--waiting", "--user", USER, "--json", *place)
        calls = [json.loads(line) for line in waiting.out.splitlines()]
        (question,) = next(one["waiting_for"] for one in calls if one["session_id"] == session)
        answered = helix("answer", "talker", session, question["call_id"], *place)
        assert answered.code == 0 and "It is done." in answered.out, answered
        shown, followed = helix("show", session, *place), helix("tail", session, *place)
        assert helix("branch", session, "--step", "1", "--to", f"{session}2", *place).code == 0
        assert helix("delete", f"{session}2", *place).code == 0
        told[name] = [alike(done) for done in (answered, shown, followed, helix("cost", session, *place))][:3]
        assert helix("export", session, "--to", f"{name}.jsonl", *place).code == 0
        assert helix("import", f"{name}.jsonl", "--db", "here.db").out == f"{session}\n"
    assert told["u"] == told["s"]
    assert (
        "ws_message" in helix("logs", f"{USER}:s", *places["s"]).out
        or helix("logs", f"{USER}:s", *places["s"]).code == 0
    )
    made = helix("keys", "create", "--user", USER, *places["s"])
    assert helix("keys", "revoke", made.out.strip(), *places["s"]).code == 0
    assert "token" in helix("sessions", "--url", cloud.url, "--key", made.out.strip()).refusal
    forgotten = helix("forget", "--user", USER, "--yes", "--json", *places["s"])
    report = json.loads(forgotten.out)
    assert forgotten.code == 0 and report["before"]["sessions"] == 2 and not any(report["after"].values()), forgotten
