"""Divides a window's allowance into parts, so that many draws per second do not contend for one row
(docs/protocol.md#budgets).

Law: the window's row is part 0, and its shards are the parts from 1. The remainder of the window is the sum of its
parts. A draw takes only what a part has, so no limit is exceeded. A shard is never below 0: usage beyond a shard's
draws is charged to part 0, and so is a reduction of the limit. While part 0 is below 0, nothing is drawn until the
shards have made up the difference. Each transaction that moves an amount between parts increments `moves` in part 0. If
`moves` is the same before and after a read of the parts, that read is consistent.

A window that does not have room for `CALLS_EACH` calls per shard is not divided. A divided window stays divided.
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
"""The number of shards on a deployed stage. If 1,000 runs per second draw and return, each shard gets 42 transactions
per second."""
CALLS_EACH = 4
LENT_CALLS = 16
"""The minimum number of calls that are lent at a time."""
BLOCK_CALLS = 8
"""The number of calls for which a draw takes room, if that is a small part of its shard. A run then draws only once."""
TOGETHER = 8
"""The maximum number of parts in one transaction. A transaction on many parts would always conflict with another
one."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window as read, with its shards."""

    budget: str
    """The name of the window's budget."""
    value: Value
    """The window's row, which is part 0."""
    shards: tuple[int | None, ...] = ()
    """The remaining amounts of the shards, from number 1. None for a shard whose row does not exist. Empty if the
    window is not divided, or if its shards were not read."""
    reserved: int = 0
    """The total reserved amount of all shards, excluding that of the window's row."""

    @property
    def own(self) -> int:
        """The remaining amount of the window's own row."""
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
    """A possible draw and its operations."""

    amount: int
    """The amount that the draw takes."""
    part: int
    """The part to which the draw is returned: the run's shard, regardless of where the amount is taken from. 0 for an
    undivided window."""
    operations: list[Operation]
    """The operations that take the amount, on condition that the parts have it."""


async def read(store: StateStore, budgets: Sequence[str]) -> list[Window | None]:
    """Return the windows with all their parts, read consistently. None for a window that was never opened."""
    values = await store.get([budget_key(budget) for budget in budgets])
    there = [Window(budget, value) for budget, value in zip(budgets, values, strict=True) if value is not None]
    found = {window.budget: window for window in await complete(store, there)}
    return [found.get(budget) for budget in budgets]


async def complete(store: StateStore, windows: Sequence[Window]) -> list[Window]:
    """Return the windows with their shards. The read is repeated until nothing moves between the parts during the
    read."""
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
    """Lend half of the remainder to shards, unless another process has done so."""
    each = window.own // (2 * shards)
    seen = When(equal={"shards": None}, at_least={"remaining": each * shards})
    main = Update(budget_key(window.budget), {"shards": shards}, {"remaining": -each * shards, "moves": 1}, seen)
    shard = {"remaining": each, **({"ttl": window.value["ttl"]} if "ttl" in window.value else {})}
    puts = [Put(part_key(window.budget, number), shard, ABSENT) for number in range(1, shards + 1)]
    await refused(store, "divide_budget", [main, *puts])


def take(window: Window, demand: Demand, number: int, has: int) -> Taken | None:
    """Take the amount from the shard `number`, in which `has` remains, or from a new loan by the window. None if
    neither is enough."""
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
    """Take the amount from one part, or from a few parts together. None if it needs more parts than `TOGETHER`. Each
    run tries the parts in its own order, so that runs do not all contend for the same part."""
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
    """Take the amount from a window that is not divided. None if it has less than the estimate."""
    if window.own < demand.estimate:
        return None
    wish = block_size(window.own, demand.estimate) if demand.wish is None else demand.wish
    amount = max(demand.estimate, min(wish, window.own))
    return Taken(amount, 0, [_from(window, 0, amount)])


def _from(window: Window, number: int, amount: int) -> Operation:
    enough = When(at_least={"remaining": amount})
    return Update(part_key(window.budget, number), add={"remaining": -amount}, when=enough)


def _amount(demand: Demand, remaining: int) -> int:
    """Return the amount to take from a part. If room for several calls is only a small fraction of the part, the draw
    takes that much, so that the run draws less often."""
    several = max(block_size(remaining, demand.estimate), min(BLOCK_CALLS * demand.estimate, remaining // 16))
    return max(demand.estimate, min(several if demand.wish is None else demand.wish, remaining))


def reserving(taken: Sequence[Operation], reserved: int) -> list[Operation]:
    """Add the reserved amount to the first of these operations. Only the sum over all parts counts."""
    first, *others = taken
    assert isinstance(first, Update)
    return [replace(first, add={**first.add, "reserved": reserved}), *others]


def charge(window: Window, number: int, has: int, used: int) -> Operation:
    """Charge usage that was not drawn to the shard if it has enough, otherwise to the window's row."""
    if has < used:
        return Update(budget_key(window.budget), add={"remaining": -used})
    return Update(part_key(window.budget, number), add={"remaining": -used}, when=When(at_least={"remaining": used}))


async def gather(store: StateStore, window: Window, wanted: int) -> None:
    """Move `wanted`, or whatever the `TOGETHER` richest shards have, to the window's row. Do nothing if other draws are
    faster."""
    rich = sorted(((has, number) for number, has in enumerate(window.shards, 1) if has), reverse=True)[:TOGETHER]
    given = _split(window, wanted, [(number, has) for has, number in rich])
    total = min(wanted, sum(has for has, _ in rich))
    main = Update(budget_key(window.budget), add={"remaining": total, "moves": 1})
    await refused(store, "gather_budget", [main, *given])
