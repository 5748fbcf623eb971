"""The contract of `Budgets`: budget_exact, under many draws at once (PROTOCOL 7a)."""

from __future__ import annotations

import asyncio

import pytest

from helix.core.errors import InvalidInputError
from helix.ports.budgets import Budgets, BudgetState, Demand

B = "budget"


async def state(budgets: Budgets, budget: str = B) -> BudgetState:
    found = await budgets.get(budget)
    assert found is not None
    return found


def demand(estimate: int, wish: int | None = None, budget: str = B) -> Demand:
    return Demand(budget, "micros", estimate, estimate if wish is None else wish)


class BudgetsContract:
    """Give a fixture `budgets`; and `other`, what a second process would use on the same data, if there can be one."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def other(self, budgets: Budgets) -> Budgets:
        return budgets

    async def test_a_budget_is_made_by_its_limit(self, budgets: Budgets, other: Budgets) -> None:
        """Unknown before, full afterwards, the same for everyone."""
        assert await budgets.get(B) is None
        assert await budgets.set_limit(B, "micros", 100) == BudgetState(B, "micros", 100, 100)
        assert await other.get(B) == BudgetState(B, "micros", 100, 100)

    async def test_a_limit_moves_what_remains(self, budgets: Budgets) -> None:
        """Raising adds, lowering takes, never below zero; limit = remaining + drawn stays true."""
        await budgets.set_limit(B, "micros", 100)
        assert await budgets.draw("run", 1, [demand(60)]) == {B: 60}
        assert (await budgets.set_limit(B, "micros", 150)).remaining == 90
        assert (await budgets.set_limit(B, "micros", 80)).remaining == 20
        low = await budgets.set_limit(B, "micros", 10)
        assert low.remaining == 0 and low.limit == low.remaining + 60

    async def test_a_wrong_limit_is_refused(self, budgets: Budgets) -> None:
        """Negative limits and another unit raise `InvalidInputError`."""
        await budgets.set_limit(B, "micros", 100)
        with pytest.raises(InvalidInputError):
            await budgets.set_limit(B, "micros", -1)
        with pytest.raises(InvalidInputError):
            await budgets.set_limit(B, "tokens", 100)
        assert await state(budgets) == BudgetState(B, "micros", 100, 100)

    async def test_a_draw_is_at_least_the_estimate(self, budgets: Budgets) -> None:
        """The wish where there is enough, what remains where there is less, never below the estimate."""
        await budgets.set_limit(B, "micros", 100)
        assert await budgets.draw("run", 1, [demand(10, 50)]) == {B: 50}
        drawn = await budgets.draw("run", 2, [demand(10, 80)])
        assert drawn is not None and 10 <= drawn[B] <= 50
        assert (await state(budgets)).remaining == 50 - drawn[B]

    async def test_a_draw_over_the_line_takes_nothing(self, budgets: Budgets) -> None:
        """None where the estimate is not there; unknown budgets have nothing."""
        await budgets.set_limit(B, "micros", 100)
        assert await budgets.draw("run", 1, [demand(101)]) is None
        assert await budgets.draw("run", 2, [demand(1, budget="unknown")]) is None
        assert await budgets.draw("run", 3, [demand(100)]) == {B: 100}
        assert await budgets.draw("run", 4, [demand(1)]) is None
        assert (await state(budgets)).remaining == 0

    async def test_a_draw_on_several_budgets_is_one(self, budgets: Budgets) -> None:
        """Where one of them has too little, none is touched."""
        await budgets.set_limit(B, "micros", 100)
        await budgets.set_limit("small", "micros", 5)
        assert await budgets.draw("run", 1, [demand(50), demand(6, budget="small")]) is None
        assert ((await state(budgets)).remaining, (await state(budgets, "small")).remaining) == (100, 5)
        assert await budgets.draw("run", 2, [demand(50), demand(5, budget="small")]) == {B: 50, "small": 5}

    async def test_a_draw_happens_once(self, budgets: Budgets, other: Budgets) -> None:
        """(run, n) names a draw: a repeat answers what was drawn, and takes nothing; another n or run is another draw."""
        await budgets.set_limit(B, "micros", 100)
        first = await budgets.draw("run", 1, [demand(10, 30)])
        assert await other.draw("run", 1, [demand(10, 30)]) == first == {B: 30}
        assert (await state(other)).remaining == 70
        await budgets.draw("run", 2, [demand(10)])
        await budgets.draw("another", 1, [demand(10)])
        assert (await state(other)).remaining == 50

    async def test_a_draw_repeated_at_once_happens_once(self, budgets: Budgets, other: Budgets) -> None:
        """Also when the repeats come together."""
        await budgets.set_limit(B, "micros", 1000)
        drawn = await asyncio.gather(*((budgets, other)[n % 2].draw("run", 1, [demand(7)]) for n in range(12)))
        assert drawn == [{B: 7}] * 12
        assert (await state(budgets)).remaining == 993

    async def test_remaining_is_never_negative(self, budgets: Budgets, other: Budgets) -> None:
        """64 draws at once on a budget that cannot hold them: limit = remaining + drawn, and remaining >= 0 always."""
        await budgets.set_limit(B, "micros", 1000)
        lowest: list[int] = []

        async def draw(n: int) -> int:
            taken = await (budgets, other)[n % 2].draw(f"run{n}", 1, [demand(20 + n % 7, 40)])
            lowest.append((await state((other, budgets)[n % 2])).remaining)
            return taken[B] if taken is not None else 0

        drawn = await asyncio.gather(*(draw(n) for n in range(64)))
        after = await state(budgets)
        assert after.remaining + sum(drawn) == after.limit == 1000
        assert min(lowest) >= 0 and after.remaining < 27 and 0 in drawn

    async def test_what_was_not_used_comes_back(self, budgets: Budgets) -> None:
        """The run's draws are closed, and all but what it used remains again."""
        await budgets.set_limit(B, "micros", 100)
        await budgets.draw("run", 1, [demand(40)])
        await budgets.draw("run", 2, [demand(20)])
        await budgets.draw("another", 1, [demand(10)])
        await budgets.give_back("run", {B: 35})
        assert await state(budgets) == BudgetState(B, "micros", 100, 55)
        await budgets.give_back("another", {})
        assert await state(budgets) == BudgetState(B, "micros", 100, 65)

    async def test_giving_back_twice_changes_nothing(self, budgets: Budgets, other: Budgets) -> None:
        """A repeat, also at once and by another process, gives nothing more."""
        await budgets.set_limit(B, "micros", 100)
        for n in range(4):
            await budgets.draw("run", n, [demand(10)])
        await asyncio.gather(*((budgets, other)[n % 2].give_back("run", {B: 25}) for n in range(8)))
        await budgets.give_back("run", {B: 25})
        assert (await state(budgets)).remaining == 75

    async def test_giving_back_is_bounded_by_what_was_drawn(self, budgets: Budgets) -> None:
        """Who used more than he drew gives nothing; who drew nothing gives nothing; nobody gives more than he drew."""
        await budgets.set_limit(B, "micros", 100)
        for run in ("over", "under"):
            await budgets.draw(run, 1, [demand(10)])
        await budgets.give_back("over", {B: 500})
        await budgets.give_back("stranger", {B: 1})
        assert (await state(budgets)).remaining == 80
        await budgets.give_back("under", {B: -30})
        assert (await state(budgets)).remaining == 90

    async def test_nothing_is_lost_among_draws_and_returns(self, budgets: Budgets, other: Budgets) -> None:
        """Runs that draw, use some and return the rest, all at once: at rest remaining = limit - used."""
        await budgets.set_limit(B, "micros", 500)

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
