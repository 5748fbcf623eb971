"""The state store: rows, and transactions on them. The step protocol is in `engine`, once, on these few verbs.

Every adapter (memory, SQLite, DynamoDB, Redis) therefore obeys the same protocol by construction. The contract in
`helix.testing.contracts` only has to prove atomicity, conditions and order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from pydantic_core import from_json

from helix.core.errors import ConditionFailedError, InvalidInputError, damaged_row
from helix.core.json import text_size

Table = Literal["sessions", "streams", "control"]
Scalar = str | int | float | bool | None
Value = dict[str, Any]
MAX_OPERATIONS = 100
MAX_PARTITION_BYTES = 2_048
MAX_SORT_BYTES = 1_024
"""DynamoDB's limits of a key. Every store has them, so a test with any store finds an id that a stage would refuse."""
SHOWN_OF_KEYS = 80


class Key(NamedTuple):
    """The place of a row. Rows of one (table, partition) are ordered by `sort`, byte-wise. Both texts are UTF-8 and
    have at least one byte."""

    table: Table
    """The table: `sessions`, `streams`, or `control` for the fleet, budgets and indexes."""
    partition: str
    """The group of rows that one query reads, such as a session's id."""
    sort: str
    """The row's name and place within its partition."""


class Row(NamedTuple):
    key: Key
    """The place of the row."""
    value: Value
    """The row's JSON object, or `Damaged` if it cannot be read."""


class Damaged(dict[str, Any]):
    """The value of a row that cannot be read. A look at its fields raises `DamagedRowError`; its key can be listed and
    deleted."""

    def __init__(self, key: Key, problem: object) -> None:
        super().__init__()
        self._damage = (*key, problem)

    def refuse(self, *_: Any) -> Any:
        raise damaged_row(*self._damage)

    __getitem__ = __contains__ = __iter__ = get = keys = values = items = refuse

    def __bool__(self) -> bool:
        return True


def read_value(key: Key, text: str | bytes) -> Value:
    """Return the row's value from its JSON, for adapters that store it as text. It is `Damaged` if the text is not a
    JSON object."""
    try:
        value = from_json(text)
    except (ValueError, TypeError) as error:
        return Damaged(key, error)
    return value if isinstance(value, dict) else Damaged(key, "it is no JSON object")


@dataclass(frozen=True, slots=True)
class When:
    """A condition on the stored row. All parts must hold."""

    absent: bool = False
    """Whether the row must not exist. This stands alone, without other parts."""
    equal: Mapping[str, Scalar] = field(default_factory=dict)
    """Top-level fields and the scalars that they must equal. None also matches a missing field."""
    at_least: Mapping[str, int | float] = field(default_factory=dict)
    """Top-level numbers and the least values that they must have. A missing field fails."""
    below: Mapping[str, int | float] = field(default_factory=dict)
    """Top-level numbers and the values that they must be below. A missing field fails."""

    def holds(self, value: Value | None) -> bool:
        """Whether the condition holds, for adapters that read before they write."""
        if self.absent:
            return value is None
        if value is None:
            return False
        for name, wanted in self.equal.items():
            if value.get(name) != wanted:
                return False
        return not (self.at_least or self.below) or self._bounds_hold(value)

    def _bounds_hold(self, value: Value) -> bool:
        met = all(value.get(name) is not None and value[name] >= bound for name, bound in self.at_least.items())
        return met and all(value.get(name) is not None and value[name] < bound for name, bound in self.below.items())


ABSENT = When(absent=True)


@dataclass(frozen=True, slots=True)
class Put:
    """Write the whole row."""

    key: Key
    """The place of the row."""
    value: Value
    """The new value, in place of all earlier fields."""
    when: When | None = None
    """The condition on the stored row. None: write it in any case."""
    fresh: bool = False
    """Whether a store may keep the row together with the row `session` of its partition. It is set only for a row that
    does not exist yet and never changes, such as a message. Only transactions create such a row that also put
    `session`, on a condition that one of them alone can meet."""
    ahead: bool = False
    """Whether the row may be written although the transaction is refused or lost. Such a put has no condition."""


@dataclass(frozen=True, slots=True)
class Update:
    """Change fields of a row that exists. A missing row refuses the transaction."""

    key: Key
    """The place of the row."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """The top-level fields to replace, with their new values."""
    add: Mapping[str, int] = field(default_factory=dict)
    """The integers to add to top-level fields. A missing field counts as 0."""
    when: When | None = None
    """The condition on the stored row. None: it only has to exist."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the row, if it exists."""

    key: Key
    """The place of the row."""
    when: When | None = None
    """The condition on the stored row. None: remove it in any case."""
    ahead: bool = False
    """Whether the row may be removed although the transaction is refused or lost, and at another moment than the rest.
    Such a deletion has no condition."""


@dataclass(frozen=True, slots=True)
class Check:
    """Check the condition and write nothing."""

    key: Key
    """The place of the row."""
    when: When
    """The condition that the stored row must meet."""


Operation = Put | Update | Delete | Check


class Watch(Protocol):
    async def changed(self, timeout_s: float) -> None:
        """Return when the partition may have changed since `watch` or the last call, or after `timeout_s`."""
        ...


HEARTBEAT = "heartbeat"
"""The name of the transaction by which a worker renews its claims. It does not wait for other work of its process: if
it is late, another worker takes the run over."""


class StateStore(Protocol):
    """The rows of three tables. All verbs may be called from several tasks and processes at once. A verb raises
    `InvalidInputError` for a key that is empty or longer than `MAX_PARTITION_BYTES` or `MAX_SORT_BYTES`."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        """Return the rows in the order of `keys`, with None for a missing row. The read sees every transaction that was
        answered before the call began. The values are the caller's own copies; a row that cannot be read is
        `Damaged`."""
        ...

    async def query(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        beside_session: bool = False,
    ) -> list[Row]:
        """Return the rows with `start <= sort < end` in order (or reversed), at most `limit`. They are as fresh as
        those of `get`. The store pages internally.

        `beside_session`: the caller has read the row `session` of the partition, and asks for rows that never change
        and existed when it read that row. The store need not look for others.
        """
        ...

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        """Apply all operations or none, at one moment. Conditions are judged on the rows as they are at that moment.

        A transaction has at most 100 operations, each on another row. `ConditionFailedError` has the index of the first
        refused operation: nothing was written, so read again and decide again. `StoreError` means that it is unknown
        whether the transaction was written: look it up. The store repeats conflicts with other writers itself. Where
        that does not help, it raises `ContentionError`: nothing was written. `name` says what the transaction is for;
        it labels traces and crash points.
        """
        ...

    async def purge(self, now: float) -> int:
        """Delete the rows of all tables that expired before `now` (Unix seconds), and return how many.

        A row expires at its top-level number `ttl` (whole Unix seconds, since DynamoDB reads no fractions). A row
        without that number never expires. A row that is renewed meanwhile stays. An expired row is read like any other
        until it is deleted, so readers that must not act on it compare its time. A store may delete expired rows
        without a call, by its own clock. A store whose backend deletes them (DynamoDB) returns 0.
        """
        ...

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        """Watch a partition for changes. Changes after this call are not missed: watch first, then read, then await
        `changed`."""
        ...

    async def close(self) -> None:
        """Release files and threads. Idempotent."""
        ...


def check_keys(keys: Iterable[Key]) -> None:
    """Check the limits of keys, which are the same for every adapter."""
    for key in keys:
        _check_key_part(key.partition, MAX_PARTITION_BYTES)
        _check_key_part(key.sort, MAX_SORT_BYTES)


def check_range(partition: str, start: str, end: str | None) -> None:
    """Check the limits of a query's keys, which are the same for every adapter."""
    _check_key_part(partition, MAX_PARTITION_BYTES)
    for bound in (start, end):
        if bound:
            _check_key_part(bound, MAX_SORT_BYTES)


def _check_key_part(text: str, limit: int) -> None:
    if text.isascii() and 0 < len(text) <= limit:
        return
    if not 0 < (size := text_size(text)) <= limit:
        shown = text[:SHOWN_OF_KEYS]
        raise InvalidInputError(f"the id or name {shown!r} makes a key of {size} bytes; a key has 1 to {limit}")


def check_operations(name: str, operations: Sequence[Operation]) -> None:
    """Check the limits of `transact`, which are the same for every adapter."""
    check_keys(operation.key for operation in operations)
    if not 1 <= len(operations) <= MAX_OPERATIONS:
        raise InvalidInputError(
            f"transaction {name!r} has {len(operations)} operations; it takes 1 to {MAX_OPERATIONS}"
        )
    if len({operation.key for operation in operations}) != len(operations):
        raise InvalidInputError(f"transaction {name!r} names a row twice")


def applied(name: str, index: int, operation: Operation, read: Callable[[], Value | None]) -> Value | None:
    """Return the row after the operation, or None if it is deleted, for adapters that read before they write. A check
    leaves the row unchanged. The row is read only if the operation depends on it. Raises `ConditionFailedError`."""
    value: Value | None = None
    if operation.when is not None or isinstance(operation, Update):
        value = read()
        refused = operation.when is not None and not operation.when.holds(value)
        if refused or (isinstance(operation, Update) and value is None):
            raise ConditionFailedError(name, index)
    match operation:
        case Put():
            return operation.value
        case Update():
            return updated(value or {}, operation)
        case Delete():
            return None
        case Check():
            return value


def updated(value: Value, update: Update) -> Value:
    """Return the row after `update`."""
    after = {**value, **update.set}
    for name, amount in update.add.items():
        after[name] = (after.get(name) or 0) + amount
    return after


def expired(value: Value, now: float) -> bool:
    """Whether `purge` deletes the row, for adapters that read before they write."""
    return (ttl := expiry(value)) is not None and ttl < now


def expiry(value: Value) -> float | None:
    """Return when the row expires, in Unix seconds. None: it never does, or its `ttl` is not a number."""
    ttl = value.get("ttl")
    return ttl if isinstance(ttl, (int, float)) and not isinstance(ttl, bool) else None
