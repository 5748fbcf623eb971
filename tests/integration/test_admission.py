"""Slots before executions: who works, who waits, who is refused. The test is the platform: see `delivery_stage`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.contracts.slots_races import at_rest
from tests.support.delivery_stage import Json, Stage, event_of
from tests.support_gateway import Desk
from tests.support_run import a_tool, agent, call, calls, chunks_of

from helix import Confirmation, MemoryStateStore, ScriptedModel
from helix.core.agents import AnyAgent
from helix.core.errors import AgentAlreadyRunningError, InvalidInputError, QueueFullError
from helix.core.handles import AgentExecutionHandle
from helix.core.resources import profile_digest
from helix.engine.history import session_key
from helix.engine.runs.admission import gauges
from helix.engine.runs.intake import set_limit
from helix.ports.launcher import execution_name
from helix.ports.state_store import Delete, Operation

Handle = AgentExecutionHandle[Any]


class Meanwhile(MemoryStateStore):
    """Something happens before a transaction of that name, once."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Callable[[], Awaitable[Any]]] = {}

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if (first := self.before.pop(name, None)) is not None:
            await first()
        await super().transact(name, operations)


def worker(limit: int = 1, name: str = "worker", **fields: Any) -> AnyAgent:
    return agent(name, resources={"max": limit}, **fields)


def stage(*agents: AnyAgent, script: Any = None, **options: Any) -> Stage:
    return Stage(script or ScriptedModel(["Done."], repeat=True), *agents, **options)


async def come(on: Stage, who: AnyAgent, times: int, **options: Any) -> list[Handle]:
    return [await on.executor.execute(who, f"message {n}", **options) for n in range(times)]


def started(on: Stage) -> list[str]:
    """Runs by their first start, in order."""
    return list(dict.fromkeys(part.run_id for part in on.held.starts))


def event(on: Stage, handle: Handle) -> Json:
    """What its execution was started with; it must have been."""
    return event_of(next(part for part in on.held.starts if part.run_id == handle.run_id))


async def statuses(on: Stage, handles: list[Handle]) -> list[str]:
    return [(await on.executor.sessions.get_run(h.session_id, h.run_id)).status for h in handles]


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_a_run_starts_on_the_machine_of_its_agent() -> None:
    """Functions know agents with tables of their own by a digest: names of a hundred would exceed Lambda's 4 KB."""
    clerk = "clerk_of_the_department_of_customer_support"
    agents = agent(clerk), agent("desk"), worker()
    on = stage(*agents, own_profiles=frozenset({profile_digest(clerk)}))
    for each in agents:
        await on.executor.execute(each, "go")
    assert [part.profile for part in on.held.starts] == [clerk, "default", "worker"]


async def test_ten_runs_on_three_slots_go_in_their_order() -> None:
    who = worker(3)
    on = stage(who)
    handles = await come(on, who, 10)
    ids = [h.run_id for h in handles]
    assert started(on) == ids[:3] and await statuses(on, handles) == ["running"] * 10
    for n, handle in enumerate(handles):
        await on.end(event(on, handle))
        assert started(on) == ids[: n + 4], "each end lets in exactly the next"
    assert await statuses(on, handles) == ["completed"] * 10 and await at_rest(on.slots)
    assert len(on.measured.of("QueueWait")) == 7 and on.measured.of("QueueDepth") == [1, 2, 3, 4, 5, 6, 7]


async def test_without_a_limit_admission_writes_nothing() -> None:
    who = agent("free")
    on = stage(who)
    for handle in await come(on, who, 3):
        await on.end(event(on, handle))
    assert await on.store.query("control", "admission") == []


async def test_an_agent_that_asks_for_resources_has_one_slot_unless_it_asks_for_more() -> None:
    small, large = agent("small", resources={"memory": 512}), agent("large", resources={"max": 2})
    on = stage(small, large)
    await come(on, small, 3)
    await come(on, large, 3)
    assert len(started(on)) == 1 + 2
    found = await gauges(on.engine)
    assert found["small"] == {"QueueDepth": 2, "RunsActive": 1, "ConcurrencyLimit": 1}
    assert found["large"] == {"QueueDepth": 1, "RunsActive": 2, "ConcurrencyLimit": 2}
    assert found[None] == {"QueueDepth": 3, "RunsActive": 3}


async def test_an_intake_that_was_stopped_drains_in_its_order() -> None:
    """Limit 0 lets those go on that work; raised, the line is served as it stands."""
    who = worker(2)
    on = stage(who)
    handles = await come(on, who, 6)
    await set_limit(on.engine, "worker", 0)
    for handle in handles[:2]:
        await on.end(event(on, handle))
    assert started(on) == [h.run_id for h in handles[:2]]
    await set_limit(on.engine, "worker", 3)
    assert started(on) == [h.run_id for h in handles[:5]]
    await on.end(event(on, handles[3]))
    assert started(on) == [h.run_id for h in handles]
    await set_limit(on.engine, "worker", 1)
    late = (await come(on, who, 1))[0]
    for handle in (handles[2], handles[4]):
        await on.end(event(on, handle))
    assert late.run_id not in started(on), "one is at work, which is as many as may"
    await on.end(event(on, handles[5]))
    await on.end(event(on, late))
    assert await at_rest(on.slots)


async def test_priorities_go_first_and_stay_with_the_session() -> None:
    who = worker(1)
    on = stage(who)
    (first,) = await come(on, who, 1)
    low, normal, high = [await on.executor.execute(who, "go", priority=p) for p in (-1, None, 7)]
    for handle in (first, high, normal, low):
        await on.end(event(on, handle))
    assert started(on) == [first.run_id, high.run_id, normal.run_id, low.run_id]
    (busy,) = await come(on, who, 1)
    (other,) = await come(on, who, 1)
    again = await on.executor.execute(who, "more", session_id=high.session_id)
    for handle in (busy, again, other):
        await on.end(event(on, handle))
    with pytest.raises(InvalidInputError, match="priority"):
        await on.executor.execute(who, "go", priority=1000)


async def test_one_limit_for_all_agents_serves_them_in_the_order_of_their_claims() -> None:
    """None starves: the line of the account is one."""
    one, two = agent("one"), agent("two")
    on = stage(one, two, queue={"account_limit": 2})
    handles = []
    for _ in range(4):
        handles += [*await come(on, one, 2), *await come(on, two, 1)]
    for handle in handles:
        await on.end(event(on, handle))
    assert started(on) == [h.run_id for h in handles] and await at_rest(on.slots)


async def test_a_silent_run_keeps_its_slot_as_long_as_it_runs() -> None:
    who = worker(1)
    on = stage(who, queue={"queue_timeout_s": 10**9})
    first, second = await come(on, who, 2)
    on.clock.ahead_s = 10**6
    assert await on.deliver("sweep") == {"running": 1, "queued": 1}
    on.held.states[first.run_id] = "ended"  # it died without a word
    swept = await on.deliver("sweep")
    assert swept["failed run"] == 1 and sum(swept.values()) == 2  # the second is looked at before it starts, or after
    assert started(on) == [first.run_id, second.run_id]
    await on.end(event(on, second))
    assert await at_rest(on.slots)


async def test_a_client_is_refused_with_a_reason_and_may_let_others_go_first() -> None:
    """Over the socket nobody goes before others, however high a number is named."""
    who = worker(1)
    on = stage(who, queue={"max_queue": 2})
    desk = Desk(on.executor, anonymous=True)
    await desk.connect("c", None)
    for priority in (None, -5, 0):
        asked = {} if priority is None else {"priority": priority}
        assert (await desk.ask("c", "run", agent="worker", message="go", **asked))["type"] == "reply"
    assert [ticket.candidate.priority for ticket in await on.slots.queue("worker")] == [0, -5]
    error = (await desk.ask("c", "run", agent="worker", message="go"))["error"]
    assert (error["code"], error["recoverable"]) == ("queue_full", True)
    assert error["details"] == {"agent_type": "worker", "queued": 2, "limit": 2}
    for priority in (1, 999, -1000):
        error = (await desk.ask("c", "run", agent="worker", message="go", priority=priority))["error"]
        assert (error["code"], error["details"]) == ("invalid_message", {"field": "priority"})
        assert "-999 to 0" in error["message"]


async def test_a_client_is_told_where_its_run_stands_in_the_line() -> None:
    """1 is next. A run that works, or has ended, is not in line."""
    who = worker(1)
    on = stage(who, queue={"queue_timeout_s": 60})
    desk = Desk(on.executor, anonymous=True)
    await desk.connect("c", None)
    first, second, third = await come(on, who, 3)

    async def places() -> list[int | None]:
        asked = [await desk.ask("c", "get_session", session_id=h.session_id) for h in (first, second, third)]
        return [answer["result"].get("queued", {}).get("place") for answer in asked]

    assert await places() == [None, 1, 2]
    run = await on.executor.sessions.get_run(second.session_id, second.run_id)
    told = (await desk.ask("c", "get_session", session_id=second.session_id))["result"]["queued"]
    assert told == {"place": 1, "expires_at": run.started_at + 60, "reason": None}
    await on.end(event(on, first))
    assert await places() == [None, None, 1]


# --- the line ---------------------------------------------------------------------------------------------------------


async def test_who_waits_is_told_so_on_its_stream() -> None:
    who = worker(1)
    on = stage(who, queue={"queue_timeout_s": 60})
    first, second, third = await come(on, who, 3)
    for handle in (first, second, third):
        await on.end(event(on, handle))
    told = [[c for c in await chunks_of(h) if c.type == "run_queued"] for h in (first, second, third)]
    assert [[c.queued for c in chunks] for chunks in told] == [[], [1], [2]]
    run = await on.executor.sessions.get_run(second.session_id, second.run_id)
    assert told[1][0].expires_at == run.started_at + 60


async def test_who_waits_because_of_a_budget_sees_which() -> None:
    """On the stream if the run came after the stop, and in `get_session` also if it waited before."""
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
    shown = [[c.reason for c in await chunks_of(h) if c.type == "run_queued"] for h in (before, after)]
    assert shown == [[None], ["stopped by budget agent:worker/day/micros"]]


@pytest.mark.parametrize("how", ["interrupt", "abort"])
async def test_who_waits_may_be_stopped_at_once(how: str) -> None:
    """No execution is ever started for it, its ticket goes, and those behind it move up."""
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
        assert (await again.result(timeout_s=5)).status == "completed", "it was only put off"


async def test_who_is_stopped_before_it_has_a_ticket_gets_none() -> None:
    """The stop comes between the claim and the admission: whoever puts the ticket sees it."""
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
    """The bound holds to the last one, also among callers that were all told that there is room."""
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
    """Unless it is given a slot in that moment: then it works."""
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
    """Its end came first, and gave back what it held: nothing. A slot given now would never come back."""
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
    """Its starter stood still before the start, a sweep gave the run a ticket meanwhile: now it works without a slot."""
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
    """Deleted between the end of its run and its effects: nothing but the slot is left, and the sweep finds it."""
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
