"""64 concurrent runs against a budget for 10. No interleaving of single store calls spends more than the limit.

After every call: billed <= limit, remaining >= 0. At rest: limit = remaining + drawn, all draws are closed, and they kept
what their runs spent or are assumed to have spent, which is never less than what was billed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.properties import budget_play
from tests.properties.budget_play import Play

from helix import MemoryStateStore, SQLiteStateStore
from helix.core.budget import BudgetDefinition
from helix.core.periods import TokenPeriod
from helix.engine.money import reservations as money
from helix.engine.money.reservations import return_draws
from helix.ports.state_store import StateStore, Update

RUNS, FOR, WORST = 64, 10, 100
SEEDS = st.integers(0, 2**32)
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)


def budget(limit: int, scope: str = "global", unit: Any = "tokens") -> BudgetDefinition:
    return BudgetDefinition(scope=scope, period=TokenPeriod.DAILY, unit=unit, limit=limit)


def played(
    make: Callable[[], StateStore],
    definitions: list[BudgetDefinition],
    runs: int = RUNS,
    calls: int = 1,
    **options: Any,
) -> Play:
    async def play() -> Play:
        store = make()
        try:
            playing = Play(store, definitions, worst=WORST, **options)
            await playing.play(runs, calls)
            await playing.check_rest()
            return playing
        finally:
            await store.close()

    return asyncio.run(play())


@given(seed=SEEDS)
@settings(QUIET, max_examples=10)
def test_ten_of_sixty_four_are_let_through(seed: int) -> None:
    """Each call uses its worst case, so exactly as many are allowed as the budget has room for, in any order."""
    play = played(MemoryStateStore, [budget(FOR * WORST)], seed=seed, full=True, deaths=0)
    assert (len(play.done), len(play.refused)) == (FOR, RUNS - FOR)
    assert set(play.paid.values()) == {FOR * WORST}


@pytest.mark.slow
@given(seed=SEEDS, deaths=st.sampled_from([0, 12, 60]), calls=st.integers(1, 3))
@example(seed=2, deaths=0, calls=2)
@settings(QUIET, max_examples=25)
def test_the_line_is_not_passed(seed: int, deaths: int, calls: int) -> None:
    """Runs make several calls with any usage, and their workers die anywhere. No call is refused while there is room: at a
    refusal more than the amount for nine runs is drawn, and each run has at most the part of its own calls."""
    play = played(MemoryStateStore, [budget(FOR * WORST)], calls=calls, seed=seed, full=False, deaths=deaths)
    assert play.done | play.refused | play.died == {f"s{n}" for n in range(RUNS)}
    assert len(play.called | play.died) * calls >= FOR
    assert calls > 1 or play.called <= play.done | play.died, "each run with an allowed call has completed or died"


@given(seed=SEEDS, deaths=st.sampled_from([0, 30]))
@settings(QUIET, max_examples=10)
def test_several_budgets_are_kept_together(seed: int, deaths: int) -> None:
    """The budgets are a global one, the agent's in dollars, and a tenant's that is tighter for some runs."""
    bounds = [budget(FOR * WORST), budget(12 * WORST, "agent:worker", "micros"), budget(3 * WORST, "tenant:user2")]
    play = played(MemoryStateStore, bounds, runs=32, calls=2, seed=seed, full=False, deaths=deaths)
    assert play.called and len(play.done | play.refused | play.died) == 32


@given(seed=SEEDS)
@settings(QUIET, max_examples=6)
def test_plenty_is_drawn_in_blocks(seed: int) -> None:
    """Far from the limit a block holds several calls, and the rest of the block is returned."""
    play = played(MemoryStateStore, [budget(1000 * WORST)], runs=16, calls=4, seed=seed, full=True, deaths=2)
    assert not play.refused and len(play.done | play.died) == 16


@pytest.mark.slow
def test_the_line_is_not_passed_on_sqlite(tmp_path: Path) -> None:
    for seed in range(3):
        path = tmp_path / f"{seed}.db"
        play = played(lambda: SQLiteStateStore(path), [budget(FOR * WORST)], seed=seed, full=seed == 0, deaths=2 * seed)  # noqa: B023
        assert len(play.done | play.died) >= FOR


def lenient(patch: pytest.MonkeyPatch) -> None:
    """Every draw is granted, whatever is left."""
    transact = MemoryStateStore.transact

    async def unconditional(self: Any, name: str, operations: Any) -> None:
        free = [Update(o.key, o.set, o.add) if name == "draw" and isinstance(o, Update) else o for o in operations]
        await transact(self, name, free)

    patch.setattr(MemoryStateStore, "transact", unconditional)


def generous(patch: pytest.MonkeyPatch) -> None:
    """A dead attempt counts as unused."""
    patch.setattr(money, "_assume", lambda blocks, micros, tokens: None)


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """The draws of a worker that died before its claim are forgotten."""

    async def known_only(engine: Any, session: Any, run: Any) -> None:
        if run.blocks:
            await return_draws(engine, session, run)

    patch.setattr(budget_play, "return_draws", known_only)


@pytest.mark.parametrize("defect", [lenient, generous, forgetful])
def test_a_defect_is_found(defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(30):
            played(MemoryStateStore, [budget(FOR * WORST)], seed=seed, full=True, deaths=60)
