"""One `get` does not read several rows at one moment. Changes between the reads are not lost."""

from __future__ import annotations

import pytest
from tests.support.torn_store import Torn

from helix.core.budget import BudgetDefinition
from helix.core.health import HealthResult
from helix.core.periods import TokenPeriod
from helix.fleet import health_rows
from helix.services.budget_rows import Demand
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate

NOW = 1_795_271_707.0
FIRST, SECOND = (Candidate("a", f"run-{n}", f"session-{n}", NOW + n) for n in range(2))


@pytest.mark.parametrize("act", ["release", "admit"])
async def test_a_ticket_that_becomes_a_slot_between_two_reads_is_seen(act: str) -> None:
    store = Torn()
    slots = RowSlots(store, account_limit=None, max_queue=1, queue_timeout_s=60)
    assert (await slots.admit(FIRST, default=1)).state == "held"
    assert (await slots.admit(SECOND, default=1)).state == "waits"
    store.at, store.then = "#slots#", lambda: RowSlots(store, account_limit=None).release(FIRST)
    if act == "admit":
        assert (await slots.admit(SECOND, default=1)).state == "held"
    else:
        await slots.release(SECOND)
        assert await slots.holders("a") == []


async def test_a_draw_that_a_second_caller_made_between_two_reads_is_not_refused() -> None:
    store = Torn()
    budgets = RowBudgets(store)
    definition = BudgetDefinition(scope="global", period=TokenPeriod("day"), unit="micros", limit=100)
    assert await budgets.open(definition, NOW, await budgets.define(definition, NOW))
    name, _ = definition.window(NOW)
    wanted = [Demand(name, "micros", 100, 100)]
    store.at, store.then = "run#", lambda: RowBudgets(store).draw("r", 1, wanted)
    assert await budgets.draw("r", 1, wanted) == {name: 100}
    assert await budgets.draw("r", 2, wanted) is None


async def test_a_target_stays_listed_whose_first_result_comes_while_others_are_forgotten() -> None:
    store = Torn()

    async def save(check: str, at: float) -> None:
        await health_rows.save(store, "agent", check, lambda _: HealthResult(check=check, checked_at=at))

    await save("old", NOW)
    store.at, store.then = "health#agent", lambda: save("new", NOW + 1)
    await health_rows.forget(store, "agent", "old")
    assert [result.check for result in await health_rows.results(store, "agent")] == ["new"]
    assert await health_rows.targets(store) == ["agent"]
    await health_rows.forget(store, "agent", None)
    assert await health_rows.targets(store) == []
