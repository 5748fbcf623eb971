"""What a row `session` packs, and how a transaction on it is stored (`helix.adapters.aws.packing`)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from helix.core.json import dumps
from helix.core.row_keys import SESSION
from helix.ports.state_store import ABSENT, Damaged, Delete, Key, Operation, Put, Value, When

LARGEST = 1500
"""Bytes of a row that is packed at most."""
KINDS = ("c#", "m#", "r#")
PACKED, NUMBER, AT = "packed", "pack", "packed_at"


class Held(NamedTuple):
    """A packed row. `number`: of the write that made this value."""

    number: int
    value: Value


@dataclass(slots=True)
class Pack:
    """What a row `session` packs, as seen at `at` (Unix seconds). `number` is None before it packs anything; `there`:
    whether there is such a row. `known`: it comes from memory, and may have changed. `damaged`: the row cannot be read, and
    what it packs is lost."""

    at: float
    number: int | None = None
    rows: dict[str, Held] = field(default_factory=dict)
    there: bool = False
    known: bool = False
    damaged: bool = False

    @property
    def next(self) -> int:
        """Numbers begin at the time, so that those of a session that was deleted and made again go on."""
        return (int(self.at * 1000) if self.number is None else self.number) + 1

    def holds(self, value: Value) -> Held:
        """A value that the next write packs."""
        return Held(self.next, copy.deepcopy(value))


@dataclass(slots=True)
class Plan:
    """The operations as they are stored. `origins`: for each, the place of the caller's operation (None: none)."""

    operations: list[Operation] = field(default_factory=list)
    origins: list[int | None] = field(default_factory=list)
    moves: list[tuple[Key, Held]] = field(default_factory=list)
    ahead: list[Put | Delete] = field(default_factory=list)
    before: dict[str, Pack] = field(default_factory=dict)
    after: dict[str, Pack] = field(default_factory=dict)

    def add(self, operation: Operation, origin: int | None) -> None:
        if isinstance(operation, (Put, Delete)) and operation.ahead:
            self.ahead.append(operation)
            return
        self.operations.append(operation)
        self.origins.append(origin)

    def in_order(self) -> Plan:
        """In the caller's order: of several refusals the first is reported. What the caller did not ask for goes last."""
        places = sorted(range(len(self.origins)), key=lambda n: (self.origins[n] is None, self.origins[n] or 0))
        self.operations = [self.operations[place] for place in places]
        self.origins = [self.origins[place] for place in places]
        return self


def anchor_key(partition: str) -> Key:
    return Key("sessions", partition, SESSION)


def is_anchor(key: Key) -> bool:
    return key.table == "sessions" and key.sort == SESSION


def packable(key: Key) -> bool:
    return key.table == "sessions" and key.sort.startswith(KINDS)


def is_enough(operation: Operation, pack: Pack) -> bool:
    """Whether what is remembered of the pack is enough to say where the row is: it was packed, and a write that is not is
    refused; or it is a message, which if it was ever packed never changes."""
    sort = operation.key.sort
    blind = isinstance(operation, (Put, Delete)) and operation.when is None
    return sort in pack.rows or (sort.startswith("m#") and not blind)


def fits(put: Put) -> bool:
    return put.fresh and (put.when is None or put.when.absent) and small(put.value)


def small(value: Value) -> bool:
    return len(dumps(value)) <= LARGEST


def pack_fields(pack: Pack) -> Value:
    found: Value = {} if pack.number is None else {NUMBER: pack.number}
    return found | ({PACKED: {sort: list(held) for sort, held in pack.rows.items()}} if pack.rows else {})


def guarded(when: When | None, pack: Pack) -> When | None:
    """The condition, and that nobody has written the pack."""
    if pack.damaged or (when is not None and when.absent):
        return when
    if when is None and not pack.there:
        return ABSENT
    when = when or When()
    return replace(when, equal={**when.equal, NUMBER: pack.number})


def bare(value: Value | None) -> Value | None:
    """A row at its place, without what a move left in it."""
    if value is not None and not isinstance(value, Damaged):
        value.pop(AT, None)
    return value
