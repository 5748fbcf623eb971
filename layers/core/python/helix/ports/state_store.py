"""The state store: rows and transactions. `engine` implements the step protocol once, on top of these few verbs.

Therefore every adapter (memory, SQLite, DynamoDB, Redis) follows the same protocol by construction. The contract tests
in `helix.testing.contracts` only have to verify atomicity, conditions and order.

Three hints help a store that keeps several rows of a partition in one place: `Put.new`, `may_precede` and the option
`known_head` of `query`. Every store may ignore them. They refer to the *head row* of a partition: the row that each
transaction that adds rows there also puts, under a condition that only one transaction can meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, get_args

from pydantic_core import from_json

from helix.core.errors import ConditionFailedError, InvalidInputError, damaged_row
from helix.core.json import text_size

Table = Literal["sessions", "streams", "control"]
TABLES: tuple[Table, ...] = get_args(Table)
"""All tables."""
Scalar = str | int | float | bool | None
Value = dict[str, Any]
MAX_OPERATIONS = 100
MAX_PARTITION_BYTES = 2_048
MAX_SORT_BYTES = 1_024
"""DynamoDB's key size limits. Every store enforces them, so that tests with any store catch ids that a deployment would
reject."""
SHOWN_OF_KEYS = 80


class Key(NamedTuple):
    """The key of a row. Rows of one (table, partition) are ordered by `sort`, bytewise. Both strings are UTF-8 with at
    least one byte."""

    table: Table
    """The table: `sessions`, `streams`, or `control` for the fleet, budgets and indexes."""
    partition: str
    """The name of the group of rows that one query reads."""
    sort: str
    """The row's sort key: its name and position within the partition."""


class Row(NamedTuple):
    key: Key
    """The key of the row."""
    value: Value
    """The row's JSON object, or `Damaged` if it cannot be read."""


class Damaged(dict[str, Any]):
    """The value of a row that cannot be read. Accessing its fields raises `DamagedRowError`, but the row can still be
    listed and deleted by key."""

    def __init__(self, key: Key, problem: object) -> None:
        super().__init__()
        self._damage = (*key, problem)

    def refuse(self, *_: Any) -> Any:
        raise damaged_row(*self._damage)

    __getitem__ = __contains__ = __iter__ = get = keys = values = items = refuse

    def __bool__(self) -> bool:
        return True


def read_value(key: Key, text: str | bytes) -> Value:
    """Parse a row's value, for adapters that store JSON text. Return `Damaged` if the text is not a JSON object."""
    try:
        value = from_json(text)
    except (ValueError, TypeError) as error:
        return Damaged(key, error)
    return value if isinstance(value, dict) else Damaged(key, "it is not a JSON object")


@dataclass(frozen=True, slots=True)
class When:
    """A condition on the stored row. All parts must hold."""

    absent: bool = False
    """Whether the row must not exist. Cannot be combined with other parts."""
    equal: Mapping[str, Scalar] = field(default_factory=dict)
    """The scalar values that top-level fields must equal. None also matches a missing field."""
    at_least: Mapping[str, int | float] = field(default_factory=dict)
    """The minimum values of top-level numeric fields. A missing field fails the condition."""
    below: Mapping[str, int | float] = field(default_factory=dict)
    """The exclusive upper bounds of top-level numeric fields. A missing field fails the condition."""

    def holds(self, value: Value | None) -> bool:
        """Return whether the condition holds, for adapters that read before they write."""
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
    """The key of the row."""
    value: Value
    """The new value, which replaces all earlier fields."""
    when: When | None = None
    """The condition on the stored row. None: write unconditionally."""
    new: bool = False
    """Whether the caller knows that the row does not exist yet, so the store does not have to check. The transaction
    also puts the head row of the partition, under a condition that only one transaction can meet."""
    may_precede: bool = False
    """Whether the row may be written before the transaction, and even if the transaction is refused or lost. Such a put
    has no condition."""


@dataclass(frozen=True, slots=True)
class Update:
    """Change fields of an existing row. If the row is missing, the transaction is refused."""

    key: Key
    """The key of the row."""
    set: Mapping[str, Any] = field(default_factory=dict)
    """The top-level fields to replace, with their new values."""
    add: Mapping[str, int] = field(default_factory=dict)
    """The integers to add to top-level fields. A missing field counts as 0."""
    when: When | None = None
    """The condition on the stored row. None: the row only has to exist."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the row, if it exists."""

    key: Key
    """The key of the row."""
    when: When | None = None
    """The condition on the stored row. None: remove unconditionally."""
    may_precede: bool = False
    """Whether the row may be removed before the transaction, and even if the transaction is refused or lost. Such a
    deletion has no condition."""


@dataclass(frozen=True, slots=True)
class Check:
    """Check a condition without writing."""

    key: Key
    """The key of the row."""
    when: When
    """The condition that the stored row must meet."""


Operation = Put | Update | Delete | Check


class Watch(Protocol):
    async def changed(self, timeout_s: float) -> None:
        """Wait until the partition may have changed since `watch` or the last call, or until `timeout_s` seconds have
        passed."""
        ...


HEARTBEAT = "heartbeat"
"""The name of the transaction with which a worker renews its claims. It must not wait for other work in its process,
because if it is late, another worker takes over the run."""


class StateStore(Protocol):
    """The rows of three tables. All verbs may be called from several tasks and processes at once. A verb raises
    `InvalidInputError` for a key that is empty or longer than `MAX_PARTITION_BYTES` or `MAX_SORT_BYTES`."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        """Return the values in the order of `keys`, with None for a missing row. The read is strongly consistent: it
        sees every transaction that completed before the call. The caller owns the returned values. A row that cannot be
        read is `Damaged`."""
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
        known_head: bool = False,
    ) -> list[Row]:
        """Return the rows with `start <= sort < end` in order (or reversed), at most `limit`. Reads are as consistent
        as with `get`. The store pages internally.

        `known_head`: the caller has already read the head row of the partition. Of the rows that were put as `new`, the
        caller only needs those that existed at that time and have not changed since. The store does not have to look
        for others.
        """
        ...

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        """Apply all operations atomically, or none. Conditions are evaluated against the rows at that moment.

        A transaction has at most 100 operations, each on a different row. `ConditionFailedError` has the index of the
        first refused operation: nothing was written, so read the rows again and retry. `StoreError` means that it is
        unknown whether the transaction was written: read to find out. The store itself retries after conflicts with
        other writers. If that does not help, it raises `ContentionError`: nothing was written. `name` describes the
        purpose of the transaction and labels traces and crash points.
        """
        ...

    async def purge(self, now: float) -> int:
        """Delete the rows of all tables that expired before `now` (Unix seconds), and return how many.

        A row expires at the time in its top-level field `ttl` (integer Unix seconds, because DynamoDB does not support
        fractions). A row without `ttl` never expires, and a row that is renewed in the meantime is kept. Reads return
        an expired row until it is deleted, so readers that must not act on it have to check the time. A store may also
        delete expired rows on its own, by its own clock. A store whose backend deletes them (DynamoDB) returns 0.
        """
        ...

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        """Watch a partition for changes. No change after this call is missed: watch first, then read, then await
        `changed`."""
        ...

    async def close(self) -> None:
        """Release files and threads. Idempotent."""
        ...


def check_keys(keys: Iterable[Key]) -> None:
    """Check the key size limits, which are the same for every adapter."""
    for key in keys:
        _check_key_part(key.partition, MAX_PARTITION_BYTES)
        _check_key_part(key.sort, MAX_SORT_BYTES)


def check_range(partition: str, start: str, end: str | None) -> None:
    """Check the key size limits of a query, which are the same for every adapter."""
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
    """Return the row's value after the operation, or None if it is deleted, for adapters that read before they write. A
    check leaves the row unchanged. The row is read only if the operation depends on it. Raises
    `ConditionFailedError`."""
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
    """Return whether `purge` would delete the row, for adapters that read before they write."""
    return (ttl := expiry(value)) is not None and ttl < now


def expiry(value: Value) -> float | None:
    """Return the expiry time of the row in Unix seconds. None if it never expires or its `ttl` is not a number."""
    ttl = value.get("ttl")
    return ttl if isinstance(ttl, (int, float)) and not isinstance(ttl, bool) else None
