"""Tools that a run declares: the model sees them in that run and its continuations only, and the caller answers them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.test_damaged_reads import opened
from tests.support_run import Gate, World, a_tool, agent, call, calls, gated, result_of, results

from helix import (
    Agent,
    Confirmation,
    FrontendTool,
    LocalExecutor,
    MemoryStateStore,
    ScriptedModel,
    create_sub_agent_tool,
)
from helix.adapters.system import SystemClock, SystemIds
from helix.cli.sessions.files import _export
from helix.core.errors import InvalidInputError
from helix.core.json import dumps, loads
from helix.core.request_heads import head_row
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Key, Row
from helix.services.segments import SegmentStreams
from helix.sessions.exports import Export, read_export
from helix.sessions.imports import import_session
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import Crash, CrashPoints
from helix.testing.invariants import check_session

S = "ses_page"
MAP: dict[str, Any] = {
    "name": "show_map",
    "description": "Shows a place on the user's map.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}
COLOR = FrontendTool(name="pick_color", description="Lets the user pick a color.")
SHOW = calls(call("show_map", place="Oslo"))


class Seen(ScriptedModel):
    """A scripted model that remembers the names of the tools of each request."""

    def __init__(self, *script: Any) -> None:
        super().__init__(list(script))
        self.tools: list[list[str]] = []

    async def generate_step(self, request: LLMGenerateInput) -> Any:
        self.tools.append([tool.name for tool in request.tools])
        return await super().generate_step(request)


def desk(**fields: Any) -> Agent[Any, Any]:
    look = a_tool("look", lambda arguments, context: "It rains.")
    return agent("desk", **{"tools": [look], "frontend_tools": True, **fields})


async def shown(executor: LocalExecutor, who: Agent[Any, Any], tools: Any = (MAP,), **options: Any) -> Any:
    """Return the handle of a run that waits for the page."""
    handle = await executor.execute(who, "Where?", session_id=S, tools=tools, **options)
    assert (await result_of(handle)).status == "paused"
    return handle


async def test_a_run_waits_for_the_page_and_goes_on_with_its_answer(world: World) -> None:
    model = Seen(SHOW, "There.", "Bye.")
    executor, who = world.executor(model), desk()
    handle = await shown(executor, who, [MAP, COLOR])
    (pending,) = (await result_of(handle)).pending
    assert (pending.kind, pending.tool_name, pending.arguments) == ("client", "show_map", {"place": "Oslo"})
    handle = await handle.answer(pending.call_id, data={"shown": True})
    assert (await result_of(handle)).text == "There."
    await result_of(await executor.execute(who, "Thanks.", session_id=S))
    assert model.tools == [["look", "pick_color", "show_map"]] * 2 + [["look"]]
    assert results((await executor.sessions.get_messages(S)).messages) == ['{"shown":true}']
    await check_session(executor.store, executor.streams, S)


async def test_another_process_answers_and_continues(world: World) -> None:
    who = desk()
    await shown(world.executor([SHOW]), who)
    model = Seen("There.")
    handle = await world.executor(model).resume(who, S, confirmation=Confirmation("call_0", data="ok"))
    assert (await result_of(handle)).text == "There."
    assert model.tools == [["look", "show_map"]]


@pytest.mark.parametrize("mode", ["after_claim", "after_answer"])
async def test_a_run_whose_process_died_keeps_its_tools(mode: str) -> None:
    store, who = MemoryStateStore(), desk()
    points = CrashPoints(("transact:claim_execute:after" if mode == "after_claim" else "transact:stage:after", 0))
    dying = LocalExecutor(
        store=points.store(store),
        streams=points.streams(SegmentStreams(points.store(store))),
        model=ScriptedModel([SHOW]),
    )
    with pytest.raises(Crash):
        await points.unless_crashed(shown(dying, who))
    await check_session(store, SegmentStreams(store), S)
    model = Seen(SHOW, "There.") if mode == "after_claim" else Seen("There.")
    async with LocalExecutor(store=store, model=model, clock=ShiftedClock(3600)) as executor:
        handle = await executor.resume(who, S)
        (pending,) = (await result_of(handle)).pending
        assert (await result_of(await handle.answer(pending.call_id, data="ok"))).text == "There."
    assert all(tools == ["look", "show_map"] for tools in model.tools)


async def test_a_retry_keeps_them_and_a_new_message_does_not(world: World) -> None:
    model = Seen({"error": "down", "code": "broken"}, "Fine.", {"error": "down", "code": "broken"}, "Well.")
    executor, who = world.executor(model), desk()
    handle = await executor.execute(who, "Hi", session_id=S, tools=[MAP])
    assert (await result_of(handle)).status == "failed"
    await result_of(await executor.retry(who, S, mode="from_start"))
    await result_of(await executor.execute(who, "Hi", session_id=S, tools=[MAP]))
    await result_of(await executor.retry(who, S, message="Hello"))
    assert model.tools == [["look", "show_map"]] * 3 + [["look"]]


async def test_a_rewind_and_a_branch_go_on_with_the_tools_of_that_moment(world: World) -> None:
    model = Seen(calls(call("look")), SHOW, "Bye.", *["Again."] * 4)
    executor, who = world.executor(model), desk()
    await shown(executor, who)
    points = (await executor.sessions.list_checkpoints(S)).items
    inside = next(point.id for point in points if point.step == 1)
    await result_of(await executor.execute(who, "Never mind.", session_id=S))
    copy = (await executor.branch(S, inside)).session_id
    await result_of(await executor.resume(who, S, checkpoint_id=inside))
    newest = (await executor.sessions.list_checkpoints(copy)).items[0].id
    await result_of(await executor.resume(who, copy, checkpoint_id=newest))
    await result_of(await executor.resume(who, S, checkpoint_id=inside, tools=[COLOR]))
    await result_of(await executor.resume(who, S, checkpoint_id=inside, message="Go on."))
    own, pages = ["look"], ["look", "show_map"]
    assert model.tools == [pages, pages, own, pages, pages, ["look", "pick_color"], own]
    for session_id in (S, copy):
        await check_session(executor.store, executor.streams, session_id)


async def test_an_export_has_the_tools_and_an_import_checks_them() -> None:
    store, who = MemoryStateStore(), desk()
    async with LocalExecutor(store, model=ScriptedModel([SHOW])) as executor:
        await shown(executor, who)
    async with opened(store) as (client, _):
        export = await _export(client, S)
    other, model = MemoryStateStore(), Seen("There.")
    await take(export.header, export.rows, other)
    async with LocalExecutor(other, model=model) as executor:
        handle = await executor.resume(who, S, confirmation=Confirmation("call_0", data="ok"))
        assert (await result_of(handle)).text == "There."
    assert model.tools == [["look", "show_map"]]
    await check_session(other, SegmentStreams(other), S)
    (ident,) = {row.value["frontend_tools"] for row in export.rows if "frontend_tools" in row.value}
    others = [row for row in export.rows if row.key.sort != f"q#{ident}"]
    with pytest.raises(InvalidInputError, match="needs the request head"):
        await take(export.header, others)
    bad = head_row({"tools": [{**MAP, "name": "no name"}]})
    renamed = [row._replace(value=loads(dumps(row.value).replace(ident, bad.id))) for row in others]
    with pytest.raises(InvalidInputError, match="'no name'"):
        await take(export.header, [*renamed, Row(Key("sessions", S, f"q#{bad.id}"), {"kind": "head", **bad.dump()})])


async def take(header: Any, rows: Any, store: MemoryStateStore | None = None) -> None:
    lines = [*Export(header, sorted(rows, key=lambda row: row.key)).lines()]
    await import_session(store or MemoryStateStore(), read_export(lines), SystemClock(), SystemIds())


async def test_a_waiting_message_declares_the_tools_of_its_own_run(world: World) -> None:
    gate, model = Gate(), Seen()
    script = [gated(gate, calls(call("look"))), "Rain.", SHOW]
    model = Seen(*script)
    executor, who = world.executor(model), desk()
    await executor.execute(who, "Go", session_id=S)
    await gate.reached()
    steering = await executor.execute(who, "Quick!", session_id=S, when_running="steer", tools=[COLOR])
    queued = await executor.execute(who, "Map!", session_id=S, when_running="queue", tools=[MAP])
    gate.open()
    assert (await result_of(queued)).pending[0].tool_name == "show_map"
    assert (await result_of(steering)).text == "Rain."
    assert model.tools == [["look"], ["look"], ["look", "show_map"]]
    await check_session(executor.store, executor.streams, S)


async def test_the_page_s_tools_are_in_the_session_and_never_in_the_shared_head(world: World) -> None:
    executor, who = world.executor([SHOW, "There.", "Bye."]), desk()
    handle = await shown(executor, who, [MAP, COLOR])
    await result_of(await handle.answer("call_0", data="ok"))
    await result_of(await executor.execute(who, "Thanks.", session_id=S, tools=[COLOR, MAP]))
    found = [await executor.sessions.get_context(S, step) for step in (1, 2, 3)]
    assert [[tool.name for tool in one.request.tools] for one in found if one.request] == [
        ["look", "pick_color", "show_map"]
    ] * 3
    heads = [row.key.sort for row in await executor.store.query("sessions", S, start="q#", end="q$")]
    assert len(heads) == 2  # the declaration, and the head of the calls: the order of the page does not matter
    for head in {one.head for one in found}:
        assert not await executor.store.query("control", f"head#{head}")


async def test_a_tool_that_the_agent_has_by_now_is_the_agent_s(world: World) -> None:
    await shown(world.executor([SHOW]), desk())
    own = a_tool("show_map", lambda arguments, context: "mine", description="The agent's own.")
    model = Seen(calls(call("show_map")), "Done.")
    executor = world.executor(model)
    handle = await executor.resume(desk(tools=[own]), S, confirmation=Confirmation("call_0", data="ok"))
    assert (await result_of(handle)).text == "Done."
    assert model.tools == [["show_map"]] * 2
    assert results((await executor.sessions.get_messages(S)).messages) == ["ok", "mine"]


async def test_a_sub_agent_does_not_get_them(world: World) -> None:
    child = agent("child")
    model = ScriptedModel(
        {"desk": [{"sub_agent_calls": [{"agent_type": "child", "input": {"message": "x"}}]}, "Done."], "child": ["Hm."]}
    )
    seen: dict[str, list[str]] = {}

    class Noting(ScriptedModel):
        async def generate_step(self, request: LLMGenerateInput) -> Any:
            seen[request.agent_type] = [tool.name for tool in request.tools]
            return await model.generate_step(request)

    executor = world.executor(Noting([]))
    handle = await executor.execute(desk(tools=[create_sub_agent_tool(child)]), "Go", tools=[MAP])
    assert (await result_of(handle)).text == "Done."
    assert seen == {"desk": ["subagent__child", "show_map"], "child": []}


async def test_a_session_without_tools_reads_and_writes_nothing_more(world: World) -> None:
    executor, who = world.executor([calls(call("look")), "Rain."]), desk()
    await result_of(await executor.execute(who, "Go", session_id=S))
    rows = await executor.store.query("sessions", S)
    assert not any("frontend_tools" in row.value for row in rows)
    assert not any(row.key.sort.startswith("q#") for row in rows)
