"""Agents as MCP tools, called by the client of the package `mcp` over HTTP: schemas, results, progress, cancellation."""

import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel
from tests.support_gateway import BRISK, executor_of
from tests.support_mcp_server import ERAS, client_of, on_http
from tests.support_run import Gate, World, a_tool, agent, call, calls, gated

from helix.adapters.system import SystemClock, SystemIds
from helix.client.socket import SocketLink
from helix.core.functions import AgentClient
from helix.core.registry import AgentRegistry
from helix.gateway.loopback import LoopbackGateway
from helix.mcp import LinkSource, app, make_server


class Verdict(BaseModel):
    good: bool
    why: str


def judge() -> Any:
    return agent("judge", output_schema=Verdict, description="Judges.")


@ERAS
async def test_each_agent_is_a_tool_whose_result_fits_its_schema(mode: str) -> None:
    registry = AgentRegistry()

    @AgentClient(registry=registry).agent("adder")
    async def adder(a: int, b: int) -> int:
        """Adds."""
        return a + b

    script = [calls(call("__finish__", good=True, why="it is")), "Hi."]
    async with executor_of(script, judge(), adder, agent("helper")) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"adder", "judge", "helper", "helix__wait", "helix__interrupt", "helix__answer"}
            assert tools["adder"].input_schema["properties"].keys() == {"a", "b"}
            assert tools["judge"].description == "Judges."
            result = await client.call_tool("judge", {"message": "tea?"})
            assert not result.is_error
            assert result.structured_content["output"] == {"good": True, "why": "it is"}
            said = (await client.call_tool("helper", {"message": "hi"})).structured_content
            assert (said["status"], said["output"]) == ("completed", "Hi.")
            summed = (await client.call_tool("adder", {"a": 2, "b": 3})).structured_content
            assert summed["output"] == 5


@ERAS
async def test_a_conversation_goes_on_by_its_session(mode: str) -> None:
    async with executor_of(["One.", "Two."]) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode) as client:
            first = (await client.call_tool("helper", {"message": "a"})).structured_content
            second = await client.call_tool("helper", {"message": "b", "session_id": first["session_id"]})
            assert second.structured_content["output"] == "Two."
            assert (await executor.sessions.get(first["session_id"])).turn == 2


@ERAS
async def test_what_a_model_can_put_right_is_a_result_and_what_does_not_exist_an_error(mode: str) -> None:
    async with executor_of(["One."]) as executor, on_http(app(executor)) as url, client_of(url, mode=mode) as client:
        for arguments in (
            {},
            {"message": 3},
            {"message": ""},
            {"message": "a", "more": 1},
            {"message": "a", "session_id": "no such/../session"},
            {"message": "a", "session_id": 7},
            {"message": "x" * 200_000},
        ):
            assert (await client.call_tool("helper", arguments)).is_error, arguments
        for name in ("nobody", "__proto__", "helix__nothing", "../helper", ""):
            with pytest.raises(MCPError, match="there is no tool"):
                await client.call_tool(name, {"message": "a"})
        for given in ({}, {"session_id": "ses_1", "run_id": None}, {"session_id": "ses_1", "run_id": "run_1"}):
            assert (await client.call_tool("helix__wait", given)).is_error, given
        assert not (await executor.sessions.list_sessions()).sessions


@ERAS
async def test_progress_says_what_the_run_does(mode: str) -> None:
    gate, said = Gate(), []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        said.append((progress, message))
        gate.open()

    async def look(asked: Any, context: Any) -> str:
        return "seen"

    who = agent("worker", tools=[a_tool("look", look)])
    script = [calls(call("look")), gated(gate, "Done.")]
    async with executor_of(script, who) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode) as client:
            result = await client.call_tool("worker", {"message": "go"}, progress_callback=listen)
    assert result.structured_content["output"] == "Done."
    assert "worker: look begins" in [message for _, message in said]
    numbers = [number for number, _ in said]
    assert numbers == sorted(set(numbers))


@ERAS
async def test_a_call_that_takes_long_answers_with_what_to_wait_for(mode: str) -> None:
    gate = Gate()
    async with executor_of([gated(gate, "Done.")]) as executor, on_http(app(executor, wait_s=0.05)) as url:
        async with client_of(url, mode=mode) as client:
            begun = (await client.call_tool("helper", {"message": "go"})).structured_content
            assert begun["status"] == "running"
            place = {name: begun[name] for name in ("session_id", "run_id")}
            assert (await client.call_tool("helix__wait", place)).structured_content["status"] == "running"
            gate.open()
            found = begun
            while found["status"] == "running":
                found = (await client.call_tool("helix__wait", place)).structured_content
            assert found == {**place, "status": "completed", "output": "Done."}


@ERAS
async def test_a_call_that_is_cancelled_interrupts_its_run(mode: str) -> None:
    gate = Gate()
    async with executor_of([gated(gate, "Done.")]) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode) as client:
            calling = asyncio.create_task(client.call_tool("helper", {"message": "go"}))
            await gate.reached()
            calling.cancel()
            await asyncio.wait({calling})
            (session,) = (await executor.sessions.list_sessions()).sessions
            handle = await executor.get_handle(agent("helper"), session.session_id)
            assert (await handle.result(10)).status == "interrupted"


@ERAS
async def test_a_cancelled_call_interrupts_no_run_but_its_own(mode: str) -> None:
    """Two clients use the same request numbers."""
    gates = [Gate(), Gate()]
    script = [gated(gates[0], "One."), gated(gates[1], "Two.")]
    async with executor_of(script) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode) as one, client_of(url, mode=mode) as two:
            given_up = asyncio.create_task(one.call_tool("helper", {"message": "go"}))
            await gates[0].reached()
            (first,) = (await executor.sessions.list_sessions()).sessions
            waited_for = asyncio.create_task(two.call_tool("helper", {"message": "go"}))
            await gates[1].reached()
            given_up.cancel()
            await asyncio.wait({given_up})
            handle = await executor.get_handle(agent("helper"), first.session_id)
            assert (await handle.result(10)).status == "interrupted"
            gates[1].open()
            assert (await waited_for).structured_content["output"] == "Two."


@ERAS
async def test_who_gives_up_waiting_interrupts_nothing(mode: str) -> None:
    gate, waiting = Gate(), asyncio.Event()

    async def look(asked: Any, context: Any) -> str:
        return "seen"

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        waiting.set()

    who = agent("worker", tools=[a_tool("look", look)])
    script = [calls(call("look")), gated(gate, "Done.")]
    async with executor_of(script, who) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode) as client:
            handle = await executor.execute(who, "go")
            ids = {"session_id": handle.session_id, "run_id": handle.run_id}
            calling = asyncio.create_task(client.call_tool("helix__wait", ids, progress_callback=listen))
            await waiting.wait()
            calling.cancel()
            await asyncio.wait({calling})
            gate.open()
            assert (await handle.result(10)).output == "Done."


async def test_a_cancelled_server_interrupts_no_run(tmp_path: Path) -> None:
    """A call is in flight when the server ends. The run is not interrupted, and the next server continues it."""
    world, gate = World("sqlite", tmp_path), Gate()
    registry = AgentRegistry()
    registry.register(agent("helper"))
    first = world.executor([gated(gate, "Never.")], registry=registry)
    async with on_http(app(first)) as url:
        calling = asyncio.create_task(_call(url))
        await gate.reached()
    with contextlib.suppress(BaseException):
        await calling
    (session,) = (await first.sessions.list_sessions()).sessions
    await first.close()
    second = world.executor(["Done."], registry=registry)
    async with on_http(app(second)) as url, client_of(url) as client:
        place = {"session_id": session.session_id, "run_id": session.current_run_id}
        assert (await client.call_tool("helix__wait", place)).structured_content["output"] == "Done."
    await world.close()


async def _call(url: str) -> None:
    async with client_of(url, mode="2026-07-28") as client:
        await client.call_tool("helper", {"message": "go"})


async def test_a_lost_service_is_an_error_and_the_next_one_is_found() -> None:
    """The service is gone for longer than a client waits, and returns, as with `helix mcp --url`."""
    urls: list[str] = []
    settings = replace(BRISK, give_up_s=0.1, open_s=1)
    source = LinkSource(lambda: SocketLink(urls[-1], None, settings, SystemClock(), SystemIds()))
    async with executor_of(["One.", "Two."]) as executor, Client(make_server(source)) as client:
        async with LoopbackGateway(executor) as gateway:
            urls.append(gateway.url)
            assert (await client.call_tool("helper", {"message": "a"})).structured_content["output"] == "One."
        with pytest.raises(MCPError, match="could not do this now"):
            while True:  # until the link gives up, its requests wait and then fail
                await client.call_tool("helper", {"message": "b"})
        async with LoopbackGateway(executor) as gateway:
            urls.append(gateway.url)
            assert (await client.call_tool("helper", {"message": "c"})).structured_content["output"] == "Two."
        await source.close()
