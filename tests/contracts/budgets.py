"""Contract of `RowBudgets`: the guarantee budget_exact under many concurrent draws (docs/protocol.md#budgets)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from helix.core.budget import AlertLevel, BudgetDefinition, TokenAlert
from helix.core.periods import TokenPeriod
from helix.ports.state_store import Put, Update
from helix.services.budget_rows import (
    COPIES,
    VERSION,
    BudgetChanges,
    BudgetState,
    Demand,
    budget_key,
    draw_key,
    version_copy,
)
from helix.services.row_budgets import RowBudgets

NOW = 1_800_000_000.0
B, SMALL = "global/total/micros/total", "agent:small/total/micros/total"


def definition(
    limit: int, *, scope: str = "global", period: TokenPeriod = TokenPeriod.TOTAL, **more: Any
) -> BudgetDefinition:
    return BudgetDefinition(scope=scope, period=period, unit="micros", limit=limit, **more)


async def made(budgets: RowBudgets, limit: int, *, scope: str = "global") -> None:
    """Define and open a budget with this limit and no period."""
    count = await budgets.define(definition(limit, scope=scope), NOW)
    assert await budgets.open(definition(limit, scope=scope), NOW, count)


async def state(budgets: RowBudgets, budget: str = B) -> BudgetState:
    (found,) = await budgets.get([budget])
    assert found is not None
    return found


def alert(level: AlertLevel, n: int) -> TokenAlert:
    return TokenAlert(
        alert_id=f"2027-01-15T08:00:00.{n:03d}+00:00#{B}#{level}",
        level=level,
        message=f"budget at {level}",
        scope="global",
        period=TokenPeriod.TOTAL,
        window="total",
        unit="micros",
        current=80,
        limit=100,
        utilization=0.8,
        timestamp=NOW + n,
    )


def demand(estimate: int, wish: int | None = None, budget: str = B) -> Demand:
    return Demand(budget, "micros", estimate, estimate if wish is None else wish)


class BudgetsContract:
    """Expects the fixture `budgets`. The fixture `other` is a second process's access to the same data, where that
    exists."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def other(self, budgets: RowBudgets) -> RowBudgets:
        return budgets

    async def test_a_window_is_opened_with_its_limit(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """A window is unknown until it is opened and then full for every process. Opening it again changes nothing."""
        assert await budgets.get([B, SMALL]) == [None, None]
        await made(budgets, 100)
        await budgets.draw("run", 1, [demand(60)])
        assert await other.open(definition(100), NOW, 1)
        assert await other.get([B, SMALL]) == [BudgetState(B, "micros", 100, 40, reserved=60), None]

    async def test_a_window_is_opened_by_what_is_defined_now(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """A caller that read the definitions before they changed cannot open a window."""
        assert await budgets.define(definition(100), NOW) == 1
        assert await other.define(definition(10), NOW) == 2
        assert not await budgets.open(definition(100), NOW, 1)
        assert await budgets.get([B]) == [None]
        assert await budgets.open(definition(10), NOW, 2)
        assert (await state(other)).limit == 10

    async def test_definitions_are_read_by_scope(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """A name has one definition. Defining it again replaces it, and undefining removes it."""
        hourly = definition(7, period=TokenPeriod.HOURLY, on_exceeded="pause", warning=0.5)
        for made_ in (definition(100), hourly, definition(5, scope="agent:a"), definition(50)):
            await budgets.define(made_, NOW)
        assert await other.definitions(["agent:a", "global", "agent:b"]) == [
            definition(5, scope="agent:a"),
            hourly,
            definition(50),
        ]
        assert len(await other.definitions()) == 3
        assert await other.undefine(hourly.name) and not await other.undefine(hourly.name)
        assert await budgets.definitions(["global"]) == [definition(50)]

    async def test_budgets_defined_at_once_are_all_there(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """No concurrent definition is lost, and every change is counted."""
        periods = list(TokenPeriod)
        defined = [definition(1 + n, scope=f"agent:{n // 5}", period=periods[n % 5]) for n in range(15)]
        counts = await asyncio.gather(*((budgets, other)[n % 2].define(d, NOW) for n, d in enumerate(defined)))
        assert sorted(counts) == list(range(1, 16))
        assert sorted(d.name for d in await budgets.definitions()) == sorted(d.name for d in defined)

    async def test_definitions_of_a_kind_are_read_alone(self, budgets: RowBudgets) -> None:
        for scope in ("session:b", "global", "agent:x", "session:a", "agents:no"):
            await budgets.define(definition(100, scope=scope), NOW)
        assert [d.scope for d in await budgets.definitions(kind="session")] == ["session:a", "session:b"]
        assert [d.scope for d in await budgets.definitions(kind="agent")] == ["agent:x"]
        assert await budgets.definitions(kind="tenant") == []

    async def test_a_scope_that_is_gone_leaves_nothing(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """Defining a forgotten scope again starts afresh. A caller with the old count learns that the count has changed."""
        daily = definition(100, scope="session:s", period=TokenPeriod.DAILY)
        total = definition(100, scope="session:s")
        retained = definition(100, scope="session:other")
        count = [await budgets.define(d, NOW) for d in (daily, total, retained)][-1]
        assert await budgets.open(total, NOW, count)
        assert await budgets.draw("run", 1, [demand(60, budget=total.window(NOW)[0])]) is not None
        await asyncio.gather(*((budgets, other)[n % 2].forget("session:s") for n in range(6)))
        assert await budgets.definitions() == [retained]
        assert not await budgets.open(retained, NOW, count)
        count = await budgets.define(total, NOW)
        assert await budgets.open(total, NOW, count)
        assert (await state(budgets, total.window(NOW)[0])).remaining == 100
        await budgets.forget("session:unknown")
        assert await budgets.define(retained, NOW) == count + 1, "nothing changed, and nothing was counted"

    async def test_a_limit_moves_what_remains(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """Raising the limit adds to the remainder and lowering it subtracts, below zero if more is drawn. Always, limit =
        remaining + drawn."""
        await made(budgets, 100)
        assert await budgets.draw("run", 1, [demand(60)]) == {B: 60}
        for limit in (150, 80, 10, 70):
            await other.define(definition(limit), NOW)
            assert await state(budgets) == BudgetState(B, "micros", limit, limit - 60, reserved=60)
        await budgets.define(definition(10), NOW)
        assert await budgets.draw("run", 2, [demand(1)]) is None
        await budgets.give_back("run", {B: 5})
        assert await budgets.draw("another", 1, [demand(6)]) is None, "the old limit's money does not come back"
        assert await budgets.draw("another", 2, [demand(5)]) == {B: 5}

    async def test_a_limit_moves_while_others_draw(self, budgets: RowBudgets, other: RowBudgets) -> None:
        await made(budgets, 1000)
        draws = [other.draw(f"run{n}", 1, [demand(10, 10)]) for n in range(20)]
        limits = [budgets.define(definition(1000 + n), NOW) for n in range(1, 6)]
        drawn = [d for d in await asyncio.gather(*draws, *limits) if isinstance(d, dict)]
        found = await state(budgets)
        assert found.remaining == found.limit - sum(d[B] for d in drawn) and len(drawn) == 20

    async def test_another_window_is_another_budget(self, budgets: RowBudgets) -> None:
        """Each window starts full, and a new limit applies only to the current window."""
        hourly = definition(100, period=TokenPeriod.HOURLY)
        now, later = (hourly.window(at)[0] for at in (NOW, NOW + 3600))
        count = await budgets.define(hourly, NOW)
        assert await budgets.open(hourly, NOW, count) and await budgets.open(hourly, NOW + 3600, count)
        await budgets.draw("run", 1, [demand(60, budget=now)])
        await budgets.define(hourly.model_copy(update={"limit": 70}), NOW + 3600)
        assert await budgets.get([now, later]) == [
            BudgetState(now, "micros", 100, 40, reserved=60),
            BudgetState(later, "micros", 70, 70),
        ]

    async def test_a_draw_is_at_least_the_estimate(self, budgets: RowBudgets) -> None:
        """A draw gets its wish if there is enough, otherwise what remains, but never less than the estimate."""
        await made(budgets, 100)
        assert await budgets.draw("run", 1, [demand(10, 50)]) == {B: 50}
        drawn = await budgets.draw("run", 2, [demand(10, 80)])
        assert drawn is not None and 10 <= drawn[B] <= 50
        assert (await state(budgets)).remaining == 50 - drawn[B]

    async def test_a_draw_over_the_line_takes_nothing(self, budgets: RowBudgets) -> None:
        """A draw returns None if its estimate does not fit. An unknown budget has nothing to draw."""
        await made(budgets, 100)
        assert await budgets.draw("run", 1, [demand(101)]) is None
        assert await budgets.draw("run", 2, [demand(1, budget="unknown")]) is None
        assert await budgets.draw("run", 3, [demand(100)]) == {B: 100}
        assert await budgets.draw("run", 4, [demand(1)]) is None
        assert (await state(budgets)).remaining == 0

    async def test_a_draw_on_several_budgets_is_one(self, budgets: RowBudgets) -> None:
        """If one of the budgets has too little, the draw takes nothing from any of them."""
        await made(budgets, 100)
        await made(budgets, 5, scope="agent:small")
        assert await budgets.draw("run", 1, [demand(50), demand(6, budget=SMALL)]) is None
        assert ((await state(budgets)).remaining, (await state(budgets, SMALL)).remaining) == (100, 5)
        assert await budgets.draw("run", 2, [demand(50), demand(5, budget=SMALL)]) == {B: 50, SMALL: 5}

    async def test_a_draw_happens_once(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """A draw is identified by (run, n). A repeat returns the same amount and takes nothing; another n or run is another
        draw."""
        await made(budgets, 100)
        first = await budgets.draw("run", 1, [demand(10, 30)])
        assert await other.draw("run", 1, [demand(10, 30)]) == first == {B: 30}
        assert (await state(other)).remaining == 70
        await budgets.draw("run", 2, [demand(10)])
        await budgets.draw("another", 1, [demand(10)])
        assert (await state(other)).remaining == 50

    async def test_a_draw_repeated_at_once_happens_once(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """Concurrent repeats of one draw also take the amount only once."""
        await made(budgets, 1000)
        drawn = await asyncio.gather(*((budgets, other)[n % 2].draw("run", 1, [demand(7)]) for n in range(12)))
        assert drawn == [{B: 7}] * 12
        assert (await state(budgets)).remaining == 993

    async def test_remaining_is_never_negative(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """The budget cannot hold all of 64 concurrent draws: limit = remaining + drawn, and remaining is never below 0."""
        await made(budgets, 1000)
        lowest: list[int] = []

        async def draw(n: int) -> int:
            taken = await (budgets, other)[n % 2].draw(f"run{n}", 1, [demand(20 + n % 7, 40)])
            lowest.append((await state((other, budgets)[n % 2])).remaining)
            return taken[B] if taken is not None else 0

        drawn = await asyncio.gather(*(draw(n) for n in range(64)))
        after = await state(budgets)
        assert after.remaining + sum(drawn) == after.limit == 1000
        assert min(lowest) >= 0 and after.remaining < 27 and 0 in drawn

    async def test_without_a_wish_a_block_is_a_hundredth(self, budgets: RowBudgets) -> None:
        """Without a wish, a draw takes about one percent of the remainder, but at least the estimate."""
        await made(budgets, 10_000)
        assert await budgets.draw("run", 1, [Demand(B, "micros", 7)]) == {B: 100}
        assert await budgets.draw("run", 2, [Demand(B, "micros", 7)]) == {B: 99}
        assert await budgets.draw("run", 3, [Demand(B, "micros", 5_000)]) == {B: 5_000}

    async def test_what_was_not_used_comes_back(self, budgets: RowBudgets) -> None:
        """Giving back closes the run's draws and returns everything that the run did not use."""
        await made(budgets, 100)
        await budgets.draw("run", 1, [demand(40)])
        await budgets.draw("run", 2, [demand(20)])
        await budgets.draw("another", 1, [demand(10)])
        await budgets.give_back("run", {B: 35})
        assert await state(budgets) == BudgetState(B, "micros", 100, 55, reserved=10)
        await budgets.give_back("another", {})
        assert await state(budgets) == BudgetState(B, "micros", 100, 65)

    async def test_what_is_spent_is_what_runs_have_reported(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """Spending that runs report at each draw and at their end counts once. It never falls when reservations are
        returned."""
        await made(budgets, 100)
        await budgets.draw("run", 1, [demand(20)])
        await budgets.draw("another", 1, [demand(30)])
        assert (await state(budgets)).spent == 0
        second = replace(demand(20), used=15)
        await asyncio.gather(*((budgets, other)[n % 2].draw("run", 2, [second]) for n in range(6)))
        assert (await state(other)).spent == 15
        await budgets.give_back("another", {})
        assert (await state(budgets)).spent == 15
        await asyncio.gather(*((budgets, other)[n % 2].give_back("run", {B: 33}) for n in range(6)))
        assert await state(budgets) == BudgetState(B, "micros", 100, 67)
        await other.draw("whole", 1, [demand(10)])
        await other.give_back("whole", {B: 10})
        assert (await state(budgets)).spent == 43, "even if nothing of the draw is left"

    async def test_a_draw_of_an_earlier_version_counts_as_spent(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """The draw's row does not record a reservation, and the window's row does not count one."""
        await made(budgets, 100)
        await budgets.draw("run", 1, [demand(20)])
        older = {"budget": B, "amount": 20, "state": "open"}
        window = Update(budget_key(B), add={"reserved": -20})
        await budgets._store.transact("older", [window, Put(draw_key("run", 1, B), older)])
        assert (await state(other)).spent == 20
        await other.give_back("run", {B: 5})
        assert await state(budgets) == BudgetState(B, "micros", 100, 95)

    async def test_giving_back_twice_changes_nothing(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """Repeating the return changes nothing, also concurrently and from another process."""
        await made(budgets, 100)
        for n in range(4):
            await budgets.draw("run", n, [demand(10)])
        await asyncio.gather(*((budgets, other)[n % 2].give_back("run", {B: 25}) for n in range(8)))
        await budgets.give_back("run", {B: 25})
        assert (await state(budgets)).remaining == 75

    async def test_part_of_the_budgets_is_given_back(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """A run that continues keeps its draws on the other budgets. Its end closes those and does not return the first
        part again."""
        await made(budgets, 100)
        await made(budgets, 50, scope="agent:small")
        await budgets.draw("run", 1, [demand(40), demand(20, budget=SMALL)])
        await budgets.draw("run", 2, [demand(10), demand(10, budget=SMALL)])
        await asyncio.gather(*((budgets, other)[n % 2].give_back("run", {B: 35}, part=True) for n in range(6)))
        assert ((await state(budgets)).remaining, (await state(budgets, SMALL)).remaining) == (65, 20)
        # by a worker that does not know yet that the part was returned; nothing of it is used
        await budgets.draw("run", 3, [demand(7)])
        await budgets.give_back("run", {SMALL: 25})
        assert ((await state(budgets)).remaining, (await state(budgets, SMALL)).remaining) == (65, 25)

    async def test_very_many_draws_are_given_back(self, budgets: RowBudgets) -> None:
        """A run has more draws than one transaction can hold."""
        await made(budgets, 1000)
        for n in range(250):
            await budgets.draw("run", n, [demand(2, 2)])
        await budgets.give_back("run", {B: 333})
        assert (await state(budgets)).remaining == 667

    async def test_nobody_gives_more_than_he_drew(self, budgets: RowBudgets) -> None:
        """A run that drew nothing neither returns nor takes anything."""
        await made(budgets, 100)
        await budgets.draw("under", 1, [demand(10)])
        await budgets.give_back("stranger", {B: 1})
        assert (await state(budgets)).remaining == 90
        await budgets.give_back("under", {B: -30})
        assert (await state(budgets)).remaining == 100

    async def test_what_was_used_beyond_the_draws_is_taken(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """Overuse is taken once from the remainder, below zero if necessary. After that nothing can be drawn."""
        await made(budgets, 100)
        for n in range(3):
            await budgets.draw("over", n, [demand(10)])
        await asyncio.gather(*((budgets, other)[n % 2].give_back("over", {B: 45}) for n in range(6)))
        assert (await state(budgets)).remaining == 55
        await budgets.draw("more", 1, [demand(50)])
        await budgets.give_back("more", {B: 65})
        await budgets.give_back("more", {B: 65})
        assert await state(budgets) == BudgetState(B, "micros", 100, -10)
        assert await budgets.draw("next", 1, [demand(1)]) is None

    async def test_nothing_is_lost_among_draws_and_returns(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """Concurrent runs draw, use a part and return the rest. At the end, remaining = limit - used."""
        await made(budgets, 500)

        async def run(n: int) -> int:
            mine, drawn = (budgets, other)[n % 2], 0
            for k in range(2):
                taken = await mine.draw(f"run{n}", k, [demand(5, 12)])
                drawn += taken[B] if taken is not None else 0
            used = min(drawn, n % 10)
            await mine.give_back(f"run{n}", {B: used})
            return used

        used = await asyncio.gather(*(run(n) for n in range(24)))
        assert (await state(budgets)).remaining == 500 - sum(used)

    async def test_an_alert_is_raised_once(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """An alert is raised once per window and level by the first caller, and the window lists the levels raised."""
        await made(budgets, 100)
        raised = await asyncio.gather(
            *((budgets, other)[n % 2].alert(B, alert("warning", n), 10**10) for n in range(8))
        )
        assert raised.count(True) == 1
        assert not await other.alert(B, alert("warning", 99), 10**10)
        assert await other.alert(B, alert("critical", 1), 10**10)
        assert (await state(budgets)).reported == {"warning", "critical"}

    async def test_a_raised_limit_raises_alerts_anew(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """After the limit was raised, each level can be raised once more. Setting the same or a lower limit does not allow
        it."""
        await made(budgets, 100)
        await budgets.alert(B, alert("warning", 1), 10**10)
        await budgets.alert(B, alert("critical", 2), 10**10)
        await other.define(definition(1000), NOW)
        assert (await state(budgets)).reported == frozenset()
        assert await budgets.alert(B, alert("critical", 3), 10**10)
        for limit in (1000, 500):
            await other.define(definition(limit), NOW)
            assert not await budgets.alert(B, alert("critical", 4), 10**10)

    async def test_every_copy_of_the_count_has_each_change(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """Steps of different sessions read different copies. A missing copy falls back to the count of an older version."""
        store = budgets._store
        await store.transact("older", [Put(VERSION, {"n": 7})])
        changes = BudgetChanges(store)
        assert await changes.read("s", []) == ([], 7)
        assert await other.define(definition(100), NOW) == 8
        assert {(await changes.read(f"s{n}", []))[1] for n in range(50)} == {8}
        assert await other.undefine(definition(100).name)
        assert {(await changes.read(f"s{n}", []))[1] for n in range(50)} == {9}
        keys = {version_copy(crc32(f"s{n}".encode())) for n in range(200)}
        assert len(keys) == COPIES
