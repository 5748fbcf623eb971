"""A window's allowance in parts, so that many draws a second do not meet on one row (docs/protocol.md#budgets).

Law: the window's row is part 0, its shards are the parts from 1. What remains of the window is the sum of its parts, and a
draw takes only what a part has: so no limit is exceeded. A shard is never below 0: what was used beyond its draws, and a
lower limit, are taken from part 0, and while that is below 0 nothing is drawn before the shards have made up for it. What
goes from part to part goes in one transaction that counts `moves` in part 0: if that is the same before and after, the
parts that were read between belong together.

A window that does not hold `CALLS_EACH` calls for each shard is not divided. A divided one stays so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from zlib import crc32

from helix.core.budget import block_size
from helix.ports.state_store import ABSENT, Operation, Put, StateStore, Update, Value, When
from helix.services.budget_rows import BudgetState, Demand, budget_key, part_key, state_of
from helix.services.committing import refused

SHARDS = 48
"""Of a deployed stage. 1,000 runs a second that draw and return are 42 transactions a second on each."""
CALLS_EACH = 4
LENT_CALLS = 16
"""The fewest calls that are lent at a time."""
BLOCK_CALLS = 8
"""The number of calls that a draw takes room for, where that is a small part of its shard: a run then draws once."""
TOGETHER = 8
"""Parts in a transaction: one on many of them would always meet another."""


@dataclass(frozen=True, slots=True)
class Window:
    """The row, and what its shards have, from number 1 (None: the row is gone). `reserved`: by the shards together."""

    budget: str
    value: Value
    shards: tuple[int | None, ...] = ()
    reserved: int = 0

    @property
    def own(self) -> int:
        """What its own row has."""
        return int(self.value["remaining"])

    @property
    def remaining(self) -> int:
        return self.own + sum(shard or 0 for shard in self.shards)

    @property
    def state(self) -> BudgetState:
        own = state_of(self.budget, self.value)
        return replace(own, remaining=self.remaining, bound=False, reserved=own.reserved + self.reserved)


@dataclass(frozen=True, slots=True)
class Taken:
    """`operations` take `amount`, which is returned to `part`: the run's shard, wherever it was taken from."""

    amount: int
    part: int
    operations: list[Operation]


async def read(store: StateStore, budgets: Sequence[str]) -> list[Window | None]:
    """The windows with all their parts, which belong together."""
    values = await store.get([budget_key(budget) for budget in budgets])
    there = [Window(budget, value) for budget, value in zip(budgets, values, strict=True) if value is not None]
    found = {window.budget: window for window in await complete(store, there)}
    return [found.get(budget) for budget in budgets]


async def complete(store: StateStore, windows: Sequence[Window]) -> list[Window]:
    """With their shards, to which and from which nothing has moved since the windows were read."""
    found = {window.budget: window for window in windows}
    divided = [window for window in windows if window.value.get("shards")]
    while divided:
        keys = [part_key(w.budget, number) for w in divided for number in range(1, w.value["shards"] + 1)]
        parts = iter(await store.get(keys))
        values = await store.get([budget_key(window.budget) for window in divided])
        moved = []
        for window, value in zip(divided, values, strict=True):
            own = list(islice(parts, window.value["shards"]))
            shards = [None if part is None else int(part["remaining"]) for part in own]
            reserved = sum(part.get("reserved", 0) for part in own if part is not None)
            found[window.budget] = Window(window.budget, value or window.value, tuple(shards), reserved)
            if value is not None and value["moves"] != window.value["moves"]:
                moved.append(found[window.budget])
        divided = moved
    return list(found.values())


def shard_of(run_id: str, shards: int) -> int:
    return 1 + crc32(run_id.encode()) % shards


def divisible(window: Window, estimate: int, shards: int) -> bool:
    return shards > 1 and not window.value.get("shards") and window.own >= shards * CALLS_EACH * max(1, estimate)


async def divide(store: StateStore, window: Window, shards: int) -> None:
    """Lend half of what remains to shards, unless somebody else did."""
    each = window.own // (2 * shards)
    seen = When(equal={"shards": None}, at_least={"remaining": each * shards})
    main = Update(budget_key(window.budget), {"shards": shards}, {"remaining": -each * shards, "moves": 1}, seen)
    shard = {"remaining": each, **({"ttl": window.value["ttl"]} if "ttl" in window.value else {})}
    puts = [Put(part_key(window.budget, number), shard, ABSENT) for number in range(1, shards + 1)]
    await refused(store, "divide_budget", [main, *puts])


def take(window: Window, demand: Demand, number: int, has: int) -> Taken | None:
    """From the shard `number`, which has so much, or what the window lends it; None: neither has enough."""
    if window.own < 0:
        return None
    if has >= demand.estimate:
        amount = _amount(demand, has)
        return Taken(amount, number, [_from(window, number, amount)])
    lent = min(window.own, max(window.own // window.value["shards"], LENT_CALLS * demand.estimate))
    if lent < demand.estimate:
        return None
    amount = _amount(demand, lent)
    enough = When(at_least={"remaining": lent})
    main = Update(budget_key(window.budget), add={"remaining": -lent, "moves": 1}, when=enough)
    return Taken(amount, number, [main, Update(part_key(window.budget, number), add={"remaining": lent - amount})])


def take_anywhere(window: Window, demand: Demand, run_id: str) -> Taken | None:
    """From a part that has enough, or a few that have it together; None: it takes more of them. They are tried in an order
    of the run's own: runs do not all meet on one."""
    if window.own < 0:
        return None
    number, among = shard_of(run_id, len(window.shards)), range(1, len(window.shards) + 1)
    order = sorted(among, key=lambda n: crc32(f"{run_id}{n}".encode()))
    parts = [(n, has) for n, has in [*((n, window.shards[n - 1] or 0) for n in order), (0, window.own)] if has]
    for part, has in parts:
        if has >= demand.estimate:
            amount = _amount(demand, has)
            return Taken(amount, number, [_from(window, part, amount)])
    for some in (parts[:TOGETHER], sorted(parts, key=lambda part: -part[1])[:TOGETHER]):
        if sum(has for _, has in some) >= demand.estimate:
            return Taken(demand.estimate, number, list(_split(window, demand.estimate, some)))
    return None


def _split(window: Window, amount: int, parts: Sequence[tuple[int, int]]) -> Iterator[Operation]:
    for number, has in parts:
        if amount:
            yield _from(window, number, min(has, amount))
            amount -= min(has, amount)


def take_whole(window: Window, demand: Demand) -> Taken | None:
    """From a window that is not divided; None: it has not so much."""
    if window.own < demand.estimate:
        return None
    wish = block_size(window.own, demand.estimate) if demand.wish is None else demand.wish
    amount = max(demand.estimate, min(wish, window.own))
    return Taken(amount, 0, [_from(window, 0, amount)])


def _from(window: Window, number: int, amount: int) -> Operation:
    enough = When(at_least={"remaining": amount})
    return Update(part_key(window.budget, number), add={"remaining": -amount}, when=enough)


def _amount(demand: Demand, remaining: int) -> int:
    """Of a part. Room for several calls where that is little of it: the run draws less often."""
    several = max(block_size(remaining, demand.estimate), min(BLOCK_CALLS * demand.estimate, remaining // 16))
    return max(demand.estimate, min(several if demand.wish is None else demand.wish, remaining))


def reserving(taken: Sequence[Operation], reserved: int) -> list[Operation]:
    """The same, counting what is reserved in one of its parts: the sum of them is what counts."""
    first, *others = taken
    assert isinstance(first, Update)
    return [replace(first, add={**first.add, "reserved": reserved}), *others]


def charge(window: Window, number: int, has: int, used: int) -> Operation:
    """Take what was used without a draw: from the shard, if that has so much."""
    if has < used:
        return Update(budget_key(window.budget), add={"remaining": -used})
    return Update(part_key(window.budget, number), add={"remaining": -used}, when=When(at_least={"remaining": used}))


async def gather(store: StateStore, window: Window, wanted: int) -> None:
    """Move so much, or what the `TOGETHER` richest shards have, to the window's row, unless draws are faster."""
    rich = sorted(((has, number) for number, has in enumerate(window.shards, 1) if has), reverse=True)[:TOGETHER]
    given = _split(window, wanted, [(number, has) for has, number in rich])
    total = min(wanted, sum(has for has, _ in rich))
    main = Update(budget_key(window.budget), add={"remaining": total, "moves": 1})
    await refused(store, "gather_budget", [main, *given])
