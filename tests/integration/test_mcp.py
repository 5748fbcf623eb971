"""MCP tools on a real MCP server process, over stdio and streamable HTTP."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from pydantic import ValidationError

from helix.adapters.mcp import MCPServer, mcp_tools
from helix.core.agents import Agent
from helix.core.config import LLMConfig
from helix.core.context import create_tool_context
from helix.core.errors import DefinitionError, ToolError
from helix.core.tools import Tool

pytestmark = pytest.mark.slow

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"


def stdio(**options: Any) -> MCPServer:
    return MCPServer(command=sys.executable, args=[str(SERVER), "stdio"], name="test", **options)


class HttpServer:
    """The server process, on a free loopback port. It ends by itself when its input is closed."""

    def __init__(self, port: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), "http", str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def stop(self) -> None:
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(timeout=20)


@pytest.fixture
def http() -> Iterator[HttpServer]:
    server = HttpServer()
    yield server
    server.stop()


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest) -> MCPServer:
    if request.param == "stdio":
        return stdio()
    return MCPServer(url=request.getfixturevalue("http").url, headers={"X-Test": "1"}, name="test")


async def call(tool: Tool[Any], **arguments: Any) -> Any:
    """Call a tool as the engine does: validate, then execute."""
    assert tool.execute is not None
    context = create_tool_context(agent_id="ses_1", agent_type="agent")
    return await tool.execute(tool.input_schema.model_validate(arguments), context)


def named(tools: list[Tool[Any]]) -> dict[str, Tool[Any]]:
    return {tool.name: tool for tool in tools}


async def test_tools_are_listed_and_called(server: MCPServer) -> None:
    async with server:
        tools = named(await server.tools())
        assert await call(tools["add"], a=2, b=3) == {"sum": 5}
        assert await call(tools["shout"], text="hello") == "HELLO"
        assert await call(tools["length"], points=[{"x": 4}]) == "1 m, first x 4"
        picture = await call(tools["picture"])
    assert picture[0] == "a pixel" and (picture[1].media_type, picture[1].source[:4]) == ("image/png", b"\x89PNG")


async def test_definitions_carry_the_servers_words() -> None:
    async with stdio() as server:
        tools = named(await server.tools())
    schema: Any = tools["add"].parameters
    assert schema["required"] == ["a", "b"] and schema["properties"]["a"]["type"] == "integer"
    assert "$defs" in tools["length"].parameters
    assert tools["add"].description == "Add two numbers."
    assert tools["shout"].on_unknown == "retry" and tools["die_once"].on_unknown == "retry"
    assert tools["add"].on_unknown == "skip"
    Agent(name="a", system_prompt="p", llm_config=LLMConfig(model="m"), tools=list(tools.values()))


async def test_names_fit_the_providers_rule() -> None:
    async with stdio() as server:
        tools = named(await server.tools(prefix="x" * 60, only=["add", "weird name: ünïcode"]))
        assert len(tools) == 2 and all(len(name) <= 64 for name in tools)
        weird = named(await server.tools(only=["weird name: ünïcode"]))
        assert list(weird) == ["weird_name___n_code"]
        assert await call(weird["weird_name___n_code"]) == "weird"
        assert list(named(await server.tools(prefix="docs", only=["add"]))) == ["docs_add"]
        with pytest.raises(DefinitionError, match="only: no tool 'nothing'"):
            await server.tools(only=["nothing"])


async def test_wrong_arguments_never_leave_the_process() -> None:
    async with stdio() as server:
        tools = named(await server.tools())
        for wrong, complaint in (
            ({"a": "2", "b": 3}, "arguments.a: must be integer"),
            ({"a": 2}, "arguments.b: is req"),
        ):
            with pytest.raises(ValidationError, match=complaint):
                await call(tools["add"], **wrong)


async def test_a_failing_tool_is_a_failed_result(server: MCPServer) -> None:
    async with server:
        tools = named(await server.tools())
        with pytest.raises(ToolError, match="no such customer"):
            await call(tools["fail"], why="no such customer")
        assert await call(tools["shout"], text="on") == "ON"


async def test_a_slow_call_times_out(server: MCPServer) -> None:
    server.timeout_s = 0.3
    async with server:
        tools = named(await server.tools())
        with pytest.raises(ToolError, match=r"within 0\.3 s: outcome unknown"):
            await call(tools["slow"], seconds=1.0)


async def test_tools_need_no_open_connection() -> None:
    """This is the case of a run that resumes in another process: the listing is data, and the first call connects."""
    async with stdio() as first:
        listing = json.loads(json.dumps(await first.listing()))
    server = stdio()
    tools = named(mcp_tools(server, listing))
    assert server._connection is None
    assert await call(tools["shout"], text="later") == "LATER"
    await server.close()
    assert await call(tools["shout"], text="again") == "AGAIN"
    await server.close()


def test_tools_can_be_defined_without_an_event_loop() -> None:
    tools = named(mcp_tools(stdio(), only=["add", "pid"]))
    assert sorted(tools) == ["add", "pid"]
    pids = [asyncio.run(call(tools["pid"])) for _ in range(2)]
    assert pids[0] != pids[1], "each event loop opens its own connection"


async def test_parallel_calls_share_one_connection(server: MCPServer) -> None:
    tools = named(await server.tools())
    results = await asyncio.gather(*(call(tools["add"], a=n, b=n) for n in range(20)))
    assert results == [{"sum": 2 * n} for n in range(20)]
    assert len(set(await asyncio.gather(*(call(tools["pid"]) for _ in range(5))))) == 1
    await server.close()


async def test_a_cancelled_call_leaves_the_connection_usable() -> None:
    async with stdio() as server:
        tools = named(await server.tools())
        waiting = asyncio.create_task(call(tools["slow"], seconds=0.5))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await call(tools["shout"], text="ok") == "OK"


@pytest.mark.slow
async def test_a_server_that_died_between_calls_is_started_again() -> None:
    async with stdio() as server:
        tools = named(await server.tools())
        first = await call(tools["pid"])
        assert server._connection is not None
        os.kill(int(first), signal.SIGKILL)
        await server._connection.lost.wait()
        assert await call(tools["add"], a=1, b=1) == {"sum": 2}
        assert await call(tools["pid"]) != first


@pytest.mark.slow
async def test_a_repeatable_call_survives_the_servers_death(tmp_path: Path) -> None:
    async with stdio() as server:
        tools = named(await server.tools())
        assert await call(tools["die_once"], marker=str(tmp_path / "marker")) == "survived"


@pytest.mark.slow
async def test_another_call_is_never_sent_twice(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    async with stdio() as server:
        tools = named(await server.tools())
        with pytest.raises(ToolError, match="whether 'charge_once' was executed is unknown"):
            await call(tools["charge_once"], marker=str(marker))
        assert marker.read_text() == "called\n"
        assert await call(tools["charge_once"], marker=str(marker)) == "survived"


async def test_an_http_server_that_was_restarted_is_reached_again() -> None:
    process = HttpServer()
    async with MCPServer(url=process.url) as server:
        tools = named(await server.tools())
        first = await call(tools["pid"])
        process.stop()
        with pytest.raises(ToolError, match=r"cannot be reached|connection lost"):
            await call(tools["add"], a=1, b=1)
        process = HttpServer(process.port)
        assert await call(tools["add"], a=1, b=1) == {"sum": 2}
        assert await call(tools["pid"]) != first
    process.stop()


async def test_a_server_that_cannot_be_started_says_so() -> None:
    server = MCPServer(command="/nonexistent/server")
    with pytest.raises(ToolError, match="'server' cannot be reached: FileNotFoundError"):
        await server.tools()
    with pytest.raises(ToolError, match="cannot be reached: TimeoutError"):
        await MCPServer(
            command=sys.executable, args=["-c", "import sys; sys.stdin.read()"], connect_timeout_s=0.5
        ).tools()


async def test_environment_is_given_and_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "secret")
    async with stdio(env={"GIVEN": "yes"}) as server:
        tools = named(await server.tools())
        assert await call(tools["environment"], name="GIVEN") == "yes"
        assert await call(tools["environment"], name="MY_SECRET") == ""


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "command"),
        ({"command": "x", "url": "http://x"}, "command"),
        ({"command": "x", "headers": {"a": "b"}}, "headers"),
        ({"url": "http://x", "env": {"a": "b"}}, "env"),
    ],
)
def test_wrong_definitions_name_the_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        MCPServer(**options)
    assert caught.value.field == field


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(DefinitionError, match=r"pip install 'helix-agents\[mcp\]'"):
        mcp_tools(stdio())
