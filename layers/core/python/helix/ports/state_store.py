"""The state store: rows, and transactions on them. The step protocol lives in `engine`, once, on these few verbs.

Every adapter (memory, SQLite, DynamoDB, Redis) therefore obeys the same protocol by construction, and the contract in
`helix.testing.contracts` has only atomicity, conditions and order to prove.
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
    """Rows of one (table, partition) are ordered by `sort`, byte-wise. Both are UTF-8 texts with at least one byte."""

    table: Table
    partition: str
    sort: str


class Row(NamedTuple):
    key: Key
    value: Value


class Damaged(dict[str, Any]):
    """The value of a row that cannot be read. Its fields raise `DamagedRowError`; its key can be listed and deleted."""

    def __init__(self, key: Key, problem: object) -> None:
        super().__init__()
        self._damage = (*key, problem)

    def refuse(self, *_: Any) -> Any:
        raise damaged_row(*self._damage)

    __getitem__ = __contains__ = __iter__ = get = keys = values = items = refuse

    def __bool__(self) -> bool:
        return True


def read_value(key: Key, text: str | bytes) -> Value:
    """The row's value from its JSON, for adapters that store it as text."""
    try:
        value = from_json(text)
    except (ValueError, TypeError) as error:
        return Damaged(key, error)
    return value if isinstance(value, dict) else Damaged(key, "it is no JSON object")


@dataclass(frozen=True, slots=True)
class When:
    """A condition on the stored row; all parts must hold. `absent` stands alone: no such row.

    `equal` compares top-level fields with scalars (None also matches a missing field); `at_least` and `below` compare
    one stored number with a value (a missing field fails both).
    """

    absent: bool = False
    equal: Mapping[str, Scalar] = field(default_factory=dict)
    at_least: Mapping[str, int | float] = field(default_factory=dict)
    below: Mapping[str, int | float] = field(default_factory=dict)

    def holds(self, value: Value | None) -> bool:
        """The meaning of the condition, for adapters that read before they write."""
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
    """Write the whole row. `fresh`: there is no such row, and only transactions that also put the row `session` of its
    partition, on a condition that one of them alone can meet, put one there; a fresh message never changes. A store may
    keep it with that row.
    `ahead`: the row may be written although the transaction is refused or lost; it has no condition."""

    key: Key
    value: Value
    when: When | None = None
    fresh: bool = False
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """Change fields of a row that exists (a missing row refuses the transaction): `set` replaces, `add` adds integers."""

    key: Key
    set: Mapping[str, Any] = field(default_factory=dict)
    add: Mapping[str, int] = field(default_factory=dict)
    when: When | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the row, if it is there. `ahead`: the row may be removed although the transaction is refused or lost, and at
    another moment than others; it has no condition."""

    key: Key
    when: When | None = None
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """Only the condition."""

    key: Key
    when: When


Operation = Put | Update | Delete | Check


class Watch(Protocol):
    async def changed(self, timeout_s: float) -> None:
        """Return when the partition may have changed since `watch` or the last call, or after `timeout_s`."""
        ...


HEARTBEAT = "heartbeat"
"""The transaction by which a worker keeps its run. It waits for no other work of its process: where it is late, another
worker takes the run over."""


class StateStore(Protocol):
    """Rows of three tables. All verbs may be called from several tasks and processes at once. A verb that is given an empty
    key, or one above `MAX_PARTITION_BYTES` or `MAX_SORT_BYTES`, raises `InvalidInputError`."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        """The rows, in the order of `keys`, None for what is not there. Sees every transaction that was answered before
        the call began. The values are the caller's own copies; a row that cannot be read is `Damaged`."""
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
        """Rows with `start <= sort < end` in order (or reversed), at most `limit`. As fresh as `get`; pages inside.

        `beside_session`: the caller has read the row `session` of the partition, and asks for rows that never change and
        stood beside it then; a store need not look for others.
        """
        ...

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        """Apply all operations or none, at one moment: conditions are judged on the rows as they are at that moment.

        At most 100 operations, each on another row. Raises `ConditionFailedError` with the index of the first refused
        operation (nothing written: read again and decide again); `StoreError` when it is unknown whether it was
        written (look it up). Conflicts with other writers are repeated inside; where that does not help,
        `ContentionError` says that nothing was written. `name` says what the transaction is for: it labels traces and
        crash points.
        """
        ...

    async def purge(self, now: float) -> int:
        """Delete the rows of all tables that expired before `now` (Unix seconds), and return how many.

        A row expires at its top-level number `ttl` (Unix seconds, whole: DynamoDB reads no fractions); a row without
        that number never does. A row that is
        renewed meanwhile stays. Until its deletion an expired row is read like any other: readers that must not act on
        it compare its time. A store may delete expired rows without a call, by its own clock; one whose backend does
        (DynamoDB) leaves them to the backend and returns 0.
        """
        ...

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        """Changes after this call are not missed: watch first, then read, then `changed`."""
        ...

    async def close(self) -> None:
        """Let go of files and threads; idempotent."""
        ...


def check_keys(keys: Iterable[Key]) -> None:
    """The limits of keys, the same for every adapter."""
    for key in keys:
        _check_key_part(key.partition, MAX_PARTITION_BYTES)
        _check_key_part(key.sort, MAX_SORT_BYTES)


def check_range(partition: str, start: str, end: str | None) -> None:
    """The limits of a query's keys, the same for every adapter."""
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
    """The limits of `transact`, the same for every adapter."""
    check_keys(operation.key for operation in operations)
    if not 1 <= len(operations) <= MAX_OPERATIONS:
        raise InvalidInputError(
            f"transaction {name!r} has {len(operations)} operations; it takes 1 to {MAX_OPERATIONS}"
        )
    if len({operation.key for operation in operations}) != len(operations):
        raise InvalidInputError(f"transaction {name!r} names a row twice")


def applied(name: str, index: int, operation: Operation, read: Callable[[], Value | None]) -> Value | None:
    """The row after the operation, None where it is deleted, for adapters that read before they write. A check leaves it.
    The row is read only where the operation depends on it. Raises `ConditionFailedError`."""
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
    """The row after `update`."""
    after = {**value, **update.set}
    for name, amount in update.add.items():
        after[name] = (after.get(name) or 0) + amount
    return after


def expired(value: Value, now: float) -> bool:
    """Whether `purge` deletes the row, for adapters that read before they write."""
    return (ttl := expiry(value)) is not None and ttl < now


def expiry(value: Value) -> float | None:
    """When the row expires, in Unix seconds; None: never, or its `ttl` is no number."""
    ttl = value.get("ttl")
    return ttl if isinstance(ttl, (int, float)) and not isinstance(ttl, bool) else None
