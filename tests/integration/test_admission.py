"""Slots before executions: which runs work, which wait, and which are refused. The test plays the platform, see
`delivery_stage`."""

from __future__ import annotations

import pytest
from tests.contracts.slots_races import at_rest
from tests.support.admission import come, event, stage, started, statuses, worker
from tests.support_gateway import Desk
from tests.support_run import agent

from helix.core.errors import InvalidInputError
from helix.core.resources import profile_digest
from helix.engine.runs.admission import gauges
from helix.engine.runs.intake import set_limit


async def test_a_run_starts_on_the_machine_of_its_agent() -> None:
    """Functions know agents with their own tables by a digest, because the names of a hundred would exceed Lambda's 4
    KB."""
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
        assert started(on) == ids[: n + 4], "each end admits exactly the next run"
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
    """Runs at work continue with a limit of 0. When the limit is raised, the line is served in its order."""
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
    assert late.run_id not in started(on), "one run is at work, which is the limit"
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
    """No agent starves, because the account has one line."""
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
    on.held.states[first.run_id] = "ended"  # its process died
    swept = await on.deliver("sweep")
    assert swept["failed run"] == 1 and sum(swept.values()) == 2  # the second run starts before or after
    assert started(on) == [first.run_id, second.run_id]
    await on.end(event(on, second))
    assert await at_rest(on.slots)


async def test_a_client_is_refused_with_a_reason_and_may_let_others_go_first() -> None:
    """Over the socket no client goes before others, however high its priority."""
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
    """1 is next. A run that works or has ended is not in line."""
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
