"""A user's own CDK app, offline: its bucket exists, and only the tools with a grant may read it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import ROOT, deployed

from helix.local.reload import Reloader

AGENT = """
import boto3
from helix import Agent, LLMConfig, default_registry, tool

@tool
def read(bucket: str) -> str:
    "Read the note in a bucket."
    return boto3.client("s3").get_object(Bucket=bucket, Key="note")["Body"].read().decode()

default_registry.register(
    Agent(name="reader", system_prompt="Read.", tools=[read], llm_config=LLMConfig(model="planned"))
)
"""
APP = """
from aws_cdk import App, Stack, aws_s3 as s3
from helix.infra import HelixStack

class Desk(HelixStack):
    def __init__(self, scope, construct_id, *, shared):
        super().__init__(scope, construct_id)
        shared.grant_read(self.helix.tool_role())

app = App()
around = Stack(app, "Around")
s3.Bucket(around, "Denied", bucket_name="denied-notes")
Desk(app, "Desk", shared=s3.Bucket(around, "Shared", bucket_name="shared-notes"))
HelixStack(app, "Elsewhere", stage="elsewhere")
app.synth()
"""
SETTINGS = """[tool.helix]
source = "agents"
agents = ["cloud_agents", "reader"]
app = "python app.py"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "agents").mkdir(parents=True)
    shutil.copytree(ROOT / "tests/support/cloud_agents", root / "agents/cloud_agents")
    for name, text in {"pyproject.toml": SETTINGS, "app.py": APP, "agents/reader.py": AGENT}.items():
        (root / name).write_text(text)
    return root


async def test_tools_read_the_apps_bucket_and_no_other(project: Path, tmp_path: Path) -> None:
    context = {"agents": "cloud_agents,reader"}
    with deployed(tmp_path / "state", root=project, paths=[], context=context) as cloud:
        for bucket in ("shared-notes", "denied-notes"):
            cloud.aws("s3").put_object(Bucket=bucket, Key="note", Body=b"a note")
        ask = plan(use(call("read", bucket="shared-notes"), call("read", bucket="denied-notes")), say("Read."))
        async with cloud.user() as client:
            handle = await client.run("reader", ask)
            assert (await handle.result(60)).status == "completed", cloud.log.text
            told: dict[str, Any] = await client.get_messages(handle.session_id)
        read, denied = sorted(message["content"] for message in told["messages"] if message["role"] == "tool")
        assert read == "a note"
        assert "AccessDenied" in denied, denied
        stacks = cloud.aws("cloudformation").describe_stacks()["Stacks"]
        assert {stack["StackName"] for stack in stacks} >= {"helix-test", "Around"}
        assert "helix-elsewhere" not in {stack["StackName"] for stack in stacks}

        app = project / "app.py"
        reloader = Reloader(cloud.cloud, cloud.cloud.check_code()["profiles"])
        assert app in reloader.watched()
        app.write_text(APP.replace('bucket_name="shared-notes"', 'bucket_name="other-notes"'))
        done = reloader.reload([app])
        assert done is not None and done.what == "deployed app.py", done
        assert "other-notes" in {bucket["Name"] for bucket in cloud.aws("s3").list_buckets()["Buckets"]}
