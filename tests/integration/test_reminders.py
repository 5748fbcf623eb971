"""Reminders of calls that wait: each is recorded once, whatever crashes, and an answer wins."""

from __future__ import annotations

import asyncio
from collections import Counter
from math import inf
from typing import Any

import pytest
from tests.integration.test_waits import LATE_S, ended, waits
from tests.support_run import Text, World, a_tool, agent, call, calls, history, of_type, play, result_of, results

from helix import Confirmation, Question, ToolContext, tool
from helix.core.delivery import Delivery
from helix.core.errors import DefinitionError, InvalidInputError
from helix.core.sequencer import Head, StreamRecord, admit
from helix.core.tools import create_sub_agent_tool
from helix.engine.claims.reminders import AGAIN_S, AT_ONCE
from helix.engine.claims.timeouts import end_wait
from helix.engine.observers import record
from helix.sessions.sweep import sweep
from helix.testing.clocks import ShiftedClock
from helix.testing.invariants import check_session

FIRST_S, SECOND_S = 100.0, 200.0


class CrashError(BaseException):
    """The process dies."""


def pay(**options: Any) -> Any:
    return a_tool("pay", lambda given, ctx: f"paid {given.text}", input_schema=Text, require_approval=True, **options)


def later(world: World, who: Any, seconds: float, **options: Any) -> Any:
    """Return another executor of the same store, whose clock is ahead."""
    made = world.executor(["done"], clock=ShiftedClock(seconds), **options)
    made.agents.know(who)
    return made


async def reminded(executor: Any, session_id: str) -> list[int]:
    """Return the numbers of the reminders on the stream."""
    messages = await executor.streams.read(session_id)
    return [chunk.number for chunk in of_type([m.parsed() for m in messages if m.kind == "chunk"], "call_reminder")]


async def sweep_in(world: World, who: Any, seconds: float, **options: Any) -> Any:
    executor = later(world, who, seconds, **options)
    await sweep(executor.engine, Delivery("sweep", inf))
    return executor


async def test_each_reminder_is_recorded_once(world: World) -> None:
    who = agent(tools=[pay(remind_s=[SECOND_S, FIRST_S], answer_timeout_s=LATE_S)])
    executor = world.executor([calls(call("pay", text="rent")), "done"])
    handle, result, _ = await play(executor, who)
    session_id, (waiting,) = handle.session_id, result.pending
    assert waiting.remind_at is not None and waiting.reminded == 0
    seen: list[Any] = []
    hooks = {"on_reminder": lambda payload, ctx: seen.append((payload, ctx.event_id))}
    for seconds, numbers in (
        (1.0, []),
        (FIRST_S + 1, [1]),
        (FIRST_S + 2, [1]),
        (SECOND_S + 1, [1, 2]),
        (LATE_S / 2, [1, 2]),
    ):
        await sweep_in(world, who, seconds, hooks=hooks)
        assert await reminded(executor, session_id) == numbers, seconds
        (waiting,) = (await handle.get_state()).pending
        assert waiting.reminded == len(numbers) and (waiting.remind_at is None) == (len(numbers) == 2)
        assert len(await waits(executor)) == 1
    assert [(payload["number"], payload["pending"].arguments) for payload, _ in seen] == [
        (1, {"text": "rent"}),
        (2, {"text": "rent"}),
    ]
    assert len({event_id for _, event_id in seen}) == 2
    assert (await result_of(await handle.answer("call_0"))).output == "done"
    (message,) = [one for one in await history(executor, session_id) if one.role == "tool"]
    assert (message.content, message.metadata["reminded"]) == ("paid rent", 2)
    await check_session(executor.store, executor.streams, session_id, at_rest=True)
    chunks = [m.parsed() for m in await executor.streams.read(session_id) if m.kind == "chunk"]
    assert [chunk.sequence for chunk in of_type(chunks, "call_reminder")] == sorted(
        chunk.sequence for chunk in of_type(chunks, "call_reminder")
    )


async def test_a_timer_of_the_process_reminds(world: World) -> None:
    who = agent(tools=[pay(remind_s=0.3, answer_timeout_s=1.0)])
    executor = world.executor([calls(call("pay", text="rent")), "Then not."])
    handle, _, _ = await play(executor, who)
    assert (await ended(executor, handle.session_id)).status == "completed"
    assert await reminded(executor, handle.session_id) == [1]
    assert results(await history(executor, handle.session_id)) == ['{"error":"denied: no answer came in time"}']
    assert await waits(executor) == []


async def test_a_wait_without_a_limit_reminds_and_goes_on(world: World) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        a, b = await ctx.ask(Question("A?", remind_s=FIRST_S), Question("B?", remind_s=(FIRST_S + 50, SECOND_S)))
        return f"{a}{b}"

    who = agent(tools=[ask])
    executor = world.executor([calls(call("ask")), "done"])
    handle, result, _ = await play(executor, who)
    assert result.pending[0].expires_at is None
    await sweep_in(world, who, LATE_S)  # all three are late, and each is recorded
    assert await reminded(executor, handle.session_id) == [1, 2, 3]
    assert await waits(executor) == []
    (waiting,) = (await handle.get_state()).pending
    assert (waiting.reminded, len(waiting.questions)) == (3, 2)
    assert (await result_of(await handle.answer("call_0", data=["x", "y"], round=1))).output == "done"


async def test_two_sweeps_at_once_remind_once(world: World) -> None:
    who = agent(tools=[pay(remind_s=FIRST_S)])
    seen: Counter[int] = Counter()
    hooks = {"on_reminder": lambda payload, ctx: seen.update([payload["number"]])}
    for _ in range(5):
        executor = world.executor([calls(call("pay", text="rent"))])
        handle, _, _ = await play(executor, who)
        others = [later(world, who, FIRST_S + 1, hooks=hooks) for _ in range(3)]
        seen.clear()
        await asyncio.gather(*(sweep(other.engine, Delivery(f"sweep{n}", inf)) for n, other in enumerate(others)))
        assert await reminded(executor, handle.session_id) == [1] and seen == {1: 1}


@pytest.mark.parametrize("place", ["before", "shown"])
async def test_a_crash_while_it_reminds_loses_and_repeats_none(
    world: World, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = agent(tools=[pay(remind_s=[FIRST_S, SECOND_S])])
    executor = world.executor([calls(call("pay", text="rent")), "done"])
    handle, _, _ = await play(executor, who)

    async def dies(*given: Any) -> None:
        if place == "shown":
            await record(*given)
            await given[0].stream.flush()
        raise CrashError

    with monkeypatch.context() as patched, pytest.raises(CrashError):
        patched.setattr("helix.engine.claims.reminders.record", dies)
        await sweep_in(world, who, FIRST_S + 1)
    assert (await handle.get_state()).pending[0].reminded == 1, "the transaction was written"
    await sweep_in(world, who, FIRST_S + 2 + AGAIN_S)
    assert await reminded(executor, handle.session_id) == [1]
    await sweep_in(world, who, SECOND_S + 1)
    assert await reminded(executor, handle.session_id) == [1, 2]
    assert (await result_of(await handle.answer("call_0"))).output == "done"


async def test_an_answer_at_the_same_time_wins(world: World) -> None:
    who = agent(tools=[pay(remind_s=FIRST_S)])
    for _ in range(10):
        executor = world.executor([calls(call("pay", text="rent")), "done"])
        handle, _, _ = await play(executor, who)
        other = later(world, who, FIRST_S + 1)
        (row,) = [row for row in await waits(other) if row.value["run_id"] == handle.run_id]
        answers = executor.answer(who, handle.session_id, Confirmation("call_0"))
        await asyncio.gather(answers, end_wait(other.engine, row, Delivery("late", 0)))
        assert (await ended(executor, handle.session_id)).status == "completed"
        assert results(await history(executor, handle.session_id)) == ["paid rent"]
        (message,) = [one for one in await history(executor, handle.session_id) if one.role == "tool"]
        on_stream = await reminded(executor, handle.session_id)
        assert on_stream == [] or message.metadata["reminded"] == 1


async def test_an_answered_call_is_not_recalled(world: World) -> None:
    who = agent(tools=[pay(remind_s=FIRST_S)])
    executor = world.executor([calls(call("pay", text="rent")), "done"])
    handle, _, _ = await play(executor, who)
    await result_of(await handle.answer("call_0"))
    await sweep_in(world, who, FIRST_S + 1)
    assert await reminded(executor, handle.session_id) == [] and await waits(executor) == []


async def test_more_calls_than_one_transaction_takes(world: World) -> None:
    count = AT_ONCE + 5
    who = agent(tools=[pay(remind_s=FIRST_S)])
    executor = world.executor([calls(*(call("pay", text=str(n)) for n in range(count)))])
    handle, _, _ = await play(executor, who)
    for _ in range(2):
        await sweep_in(world, who, FIRST_S + 1)
    assert await reminded(executor, handle.session_id) == [1] * count
    assert {waiting.reminded for waiting in (await handle.get_state()).pending} == {1}
    assert await waits(executor) == []


async def test_a_sub_agents_call_reminds_on_the_root_stream(world: World) -> None:
    child = agent("child", tools=[pay(remind_s=FIRST_S)])
    parent = agent("parent", tools=[create_sub_agent_tool(child)])
    script = [calls(call("subagent__child", message="pay")), calls(call("pay", text="rent")), "paid", "done"]
    executor = world.executor(script)
    handle, result, _ = await play(executor, parent)
    other = later(world, parent, FIRST_S + 1)
    other.agents.know(child)
    await sweep(other.engine, Delivery("sweep", inf))
    assert await reminded(executor, handle.session_id) == [1]
    below = await executor.sessions.get(str(result.pending[0].child_session_id))
    assert (below.pending[0].reminded, below.pending[0].remind_at) == (1, None)


async def test_a_ruling_on_a_sub_agents_approval_has_its_own_limit(world: World) -> None:
    child = agent("child", tools=[])
    gated = create_sub_agent_tool(child, require_approval=True, answer_timeout_s=0.6, remind_s=0.2)
    parent = agent("parent", tools=[gated])
    executor = world.executor([calls(call("subagent__child", message="go")), "Then not."])
    handle, _, _ = await play(executor, parent)
    assert (await ended(executor, handle.session_id)).status == "completed"
    assert await reminded(executor, handle.session_id) == [1]
    assert results(await history(executor, handle.session_id)) == ['{"error":"denied: no answer came in time"}']


def test_the_log_takes_a_reminder_once_and_only_while_its_run_is_paused() -> None:
    def record(kind: Any, turn: int = 1, **more: Any) -> StreamRecord:
        return StreamRecord(session_id="s", run_id=f"r{turn}", turn=turn, kind=kind, chunks=[{"type": kind}], **more)

    def reminder(number: int, turn: int = 1) -> StreamRecord:
        return record("call", turn, attempt=number, call_id="reminder:c")

    def admitted(*records: StreamRecord) -> list[str | None]:
        head = Head()
        for one in records[:-1]:
            head, _ = admit("s", head, [one])
        return [message.kind for message in admit("s", head, records[-1:])[1]]

    begun, paused = record("run", mark="started"), record("run", mark="paused", status="paused")
    assert admitted(begun, paused, reminder(1)) == ["chunk"]
    assert admitted(begun, paused, reminder(1), reminder(2)) == ["chunk"]
    for dropped in (
        [begun, paused, reminder(1), reminder(1)],
        [begun, paused, reminder(2), reminder(1)],
        [begun, record("run", mark="end", status="completed"), reminder(1)],
        [begun, paused, record("run", 2, mark="started"), reminder(1)],
        [begun, paused, reminder(1, turn=2)],
        [begun, paused, record("call", attempt=1, call_id="c")],
    ):
        assert admitted(*dropped) == []


def test_reminders_that_cannot_be() -> None:
    for wrong in (0, -1, inf, True, [], [1, "x"], list(range(1, 30)), "60"):
        with pytest.raises(DefinitionError, match="remind_s"):
            pay(remind_s=wrong)
        with pytest.raises(InvalidInputError, match="question 'Why\\?': remind_s must be"):
            Question("Why?", remind_s=wrong)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="less than the time limit"):
        pay(remind_s=60, answer_timeout_s=60)
    with pytest.raises(InvalidInputError, match="less than the time limit"):
        Question("Why?", remind_s=[10, 60], timeout_s=60)
