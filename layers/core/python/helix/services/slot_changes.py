"""The transactions of slots and their conditions, built from the counters as they were read (`row_slots`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, Put, Update, When
from helix.services import slot_rows, slot_shards
from helix.services.slot_rows import Candidate, SlotCounter


def open_to(known: Mapping[str | None, SlotCounter], agent_type: str) -> bool:
    """Return whether a newcomer may take a slot: a slot is free, and no run of its agent is waiting. If the account has
    a limit, no other eligible run may be waiting either. A run that is not eligible, because its agent is full or
    stopped, does not hold up others."""
    mine, account = known[agent_type], known[None]
    if mine.queued or not mine.has_room or not account.has_room:
        return False
    return account.bound is None or not any(c.queued and c.has_room for c in known.values() if c.agent_type is not None)


def taking(
    run: Candidate, mine: SlotCounter, account: SlotCounter, *, ticket: dict[str, Any] | None = None
) -> list[Operation]:
    """Return the operations that take a slot, either in exchange for the run's ticket or on condition that no run is
    waiting."""
    shared = account.bound is not None
    alone = {} if ticket is not None else {"queued": 0}
    found = [slot_shards.take(mine, run, among(mine, account), alone)]
    if shared:
        found.append(slot_shards.take(account, run, among(account, account), {}))
    ops = [operation for operations, _ in found for operation in operations]
    if ticket is None and among(mine, account) > 1:  # the condition does not cover the agent's total `queued`
        ops.append(Check(slot_rows.ticket_key(run), ABSENT))
    if ticket is not None:
        for counter, number in zip((mine, account), shards_of(ticket), strict=False):
            known = any(shard.number == number for shard in counter.shards)
            ops.append(slot_shards.give(counter.agent_type, "queued", number if known else None))
    slot = {**asdict(run), "shared": shared, **numbers(found)}
    return [Put(slot_rows.slot_key(run), slot, ABSENT), *slot_shards.joined(ops)]


def queueing(
    run: Candidate, mine: SlotCounter, account: SlotCounter, longest: int | None, timeout_s: float
) -> list[Operation]:
    """Return the operations that put a ticket. They require that the run has no slot, because a second caller may have
    acquired one for the same run. `longest` is the maximum number of tickets in the queue. Empty if the queue is
    full."""
    shared = account.bound is not None
    counters = [(mine, longest), (account, None)] if shared else [(mine, longest)]
    counted = [slot_shards.queue(counter, run, among(counter, account), most) for counter, most in counters]
    found = [one for one in counted if one is not None]
    if len(found) < len(counted):
        return []
    ticket = {**asdict(run), "shared": shared, "expires_at": run.order + timeout_s, **numbers(found)}
    return [
        Put(slot_rows.ticket_key(run), ticket, ABSENT),
        Check(slot_rows.slot_key(run), ABSENT),
        *(operation for operations, _ in found for operation in operations),
    ]


def among(counter: SlotCounter, account: SlotCounter) -> int:
    return slot_shards.width(counter, account) if counter.divided else 1


def numbers(found: Sequence[tuple[list[Operation], int | None]]) -> dict[str, Any]:
    """Return the field that names the shards in which the slot or ticket is counted: the agent's shard, and the
    account's if it is counted there too."""
    numbers = [number for _, number in found]
    return {"shards": numbers} if any(number is not None for number in numbers) else {}


def shards_of(row: dict[str, Any]) -> list[int | None]:
    return row.get("shards") or [None] * (2 if row["shared"] else 1)


def change(counter: SlotCounter, **changes: Any) -> Update:
    """Return the update that changes the settings of the counter, if its limits are unchanged since they were read. A
    lower limit begins a new epoch."""
    before, after = counter.bound, replace(counter, **changes).bound
    lower = after is not None and (before is None or after < before)
    seen = When(equal={"limit": counter.limit, "default": counter.default})
    return Update(slot_rows.counter_key(counter.agent_type), set=changes, add={"epoch": 1} if lower else {}, when=seen)


def gone(key: Key, run: Candidate) -> Operation:
    return Delete(key, When(equal={"run_id": run.run_id}))
