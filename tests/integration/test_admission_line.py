"""Runs that wait for a slot: what they see, how they are stopped, and when they give up. The test plays the platform."""

from __future__ import annotations

import pytest
from tests.contracts.slots_races import at_rest
from tests.support.admission import Meanwhile, come, event, stage, started, statuses, worker
from tests.support.delivery_stage import event_of
from tests.support_gateway import Desk
from tests.support_run import a_tool, agent, call, calls, chunks_of

from helix import Confirmation
from helix.core.chunks import RunQueuedChunk
from helix.core.errors import AgentAlreadyRunningError, QueueFullError
from helix.engine.history import session_key
from helix.engine.runs.intake import set_limit
from helix.ports.launcher import execution_name
from helix.ports.state_store import Delete


async def test_who_waits_is_told_so_on_its_stream() -> None:
    who = worker(1)
    on = stage(who, queue={"queue_timeout_s": 60})
    first, second, third = await come(on, who, 3)
    for handle in (first, second, third):
        await on.end(event(on, handle))
    told = [[c for c in await chunks_of(h) if isinstance(c, RunQueuedChunk)] for h in (first, second, third)]
    assert [[c.queued for c in chunks] for chunks in told] == [[], [1], [2]]
    run = await on.executor.sessions.get_run(second.session_id, second.run_id)
    assert told[1][0].expires_at == run.started_at + 60


async def test_who_waits_because_of_a_budget_sees_which() -> None:
    """The stream shows the budget if the run arrived after the stop. `get_session` also shows it if the run was waiting
    before."""
    who = worker(1)
    on = stage(who)
    desk = Desk(on.executor, anonymous=True)
    await desk.connect("c", None)
    first, before = await come(on, who, 2)
    assert await on.slots.change_limit("worker", 1, 0, stopped_by="budget agent:worker/day/micros")
    (after,) = await come(on, who, 1)
    for handle in (before, after):
        told = (await desk.ask("c", "get_session", session_id=handle.session_id))["result"]["queued"]
        assert told["reason"] == "stopped by budget agent:worker/day/micros"
    await set_limit(on.engine, "worker", 1)
    told = (await desk.ask("c", "get_session", session_id=after.session_id))["result"]["queued"]
    assert told["reason"] is None
    for handle in (first, before, after):
        await on.end(event(on, handle))
    shown = [[c.reason for c in await chunks_of(h) if isinstance(c, RunQueuedChunk)] for h in (before, after)]
    assert shown == [[None], ["stopped by budget agent:worker/day/micros"]]


@pytest.mark.parametrize("how", ["interrupt", "abort"])
async def test_who_waits_may_be_stopped_at_once(how: str) -> None:
    """No execution is started for it, its ticket is deleted, and the runs behind it move up."""
    who = worker(1)
    on = stage(who)
    first, second, third = await come(on, who, 3)
    if how == "interrupt":
        assert await second.interrupt("never mind")
    else:
        await second.abort("never mind")
    result = await second.result(timeout_s=5)
    assert (result.status, result.error_code) == (
        ("interrupted", None) if how == "interrupt" else ("failed", "aborted")
    )
    assert [c.type for c in await chunks_of(second)][-1] == ("run_interrupted" if how == "interrupt" else "error")
    await on.end(event(on, first))
    await on.end(event(on, third))
    assert started(on) == [first.run_id, third.run_id] and await at_rest(on.slots)
    if how == "interrupt":
        again = await second.resume()
        await on.end(event(on, again))
        assert (await again.result(timeout_s=5)).status == "completed", "the run was only delayed"


async def test_who_is_stopped_before_it_has_a_ticket_gets_none() -> None:
    """The stop comes between the claim and the admission. The process that writes the ticket notices the stop."""
    who, store = worker(1), Meanwhile()
    on = stage(who, store=store)
    (first,) = await come(on, who, 1)
    store.before["take_ticket"] = lambda: on.executor.interrupt("late")
    second = await on.executor.execute(who, "go", session_id="late")
    assert (await second.result(timeout_s=5)).status == "interrupted"
    await on.end(event(on, first))
    assert await at_rest(on.slots)


async def test_a_full_queue_refuses_new_work_and_nothing_that_goes_on() -> None:
    risky = a_tool("risky", lambda given, ctx: "ok", require_approval=True)
    who = worker(1, tools=[risky])
    on = stage(who, script=[calls(call("risky")), *["Done."] * 9], queue={"max_queue": 1})
    (paused,) = await come(on, who, 1)
    told = await on.follow(event(on, paused))
    await on.deliver("finish_run", told)
    working, waiting = await come(on, who, 2)
    with pytest.raises(QueueFullError) as refused:
        await on.executor.execute(who, "no room", session_id="new")
    assert (refused.value.agent_type, refused.value.queued, refused.value.limit) == ("worker", 1, 1)
    assert not await on.executor.sessions.exists("new"), "nothing was written"
    with pytest.raises(AgentAlreadyRunningError):
        await on.executor.execute(who, "again", session_id=waiting.session_id)
    pending = (await on.session(told)).pending[0]
    await on.executor.answer(who, told["session_id"], Confirmation(tool_call_id=pending.call_id, approved=True))
    assert [t.candidate.session_id for t in await on.slots.queue("worker")] == [waiting.session_id, paused.session_id]
    for handle in (working, waiting, await on.executor.get_handle(who, paused.session_id)):
        await on.end(event(on, handle))
    assert await at_rest(on.slots)


async def test_who_comes_while_the_queue_fills_up_fails_and_may_retry() -> None:
    """The bound holds exactly, also among callers that were all told that there is room."""
    who, store = worker(1), Meanwhile()
    on = stage(who, store=store, queue={"max_queue": 1})
    handles = await come(on, who, 1)
    store.before["claim_execute"] = lambda: come(on, who, 1)
    late = await on.executor.execute(who, "message 2")
    handles += [await on.executor.get_handle(who, (await on.slots.queue("worker"))[0].candidate.session_id), late]
    result = await handles[2].result(timeout_s=5)
    assert (result.status, result.error_code, result.recoverable) == ("failed", "queue_full", True)
    await on.end(event(on, handles[0]))
    again = await handles[2].retry()
    for handle in (handles[1], again):
        await on.end(event(on, handle))
    messages = await on.executor.sessions.load_conversation_messages(handles[2].session_id)
    assert [m.content for m in messages] == ["message 2", "Done."] and await at_rest(on.slots)


async def test_who_waits_too_long_fails_and_may_retry() -> None:
    """A run that is given a slot at that moment works instead."""
    who = worker(1)
    on = stage(who, queue={"queue_timeout_s": 60})
    first, second, third = await come(on, who, 3)
    on.clock.ahead_s = 50
    assert await on.deliver("sweep") == {"running": 1, "queued": 2}
    on.clock.ahead_s = 61
    assert await on.deliver("sweep") == {"running": 1, "timed out": 2}
    for handle in (second, third):
        result = await handle.result(timeout_s=5)
        assert (result.status, result.error_code, result.recoverable) == ("failed", "queue_timeout", True)
        assert "waited 61 s for a slot of agent 'worker'" in (result.error or "")
        assert (await chunks_of(handle))[-1].type == "error"
    again = await second.retry()
    on.clock.ahead_s = 200
    await on.slots.set_limit("worker", 2)
    assert (await on.deliver("sweep"))["running"] == 1
    assert again.run_id in started(on), "its time was over, and there was room"
    for handle in (first, again):
        await on.end(event(on, handle))
    assert await at_rest(on.slots)


@pytest.mark.parametrize("write", ["take_slot", "take_ticket"])
async def test_who_is_aborted_before_it_is_admitted_gets_nothing(write: str) -> None:
    """The run ended first and had no slot to return. A slot that it got now would never be returned."""
    who, store = worker(1), Meanwhile()
    on = stage(who, store=store)
    others = await come(on, who, 1 if write == "take_ticket" else 0)
    store.before[write] = lambda: on.executor.abort(who, "late", "enough")
    late = await on.executor.execute(who, "go", session_id="late")
    assert await statuses(on, [late]) == ["failed"] and late.run_id not in started(on)
    for handle in others:
        await on.end(event(on, handle))
    assert await at_rest(on.slots)


async def test_a_start_that_came_late_is_not_timed_out() -> None:
    """Its starter paused before the start, and meanwhile a sweep gave the run a ticket. Now the run works without a
    slot."""
    who = agent("worker")
    on = stage(who, queue={"queue_timeout_s": 60})
    (handle,) = await come(on, who, 1)
    (part,) = on.held.starts
    on.held.states.clear()
    await on.slots.set_limit("worker", 0)
    on.clock.ahead_s = 30
    assert await on.deliver("sweep") == {"queued": 1}
    await on.held.start(part)
    on.clock.ahead_s = 100
    assert await on.deliver("sweep") == {"running": 1}
    await on.end(event(on, handle))
    assert await statuses(on, [handle]) == ["completed"] and await at_rest(on.slots)


async def test_hooks_hear_of_the_message_at_once_and_of_the_start_when_it_works() -> None:
    heard: list[str] = []
    names = ("on_message", "on_agent_start", "on_agent_complete")
    hooks = {name: lambda payload, ctx, name=name: heard.append(f"{name} {ctx.session_id}") for name in names}
    who = worker(1, hooks=hooks)
    on = stage(who)
    for session in "ab":
        await on.executor.execute(who, "go", session_id=session)
    assert heard == ["on_agent_start a", "on_message a", "on_message b"]
    for part in (on.held.starts[0], None):
        await on.end(event_of(part or on.held.starts[-1]))
    assert heard[3:] == [
        "on_message a",
        "on_agent_start b",
        "on_agent_complete a",
        "on_message b",
        "on_agent_complete b",
    ]


async def test_a_deleted_session_gives_its_slot_back() -> None:
    """The session is deleted between the end of its run and its effects. Only the slot is left, and the sweep finds it."""
    who = worker(1)
    on = stage(who)
    first, second = await come(on, who, 2)
    told = await on.follow(event(on, first))
    assert await on.executor.delete(first.session_id)
    await on.deliver("finish_run", told)
    assert started(on) == [first.run_id]
    on.clock.ahead_s = 30
    assert (await on.deliver("sweep"))["released"] == 1
    assert started(on) == [first.run_id, second.run_id]
    assert [execution_name(part) for part in on.held.starts] == started(on)


async def test_one_that_is_gone_holds_up_no_other_that_has_a_slot_now() -> None:
    who = worker(1)
    on = stage(who)
    handles = await come(on, who, 3)
    await on.store.transact("gone", [Delete(session_key(handles[1].session_id))])
    await set_limit(on.engine, "worker", 3)
    assert started(on) == [handles[0].run_id, handles[2].run_id]
