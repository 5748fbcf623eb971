"""Divides slot counters into shards, so that many admissions per second do not contend for one row
(docs/protocol.md#slots).

Law: a counter's row lends slots to its shards and counts them in `running`, whether they are held or free. It never
lends more than the limit. A run takes a slot from a shard only if one is free, so no limit is exceeded. A lower limit
begins a new `epoch`: slots that were lent before are merged into the counter's row, and no run takes them any longer. A
slot or a ticket returns to the shard that counts it, or to the counter's row if that shard was merged. `moves` counts
the transactions between the row and its shards. A reader that finds no room compares `moves` before and after its
reads, to find out whether they were consistent.

A limit below 2 * `SLOTS_EACH` has no shards. A shard has few slots because an item takes one transaction at a time. If
each run takes a second, 32 transactions per second contend for the shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from zlib import crc32

from helix.ports.state_store import ABSENT, Delete, Key, Operation, Put, Scalar, Update, When
from helix.services.slot_rows import Candidate, Shard, SlotCounter, counter_key, shard_key

SLOTS_EACH, MOST = 16, 192
LENT_AT_ONCE, LENT_TO = 1_000, 96
"""The number of slots lent to a shard if no limit applies, and the maximum number of shards in one transaction."""


def shards_for(bound: int | None) -> int:
    return 1 if bound is None else max(1, min(MOST, bound // SLOTS_EACH))


def width(counter: SlotCounter, account: SlotCounter) -> int:
    """Return the number of shards into which the counter is divided; 1 if it is not divided."""
    return shards_for(account.bound if counter.bound is None else counter.bound)


def take(counter: SlotCounter, run: Candidate, among: int, equal: dict[str, int]) -> tuple[list[Operation], int | None]:
    """Return the operations that take a slot if one is free, and the number of its shard (None for the counter's row).
    `equal` is a further condition on the counter's row."""
    limits = {**_limits(counter), **equal}
    if among == 1:
        return [_one(counter, limits)], None
    free = {shard.number for shard in counter.shards if shard.free > 0}
    order = _order(run, among)
    number = next((n for n in [*order, *sorted(free)] if n in free), None)
    if number is None:  # too little is left to lend
        return [_one(counter, limits)], None
    seen = When(equal={"epoch": counter.epoch}, at_least={"free": 1})
    return [Update(shard_key(counter.agent_type, number), add={"free": -1}, when=seen)], number


def lend(counter: SlotCounter, among: int) -> list[Operation]:
    """Return the operations that lend the free slots of the counter's row to shards. Empty if there are few free slots,
    or no shards."""
    there = {shard.number: shard for shard in counter.shards}
    free = sum(shard.free for shard in counter.shards)
    absent = [number for number in range(among) if number not in there][:LENT_TO]
    lendable = LENT_AT_ONCE * among if counter.bound is None else int(counter.room) - free
    if among == 1 or lendable < among or not (absent or free < min(lendable, among)):
        return []
    # Shards in use get their slots one at a time, because a transaction on many of them would always conflict with
    # another one.
    poorest = absent or [min(there.values(), key=lambda shard: shard.free).number]
    each = min(lendable // len(poorest), LENT_AT_ONCE if counter.bound is None else counter.bound // among)
    total = each * len(poorest)
    below = {} if counter.bound is None else {"running": counter.bound - total + 1}
    seen = When(equal=_limits(counter), below=below)
    main = Update(counter_key(counter.agent_type), add={"running": total, "moves": 1}, when=seen)
    return [main, *(_add(counter, number, there, free=each) for number in poorest)]


def queue(
    counter: SlotCounter, run: Candidate, among: int, longest: int | None
) -> tuple[list[Operation], int | None] | None:
    """Return the operations that count a ticket, and its shard. None if the queue is full. `longest` is the maximum
    number of tickets, or None for no limit."""
    if among == 1:
        room = None if longest is None else When(below={"queued": longest})
        return [Update(counter_key(counter.agent_type), add={"queued": 1}, when=room)], None
    there = {shard.number: shard for shard in counter.shards}
    for number in _order(run, among):
        most = None if longest is None else longest // among + (number < longest % among)
        if most is None or (there[number].queued if number in there else 0) < most:
            return [_add(counter, number, there, most, queued=1)], number
    return None


def give(agent_type: str | None, what: str, number: int | None) -> Operation:
    """Return the operation that decrements the count of held slots (`running`) or tickets (`queued`). `number` is the
    shard; None for the counter's row."""
    if number is None:
        return Update(counter_key(agent_type), add={what: -1})
    return Update(shard_key(agent_type, number), add={"free": 1} if what == "running" else {what: -1})


def stale(counters: Iterable[SlotCounter]) -> list[list[Operation]]:
    """Return a transaction for each shard that still has slots from before the limit was lowered."""
    return [_merge(counter, shard) for counter in counters for shard in counter.shards if shard.epoch != counter.epoch]


def joined(operations: Sequence[Operation]) -> list[Operation]:
    """Join the operations, so that each row has at most one, in the order in which the rows first appear."""
    found: dict[Key, Operation] = {}
    for operation in operations:
        there = found.get(operation.key)
        match there, operation:
            case None, _:
                found[operation.key] = operation
            case Put(), Update():
                added = {name: there.value[name] + number for name, number in operation.add.items()}
                found[operation.key] = replace(there, value={**there.value, **added})
            case Update(), Update():
                found[operation.key] = _both(there, operation)
            case _:
                raise AssertionError(f"two operations on {operation.key}")
    return list(found.values())


def _one(counter: SlotCounter, limits: Mapping[str, Scalar]) -> Update:
    below = {} if counter.bound is None else {"running": counter.bound}
    return Update(counter_key(counter.agent_type), add={"running": 1}, when=When(equal=limits, below=below))


def _limits(counter: SlotCounter) -> dict[str, Scalar]:
    return {"limit": counter.limit, "default": counter.default, "epoch": counter.epoch or None}


def _both(one: Update, other: Update) -> Update:
    names = [*one.add, *(name for name in other.add if name not in one.add)]
    add = {name: one.add.get(name, 0) + other.add.get(name, 0) for name in names}
    whens = [when for when in (one.when, other.when) if when is not None]
    merged = When(
        equal={name: value for when in whens for name, value in when.equal.items()},
        at_least={name: value for when in whens for name, value in when.at_least.items()},
        below={name: value for when in whens for name, value in when.below.items()},
    )
    return replace(one, add=add, when=merged if whens else None)


def _add(
    counter: SlotCounter,
    number: int,
    there: dict[int, Shard],
    most: int | None = None,
    *,
    free: int = 0,
    queued: int = 0,
) -> Operation:
    key = shard_key(counter.agent_type, number)
    if number not in there:
        return Put(key, {"epoch": counter.epoch, "free": free, "queued": queued}, ABSENT)
    seen = When(equal={"epoch": counter.epoch}, below={} if most is None else {"queued": most})
    return Update(key, add={"free": free} if free else {"queued": queued}, when=seen)


def _merge(counter: SlotCounter, shard: Shard) -> list[Operation]:
    seen = When(equal={"epoch": shard.epoch, "free": shard.free, "queued": shard.queued})
    back = {name: n for name, n in (("running", -shard.free), ("queued", shard.queued)) if n}
    gone: list[Operation] = [Delete(shard_key(counter.agent_type, shard.number), seen)]
    return [*gone, Update(counter_key(counter.agent_type), add={**back, "moves": 1})] if back else gone


def _order(run: Candidate, among: int) -> list[int]:
    """Return the shards in an order specific to the run, so that runs whose shards are used up do not all try the same
    one."""
    return sorted(range(among), key=lambda n: crc32(f"{run.run_id}{n}".encode()))
