"""A window that is divided into shards, under any interleaving of single store calls, with workers that die anywhere.

After every call: limit = remaining + what draws hold or kept + what was charged. No shard is below 0, and no call is
allowed that began after the window was used up. At rest, whatever remains can be drawn in one piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.budget_play import Death, Gated, Turns
from tests.properties.test_budget_properties import FOR, QUIET, RUNS, SEEDS, WORST, budget, played

from helix import MemoryStateStore
from helix.core.budget import BudgetDefinition
from helix.core.periods import TokenPeriod
from helix.ports.state_store import Update
from helix.services import budget_shards
from helix.services.budget_returns import Closing
from helix.services.budget_rows import Demand, budget_key, part_key
from helix.services.committing import refused
from helix.services.row_budgets import RowBudgets

SHARDS, LIMIT, NOW = 4, 1200, 1_800_000_000.0
DEATHS = st.sampled_from([0, 5, 30])


@pytest.fixture(autouse=True, scope="module")
def divided() -> Iterator[None]:
    """Divide windows for few calls as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget_shards, "CALLS_EACH", 1)
        patch.setattr(budget_shards, "LENT_CALLS", 1)
        yield


def limit_of(limit: int) -> BudgetDefinition:
    return BudgetDefinition(scope="global", period=TokenPeriod.TOTAL, unit="tokens", limit=limit)


NAME = limit_of(1).window(NOW)[0]


class Purse:
    """Runs that draw and return, a limit that moves, and code that charges the budget itself, on a divided window.

    `events` counts the amounts that were taken without a draw, and `under_way` those that are being taken. `charged` is the
    amount charged by that code.
    """

    def __init__(self, seed: int, deaths: int) -> None:
        self.rng, self.store = Random(seed), MemoryStateStore()
        self.turns = Turns(self.rng, deaths)
        self.budgets = RowBudgets(Gated(self.store, self.turns), shards=SHARDS)
        self.tasks: set[asyncio.Task[None]] = set()
        self.events = self.under_way = self.charged = self.refused = self.drawn = self.divided = 0

    async def play(self) -> None:
        outside = RowBudgets(self.store, shards=SHARDS)
        assert await outside.open(limit_of(LIMIT), NOW, await outside.define(limit_of(LIMIT), NOW))
        for n in range(16):
            self._spawn(self._run(f"run{n}"), f"run{n}")
        self._spawn(self._owner(), None)
        self._spawn(self._charger(), None)
        await self.turns.drive(self.tasks, self.check)
        await asyncio.gather(*self.tasks)
        await self.check_rest()

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Take an amount that no draw holds. A draw that is on its way need not know of it."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            self.events += 1

    def _spawn(self, work: Any, run: str | None) -> None:
        async def worker() -> None:
            try:
                await work
            except Death:
                if run is not None:  # another worker ends the run, whose usage is unknown
                    self._spawn(self.budgets.give_back(run, {NAME: 0}), run)

        self.tasks.add(asyncio.ensure_future(worker()))

    async def _run(self, run: str) -> None:
        used = 0
        for n in range(self.rng.randint(1, 3)):
            before, estimate = (self.events, self.under_way), self.rng.randint(5, 160)
            taken = await self.budgets.draw(run, n, [Demand(NAME, "tokens", estimate)])
            if taken is None:
                self.refused += 1
                break
            self.drawn += 1
            assert taken[NAME] >= estimate
            if before == (self.events, 0) and not self.under_way:
                assert await self.remaining() >= 0, "drawn from a window that was used up"
            used += self.rng.randint(0, estimate)
        if self.rng.random() < 0.2:
            used += self.rng.randint(0, 300)  # billed more than its reservation
        with self.taking():
            await self.budgets.give_back(run, {NAME: used})

    async def _owner(self) -> None:
        for _ in range(3):
            with self.taking():
                limit = self.rng.choice([LIMIT // 10, LIMIT // 2, LIMIT, 2 * LIMIT])
                await self.budgets.define(limit_of(limit), NOW)

    async def _charger(self) -> None:
        for n in range(3):
            with self.taking():
                used = self.rng.randint(1, 200)
                charges = await self.budgets.charges(["global"], used, 0, NOW + n / 7)
                if await refused(self.store, "charge", [operation for _, operation in charges]) is None:
                    self.charged += used

    async def parts(self) -> list[int]:
        rows = await self.store.get([part_key(NAME, number) for number in range(SHARDS + 1)])
        return [row["remaining"] if row is not None else 0 for row in rows]

    async def remaining(self) -> int:
        return sum(await self.parts())

    async def check(self) -> None:
        parts, kept = await self.parts(), 0
        assert min(parts[1:]) >= 0, f"a shard owes something: {parts}"
        for n in range(16):
            for row in await self.store.query("control", f"run#run{n}"):
                kept += row.value["amount"] - row.value.get("returned", 0)
        (window,) = await self.store.get([budget_key(NAME)])
        assert window is not None
        self.divided = max(self.divided, "shards" in window)
        assert window["limit"] == sum(parts) + kept + self.charged, f"{window}, {parts}, {kept} kept, {self.charged}"

    async def check_rest(self) -> None:
        """Check that exactly the remaining amount can be drawn."""
        await self.check()
        outside, left = RowBudgets(self.store, shards=SHARDS), await self.remaining()
        assert await outside.draw("late", 1, [Demand(NAME, "tokens", max(1, left + 1), 0)]) is None
        if left > 0:
            assert await outside.draw("late", 2, [Demand(NAME, "tokens", left, 0)]) == {NAME: left}


def purse(seed: int, deaths: int) -> Purse:
    async def play() -> Purse:
        playing = Purse(seed, deaths)
        await playing.play()
        return playing

    return asyncio.run(play())


@given(seed=SEEDS, deaths=DEATHS)
@settings(QUIET, max_examples=40)
def test_a_divided_window_is_exact(seed: int, deaths: int) -> None:
    purse(seed, deaths)


def test_the_play_divides_draws_and_refuses() -> None:
    plays = [purse(seed, 0) for seed in range(10)]
    assert all(play.divided for play in plays)
    assert min(sum(play.drawn for play in plays), sum(play.refused for play in plays)) > 20


@given(seed=SEEDS, deaths=DEATHS, calls=st.integers(1, 3))
@settings(QUIET, max_examples=5)
def test_the_line_is_not_passed(seed: int, deaths: int, calls: int) -> None:
    """Runs of the engine reserve, settle, return and are taken over."""
    play = played(
        MemoryStateStore, [budget(FOR * WORST)], calls=calls, seed=seed, full=False, deaths=deaths, shards=SHARDS
    )
    assert play.done | play.refused | play.died == {f"s{n}" for n in range(RUNS)}


# --- defects that the checks must find --------------------------------------------------------------------------------


def unconditional(patch: pytest.MonkeyPatch) -> None:
    """A shard grants more than it has left."""
    take = budget_shards._from
    patch.setattr(budget_shards, "_from", lambda *args: replace(take(*args), when=None))  # type: ignore[arg-type]


def indebted(patch: pytest.MonkeyPatch) -> None:
    """Usage beyond a draw is deducted from its shard."""

    def returns(close: Any) -> Any:
        (key,) = {close.parts[key] for key in close.returned} if len(set(close.parts.values())) == 1 else {0}
        return [Update(part_key(close.budget, key), add={"remaining": sum(close.returned.values())})]

    patch.setattr(Closing, "returns", returns)


def careless(patch: pytest.MonkeyPatch) -> None:
    """Shards grant draws while the window has a debt."""
    patch.setattr(budget_shards.Window, "own", property(lambda window: max(0, window.value["remaining"])))


def fragmented(patch: pytest.MonkeyPatch) -> None:
    """Amounts in several shards are not combined."""

    async def left_alone(*_: Any) -> bool:
        return True

    patch.setattr(RowBudgets, "_busy", left_alone)
    patch.setattr(budget_shards, "TOGETHER", 1)


@pytest.mark.parametrize("defect", [unconditional, indebted, careless, fragmented])
def test_a_defect_is_found(defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(60):
            purse(seed, 5)
