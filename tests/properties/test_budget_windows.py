"""Runs that continue from hour to hour, each with two workers whose clocks differ, under any interleaving of single store
calls.

At every moment: billed <= limit and remaining >= 0 in each window. A session's row holds at most two windows of a budget,
and a dropped window does not return. At rest: limit = remaining + drawn in each window, and draws kept what their runs
spent or are assumed to have spent, whether it is in the row or was dropped before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.budget_play import ASKED, WORKER, Play

from helix import MemoryStateStore
from helix.core.budget import BudgetDefinition
from helix.core.delivery import Delivery
from helix.core.periods import TokenPeriod
from helix.core.row_keys import run_sort
from helix.core.run_row import RunRow
from helix.core.session_row import Block, SessionRow, StepClaim
from helix.core.status import EndStatus
from helix.core.usage import Usage
from helix.engine.context import make_context
from helix.engine.history import row_key
from helix.engine.money import reservations as money
from helix.engine.money.bounds import bind, definitions_of
from helix.engine.money.reservations import Refused, Reserved, assume_dead, reserve, return_draws, settle
from helix.engine.writing import End, advance, at_version, end, session_put
from helix.ports.state_store import Operation, Put
from helix.testing.clocks import SetClock

RUNS, STEPS, WORST = 6, 6, 100
HOUR = 3600
AHEAD: ContextVar[float] = ContextVar("ahead", default=0.0)
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)


class Watched(MemoryStateStore):
    """A store that records in `dropped` what was spent and assumed in blocks that left the row of a running session."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, SessionRow] = {}
        self.dropped: dict[tuple[str, str], int] = {}
        self.wrong: list[str] = []

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(name, operations)
        for operation in operations:
            if isinstance(operation, Put) and operation.key.sort == "session":
                self._look(SessionRow.at(operation.key.partition, operation.value))

    def _look(self, row: SessionRow) -> None:
        before, self.known[row.session_id] = self.known.get(row.session_id), row
        held = Counter(block.budget.rpartition("/")[0] for block in row.blocks)
        self.wrong += [f"{row.session_id} holds {n} windows of {name}" for name, n in held.items() if n > 2]
        left = {block.budget for block in row.blocks}
        self.wrong += [f"{name} came back" for name in left if (row.session_id, name) in self.dropped]
        if before is not None and row.status == "running":
            for block in before.blocks:
                if block.budget not in left:
                    self.dropped[row.session_id, block.budget] = block.spent + block.assumed


class Skewed(SetClock):
    """A clock for each worker."""

    def now(self) -> float:
        return super().now() + AHEAD.get()


class Hours(Play):
    """Sessions with two workers each. A worker takes the other for dead whenever it meets it."""

    bare: Watched

    def __init__(self, definitions: Sequence[BudgetDefinition], *, seed: int, deaths: int) -> None:
        super().__init__(Watched(), definitions, seed=seed, worst=WORST, full=False, deaths=deaths)
        self.clock = self.engine.clock = Skewed(1_800_000_000)

    async def play(self, runs: int = RUNS, calls: int = STEPS) -> None:
        for definition in self.definitions:
            await self.outside.define(definition, self.clock.now())
        for n in range(runs):
            await self._begin(f"s{n}")
            for _ in range(2):
                self._spawn(self._worker(f"s{n}", calls), f"s{n}")
        await self.turns.drive(self.tasks, self.check)
        for task in self.tasks:
            task.result()

    async def _worker(self, name: str, calls: int) -> None:
        for _ in range(calls):
            AHEAD.set(self.rng.choice([0, 0, -HOUR / 2, HOUR / 2, 2 * HOUR]))
            if not await self._step(name, 0):
                return
        await self._finish(name, "completed")

    async def _step(self, name: str, step: int) -> bool:
        delivery = Delivery(f"d{self.rng.getrandbits(64)}", self.clock.now() + 60)
        while True:
            seen = await self.engine.history.seen(name, f"run-{name}")
            if seen.session.status != "running":
                return False
            new = advance(seen.session, self.clock.now())
            assume_dead(new)
            context = make_context(self.engine, WORKER, seen.session, None, delivery)
            if not await bind(context, seen.session, new, seen.budgets):
                continue
            got = await reserve(self.engine, WORKER, new, ASKED, WORKER.on_budget)
            if isinstance(got, Refused):
                await self._finish(name, "failed")
                return False
            if not isinstance(got, Reserved):
                continue
            new.claim = StepClaim(
                step=new.step + 1,
                attempt=1,
                attempt_id=delivery.owner,
                run_id=new.run_id,
                deadline=delivery.deadline,
                micros=got.micros,
                tokens=got.tokens,
            )
            if await self._write("claim_step", [session_put(new, at_version(seen.session))]):
                break
            run = await self.engine.history.run(name, new.run_id)
            if run.status != "running":
                await return_draws(self.engine, seen.session, run)
        used = self.rng.randint(0, self.worst)
        for window in [block.budget for block in new.blocks if not block.closed]:
            self.paid[window] = self.paid.get(window, 0) + used
        after = advance(new, self.clock.now(), step=new.step + 1)
        settle(self.engine, after, Usage(prompt_tokens=used, cost_micros=used, calls=1))
        await self._write(
            "stage", [session_put(after, at_version(new))]
        )  # refused: the other worker assumes what this one was charged
        return True

    async def _finish(self, name: str, status: EndStatus) -> None:
        """Continue until the session has ended. The other worker may write meanwhile."""
        while (session := await self.engine.history.existing(name)).status == "running":
            new = advance(session, self.clock.now(), status=status)
            await self._write("end", [session_put(new, at_version(session)), end(new, End(status), self.clock.now())])
        await return_draws(self.engine, session, await self.engine.history.run(name, session.run_id))

    async def check(self) -> None:
        if self.rng.random() < 0.04:
            self.clock.advance(HOUR / 2)
        assert not self.bare.wrong, self.bare.wrong[0]
        windows = sorted(self.paid)
        for window, state in zip(windows, await self.outside.get(windows), strict=True):
            assert state is not None and state.remaining >= 0, f"{window}: {state}"
            assert self.paid[window] <= state.limit, f"{window}: {self.paid[window]} were paid of {state.limit}"

    async def check_rest(self) -> None:
        draws = await self.draws()
        used: Counter[str] = Counter()
        for (_, window), amount in self.bare.dropped.items():
            used[window] += amount
        for n in range(RUNS):
            (value,) = await self.bare.get([row_key(f"s{n}", run_sort(f"run-s{n}"))])
            assert value is not None
            run = RunRow.at(f"s{n}", run_sort(f"run-s{n}"), value)
            assert run.status != "running"
            for block in run.blocks:
                open_ = 0 if run.claim is None or block.closed else run.claim.tokens
                used[block.budget] += block.spent + block.assumed + open_
        for window, state in zip(draws, await self.outside.get(list(draws)), strict=True):
            assert all(returned is not None for _, returned in draws[window]), f"{window}: a draw is open"
            kept = sum(amount - (returned or 0) for amount, returned in draws[window])
            assert state is not None and state.limit == state.remaining + kept, f"{window}: {state}, {kept} kept"
            assert kept == used[window] >= self.paid.get(window, 0), f"{window}: kept {kept}, used {used[window]}"
        for row in await self.bare.query("control", "alerts"):
            assert row.value["window"] == row.value["alert_id"].split("#")[1].rpartition("/")[2]


def played(limit: int, seed: int, deaths: int) -> Hours:
    async def play() -> Hours:
        hour = BudgetDefinition(scope="global", period=TokenPeriod.HOURLY, unit="tokens", limit=limit)
        total = BudgetDefinition(scope="agent:worker", period=TokenPeriod.TOTAL, unit="tokens", limit=100 * WORST)
        playing = Hours([hour, total], seed=seed, deaths=deaths)
        await playing.play()
        await playing.check_rest()
        return playing

    return asyncio.run(play())


@pytest.mark.slow
@given(seed=st.integers(0, 2**32), deaths=st.sampled_from([0, 3, 20]), limit=st.sampled_from([5 * WORST, 5000 * WORST]))
@settings(QUIET, max_examples=40)
def test_passed_windows_are_dropped_and_exact(seed: int, deaths: int, limit: int) -> None:
    played(limit, seed, deaths)


def test_the_play_drops_windows_and_is_overtaken() -> None:
    """The play of the test above really drops windows and has takeovers."""
    plays = [played(5000 * WORST, seed, 3) for seed in range(10)]
    assert sum(len(play.bare.dropped) for play in plays) > 20
    assert any(play.died for play in plays)


# --- defects that the checks must find --------------------------------------------------------------------------------


def hasty(patch: pytest.MonkeyPatch) -> None:
    """A window is returned as soon as a worker's clock says that it is over, before the row does."""
    drop = money._drop_passed

    async def at_once(engine: Any, new: SessionRow) -> None:
        for block in new.blocks:
            block.closed = True
        now = [definition.window(engine.clock.now())[0] for definition in definitions_of(new)]
        ghosts = [Block(budget=name, unit="tokens") for name in now if name not in {b.budget for b in new.blocks}]
        new.blocks += ghosts
        await drop(engine, new)
        new.blocks = [block for block in new.blocks if block not in ghosts]

    patch.setattr(money, "_drop_passed", at_once)


def wavering(patch: pytest.MonkeyPatch) -> None:
    """Each worker uses its own clock."""
    hold = money._open_block

    def by_the_clock(new: SessionRow, definition: BudgetDefinition, now: float) -> Any:
        budget = definition.window(now)[0]
        later, new.blocks = [b for b in new.blocks if b.budget > budget], [b for b in new.blocks if b.budget <= budget]
        held = hold(new, definition, now)
        new.blocks += later
        return held

    patch.setattr(money, "_open_block", by_the_clock)


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """A window is dropped and nothing is returned, so the run's end does not know the usage."""

    async def dropped(engine: Any, new: SessionRow) -> None:
        latest = max((block.budget for block in new.blocks if "/hour/" in block.budget), default="")
        new.blocks = [b for b in new.blocks if not (b.closed and "/hour/" in b.budget and b.budget < latest)]

    patch.setattr(money, "_drop_passed", dropped)


@pytest.mark.parametrize("defect", [hasty, wavering, forgetful])
def test_a_defect_is_found(defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(60):
            played(5000 * WORST, seed, 3)
