"""The agents of the deployed app as MCP tools through `helix mcp`: by its stage with AWS credentials, and by its URL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.command_line import CommandLine
from tests.support.offline_cloud import CloudForTests
from tests.support_mcp_server import Tasks, ask, person, task_of

from helix.local.cloud import REGION

pytestmark = pytest.mark.timeout(300)
USER = "mcp-caller"


@pytest.mark.parametrize("place", ["url", "stage"])
async def test_a_deployed_agent_is_a_tool_that_asks(cloud: CloudForTests, tmp_path: Path, place: str) -> None:
    credentials = {**cloud.cloud.emulator.credentials.variables, "AWS_DEFAULT_REGION": REGION}
    given = {**CommandLine(tmp_path).environment, "AWS_ENDPOINT_URL": cloud.cloud.emulator.url, **credentials}
    words = ["--stage", cloud.cloud.stage]
    if place == "url":
        words, given["HELIX_KEY"] = ["--url", cloud.url], cloud.key(USER)
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "helix.cli", "mcp", *words], env=given, cwd=tmp_path
    )
    message = plan(use(call("gated", topic="A7")), say("It is done."))
    fill, asked = person(ElicitResult(action="accept", content={"approve": True}))
    async with Client(stdio_client(command), elicitation_callback=fill) as client:
        assert "talker" in [tool.name for tool in (await client.list_tools()).tools]
        result = (await client.call_tool("talker", {"message": message})).structured_content
        assert (result["status"], len(asked)) == ("completed", 1), result
        assert result["output"].endswith("It is done.")
    tasks, options = Tasks(), {"mode": "2026-07-28", "elicitation_callback": fill}
    async with Client(stdio_client(command), extensions=[tasks], **options) as client:
        await client.call_tool("talker", {"message": message})
        task = await task_of(client.session, tasks.made[0], "input_required")
        filled = {key: {"action": "accept", "content": {"approve": True}} for key in task["inputRequests"]}
    async with Client(stdio_client(command), extensions=[tasks], **options) as client:  # a second process
        await ask(client.session, "tasks/update", taskId=tasks.made[0], inputResponses=filled)
        task = await task_of(client.session, tasks.made[0], "completed")
        assert task["result"]["structuredContent"]["output"].endswith("It is done.")
