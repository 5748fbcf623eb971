"""`helix mcp` as another program starts it. Agents of a local store, of a service and of a stage are the same tools."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.integration.test_cli_everywhere import Service
from tests.support.command_line import CommandLine
from tests.support_mcp_server import Tasks, ask, client_of

from helix.cli.mcp import open_source
from helix.cli.where import Where
from helix.mcp import make_server

pytestmark = pytest.mark.slow

HELIX = [sys.executable, "-m", "helix.cli", "mcp"]


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path / "service.db")
    yield running
    running.stop()


def started(cli: CommandLine, *words: str, key: str | None = None, **options: Any) -> Any:
    """Start a client of the command over its standard streams."""
    command, *arguments = [*HELIX, *words]
    given = {**cli.environment, **({} if key is None else {"HELIX_KEY": key})}
    server = StdioServerParameters(command=command, args=arguments, env=given, cwd=cli.folder)
    return Client(stdio_client(server), **options)


async def test_a_client_listens_to_a_task_over_standard_streams(cli: CommandLine) -> None:
    words, tasks = ["--db", "here.db", "--model", "demo", "--agent", "agents.py:desk"], Tasks()
    async with asyncio.timeout(60), started(cli, *words, mode="2026-07-28", extensions=[tasks]) as client:
        await client.call_tool("desk", {"message": "refund order 7"})
        session_id, _, run_id = tasks.made[0].partition("/")
        listening = asyncio.create_task(
            ask(client.session, "subscriptions/listen", notifications={"taskIds": tasks.made})
        )
        waiting = await tasks.changes.get()
        assert (waiting["taskId"], waiting["status"]) == (tasks.made[0], "working")
        assert "Allow the call of" in waiting["statusMessage"]
        place = {"session_id": session_id, "run_id": run_id}
        call_id = (await client.call_tool("helix__wait", place)).structured_content["pending"][0]["call_id"]
        await client.call_tool("helix__answer", {**place, "call_id": call_id, "approved": True})
        while (task := await tasks.changes.get())["status"] != "completed":
            assert task["status"] == "working"
        assert "io.modelcontextprotocol/subscriptionId" in (await listening)["_meta"]


@pytest.mark.parametrize("pending", ["", '{"jsonrpc": '], ids=["idle", "in a line"])
def test_ctrl_c_ends_it_while_standard_input_is_open(cli: CommandLine, pending: str) -> None:
    """The command runs in a terminal, or under a program that has not closed its pipe."""
    words = [*HELIX, "--db", "here.db", "--model", "demo", "--agent", "agents.py:desk"]
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}) + "\n"
    with subprocess.Popen(
        words, cwd=cli.folder, env=cli.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(hello + pending)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(30) == 130
        finally:
            process.kill()


def test_ctrl_c_ends_it_in_a_terminal(cli: CommandLine) -> None:
    words = ["-m", "helix.cli", "mcp", "--db", "here.db", "--model", "demo", "--agent", "agents.py:desk"]
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    process = pexpect.spawn(sys.executable, words, cwd=cli.folder, env=cli.environment, timeout=30, echo=False)
    process.sendline(hello)
    process.expect("serverInfo")
    process.sendintr()
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == 130


async def test_agents_of_the_project_are_tools_over_standard_streams(cli: CommandLine) -> None:
    """The tool of `desk` prints, but its output is not on the wire."""
    words = ["--db", "here.db", "--model", "demo", "--agent", "agents.py:desk", "--agent", "agents.py:talker"]
    async with started(cli, *words) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed[:2] == ["desk", "talker"]
        paused = (await client.call_tool("desk", {"message": "refund order 7"})).structured_content
        assert paused["status"] == "paused"
        ids = {name: paused[name] for name in ("session_id", "run_id")}
        answer = {**ids, "call_id": paused["pending"][0]["call_id"], "approved": True}
        done = (await client.call_tool("helix__answer", answer)).structured_content
        assert done["status"] == "completed"
    async with started(cli, *words) as client:  # a second process
        found = (await client.call_tool("helix__wait", ids)).structured_content
        assert found == done


async def test_agents_of_a_service_are_tools(cli: CommandLine, service: Service) -> None:
    async with started(cli, "--url", service.url, "--agent", "talker", key=service.key) as client:
        assert [tool.name for tool in (await client.list_tools()).tools][:2] == ["talker", "helix__wait"]
        said = (await client.call_tool("talker", {"message": "hello"})).structured_content
        assert said["status"] == "completed"
    listed = await asyncio.to_thread(cli.process, "sessions", "--url", service.url, "--key", service.key, "--json")
    assert said["session_id"] in listed.out


async def test_agents_of_a_stage_are_tools(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.cli.where.aws_client", lambda *_: service)
    async with open_source(Where(stage="there"), [], None) as source, Client(make_server(source)) as client:
        assert {"desk", "talker"} <= {tool.name for tool in (await client.list_tools()).tools}
        said = (await client.call_tool("talker", {"message": "hello"})).structured_content
        assert said["status"] == "completed"


async def test_over_http_the_token_is_asked_for(cli: CommandLine) -> None:
    with cli.started(
        "mcp", "--db", "here.db", "--model", "demo", "--agent", "agents.py:talker", "--http", "0"
    ) as command:
        found = re.search(r"(http://\S+/mcp) .* Bearer (\S+)", command.until("Bearer"))
        assert found is not None
        url, token = found.groups()
        async with client_of(url, token) as client:
            assert (await client.call_tool("talker", {"message": "hello"})).structured_content["status"] == "completed"
        with pytest.raises(BaseException) as refused:
            async with client_of(url, f"{token}x"):
                pass
        assert "401" in str(refused.value) or isinstance(refused.value, BaseExceptionGroup)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--agent", "agents.py:nobody"], "there is no agent 'nobody'"),
        (["--db", "here.db"], "there are no agents here"),
        (["--url", "ws://127.0.0.1:9", "--model", "demo"], "--model is for agents that run on this machine"),
        (["--url", "http://127.0.0.1:9"], "must be a WebSocket URL"),
        (["--token", "t", "--agent", "agents.py:talker"], "--token is for --http"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(cli: CommandLine, words: list[str], why: str) -> None:
    assert why in cli("mcp", *words).refusal


def test_a_port_that_is_taken_is_said_in_one_line(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["--agent", "agents.py:talker", "--model", "demo", "--http", port]
        assert f"port {port} of 127.0.0.1 cannot be served" in cli("mcp", *words).refusal
