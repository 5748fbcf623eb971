"""The rows that are packed into the head row of a partition, and the form in which transactions on it are stored
(`helix.adapters.aws.packing`)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from helix.core.json import dumps
from helix.core.row_keys import SESSION
from helix.ports.state_store import ABSENT, Damaged, Delete, Key, Operation, Put, Value, When

HEAD = SESSION
"""The sort key of the head row of a partition, which holds the packed rows."""
LARGEST = 1500
"""The size of the largest row that is packed, in bytes."""
KINDS = ("c#", "m#", "r#")
PACKED, NUMBER, AT = "packed", "pack", "packed_at"


class PackedRow(NamedTuple):
    """A packed row."""

    number: int
    """The number of the write that produced this value."""
    value: Value
    """The row's value."""


@dataclass(slots=True)
class Pack:
    """The rows that are packed into a head row, as of one moment."""

    at: float
    """The time at which this state was seen, in Unix seconds."""
    number: int | None = None
    """The number of the last write that changed the pack. None: no row was ever packed."""
    rows: dict[str, PackedRow] = field(default_factory=dict)
    """The packed rows by sort key."""
    there: bool = False
    """Whether the head row exists."""
    known: bool = False
    """Whether the pack comes from memory, so that it may be out of date."""
    damaged: bool = False
    """Whether the row cannot be read, so its packed rows are lost."""

    @property
    def next_number(self) -> int:
        """The number of the next write. Numbers begin at the time in milliseconds, so they keep growing when a head
        row is deleted and created again."""
        return (int(self.at * 1000) if self.number is None else self.number) + 1

    def pack_row(self, value: Value) -> PackedRow:
        """Return the packed row that the next write makes from a value."""
        return PackedRow(self.next_number, copy.deepcopy(value))


@dataclass(slots=True)
class Plan:
    """A transaction in the form in which it is stored."""

    operations: list[Operation] = field(default_factory=list)
    """The operations of the stored transaction."""
    origins: list[int | None] = field(default_factory=list)
    """The index of the caller's operation for each stored operation. None: the caller did not request it."""
    moves: list[tuple[Key, PackedRow]] = field(default_factory=list)
    """The packed rows that move to their own rows before the transaction."""
    early: list[Put | Delete] = field(default_factory=list)
    """The operations that the caller allows before the transaction (`may_precede`)."""
    before: dict[str, Pack] = field(default_factory=dict)
    """The pack of each partition as the plan saw it."""
    after: dict[str, Pack] = field(default_factory=dict)
    """The pack of each partition once the transaction has succeeded."""

    def add(self, operation: Operation, origin: int | None) -> None:
        if isinstance(operation, (Put, Delete)) and operation.may_precede:
            self.early.append(operation)
            return
        self.operations.append(operation)
        self.origins.append(origin)

    def sort_operations(self) -> Plan:
        """Sort the operations into the caller's order, because the first of several refusals is reported. Operations
        that the caller did not request go last."""
        places = sorted(range(len(self.origins)), key=lambda n: (self.origins[n] is None, self.origins[n] or 0))
        self.operations = [self.operations[place] for place in places]
        self.origins = [self.origins[place] for place in places]
        return self


def head_key(partition: str) -> Key:
    return Key("sessions", partition, HEAD)


def is_head(key: Key) -> bool:
    return key.table == "sessions" and key.sort == HEAD


def is_packable(key: Key) -> bool:
    return key.table == "sessions" and key.sort.startswith(KINDS)


def can_locate(operation: Operation, pack: Pack) -> bool:
    """Return whether the remembered pack suffices to locate the row. It does for a row in the pack, because a write
    against a changed pack is refused. It also does for a message, which never changes once packed, unless the write is
    unconditional."""
    sort = operation.key.sort
    blind = isinstance(operation, (Put, Delete)) and operation.when is None
    return sort in pack.rows or (sort.startswith("m#") and not blind)


def is_new_and_small(put: Put) -> bool:
    return put.new and (put.when is None or put.when.absent) and is_small(put.value)


def is_small(value: Value) -> bool:
    return len(dumps(value)) <= LARGEST


def pack_fields(pack: Pack) -> Value:
    found: Value = {} if pack.number is None else {NUMBER: pack.number}
    return found | ({PACKED: {sort: list(held) for sort, held in pack.rows.items()}} if pack.rows else {})


def with_pack_number(when: When | None, pack: Pack) -> When | None:
    """Return the condition, extended by the pack's number. It then fails if the pack was written in between."""
    if pack.damaged or (when is not None and when.absent):
        return when
    if when is None and not pack.there:
        return ABSENT
    when = when or When()
    return replace(when, equal={**when.equal, NUMBER: pack.number})


def without_pack_number(value: Value | None) -> Value | None:
    """Return a row that was stored under its own key, without the number that a move added."""
    if value is not None and not isinstance(value, Damaged):
        value.pop(AT, None)
    return value
