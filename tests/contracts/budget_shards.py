"""Contract of a budget window that is divided among shards: the limit holds whichever part a draw uses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.contracts.budgets import NOW, B, alert, definition, demand, made, state

from helix.ports.state_store import Key, Operation, StateStore, Update
from helix.services.budget_rows import BudgetState, Demand, budget_key, part_key
from helix.services.budget_shards import shard_of
from helix.services.row_budgets import RowBudgets

SHARDS = 8
LIMIT = 6400


async def divided(budgets: RowBudgets, limit: int = LIMIT) -> None:
    """Open a budget with this limit and lend half of it to shards."""
    await made(budgets, limit)
    await budgets.draw("first", 1, [Demand(B, "micros", 1)])
    await budgets.give_back("first", {})


async def parts(budgets: RowBudgets) -> list[int]:
    keys = [part_key(B, number) for number in range(SHARDS + 1)]
    return [value["remaining"] if value is not None else 0 for value in await budgets._store.get(keys)]


class BudgetShardsContract:
    """Expects two fixtures, `budgets` and `other`, that divide windows among `SHARDS`."""

    @pytest.fixture
    def other(self, budgets: RowBudgets) -> RowBudgets:
        return budgets

    async def test_what_remains_is_the_sum(self, budgets: RowBudgets, other: RowBudgets) -> None:
        await divided(budgets)
        assert await parts(budgets) == [LIMIT // 2, *[LIMIT // 2 // SHARDS] * SHARDS]
        drawn = await budgets.draw("run", 1, [demand(10)])
        assert drawn == {B: 10} and await state(other) == BudgetState(B, "micros", LIMIT, LIMIT - 10, reserved=10)
        assert (await parts(budgets))[0] == LIMIT // 2, "a draw leaves the window's row alone"
        (seen,) = await other.at_least([B])
        assert seen == BudgetState(B, "micros", LIMIT, LIMIT // 2, bound=True)

    async def test_a_window_for_few_calls_is_one_row(self, budgets: RowBudgets) -> None:
        await made(budgets, 100)
        assert await budgets.draw("run", 1, [demand(10)]) == {B: 10}
        assert await parts(budgets) == [90, *[0] * SHARDS]

    async def test_a_row_of_an_earlier_version_is_divided(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """The window is divided in mid-period, with open draws. Amounts that the earlier version returns go to the window's
        row."""
        before, store = RowBudgets(budgets._store), budgets._store
        await made(before, LIMIT)
        await before.draw("old", 1, [demand(400)])
        drawn = await asyncio.gather(*((budgets, other)[n % 2].draw(f"run{n}", 1, [demand(10)]) for n in range(12)))
        assert drawn == [{B: 10}] * 12
        assert await state(before) == BudgetState(B, "micros", LIMIT, LIMIT - 520, reserved=520), (
            "a reader of one row sees shards too"
        )
        await budgets.give_back("old", {B: 100})
        await store.transact("older", [Update(budget_key(B), add={"remaining": 10})])
        assert (await state(budgets)).remaining == LIMIT - 100 - 110

    async def test_draws_at_once_do_not_pass_the_limit(self, budgets: RowBudgets, other: RowBudgets) -> None:
        await divided(budgets, 640)

        async def draw(n: int) -> int:
            taken = await (budgets, other)[n % 2].draw(f"run{n}", 1, [demand(15 + n % 7)])
            return taken[B] if taken is not None else 0

        drawn = await asyncio.gather(*(draw(n) for n in range(64)))
        assert (await state(budgets)).remaining == 640 - sum(drawn) >= 0
        assert min(await parts(budgets)) >= 0 and 0 in drawn

    async def test_a_draw_takes_the_last_pieces(self, budgets: RowBudgets) -> None:
        """A draw may combine the remainders of several parts, so a lone caller is not refused while the sum is large
        enough."""
        await divided(budgets)
        assert await budgets.draw("large", 1, [demand(LIMIT - 5)]) == {B: LIMIT - 5}
        assert await budgets.draw("small", 1, [demand(6)]) is None
        assert await budgets.draw("small", 1, [demand(5)]) == {B: 5}
        assert await parts(budgets) == [0] * (SHARDS + 1)

    async def test_a_draw_on_a_divided_window_happens_once(self, budgets: RowBudgets, other: RowBudgets) -> None:
        await divided(budgets)
        drawn = await asyncio.gather(*((budgets, other)[n % 2].draw("run", 1, [demand(7)]) for n in range(12)))
        assert drawn == [{B: 7}] * 12
        assert (await state(budgets)).remaining == LIMIT - 7

    async def test_what_was_not_used_comes_back_once(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """A run has drawn before and after the window was divided. Its unused amount is returned once."""
        before = RowBudgets(budgets._store)
        await made(before, LIMIT)
        await before.draw("run", 1, [demand(100)])
        await budgets.draw("run", 2, [demand(50)])
        await asyncio.gather(*((budgets, other)[n % 2].give_back("run", {B: 120}) for n in range(6)))
        assert (await state(budgets)).remaining == LIMIT - 120

    async def test_what_is_spent_is_the_sum(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """The amount spent does not depend on the parts that draws took from and returned to."""
        await divided(budgets)

        async def run(n: int) -> None:
            mine = (budgets, other)[n % 2]
            await mine.draw(f"run{n}", 1, [demand(10)])
            await mine.draw(f"run{n}", 2, [replace(demand(10), used=7)])

        await asyncio.gather(*(run(n) for n in range(12)))
        await budgets.draw("large", 1, [demand(LIMIT - 240)])
        assert (await state(other)).remaining == 0 and (await state(other)).spent == 12 * 7
        await budgets.give_back("large", {B: 100})
        await asyncio.gather(*((budgets, other)[n % 2].give_back(f"run{n}", {B: 9 + n % 3}) for n in range(12)))
        assert await state(budgets) == BudgetState(B, "micros", LIMIT, LIMIT - 100 - 120)

    async def test_what_was_used_beyond_the_draws_holds_back_others(self, budgets: RowBudgets) -> None:
        """A shard is never below 0, and no shard serves a draw while the window's row is negative."""
        await divided(budgets)
        await budgets.draw("over", 1, [demand(10)])
        await budgets.give_back("over", {B: LIMIT - 5})
        assert (await state(budgets)).remaining == 5 and min((await parts(budgets))[1:]) >= 0
        assert await budgets.draw("next", 1, [demand(6)]) is None
        assert await budgets.draw("next", 2, [demand(5)]) == {B: 5}

    async def test_a_lower_limit_holds_when_it_returns(self, budgets: RowBudgets, other: RowBudgets) -> None:
        """Lowering the limit takes back the amounts that were lent to shards under the earlier limit."""
        await divided(budgets)
        await budgets.draw("run", 1, [demand(60)])
        await other.define(definition(40), NOW)
        assert await state(budgets) == BudgetState(B, "micros", 40, -20, reserved=60)
        assert await parts(budgets) == [-20, *[0] * SHARDS]
        assert await budgets.draw("next", 1, [demand(1)]) is None
        await budgets.define(definition(100), NOW)
        assert await budgets.draw("next", 2, [demand(40)]) == {B: 40}

    async def test_a_limit_whose_change_broke_off_holds(self, budgets: RowBudgets) -> None:
        """The caller crashed before it took back the amounts lent to shards. The next draw does it."""
        await divided(budgets)
        change = {"limit": 50 - LIMIT, "remaining": 50 - LIMIT}
        await budgets._store.transact("set_budget", [Update(budget_key(B), add=change)])
        assert await budgets.draw("run", 1, [demand(51)]) is None
        assert await budgets.draw("run", 2, [demand(50)]) == {B: 50}
        assert (await state(budgets)).remaining == 0 and min(await parts(budgets)) == 0

    async def test_a_limit_moves_while_others_draw(self, budgets: RowBudgets, other: RowBudgets) -> None:
        await divided(budgets)
        draws = [other.draw(f"run{n}", 1, [demand(10)]) for n in range(20)]
        limits = [budgets.define(definition(LIMIT + (-1) ** n * 40 * n), NOW) for n in range(1, 6)]
        drawn = [one for one in await asyncio.gather(*draws, *limits) if isinstance(one, dict)]
        found = await state(budgets)
        assert found.remaining == found.limit - sum(one[B] for one in drawn) and len(drawn) == 20

    async def test_other_charges_are_spread_and_exact(self, budgets: RowBudgets) -> None:
        """A charge that exceeds every single part goes to the window's row."""
        await divided(budgets)
        for n, used in enumerate((10, 10, LIMIT)):
            charges = await budgets.charges(["global"], 0, used, NOW + n / 7)
            assert (charges[0][1].key == budget_key(B)) == (used == LIMIT)
            await budgets._store.transact("charge", [operation for _, operation in charges])
        assert (await state(budgets)).remaining == -20
        assert await budgets.draw("run", 1, [demand(1)]) is None

    async def test_an_alert_of_a_divided_window_is_raised_once(self, budgets: RowBudgets, other: RowBudgets) -> None:
        await divided(budgets)
        raised = await asyncio.gather(
            *((budgets, other)[n % 2].alert(B, alert("warning", n), 10**10) for n in range(4))
        )
        assert raised.count(True) == 1 and (await state(other)).reported == {"warning"}

    async def test_a_scope_takes_its_shards_along(self, budgets: RowBudgets) -> None:
        await divided(budgets)
        await budgets.forget("global")
        assert await budgets._store.get([part_key(B, number) for number in range(SHARDS + 1)]) == [None] * (SHARDS + 1)

    async def test_shards_of_another_version(self, budgets: RowBudgets) -> None:
        """A window that was divided among a different number of shards stays usable and keeps its division."""
        await divided(budgets)
        other = RowBudgets(budgets._store, shards=5)
        for n in range(40):
            assert await other.draw(f"run{n}", 1, [demand(20)]) is not None
        for n in range(40):
            await other.give_back(f"run{n}", {B: 5})
        assert (await state(budgets)).remaining == LIMIT - 200

    async def test_what_moves_meanwhile_is_not_missed(self, budgets: RowBudgets) -> None:
        """Parts are read one after the other. A draw is not refused because one part lent to another between two reads."""
        await divided(budgets, 640)
        number = shard_of("run", SHARDS)
        late = RowBudgets(_Moving(budgets._store, number, 320), shards=SHARDS)  # type: ignore[arg-type]
        await budgets._store.transact("drain", [Update(part_key(B, n), set={"remaining": 0}) for n in range(1, 9)])
        assert await late.draw("run", 1, [demand(300)]) is not None


class _Moving:
    """A store that moves an amount from the window's row to a shard, right after the shards were first read."""

    def __init__(self, inner: StateStore, number: int, amount: int) -> None:
        self._inner, self._number, self._amount = inner, number, amount

    async def get(self, keys: Sequence[Key]) -> Any:
        found = await self._inner.get(keys)
        if part_key(B, self._number) in keys and self._amount:
            main = Update(budget_key(B), add={"remaining": -self._amount, "moves": 1})
            move: list[Operation] = [main, Update(part_key(B, self._number), add={"remaining": self._amount})]
            self._amount = 0
            await self._inner.transact("lend", move)
        return found

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await self._inner.transact(name, operations)
