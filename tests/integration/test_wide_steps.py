"""Steps with more calls than one transaction holds: executed, answered, closed and folded (docs/protocol.md#wide)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, Field
from tests.support.aws_resources import make_store, make_tables, moto
from tests.support_run import (
    QUICK,
    Text,
    World,
    a_tool,
    agent,
    assert_stream,
    call,
    calls,
    history,
    of_type,
    play,
    result_of,
    results,
)

from helix import Confirmation, LocalExecutor, ScriptedModel, ToolContext, create_sub_agent_tool
from helix.core.planning import MAX_CALLS_PER_STEP
from helix.core.registry import AgentRegistry
from helix.core.row_keys import message_sort
from helix.ports.state_store import Key, Operation, Update
from helix.testing.invariants import check_session

MANY = 300
NARROW = replace(QUICK, calls_at_once=4)
"""The number of calls above which a step is wide. It is small, so that a few calls are enough for the tests."""


class Log(BaseModel):
    ran: list[int] = []


class Cart(BaseModel):
    items: list[str] = Field(default_factory=list, max_length=3)


class Answer(BaseModel):
    text: str


def numbered(name: str, many: int) -> dict[str, Any]:
    return calls(*(call(name, text=str(i)) for i in range(many)))


def note(given: Text, ctx: ToolContext[Log]) -> str:
    ctx.update_state(lambda log: log.ran.append(int(given.text)))
    return given.text


async def checked(world: World, session_id: str) -> None:
    executor = world.executor([])
    await check_session(executor.store, executor.engine.streams, session_id, at_rest=True)


async def test_three_hundred_calls(world: World) -> None:
    executor = world.executor([numbered("work", MANY), "done"])
    who = agent(tools=[a_tool("work", note, input_schema=Text)], state_schema=Log)
    handle, result, chunks = await play(executor, who)
    assert result.output == "done"
    assert results(await history(executor, handle.session_id)) == [str(i) for i in range(MANY)]
    assert (await handle.get_state()).custom_state["ran"] == list(range(MANY))
    assert len(of_type(chunks, "tool_end")) == MANY
    assert_stream(chunks)
    await checked(world, handle.session_id)


async def test_forty_tools_that_block_are_executed_at_once(quick_world: World) -> None:
    together = threading.Barrier(40)

    def work(given: Text, ctx: ToolContext[Any]) -> str:
        together.wait(timeout=10)
        return given.text

    executor = quick_world.executor([numbered("work", 40), "done"])
    handle, _, _ = await play(executor, agent(tools=[a_tool("work", work, input_schema=Text)]))
    assert results(await history(executor, handle.session_id)) == [str(i) for i in range(40)]


async def test_tools_that_must_not_start_twice(world: World) -> None:
    executor = world.executor([numbered("once", 90), "done"])
    who = agent(tools=[a_tool("once", note, input_schema=Text, on_unknown="skip")], state_schema=Log)
    handle, result, _ = await play(executor, who)
    assert result.output == "done" and len(results(await history(executor, handle.session_id))) == 90


async def test_calls_beyond_the_bound_fail_where_the_model_sees_it(quick_world: World) -> None:
    many = MAX_CALLS_PER_STEP + 6
    executor = quick_world.executor([numbered("work", many), "done"])
    handle, result, chunks = await play(
        executor, agent(tools=[a_tool("work", note, input_schema=Text)], state_schema=Log)
    )
    assert result.output == "done"
    found = results(await history(executor, handle.session_id))
    assert found[:MAX_CALLS_PER_STEP] == [str(i) for i in range(MAX_CALLS_PER_STEP)]
    assert len(found) == many and all("500 calls at most" in text for text in found[MAX_CALLS_PER_STEP:])
    (error,) = of_type(chunks, "error")
    assert (error.code, error.recoverable) == ("invalid_tool_call", True) and "(6 calls)" in error.error
    assert_stream(chunks)


async def test_each_call_has_its_fate(world: World) -> None:
    """Calls are executed, refused and unknown, and an output is among them. The step takes several transactions."""
    names = ["work", "nothing", "work", "once", "work", "nothing", "__finish__", "work", "__finish__", "nothing"]
    entry = calls(*(call(name, text=str(i)) for i, name in enumerate(names)))
    executor = world.executor([entry], settings=NARROW)
    tools = [a_tool("work", note, input_schema=Text), a_tool("once", note, input_schema=Text, on_unknown="skip")]
    handle, result, chunks = await play(executor, agent(tools=tools, state_schema=Log, output_schema=Answer))
    assert result.output == Answer(text="6")
    found = results(await history(executor, handle.session_id))
    assert [found[i] for i in (0, 2, 3, 4, 7)] == ["0", "2", "3", "4", "7"]
    assert "acknowledged" in found[6] and "superseded" in found[8]
    assert all("there is no tool" in found[i] for i in (1, 5, 9))
    assert_stream(chunks)
    await checked(world, handle.session_id)


@pytest.mark.parametrize("last", ["__finish__", "nothing"])
async def test_nothing_to_execute(world: World, last: str) -> None:
    entry = calls(*(call("nothing") for _ in range(9)), call(last, text="x"))
    executor = world.executor([entry, calls(call("__finish__", text="x"))], settings=NARROW)
    handle, result, _ = await play(executor, agent(output_schema=Answer))
    assert result.output == Answer(text="x")
    assert len(results(await history(executor, handle.session_id))) == (10 if last == "__finish__" else 11)
    await checked(world, handle.session_id)


async def test_three_hundred_questions(quick_world: World) -> None:
    """All are asked, an answer is kept, and a message closes the others."""
    executor = quick_world.executor([numbered("ask", MANY), "fine"])
    who = agent(tools=[a_tool("ask", "client", input_schema=Text)])
    handle, result, chunks = await play(executor, who)
    assert [p.call_id for p in result.pending] == [f"call_{i}" for i in range(MANY)]
    assert len(of_type(chunks, "tool_approval_request")) == MANY
    again = await executor.resume(who, handle.session_id, confirmation=Confirmation("call_255", data="five"))
    assert len((await result_of(again)).pending) == MANY - 1
    _, result, chunks = await play(executor, who, "forget it", session_id=handle.session_id)
    assert result.output == "fine"
    contents = results(await history(executor, handle.session_id))
    assert contents[255] == "five" and sum("not_executed" in c for c in contents) == MANY - 1
    assert len(of_type(chunks, "tool_end")) == MANY - 1
    await checked(quick_world, handle.session_id)


async def test_every_question_is_answered(world: World) -> None:
    executor = world.executor([numbered("gated", 9), "done"], settings=NARROW)
    who = agent(tools=[a_tool("gated", note, input_schema=Text, require_approval=True)], state_schema=Log)
    handle, result, _ = await play(executor, who)
    while result.status == "paused":
        confirmation = Confirmation(result.pending[-1].call_id)
        result = await result_of(await executor.resume(who, handle.session_id, confirmation=confirmation))
    assert result.output == "done"
    assert (await handle.get_state()).custom_state["ran"] == list(range(9))
    await checked(world, handle.session_id)


@pytest.mark.parametrize(("at", "call_id"), [("close_calls", 0), ("claim_execute", 8)])
async def test_a_closing_keeps_what_it_did_not_read(
    quick_world: World, monkeypatch: pytest.MonkeyPatch, at: str, call_id: int
) -> None:
    """A slow tool stores its result between the closing's reads and its writes."""
    executor = quick_world.executor([numbered("ask", 9), "fine"], settings=NARROW)
    who = agent(tools=[a_tool("ask", "client", input_schema=Text)])
    handle, _, _ = await play(executor, who)
    transact, late = executor.store.transact, Key("sessions", handle.session_id, message_sort(0, 2 + call_id))

    async def slower(name: str, operations: Sequence[Operation]) -> None:
        if name == at:
            monkeypatch.undo()
            done = {"state": "done", "content": "late", "success": True, "by": "tool", "ask": None}
            await transact("call_result", [Update(late, set=done)])
        await transact(name, operations)

    monkeypatch.setattr(executor.store, "transact", slower)
    _, result, _ = await play(executor, who, "forget it", session_id=handle.session_id)
    assert result.output == "fine"
    contents = results(await history(executor, handle.session_id))
    assert contents[call_id] == "late" and sum("not_executed" in text for text in contents) == 8
    await checked(quick_world, handle.session_id)


async def test_merges_that_are_refused(world: World) -> None:
    """Nine calls put something into a cart for three. Six fail, four of which are written before the fold."""

    def add(given: Text, ctx: ToolContext[Cart]) -> str:
        ctx.update_state(lambda cart: cart.items.append(given.text))
        return given.text

    executor = world.executor([numbered("add", 9), "done"], settings=NARROW)
    handle, result, chunks = await play(
        executor, agent(tools=[a_tool("add", add, input_schema=Text)], state_schema=Cart)
    )
    assert result.output == "done"
    found = results(await history(executor, handle.session_id))
    assert found[:3] == ["0", "1", "2"] and all("changes of the state were dropped" in text for text in found[3:])
    assert (await handle.get_state()).custom_state == {"items": ["0", "1", "2"]}
    warnings = [warning for chunk in of_type(chunks, "state_patch") for warning in chunk.warnings]
    assert [warning.split()[1] for warning in warnings] == [str(i) for i in range(3, 9)]
    await checked(world, handle.session_id)


async def test_sub_agents_of_a_wide_step(world: World) -> None:
    child = agent("child", output_schema=Answer)
    asked = calls(*(call("subagent__child", message=str(i)) for i in range(30)))
    script = {"helper": [asked, "done"], "child": [calls(call("__finish__", text="ok"))] * 30}
    executor = world.executor(script, settings=NARROW)
    handle, result, _ = await play(executor, agent(tools=[create_sub_agent_tool(child)]))
    assert result.output == "done"
    assert results(await history(executor, handle.session_id)) == ['{"text":"ok"}'] * 30
    await checked(world, handle.session_id)


async def test_time_travel_branches_and_deletion(world: World) -> None:
    executor = world.executor([numbered("work", MANY), "done", "again"])
    who = agent(tools=[a_tool("work", note, input_schema=Text)], state_schema=Log)
    handle, _, _ = await play(executor, who)
    session_id = handle.session_id
    points = (await executor.sessions.list_checkpoints(session_id)).items
    whole = next(point for point in points if point.count == MANY + 2)
    await executor.clone_session(session_id, "copy", from_checkpoint_id=whole.id)
    assert len(results(await history(executor, "copy"))) == MANY
    await checked(world, "copy")
    again = await executor.resume(who, session_id, mode="from_checkpoint", checkpoint_id=whole.id, message="once more")
    assert (await result_of(again)).output == "again"
    assert len(results(await history(executor, session_id))) == MANY
    await executor.delete(session_id)
    rows = await executor.store.query("sessions", session_id)
    assert rows == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_three_hundred_calls_on_dynamodb() -> None:
    with moto() as aws:
        make_tables(aws["dynamodb"])
        executor = LocalExecutor(
            make_store(aws["dynamodb"], aws["s3"]),
            model=ScriptedModel([numbered("work", MANY), numbered("ask", MANY), "done"]),
            registry=AgentRegistry(),
            settings=QUICK,
        )
        tools = [a_tool("work", note, input_schema=Text), a_tool("ask", "client", input_schema=Text)]
        who = agent(tools=tools, state_schema=Log)
        handle = await executor.execute(who, "go")
        result = await handle.result(timeout_s=250)
        assert result.status == "paused" and len(result.pending) == MANY
        again = await executor.execute(who, "forget it", session_id=handle.session_id)
        assert (await again.result(timeout_s=250)).output == "done"
        found = results(await history(executor, handle.session_id))
        assert found[:MANY] == [str(i) for i in range(MANY)]
        assert sum("not_executed" in text for text in found[MANY:]) == MANY
        assert (await handle.get_state()).custom_state["ran"] == list(range(MANY))
        await check_session(executor.store, executor.streams, handle.session_id, at_rest=True)
        await executor.delete(handle.session_id)
        assert await executor.store.query("sessions", handle.session_id) == []
        await executor.close()
