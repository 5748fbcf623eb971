"""Find the items that many runs write at once, and how often: the real services on a store with DynamoDB's limits on one
item.

    python bench/hot_rows.py            prints the table and saves it to bench/results/hot_rows.md (3 minutes)

The clock is simulated, so the bench never sleeps. Each run belongs to one of `PROCESSES` processes, which share only the
store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from contention import BEGUN, Contended, LoopClock, at_rate, simulated

from helix.core.budget import BudgetDefinition
from helix.core.errors import StoreError
from helix.core.periods import TokenPeriod
from helix.core.usage import Usage
from helix.core.usage_parts import Share
from helix.ports.state_store import Delete, Key, Operation, Put
from helix.services import budget_shards, slot_shards, usage_counters
from helix.services.budget_rows import Demand
from helix.services.open_runs import open_run_key
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate

RESULTS = Path(__file__).parent / "results" / "hot_rows.md"
PROCESSES = 300
SECONDS = 3
RUN_S = 1.0
LIMIT = 500
"""The maximum writes a second for one item."""


@dataclass(frozen=True, slots=True)
class Measured:
    """`failed`: how often the work raised an error because the store gave up on a rejected transaction. `took`: seconds,
    sorted."""

    what: str
    shards: str
    rate: int
    store: Contended
    took: Sequence[float]
    failed: int

    @property
    def hottest(self) -> int:
        return self.store.hottest()[1]

    @property
    def sound(self) -> bool:
        return self.hottest <= LIMIT and not self.failed

    def line(self) -> str:
        key, writes = self.store.hottest()
        median, slow = (1000 * self.took[len(self.took) * part // 100] for part in (50, 99))
        place = f"{key.partition} / {key.sort}"
        numbers = f"{writes} | {self.store.conflicts} | {self.store.throttled} | {self.failed}"
        return f"| {self.what} | {self.rate:,} | {self.shards} | `{place}` | {numbers} | {median:.0f} | {slow:.0f} |"


def measure(
    what: str,
    shards: str,
    rate: int,
    times: int,
    prepare: Callable[[Contended], Awaitable[Callable[[int], Awaitable[None]]]],
) -> Measured:
    store, failures = Contended(), list[StoreError]()

    async def work() -> list[float]:
        one = await prepare(store)
        store.writes.clear()

        async def held(n: int) -> None:
            try:
                await one(n)
            except StoreError as error:
                failures.append(error)

        return await at_rate(rate, times, held)

    took = simulated(work())
    return Measured(what, shards, rate, store, took, len(failures))


def usage(rate: int, times: int, *, shards: int = usage_counters.SHARDS) -> Measured:
    """End runs of one agent: each marks its run row, leaves the index of open runs and counts its usage."""

    async def prepare(store: Contended) -> Callable[[int], Awaitable[None]]:
        clock = LoopClock()
        processes = [usage_counters.Counters(store, clock, shards=shards) for _ in range(PROCESSES)]

        async def end(n: int) -> None:
            run = Key("sessions", f"session{n}", "r#1")
            guard: list[Operation] = [Put(run, {"effects": "done"}), Delete(open_run_key(f"run{n}"))]
            share = Share(
                "model", "completion", Usage(prompt_tokens=1000, completion_tokens=100, cost_micros=900, calls=1)
            )
            await processes[n % PROCESSES].count(
                "effects_done", guard, [share], agent="agent", tenant=None, at=clock.now()
            )

        return end

    return measure("usage of a run's end", str(shards), rate, times, prepare)


def admissions(rate: int, times: int, *, most: int, account: bool, each: int = slot_shards.SLOTS_EACH) -> Measured:
    """Admit runs of one agent that take a slot, work for a second and return it. most: the limit. account: the limit
    applies to all agents."""

    async def prepare(store: Contended) -> Callable[[int], Awaitable[None]]:
        slots = RowSlots(store, account_limit=most if account else None)
        default = None if account else most

        async def run(n: int) -> None:
            who = Candidate("agent", f"run{n}", f"session{n}", BEGUN + n / rate)
            await asyncio.sleep(0)
            await slots.admit(who, default=default)
            await asyncio.sleep(RUN_S)
            await slots.release(who)

        return run

    whose = "the account" if account else "an agent"
    slots_each, slot_shards.SLOTS_EACH = slot_shards.SLOTS_EACH, each
    try:
        shards = str(slot_shards.shards_for(most))
        return measure(f"admission, limit of {whose} {most:,}", shards, rate, times, prepare)
    finally:
        slot_shards.SLOTS_EACH = slots_each


WORST, USED, CALLS = 50_000, 5_000, 6
"""The worst-case and the actual price of a call, in micro-dollars, and the calls of a run."""


def budgets(rate: int, times: int, *, calls: int, shards: int = budget_shards.SHARDS) -> Measured:
    """Execute runs under one budget for all runs, starting with the window's first draw. Each run reserves for `CALLS`
    calls, draws if its blocks do not suffice, and returns the rest after a second. calls: the number of calls that the
    budget has room for, at their actual price. A run without room is refused, which does not count as a failure."""

    async def prepare(store: Contended) -> Callable[[int], Awaitable[None]]:
        clock, processes = LoopClock(), [RowBudgets(store, shards=shards) for _ in range(PROCESSES)]
        bound = BudgetDefinition(scope="global", period=TokenPeriod.TOTAL, unit="micros", limit=calls * USED)
        name, _ = bound.window(clock.now())
        count = await processes[0].define(bound, clock.now())

        async def run(n: int) -> None:
            mine, drawn, spent = processes[n % PROCESSES], 0, 0
            if (await mine.get([name]))[0] is None:
                await mine.open(bound, clock.now(), count)
            for call in range(CALLS):
                if drawn - spent < WORST:
                    demand = Demand(name, "micros", WORST - (drawn - spent))
                    taken = await mine.draw(f"run{n}", call, [demand])
                    if taken is None:
                        break
                    drawn += taken[name]
                await asyncio.sleep(RUN_S / CALLS)
                spent += USED
            await mine.give_back(f"run{n}", {name: spent})

        return run

    what = f"bounded run, budget of {calls * USED / 1_000_000:,.0f} USD for all"
    return measure(what, str(shards), rate, times, prepare)


COLUMNS = (
    "what | a second | shards | hottest item | its writes a second | conflicts | throttled | failed | p50 ms | p99 ms"
)


def table(lines: Sequence[Measured]) -> str:
    return "\n".join([f"| {COLUMNS} |", "|---" * (COLUMNS.count("|") + 1) + "|", *(line.line() for line in lines)])


def main() -> None:
    found = [
        usage(1_000, 1_000 * SECONDS, shards=1),
        usage(1_000, 1_000 * SECONDS),
        admissions(3_000, 1_500, most=6_000, account=False, each=10_000),
        admissions(3_000, 3_000 * SECONDS, most=6_000, account=False),
        admissions(3_000, 3_000 * SECONDS, most=6_000, account=True),
        budgets(1_000, 1_000 * SECONDS, calls=100_000_000, shards=1),
        budgets(1_000, 1_000 * SECONDS, calls=100_000_000),
        budgets(1_000, 1_000 * SECONDS, calls=100_000),
        budgets(1_000, 1_000 * SECONDS, calls=12_000),
    ]
    text = f"# Items that many runs write\n\n{table(found)}\n"
    print(text)
    RESULTS.write_text(text)


if __name__ == "__main__":
    main()
