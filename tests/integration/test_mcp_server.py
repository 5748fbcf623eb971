"""Agents as MCP tools, through the package `mcp`'s own client over HTTP: calls, questions, tasks, owners, cancellation."""

import asyncio
import contextlib
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

import httpx2
from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Route
from tests.support_gateway import BRISK, executor_of, key_for, keyed
from tests.support_mcp_server import Tasks, ask, client_of, on_http, task_of
from tests.support_run import Gate, Text, World, a_tool, agent, call, calls, gated

from helix.client.socket import SocketLink
from helix.core.functions import AgentClient
from helix.core.registry import AgentRegistry
from helix.gateway.loopback import LoopbackGateway
from helix.mcp import LinkSource, app, make_server
from helix.runtime.system import SystemClock, SystemIds

ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


class Verdict(BaseModel):
    good: bool
    why: str


def judge() -> Any:
    return agent("judge", output_schema=Verdict, description="Judges.")


def buyer(done: list[str]) -> Any:
    async def order(asked: Text, context: Any) -> str:
        done.append(asked.text)
        return f"ordered {asked.text}"

    return agent("buyer", tools=[a_tool("order", order, input_schema=Text, require_approval=True)])


ORDER = [calls(call("order", text="tea")), "Tea is on its way."]


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
        for arguments in ({}, {"session_id": "ses_1", "run_id": None}, {"session_id": "ses_1", "run_id": "run_1"}):
            assert (await client.call_tool("helix__wait", arguments)).is_error, arguments
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


def person(*forms: ElicitResult) -> tuple[Any, list[str]]:
    """Who fills in these forms, one after the other, and what they were asked."""
    left, asked = list(forms), list[str]()

    async def fill(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return left.pop(0)

    return fill, asked


@ERAS
@pytest.mark.parametrize(
    ("filled", "ordered"),
    [
        (ElicitResult(action="accept", content={"approve": True}), ["tea"]),
        (ElicitResult(action="accept", content={"approve": False, "reason": "no"}), []),
        (ElicitResult(action="decline"), []),
        (ElicitResult(action="accept", content={"approve": True, "arguments": '{"text": "milk"}'}), ["milk"]),
        (ElicitResult(action="accept", content={"approve": True, "arguments": " "}), ["tea"]),
    ],
)
async def test_a_call_asks_the_person_and_goes_on(mode: str, filled: ElicitResult, ordered: list[str]) -> None:
    done: list[str] = []
    fill, asked = person(filled)
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode, elicitation_callback=fill) as client:
            assert "helix__answer" not in [tool.name for tool in (await client.list_tools()).tools]
            result = (await client.call_tool("buyer", {"message": "tea"})).structured_content
    assert (result["output"], done) == ("Tea is on its way.", ordered)
    assert asked == ['Allow the call of order with {"text":"tea"}?']


@ERAS
async def test_without_forms_the_answer_is_a_tool(mode: str) -> None:
    done: list[str] = []
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode) as client:
            paused = (await client.call_tool("buyer", {"message": "tea"})).structured_content
            assert paused["status"] == "paused"
            (pending,) = paused["pending"]
            assert (pending["tool_name"], pending["arguments"]) == ("order", {"text": "tea"})
            place = {name: paused[name] for name in ("session_id", "run_id")}
            wrong = await client.call_tool("helix__answer", {**place, "call_id": "other", "approved": True})
            assert wrong.is_error
            assert done == []
            given = {**place, "call_id": pending["call_id"], "approved": True}
            result = (await client.call_tool("helix__answer", given)).structured_content
            assert (result["status"], result["output"], done) == ("completed", "Tea is on its way.", ["tea"])
            assert (await client.call_tool("helix__answer", given)).is_error


@pytest.mark.parametrize(
    "filled",
    [
        ElicitResult(action="cancel"),
        ElicitResult(action="accept", content={}),
        ElicitResult(action="accept", content={"approve": "yes"}),
        ElicitResult(action="accept", content={"approve": True, "arguments": "{"}),
        ElicitResult(action="accept", content={"approve": True, "arguments": "[]"}),
        ElicitResult(action="accept", content={"approve": True, "arguments": '{"text": 7}'}),
    ],
)
async def test_a_form_that_says_nothing_leaves_the_call_waiting(filled: ElicitResult) -> None:
    done: list[str] = []
    fill, _ = person(filled)
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="legacy", elicitation_callback=fill) as client:
            result = (await client.call_tool("buyer", {"message": "tea"})).structured_content
            assert (result["status"], done) == ("paused", [])


async def test_a_task_is_polled_asked_and_answered() -> None:
    done: list[str] = []
    tasks = Tasks()
    fill, _ = person()
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks], elicitation_callback=fill) as client:
            await client.call_tool("buyer", {"message": "tea"})
            (task_id,) = tasks.made
            task = await task_of(client.session, task_id, "input_required")
            ((key, form),) = task["inputRequests"].items()
            assert form["method"] == "elicitation/create"
            for useless in ({"other": {"action": "accept"}}, {key: {"action": "accept"}}, {key: "yes"}, {}):
                await ask(client.session, "tasks/update", taskId=task_id, inputResponses=useless)
            again = await task_of(client.session, task_id, "input_required")
            assert (list(again["inputRequests"]), done) == ([key], [])
            given = {key: {"action": "accept", "content": {"approve": True}}}
            await ask(client.session, "tasks/update", taskId=task_id, inputResponses=given)
            task = await task_of(client.session, task_id, "completed")
            assert task["result"]["structuredContent"]["output"] == "Tea is on its way."
            assert done == ["tea"]
            await ask(client.session, "tasks/update", taskId=task_id, inputResponses=given)
            await ask(client.session, "tasks/cancel", taskId=task_id)
            assert await task_of(client.session, task_id, "completed") == task


async def test_a_task_that_is_cancelled_interrupts_its_run() -> None:
    gate, tasks = Gate(), Tasks()
    async with executor_of([gated(gate, "Done.")]) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks]) as client:
            await client.call_tool("helper", {"message": "go"})
            await gate.reached()
            await ask(client.session, "tasks/cancel", taskId=tasks.made[0])
            await task_of(client.session, tasks.made[0], "cancelled")


async def test_tasks_are_for_long_runs_and_for_those_who_declare_them() -> None:
    tasks = Tasks()
    async with executor_of(["One.", "Two."]) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks]) as client:
            short = await client.call_tool("helper", {"message": "go"})
            assert (short.structured_content["output"], tasks.made) == ("One.", [])
        async with client_of(url, mode="2026-07-28") as client:
            result = (await client.call_tool("helper", {"message": "go"})).structured_content
            task_id = f"{result['session_id']}/{result['run_id']}"
            with pytest.raises(MCPError, match="for clients that declare"):
                await ask(client.session, "tasks/get", taskId=task_id)
        async with client_of(url, mode="legacy") as client:
            with pytest.raises(MCPError, match="Method not found"):
                await ask(client.session, "tasks/get", taskId=task_id)


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
    """Two clients number their requests alike."""
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


@ERAS
async def test_another_users_session_is_not_found(mode: str) -> None:
    done: list[str] = []
    async with executor_of([*ORDER, "Hi."], buyer(done)) as executor:
        ada, bob = await key_for(executor, "ada"), await key_for(executor, "bob")
        async with on_http(app(executor, authoriser=keyed(executor))) as url:
            async with client_of(url, ada, mode=mode) as client:
                paused = (await client.call_tool("buyer", {"message": "tea"})).structured_content
            place = {name: paused[name] for name in ("session_id", "run_id")}
            answer = {**place, "call_id": paused["pending"][0]["call_id"], "approved": True}
            async with client_of(url, bob, mode=mode) as client:
                nothing = {"session_id": "ses_0", "run_id": place["run_id"]}
                unknown = await client.call_tool("helix__wait", nothing)
                for name, given in (
                    ("helix__wait", place),
                    ("helix__answer", answer),
                    ("helix__interrupt", place),
                    ("buyer", {"message": "hi", "session_id": place["session_id"]}),
                ):
                    refused = await client.call_tool(name, given)
                    assert refused.is_error
                    text = refused.content[0].text.replace(place["session_id"], "ses_0")
                    assert text == unknown.content[0].text
            assert done == []
            state = await executor.sessions.get(place["session_id"])
            assert (state.status, state.user_id, state.turn) == ("paused", "ada", 1)


async def test_another_users_task_is_not_found() -> None:
    gate = Gate()
    async with executor_of([gated(gate, "One.")]) as executor:
        ada, bob = await key_for(executor, "ada"), await key_for(executor, "bob")
        async with on_http(app(executor, authoriser=keyed(executor))) as url:
            tasks = Tasks()
            async with client_of(url, ada, mode="2026-07-28", extensions=[tasks]) as client:
                await client.call_tool("helper", {"message": "go"})
                gate.open()
                await task_of(client.session, tasks.made[0], "completed")
            async with client_of(url, bob, mode="2026-07-28", extensions=[Tasks()]) as client:
                for task_id in (tasks.made[0], "ses_0/run_0", "nonsense", "", "/", "a/b/c"):
                    for method, more in (("get", {}), ("update", {"inputResponses": {}}), ("cancel", {})):
                        with pytest.raises(MCPError):
                            await ask(client.session, f"tasks/{method}", taskId=task_id, **more)


async def test_a_task_survives_a_restart_of_the_server_in_the_midst_of_its_run(tmp_path: Path) -> None:
    world, gate, tasks = World("sqlite", tmp_path), Gate(), Tasks()
    sock = socket.create_server(("127.0.0.1", 0))
    address = sock.getsockname()
    registry = AgentRegistry()
    registry.register(agent("helper"))
    first = world.executor([gated(gate, "Never.")], registry=registry)
    async with on_http(app(first), sock) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks]) as client:
            await client.call_tool("helper", {"message": "go"})
            await gate.reached()
    await first.close()
    second = world.executor(["Done."], registry=registry)
    async with on_http(app(second), socket.create_server(address)) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks]) as client:
            task = await task_of(client.session, tasks.made[0], "completed")
            assert task["result"]["structuredContent"]["output"] == "Done."
            place = {name: task["result"]["structuredContent"][name] for name in ("session_id", "run_id")}
        async with client_of(url, mode="legacy") as client:
            found = (await client.call_tool("helix__wait", place)).structured_content
            assert (found["status"], found["output"]) == ("completed", "Done.")
    await world.close()


async def test_a_cancelled_server_interrupts_no_run(tmp_path: Path) -> None:
    """A call is in flight when the server ends: the run is not interrupted, and the next server goes on with it."""
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


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


async def test_a_repeat_of_a_request_starts_no_second_run() -> None:
    """The same id in the same MCP session, as a client sends it that lost the answer."""
    async with executor_of(["One.", "Two."]) as executor, on_http(app(executor)) as url, httpx2.AsyncClient() as http:
        opened = await http.post(url, json=INITIALIZE, headers=HEADERS)
        headers = {**HEADERS, "mcp-session-id": opened.headers["mcp-session-id"]}
        await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
        asked |= {"params": {"name": "helper", "arguments": {"message": "go"}}}
        first, again = [await http.post(url, json=asked, headers=headers) for _ in range(2)]
        assert '"output":"One."' in first.text.replace(" ", "")
        assert first.text.partition("data:")[2] == again.text.partition("data:")[2]
        other = {**asked, "params": {"name": "helper", "arguments": {"message": "other"}}}
        assert "Two." in (await http.post(url, json=other, headers=headers)).text
        assert len((await executor.sessions.list_sessions()).sessions) == 2


async def test_who_proves_nothing_is_not_answered() -> None:
    async with executor_of(["One."]) as executor:
        key = await key_for(executor, "ada")
        async with on_http(app(executor, authoriser=keyed(executor))) as url, httpx2.AsyncClient() as http:
            for token in (None, "helix_wrong", key[:-1], key + "x", "x" * 9000):
                given = {} if token is None else {"authorization": f"Bearer {token}"}
                answer = await http.post(url, json=INITIALIZE, headers={**HEADERS, **given})
                assert answer.status_code == 401
                assert "www-authenticate" in answer.headers
            good = {**HEADERS, "authorization": f"Bearer {key}"}
            opened = await http.post(url, json=INITIALIZE, headers=good)
            assert opened.status_code == 200
            other = await key_for(executor, "bob")
            stolen = {**HEADERS, "authorization": f"Bearer {other}", "mcp-session-id": opened.headers["mcp-session-id"]}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            assert (await http.post(url, json=ping, headers=stolen)).status_code == 404


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_other_names_of_this_machine_are_not_answered(version: str) -> None:
    async with executor_of(["One."]) as executor, httpx2.AsyncClient() as http:
        async with on_http(app(executor, origins=["https://app.example.org"])) as url:
            headers = {**HEADERS, "mcp-protocol-version": version}

            async def status(**more: str) -> int:
                return (await http.post(url, json=INITIALIZE, headers={**headers, **more})).status_code

            assert await status(host="evil.example.org") == 421
            assert await status(host="evil.example.org:80") == 421
            assert await status(origin="https://evil.example.org") == 403
            assert await status(origin="null") == 403
            assert await status(origin="https://app.example.org") not in (403, 421)
            assert await status() not in (403, 421)


async def test_an_app_starts_without_a_lifespan_and_in_another_app() -> None:
    async with executor_of(["One."]) as executor:
        served = app(executor)
        outer = Starlette(routes=[Route("/mcp", served)])
        async with on_http(outer) as url, client_of(url) as client:
            assert (await client.call_tool("helper", {"message": "go"})).structured_content["output"] == "One."
        await served.aclose()
        with pytest.raises(RuntimeError, match="was closed"):
            await served({"type": "http", "headers": []}, _never, _never)


async def _never(*_: Any) -> Any:
    raise AssertionError("nothing is read or sent")


async def test_a_lost_service_is_an_error_and_the_next_one_is_found() -> None:
    """As `helix mcp --url` sees it: the service is gone for longer than a client waits, and comes back."""
    urls, settings = [], replace(BRISK, give_up_s=0.1, open_s=1)
    source = LinkSource(lambda: SocketLink(urls[-1], None, settings, SystemClock(), SystemIds()))
    async with executor_of(["One.", "Two."]) as executor, Client(make_server(source)) as client:
        async with LoopbackGateway(executor) as gateway:
            urls.append(gateway.url)
            assert (await client.call_tool("helper", {"message": "a"})).structured_content["output"] == "One."
        with pytest.raises(MCPError, match="could not do this now"):
            while True:  # until the link gives up, its requests wait and fail
                await client.call_tool("helper", {"message": "b"})
        async with LoopbackGateway(executor) as gateway:
            urls.append(gateway.url)
            assert (await client.call_tool("helper", {"message": "c"})).structured_content["output"] == "Two."
        await source.close()
