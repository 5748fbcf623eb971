"""Windows of budgets. A run that crosses into the next window draws from that window, and settles where it reserved."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support_budgets import asks, bounded_executor, left, manager, says, worker
from tests.support_run import Gate, World, a_tool, call, play

from helix import LocalExecutor
from helix.core.budget import BudgetDefinition
from helix.core.periods import TokenPeriod
from helix.core.run_row import RunRow
from helix.engine.engine import Settings
from helix.fleet.budgets import BudgetManager
from helix.ports.state_store import Delete, Key
from helix.testing.clocks import SetClock

HOUR = 3600
START = 1_800_000_000 - 1_800_000_000 % HOUR + 60.0
PATIENT = Settings(stop_poll_s=0.01, claim_s=1e9)


class Late(SetClock):
    """A clock that stands still, and moves an hour ahead each time a tool asks for it. Sleepers wake at once."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)


@pytest.fixture
def clock() -> Late:
    return Late(START)


def executor_at(world: World, clock: Late, script: Any) -> tuple[LocalExecutor, BudgetManager]:
    executor = bounded_executor(world, script, clock=clock, settings=PATIENT)
    return executor, manager(executor)


def hour_passes(clock: Late) -> Any:
    return a_tool("wait", lambda given, ctx: clock.advance(HOUR) or "an hour later")


async def run_row(executor: LocalExecutor, handle: Any) -> RunRow:
    return await executor.engine.history.run(handle.session_id, handle.run_id)


async def test_a_run_that_crosses_an_hour_is_in_both(world: World, clock: Late) -> None:
    """Each call is settled into the window that it was reserved from. Unused reservations return to both windows."""
    executor, budgets = executor_at(world, clock, [asks(30, call("wait")), asks(50, call("wait")), says("done", 70)])
    hourly = await budgets.set_budget(1000, TokenPeriod.HOURLY)
    daily = await budgets.set_budget(1000, TokenPeriod.DAILY)
    handle, result, _ = await play(executor, worker(tools=[hour_passes(clock)]))
    assert result.status == "completed"
    assert [await left(executor, hourly, -h * HOUR) for h in (2, 1, 0)] == [(1000, 970), (1000, 950), (1000, 930)]
    assert await left(executor, daily) == (1000, 850)
    blocks = (await run_row(executor, handle)).blocks
    assert [(b.spent, b.closed) for b in blocks if "/hour/" in b.budget] == [(50, True), (70, False)]


async def test_a_run_that_goes_on_for_days_stays_small(quick_world: World, clock: Late) -> None:
    """The session's row is written twice a step, and holds at most two windows of a budget. The other windows are settled,
    and stay so at the run's end."""
    hours, sizes = 60, list[int]()

    async def wait(given: Any, ctx: Any) -> str:
        sizes.append(len((await executor.engine.history.existing("days")).blocks))
        clock.advance(HOUR)
        return "an hour later"

    executor, budgets = executor_at(quick_world, clock, [*[asks(10, call("wait"))] * hours, says("done", 10)])
    hourly = await budgets.set_budget(1000, TokenPeriod.HOURLY)
    daily = await budgets.set_budget(10_000, TokenPeriod.DAILY)
    await play(executor, worker(tools=[a_tool("wait", wait)], max_steps=None), session_id="days")
    assert max(sizes) == 4 and sizes[-1] <= 4
    assert {await left(executor, hourly, -h * HOUR) for h in range(hours + 1)} == {(1000, 990)}
    used = [10_000 - remaining for _, remaining in [await left(executor, daily, -d * 24 * HOUR) for d in range(3)]]
    assert sum(used) == 10 * (hours + 1)


async def test_a_new_window_begins_full_with_the_limit_of_its_day(quick_world: World, clock: Late) -> None:
    """An exhausted window refuses a call. The next window lets the same run continue, with the limit that is defined by
    then."""
    executor, budgets = executor_at(quick_world, clock, [says("one", 100), says("two", 100), says("three", 100)])
    budget = await budgets.set_budget(150, TokenPeriod.HOURLY)
    assert (await play(executor, worker()))[1].status == "completed"
    handle, result, _ = await play(executor, worker())
    assert result.error_code == "budget_exceeded"
    clock.advance(HOUR)
    assert (await (await handle.retry()).result()).status == "completed"
    assert [await left(executor, budget, -h * HOUR) for h in (1, 0)] == [(150, 50), (150, 50)]
    clock.advance(HOUR)
    raised = await budgets.set_budget(400, TokenPeriod.HOURLY)
    assert (await play(executor, worker()))[1].status == "completed"
    assert await left(executor, raised) == (400, 300)
    assert await left(executor, raised, -HOUR) == (150, 50), "a past window keeps its limit"


async def test_the_answer_comes_in_the_next_hour(quick_world: World, clock: Late) -> None:
    """The call was reserved in the previous window and is charged there."""

    def late(request: Any) -> dict[str, Any]:
        clock.advance(HOUR)
        return says("done", 60)

    executor, budgets = executor_at(quick_world, clock, [late])
    budget = await budgets.set_budget(1000, TokenPeriod.HOURLY)
    assert (await play(executor, worker()))[1].status == "completed"
    assert [await left(executor, budget, -h * HOUR) for h in (1, 0)] == [(1000, 940), (1000, 1000)]


async def test_what_a_dead_worker_held_is_assumed_where_it_was_reserved(quick_world: World, clock: Late) -> None:
    """The worst case of an interrupted call counts in its own window, in whichever hour its run ends."""

    gate = Gate()

    async def model(request: Any) -> Any:
        clock.advance(HOUR)
        await gate.wait()

    executor, budgets = executor_at(quick_world, clock, [asks(10, call("look")), model])
    budget = await budgets.set_budget(1000, TokenPeriod.HOURLY)
    who = worker(tools=[a_tool("look", lambda given, ctx: "seen")])
    handle = await executor.execute(who, "go", session_id="ses")
    await gate.reached()
    await executor.interrupt("ses")
    assert (await handle.result(timeout_s=10)).status == "interrupted"
    assert [await left(executor, budget, -h * HOUR) for h in (1, 0)] == [(1000, 890), (1000, 1000)]


@pytest.mark.parametrize("period", list(TokenPeriod))
async def test_windows_are_removed_in_their_time(quick_world: World, clock: Late, period: TokenPeriod) -> None:
    """A window's row has the time after which it is no longer needed, and so has a closed draw. `total` never expires."""
    executor, budgets = executor_at(quick_world, clock, [says("done", 10)])
    definition: BudgetDefinition = await budgets.set_budget(1000, period)
    handle, _, _ = await play(executor, worker())
    name, window = definition.window(clock.now())
    (row,) = await executor.store.query("control", f"budget#{name}")
    (draw,) = await executor.store.query("control", f"run#{handle.run_id}")
    assert draw.value["state"] == "returned" and draw.value["ttl"] > clock.now() + 24 * HOUR
    if window.end is None:
        assert "ttl" not in row.value
    else:
        assert row.value["ttl"] > window.end
    await executor.engine.budgets.give_back(handle.run_id, {})
    assert await left(executor, definition) == (1000, 990)


async def test_a_draw_outlives_its_window(quick_world: World, clock: Late) -> None:
    """The window's row expired before the run ended. There is nothing to return, and the run ends."""
    executor, budgets = executor_at(quick_world, clock, [asks(10, call("wait")), says("done", 10)])
    definition = await budgets.set_budget(1000, TokenPeriod.HOURLY)
    name, _ = definition.window(clock.now())

    async def expires(given: Any, ctx: Any) -> str:
        await executor.store.transact("expire", [Delete(Key("control", f"budget#{name}", "budget"))])
        clock.advance(HOUR)
        return "gone"

    handle, result, _ = await play(executor, worker(tools=[a_tool("wait", expires)]))
    assert result.status == "completed"
    rows = await executor.store.query("control", f"run#{handle.run_id}")
    assert len(rows) == 2 and all(row.value["state"] == "returned" for row in rows)
