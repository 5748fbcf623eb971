"""A user's own project: a declared secret, a declared right, a right that is not declared, and the limit of a model."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests, deployed

from helix.local.process import OfflineError

HIDDEN = "hidden-value"
PROJECT = """
[tool.helix]
agents = ["staff"]

[tool.helix.environment]
DESK_URL = "https://desk.example"

[tool.helix.secrets]
CRM_KEY = "secretsmanager:prod/crm-key"

[tool.helix.rights]
read_buckets = ["desk-files"]

[tool.helix.limits.scarce]
requests = 3

[tool.helix.agent.clerk.rights]
write_buckets = ["desk-files"]

[tool.helix.agent.clerk.secrets]
TOKEN = "ssm:/desk/token"
"""
STAFF = """
import os

import boto3
from helix import Agent, LLMConfig, ToolContext, default_registry, tool

URL = os.environ["DESK_URL"]

@tool
def tell(ctx: ToolContext, secret: str = "CRM_KEY") -> str:
    "Tell what there is."
    return f"{URL} {len(ctx.secret(secret))} {sorted({'CRM_KEY', 'GITHUB_TOKEN', 'OPENAI_API_KEY'} & set(os.environ))}"

@tool
def read(bucket: str) -> str:
    "Read."
    return boto3.client("s3").get_object(Bucket=bucket, Key="a.txt")["Body"].read().decode()

@tool
def write(bucket: str) -> str:
    "Write."
    boto3.client("s3").put_object(Bucket=bucket, Key="b.txt", Body=b"more")
    return "written"

for name in ("desk", "clerk"):
    config = LLMConfig(model="planned")
    default_registry.register(Agent(name=name, system_prompt="Help.", tools=[tell, read, write], llm_config=config))
scarce = LLMConfig(model="scarce")
default_registry.register(Agent(name="limited", system_prompt="Help.", llm_config=scarce))
"""
APART_S = 20
"""The seconds between two calls of the model `scarce`."""


async def results(cloud: CloudForTests, agent: str, *calls: Any) -> list[str]:
    async with cloud.user("ann") as client:
        handle = await client.run(agent, plan(use(*calls), say("Done.")))
        await handle.result(60)
        told: dict[str, Any] = await client.get_messages(handle.session_id)
    return [message["content"] for message in told["messages"] if message["role"] == "tool"]


async def wait_for_turns(cloud: CloudForTests) -> None:
    """Two runs share the limit of a model. The second waits in its state machine, and none of its functions does."""
    async with cloud.user("ann") as client:
        begun = time.monotonic()
        handles = [await client.run("limited", plan(say("Done."))) for _ in range(2)]
        for handle in handles:
            await handle.result(120)
        assert time.monotonic() - begun > APART_S
    waited, longest = 0, 0.0
    for handle in handles:
        (execution,) = cloud.executions(handle.session_id)
        waited += "Wait" in cloud.transitions(execution["executionArn"])
        scheduled: datetime | None = None
        for event in cloud.history(execution["executionArn"]):
            if event["type"].endswith("Scheduled"):
                scheduled = event["timestamp"]
            elif event["type"].endswith("Succeeded") and scheduled is not None:
                longest = max(longest, (event["timestamp"] - scheduled).total_seconds())
    assert waited == 1 and longest < APART_S / 2, (waited, longest)


@pytest.mark.timeout(400)
async def test_what_is_declared_works_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "staff.py").write_text(STAFF)
    for name in ("CRM_KEY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, HIDDEN)
    options: dict[str, Any] = {"root": root, "context": {"agents": "staff"}, "assemblies": tmp_path / "assemblies"}
    with pytest.raises(OfflineError, match=r"have no value here: TOKEN .deployed: 'ssm:/desk/token'."):
        with deployed(tmp_path / "state", **options):
            raise AssertionError("it started")

    monkeypatch.setenv("TOKEN", "1234")
    with deployed(tmp_path / "state", **options) as cloud:
        for bucket in ("desk-files", "other-files"):
            cloud.aws("s3").create_bucket(Bucket=bucket)
            cloud.aws("s3").put_object(Bucket=bucket, Key="a.txt", Body=b"contents")
        mine, other, write = (
            call("read", bucket="desk-files"),
            call("read", bucket="other-files"),
            call("write", bucket="desk-files"),
        )
        told, own, denied, unwritten = await results(cloud, "desk", call("tell"), mine, other, write)
        assert (told, own) == (f"https://desk.example {len(HIDDEN)} []", "contents")
        assert "not authorized to perform: s3:GetObject" in denied and "s3:PutObject" in unwritten
        told, token, denied, written = await results(
            cloud, "clerk", call("tell"), call("tell", secret="TOKEN"), other, write
        )
        assert (told, written) == (f"https://desk.example {len(HIDDEN)} []", "written")
        assert token.startswith("https://desk.example 4 ") and "s3:GetObject" in denied
        await wait_for_turns(cloud)
        assert HIDDEN not in cloud.log.text
        assert not [
            row for table in ("sessions", "streams", "control") for row in cloud.rows(table) if HIDDEN in str(row)
        ]
