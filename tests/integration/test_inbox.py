"""Messages to a run that works: each is delivered once and in order, waits where it must, and can be taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support_run import (
    Gate,
    Nothing,
    Text,
    World,
    a_tool,
    agent,
    call,
    calls,
    chunks_of,
    eventually,
    gated,
    history,
    of_type,
    result_of,
    told,
    types,
)

from helix import Confirmation, LocalExecutor, MemoryStateStore, ScriptedModel, ToolContext, create_sub_agent_tool
from helix.core.errors import (
    AgentAlreadyRunningError,
    InvalidInputError,
    RunNotFoundError,
    SessionNotFoundError,
    StoreError,
)
from helix.core.inbox import MAX_WAITING, InboxFullError, MessageWithdrawnError
from helix.core.rows import CheckpointRow
from helix.engine.claims.missed import read_missed
from helix.engine.runs import ends
from helix.ports.state_store import Operation

S = "ses"


def slow_tool(gate: Gate, name: str = "work", **fields: Any) -> Any:
    async def work(given: Nothing, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return "worked"

    return a_tool(name, work, **fields)


async def test_a_steering_message_comes_after_the_results_of_the_open_step(world: World) -> None:
    gate = Gate()
    model = ScriptedModel([calls(call("work"), call("work")), "as you say"])
    executor = world.executor(model)
    who = agent(tools=[slow_tool(gate)])
    handle = await executor.execute(who, "go", session_id=S)
    await gate.reached()
    first = await executor.execute(who, "rather this", session_id=S, when_running="steer")
    second = await executor.execute(who, "and that", session_id=S, when_running="steer")
    assert first.run_id == second.run_id == handle.run_id
    waiting = (await executor.sessions.get(S)).inbox
    assert [(m.id, m.content, m.mode) for m in waiting] == [
        (first.queued_id, "rather this", "steer"),
        (second.queued_id, "and that", "steer"),
    ]
    gate.open()
    assert (await result_of(first)).text == "as you say"
    messages = await history(executor, S)
    assert told(messages) == [
        "user: go",
        "assistant: [work, work]",
        "tool: worked",
        "tool: worked",
        "user: rather this",
        "user: and that",
        "assistant: as you say",
    ]
    assert [m.queued_id for m in messages if m.role == "user"] == ["", first.queued_id, second.queued_id]
    assert [m.content for m in model.requests[-1].messages][-2:] == ["rather this", "and that"]
    state = await executor.sessions.get(S)
    assert (state.turn, state.inbox) == (1, [])
    chunks = await chunks_of(handle)
    shown = [(c.queued_id, c.state, c.content) for c in of_type(chunks, "message_queued")]
    told_of = [(first.queued_id, "rather this"), (second.queued_id, "and that")]
    assert shown == [(i, state, text) for state in ("waiting", "delivered") for i, text in told_of]
    order = [kind for kind in types(chunks) if kind in ("tool_end", "message_queued", "step_committed")]
    assert order[-5:] == ["tool_end", "tool_end", "message_queued", "message_queued", "step_committed"]


async def test_a_queued_message_gets_a_turn_of_its_own(world: World) -> None:
    gate = Gate()
    executor, other = world.executor([gated(gate, "one"), "two", "three"]), world.executor()
    who = agent()
    handle = await executor.execute(who, "1", session_id=S)
    await gate.reached()
    second = await other.execute(who, "2", session_id=S, when_running="queue")
    third = await other.execute(who, "3", session_id=S, when_running="queue")
    assert len({handle.run_id, second.run_id, third.run_id}) == 3
    results = asyncio.gather(result_of(second), result_of(third))
    streamed = asyncio.ensure_future(_text(third))
    gate.open()
    assert [r.text for r in await results] == ["two", "three"] and await streamed == "three"
    assert (await result_of(handle)).text == "one"
    assert told(await history(executor, S)) == [
        "user: 1", "assistant: one", "user: 2", "assistant: two", "user: 3", "assistant: three"
    ]  # fmt: skip
    assert (await executor.sessions.get(S)).turn == 3


async def _text(handle: Any) -> str:
    return "".join([chunk.delta async for chunk in await handle.stream() if chunk.type == "text_delta"])


async def test_a_steering_message_that_comes_too_late_becomes_the_next_turn(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "one"), "two"])
    who = agent()
    handle = await executor.execute(who, "1", session_id=S)
    await gate.reached()
    await executor.execute(who, "2", session_id=S, when_running="steer")
    third = await executor.execute(who, "3", session_id=S, when_running="steer")
    gate.open()
    assert (await result_of(handle)).text == "one"
    await eventually(lambda: _is(executor, "completed", turn=2))
    assert told(await history(executor, S)) == ["user: 1", "assistant: one", "user: 2", "user: 3", "assistant: two"]
    assert third.run_id == handle.run_id


async def _is(executor: Any, status: str, turn: int) -> bool:
    state = await executor.sessions.get(S)
    return bool(state.status == status and state.turn == turn and not state.inbox)


async def test_an_interrupting_message_stops_the_run(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "never"), "instead", "later"])
    who = agent()
    handle = await executor.execute(who, "1", session_id=S)
    await gate.reached()
    queued = await executor.execute(who, "3", session_id=S, when_running="queue")
    instead = await executor.execute(who, "2", session_id=S, when_running="interrupt")
    assert (await result_of(handle)).status == "interrupted"
    assert (await result_of(instead)).text == "instead"
    assert (await result_of(queued)).text == "later"
    gate.open()
    assert told(await history(executor, S)) == [
        "user: 1", "user: 2", "assistant: instead", "user: 3", "assistant: later"
    ]  # fmt: skip


async def test_messages_wait_while_the_run_is_paused(world: World) -> None:
    executor = world.executor([calls(call("pay")), "paid", "queued"])
    who = agent(tools=[a_tool("pay", lambda *_: "done", require_approval=True)])
    paused = await result_of(await executor.execute(who, "1", session_id=S))
    assert paused.status == "paused"
    steer = await executor.execute(who, "2", session_id=S, when_running="steer")
    queue = await executor.execute(who, "3", session_id=S, when_running="queue")
    assert [m.id for m in (await executor.sessions.get(S)).inbox] == [steer.queued_id, queue.queued_id]
    await executor.resume(who, S, confirmation=Confirmation(paused.pending[0].call_id, True))
    assert (await result_of(queue)).text == "queued"
    assert told(await history(executor, S)) == [
        "user: 1", "assistant: [pay]", "tool: done", "user: 2", "assistant: paid", "user: 3", "assistant: queued"
    ]  # fmt: skip
    assert (await executor.sessions.get(S)).inbox == []


async def test_repeated_commits_say_which_messages_steered_their_run(quick_world: World) -> None:
    """A worker that takes the run over repeats the commits of the dead one, also before the run's first answer."""
    executor = quick_world.executor([calls(call("pay")), "rather", "queued"])
    who = agent(tools=[a_tool("pay", lambda *_: "done", require_approval=True)])
    await result_of(await executor.execute(who, "1", session_id=S))
    for text in ("2", "3"):
        await executor.execute(who, text, session_id=S, when_running="steer")
    queue = await executor.execute(who, "4", session_id=S, when_running="queue")
    await executor.resume(who, S, message="rather this")
    assert (await result_of(queue)).text == "queued"
    fates: dict[str, bool] = {}
    for row in await executor.store.query("sessions", S, start="c#", end="c$"):
        missed = await read_missed(executor.engine, S, CheckpointRow.at(S, row.key.sort, row.value).id)
        assert missed is not None
        fates |= {waited.content: steered for _, waited, steered in missed.arrived}
    assert fates == {"2": True, "3": True, "4": False}


async def test_messages_that_arrived_before_the_pause_wait_too(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, calls(call("pay"))), "paid", "queued"])
    who = agent(tools=[a_tool("pay", lambda *_: "done", require_approval=True)])
    handle = await executor.execute(who, "1", session_id=S)
    await gate.reached()
    queue = await executor.execute(who, "3", session_id=S, when_running="queue")
    await executor.execute(who, "2", session_id=S, when_running="steer")
    gate.open()
    paused = await result_of(handle)
    assert paused.status == "paused" and len((await executor.sessions.get(S)).inbox) == 2
    await executor.resume(who, S, confirmation=Confirmation(paused.pending[0].call_id, True))
    assert (await result_of(queue)).text == "queued"
    assert told(await history(executor, S)) == [
        "user: 1", "assistant: [pay]", "tool: done", "user: 2", "assistant: paid", "user: 3", "assistant: queued"
    ]  # fmt: skip


async def test_a_person_who_stops_the_run_keeps_what_waits(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "never"), "two", "three", "four"])
    who = agent()
    handle = await executor.execute(who, "1", session_id=S)
    await gate.reached()
    queued = await executor.execute(who, "2", session_id=S, when_running="queue")
    await handle.interrupt(wait=True)
    gate.open()
    state = await executor.sessions.get(S)
    assert (state.status, [m.content for m in state.inbox]) == ("interrupted", ["2"])
    last = await executor.execute(who, "3", session_id=S, when_running="queue")
    assert [(await result_of(h)).text for h in (queued, last)] == ["two", "three"]
    assert told(await history(executor, S)) == ["user: 1", "user: 2", "assistant: two", "user: 3", "assistant: three"]


async def test_a_message_before_the_effects_of_a_stopped_run_waits_behind_older_ones(
    quick_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, effects, close = Gate(), Gate(), ends._close

    async def slowly(*given: Any) -> Any:
        if not effects.entered.is_set():
            await effects.wait()
        return await close(*given)

    monkeypatch.setattr(ends, "_close", slowly)
    executor = quick_world.executor([gated(gate, "never"), "two", "three"])
    who = agent()
    handle = await executor.execute(who, "1", session_id=S)
    await gate.reached()
    second = await executor.execute(who, "2", session_id=S, when_running="queue")
    await handle.interrupt()
    await effects.reached()
    third = await executor.execute(who, "3", session_id=S, when_running="queue")
    effects.open()
    assert [(await result_of(h)).text for h in (second, third)] == ["two", "three"]
    assert told(await history(executor, S)) == ["user: 1", "user: 2", "assistant: two", "user: 3", "assistant: three"]


async def test_an_abort_keeps_what_waits_and_a_failure_does_not(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "never"), {"error": "broken", "code": "bad"}, "three"])
    who = agent()
    handle = await executor.execute(who, "1", session_id=S)
    await gate.reached()
    second = await executor.execute(who, "2", session_id=S, when_running="queue")
    await handle.abort("no")
    gate.open()
    assert [m.content for m in (await executor.sessions.get(S)).inbox] == ["2"]
    third = await executor.execute(who, "3", session_id=S, when_running="queue")
    assert (await result_of(second)).status == "failed"
    assert (await result_of(third)).text == "three"


async def test_a_message_can_be_withdrawn_until_it_is_delivered(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "one"), "three"])
    who = agent()
    handle = await executor.execute(who, "1", session_id=S)
    await gate.reached()
    second = await executor.execute(who, "2", session_id=S, when_running="queue")
    third = await executor.execute(who, "3", session_id=S, when_running="queue")
    waiting = asyncio.ensure_future(result_of(second))
    await asyncio.sleep(0)
    assert second.queued_id and third.queued_id
    assert await executor.withdraw(S, second.queued_id) == "withdrawn"
    assert await executor.withdraw(S, second.queued_id) == "not_found"
    with pytest.raises(MessageWithdrawnError, match=second.run_id):
        await waiting
    with pytest.raises(RunNotFoundError):
        await executor.get_handle(who, S, second.run_id)
    gate.open()
    assert (await result_of(third)).text == "three"
    assert await executor.withdraw(S, third.queued_id) == "delivered"
    (gone,) = [c for c in of_type(await chunks_of(handle), "message_queued") if c.state == "withdrawn"]
    assert gone.queued_id == second.queued_id
    (delivered,) = of_type(await chunks_of(third), "message_queued")
    assert (delivered.queued_id, delivered.state, delivered.content) == (third.queued_id, "delivered", "3")
    assert told(await history(executor, S)) == ["user: 1", "assistant: one", "user: 3", "assistant: three"]
    with pytest.raises(SessionNotFoundError):
        await executor.withdraw("nowhere", third.queued_id)


async def test_a_repeated_request_leaves_one_message(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, calls(call("work"))), "one", "two"])
    who = agent(tools=[a_tool("work", lambda *_: "worked")])
    handle = await executor.execute(who, "1", session_id=S)
    await gate.reached()
    steers = await asyncio.gather(
        *(executor.execute(who, "s", session_id=S, when_running="steer", key="k1") for _ in range(3))
    )
    queues = await asyncio.gather(
        *(executor.execute(who, "q", session_id=S, when_running="queue", key="k2") for _ in range(3))
    )
    assert {h.run_id for h in steers} == {handle.run_id} and len({h.run_id for h in queues}) == 1
    gate.open()
    assert [(await result_of(h)).text for h in queues] == ["two"] * 3
    again = await executor.execute(who, "q", session_id=S, when_running="queue", key="k2")
    assert again.run_id == queues[0].run_id
    texts = [m.content for m in await history(executor, S) if m.role == "user"]
    assert texts == ["1", "s", "q"]


async def test_a_message_that_was_taken_before_its_sender_knew_is_not_left_again() -> None:
    """The store's answer is lost, and the run takes the message before the sender looks."""
    gate = Gate()

    class Lost(MemoryStateStore):
        async def transact(self, name: str, operations: Sequence[Operation]) -> None:
            await super().transact(name, operations)
            if name == "leave_message" and not gate.opened.is_set():
                gate.open()
                await eventually(self._is_empty)
                raise StoreError("the answer was lost")

        async def _is_empty(self) -> bool:
            return not await self.query("sessions", S, start="i#", end="i$")

    executor = LocalExecutor(Lost(), model=ScriptedModel([calls(call("work")), "as you say", "never"]))
    who = agent(tools=[slow_tool(gate)])
    await executor.execute(who, "go", session_id=S)
    await gate.reached()
    steered = await executor.execute(who, "rather this", session_id=S, when_running="steer")
    assert (await result_of(steered)).text == "as you say"
    assert [m.content for m in await history(executor, S) if m.role == "user"] == ["go", "rather this"]
    assert (await executor.sessions.get(S)).turn == 1


async def test_the_limits_name_what_waits(quick_world: World) -> None:
    gate = Gate()
    executor = quick_world.executor([gated(gate, "one")])
    who = agent()
    handle = await executor.execute(who, "1", session_id=S)
    await gate.reached()
    with pytest.raises(AgentAlreadyRunningError):
        await executor.execute(who, "2", session_id=S)
    with pytest.raises(InvalidInputError, match="when_running must be one of"):
        await executor.execute(who, "2", session_id=S, when_running="later")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="state"):
        await executor.execute(who, {"message": "2", "state": {"a": 1}}, session_id=S, when_running="queue")
    for size in (900_000, 900_000):
        await executor.execute(who, "x" * size, session_id=S, when_running="queue")
    with pytest.raises(InboxFullError, match="2,000,000 bytes"):
        await executor.execute(who, "x" * 900_000, session_id=S, when_running="queue")
    made = asyncio.gather(
        *(executor.execute(who, str(n), session_id=S, when_running="queue") for n in range(MAX_WAITING + 3)),
        return_exceptions=True,
    )
    refused = [one for one in await made if isinstance(one, InboxFullError)]
    assert len(refused) == 5 and str(refused[0]).startswith(f"{MAX_WAITING} messages wait in session 'ses'")
    assert len((await executor.sessions.get(S)).inbox) == MAX_WAITING
    await handle.abort()


async def test_when_running_does_nothing_for_a_session_at_rest(world: World) -> None:
    executor = world.executor(["one", "two", "three", "four"])
    who = agent()
    for text, how in (("1", "steer"), ("2", "queue"), ("3", "interrupt")):
        handle = await executor.execute(who, text, session_id=S, when_running=how)  # type: ignore[arg-type]
        assert handle.queued_id is None and (await result_of(handle)).status == "completed"
    assert (await executor.sessions.get(S)).turn == 3


async def test_a_sub_agent_is_steered_in_its_own_session(world: World) -> None:
    gate = Gate()
    model = ScriptedModel(
        {
            "boss": [calls(call("subagent__helper", message="dig")), "done"],
            "helper": [calls(call("work")), calls(call("__finish__", text="dug there"))],
        }
    )
    executor = world.executor(model)
    helper = agent("helper", tools=[slow_tool(gate)], output_schema=Text)
    boss = agent("boss", tools=[create_sub_agent_tool(helper)])
    handle = await executor.execute(boss, "go", session_id=S)
    await gate.reached()
    (child,) = await executor.sessions.list_sub_sessions(S)
    with pytest.raises(InvalidInputError, match="steer it"):
        await executor.execute(helper, "x", session_id=child.session_id, when_running="queue")
    steered = await executor.execute(helper, "dig there", session_id=child.session_id, when_running="steer")
    gate.open()
    assert (await result_of(handle)).text == "done"
    assert told(await history(executor, steered.session_id)) == [
        "user: dig", "assistant: [work]", "tool: worked", "user: dig there",
        "assistant: [__finish__]", 'tool: {"acknowledged":true}',
    ]  # fmt: skip
