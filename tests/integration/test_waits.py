"""Calls that wait for a limited time: their policies, the timers that end the waits, and answers that come first."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from pydantic import BaseModel
from tests.support_run import Text, World, a_tool, agent, call, calls, eventually, history, play, result_of, results

from helix import (
    Agent,
    Confirmation,
    LocalExecutor,
    MemoryStateStore,
    Question,
    ScriptedModel,
    ToolContext,
    tool,
)
from helix.core.delivery import Delivery
from helix.core.errors import CallNotPendingError, DefinitionError, InvalidInputError
from helix.core.registry import AgentRegistry
from helix.core.session_row import SessionRow
from helix.core.tools import create_sub_agent_tool
from helix.engine.claims.timeouts import end_wait
from helix.ports.state_store import Key, Put, Row
from helix.services.paging import PAGE
from helix.services.waits import deadline_of, read_waits, wait_put
from helix.sessions.sweep import sweep
from helix.testing.clocks import ShiftedClock

SOON_S = 1.0  # longer than a busy machine needs to read that the run has paused
LATE_S = 1_000.0


def pay(**options: Any) -> Any:
    return a_tool("pay", lambda given, ctx: f"paid {given.text}", input_schema=Text, require_approval=True, **options)


async def ended(executor: Any, session_id: str) -> Any:
    """Wait until the session neither runs nor waits."""

    async def rests() -> bool:
        return (await executor.sessions.get(session_id)).status in ("completed", "failed")

    await eventually(rests)
    return await executor.sessions.get(session_id)


async def waits(executor: Any) -> list[Row]:
    return [row async for page in read_waits(executor.store) for row in page]


async def test_an_approval_that_nobody_gives_is_denied(world: World) -> None:
    who = agent(tools=[pay(answer_timeout_s=SOON_S)])
    executor = world.executor([calls(call("pay", text="rent")), "Then not."])
    handle, result, _ = await play(executor, who)
    assert result.status == "paused" and result.pending[0].expires_at is not None
    state = await ended(executor, handle.session_id)
    assert state.status == "completed" and state.turn == 2
    assert results(await history(executor, handle.session_id)) == ['{"error":"denied: no answer came in time"}']
    assert await waits(executor) == []
    with pytest.raises(CallNotPendingError):
        await handle.answer("call_0")


async def test_a_clients_result_that_does_not_come_fails_the_run(world: World) -> None:
    who = agent(
        tools=[a_tool("locate", "client", input_schema=Text, answer_timeout_s=SOON_S, on_answer_timeout="fail")]
    )
    executor = world.executor([calls(call("locate", text="here")), "never"])
    handle, _, _ = await play(executor, who)
    state = await ended(executor, handle.session_id)
    assert state.status == "failed" and state.error is not None
    assert (state.error.code, "no answer came in time" in state.error.message) == ("fatal_tool_error", True)


@tool
async def survey(ctx: ToolContext) -> str:
    """Ask."""
    colour, size = await ctx.ask(
        Question("Which colour?", choices=["red", "blue"], timeout_s=SOON_S, on_timeout="default", default="blue"),
        Question("How many?", schema=int, timeout_s=LATE_S, on_timeout="default", default=3),
    )
    return f"{size} {colour}, {await ctx.ask(Question('Why?', timeout_s=SOON_S))}"


async def test_a_question_gets_its_default_answer(world: World) -> None:
    executor = world.executor([calls(call("survey")), "done"])
    handle, _, _ = await play(executor, agent(tools=[survey]))
    state = await ended(executor, handle.session_id)
    assert state.status == "completed" and state.turn == 3
    assert results(await history(executor, handle.session_id)) == ['{"error":"denied: no answer came in time"}']
    session = await executor.engine.history.existing(handle.session_id)
    lineage = await executor.engine.history.lineage(handle.session_id, 0)
    entries: list[Any] = list(await executor.engine.history.entries(handle.session_id, lineage, 0, session.count))
    assert [(q.data, q.timed_out) for q in entries[2].questions] == [("blue", True), (3, True), (None, False)]


async def test_an_answer_in_time_counts_and_the_entry_is_dropped(world: World) -> None:
    who = agent(tools=[pay(answer_timeout_s=SOON_S)])
    executor = world.executor([calls(call("pay", text="rent")), "done"])
    handle, _, _ = await play(executor, who)
    assert (await result_of(await handle.answer("call_0"))).output == "done"
    assert len(await waits(executor)) == 1

    async def dropped() -> bool:
        return await waits(executor) == []

    await eventually(dropped)
    assert results(await history(executor, handle.session_id)) == ["paid rent"]
    assert (await executor.sessions.get(handle.session_id)).turn == 2


async def test_an_answer_and_the_end_of_the_wait_at_once(world: World) -> None:
    """One of them counts, and the call has one result."""
    who = agent(tools=[pay(answer_timeout_s=LATE_S)])
    for _ in range(10):
        executor = world.executor([calls(call("pay", text="rent")), "done"])
        handle, _, _ = await play(executor, who)
        late = world.executor(["done"], clock=ShiftedClock(2 * LATE_S))
        late.agents.know(who)
        row = next(row for row in await waits(late) if row.value["run_id"] == handle.run_id)
        answers = executor.answer(who, handle.session_id, Confirmation("call_0"))
        _, claims = await asyncio.gather(
            answers, end_wait(late.engine, row, Delivery("late", 0)), return_exceptions=True
        )
        for claimed in claims if isinstance(claims, list) else []:
            await late._begin(who, claimed, late._delivery())
        await ended(executor, handle.session_id)
        (result,) = results(await history(executor, handle.session_id))
        assert result in ("paid rent", '{"error":"denied: no answer came in time"}')


async def test_waits_of_unknown_agents_do_not_block_the_others(world: World) -> None:
    other = world.executor([calls(call("pay", text="rent"))])
    await play(other, agent("unknown", tools=[pay(answer_timeout_s=LATE_S)]))
    (entry,) = await waits(other)
    for number in range(PAGE + 10):
        key = Key("control", entry.key.partition, f"{number:015.3f}#{number}")
        await other.store.transact("test", [Put(key, entry.value)])
    executor = world.executor([calls(call("pay", text="rent")), "Then not."])
    handle, _, _ = await play(executor, agent(tools=[pay(answer_timeout_s=SOON_S)]))
    assert (await ended(executor, handle.session_id)).status == "completed"
    await sweep(executor.engine, Delivery("sweep", inf))
    assert len(await waits(executor)) == PAGE + 11


async def test_another_process_ends_the_wait_when_it_opens_the_store(world: World) -> None:
    if world.kind == "memory":
        pytest.skip("a store of its own process")
    who = agent(tools=[pay(answer_timeout_s=LATE_S)])
    executor = world.executor([calls(call("pay", text="rent"))])
    handle, _, _ = await play(executor, who)
    await executor.close()
    late = world.executor(["Then not."], clock=ShiftedClock(2 * LATE_S))
    late.agents.know(who)
    async with late:
        assert (await ended(late, handle.session_id)).status == "completed"
        assert '"denied: no answer came in time"' in results(await history(late, handle.session_id))[0]


async def test_a_sub_agents_wait_ends_and_wakes_its_parent(world: World) -> None:
    class Out(BaseModel):
        text: str

    child: Agent[Any, Any] = agent("child", tools=[pay(answer_timeout_s=SOON_S)], output_schema=Out)
    parent = agent("parent", tools=[create_sub_agent_tool(child)])
    script = [
        calls(call("subagent__child", message="pay")),
        calls(call("pay", text="rent")),
        calls(call("__finish__", text="not paid")),
        "done",
    ]
    executor = world.executor(script)
    handle, result, _ = await play(executor, parent)
    assert result.pending[0].kind == "child"
    assert (await ended(executor, handle.session_id)).status == "completed"
    assert results(await history(executor, handle.session_id)) == ['{"text":"not paid"}']


def test_an_executor_that_is_used_in_two_event_loops() -> None:
    who = agent(tools=[pay(answer_timeout_s=SOON_S)])
    executor = LocalExecutor(
        MemoryStateStore(),
        model=ScriptedModel([calls(call("pay", text="rent")), "Then not."]),
        registry=AgentRegistry(),
    )

    async def begin() -> str:
        handle, _, _ = await play(executor, who)
        return handle.session_id

    async def end(session_id: str) -> Any:
        async with executor:
            return await ended(executor, session_id)

    assert asyncio.run(end(asyncio.run(begin()))).status == "completed"


@hypothesis.given(st.floats(1.7e9, 2e9))
def test_an_entry_is_due_only_when_its_deadline_has_passed(deadline: float) -> None:
    session = SessionRow(session_id="s", agent_type="a", stream_id="s", status="paused", version=1, run_id="r", turn=1)
    put = wait_put(session, deadline)
    assert deadline <= deadline_of(Row(put.key, put.value)) < deadline + 0.002


def test_a_wait_that_cannot_be() -> None:
    for wrong in ({"answer_timeout_s": 0}, {"answer_timeout_s": True}, {"on_answer_timeout": "ask"}):
        with pytest.raises(DefinitionError, match="answer_timeout"):
            pay(**wrong)
    for given in (
        {"timeout_s": -1},
        {"timeout_s": 1, "on_timeout": "approve"},
        {"timeout_s": 1, "on_timeout": "default"},
        {"on_timeout": "default", "default": "x"},
        {"timeout_s": 1, "default": "x"},
        {"timeout_s": 1, "on_timeout": "default", "default": 7},
    ):
        with pytest.raises(InvalidInputError, match="question 'Why\\?'"):
            Question("Why?", **given)
