"""State stores with wrong reads, copies and watches: the second part of `broken`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from helix.adapters.memory import MemoryStateStore
from helix.adapters.watching import Watchers
from helix.core.errors import StoreError
from helix.ports.state_store import Delete, Key, Operation, Put, Row, Table, Value, Watch


class ReadsLate(MemoryStateStore):
    """Serves reads from a replica that is one transaction behind."""

    def __init__(self) -> None:
        super().__init__()
        self._replica = MemoryStateStore()
        self._behind: list[tuple[str, Sequence[Operation]]] = []

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(name, operations)
        self._behind.append((name, operations))
        if len(self._behind) > 1:
            await self._replica.transact(*self._behind.pop(0))

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        return await self._replica.get(keys)


class QueriesLate(ReadsLate):
    """Serves only queries late, like those of a secondary index."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        return await MemoryStateStore.get(self, keys)

    async def query(self, table: Table, partition: str, **options: Any) -> list[Row]:
        return await self._replica.query(table, partition, **options)


class _Queries(MemoryStateStore):
    """Queries whose rows are ordered and cut by `choose`."""

    async def query(
        self, table: Table, partition: str, *, limit: int | None = None, reverse: bool = False, **bounds: Any
    ) -> list[Row]:
        return self.choose(await super().query(table, partition, **bounds), limit, reverse)

    def choose(self, rows: list[Row], limit: int | None, reverse: bool) -> list[Row]:
        return (rows[::-1] if reverse else rows)[:limit]


class DoesNotOrder(_Queries):
    """Returns rows in the order of writing."""

    def choose(self, rows: list[Row], limit: int | None, reverse: bool) -> list[Row]:
        written = list(self._rows)
        return super().choose(sorted(rows, key=lambda row: written.index(row.key)), limit, reverse)


class OrdersByLetters(_Queries):
    """Sorts upper and lower case letters alike, as a collation does."""

    def choose(self, rows: list[Row], limit: int | None, reverse: bool) -> list[Row]:
        return super().choose(sorted(rows, key=lambda row: row.key.sort.lower()), limit, reverse)


class OrdersByUtf16(_Queries):
    def choose(self, rows: list[Row], limit: int | None, reverse: bool) -> list[Row]:
        return super().choose(sorted(rows, key=lambda row: row.key.sort.encode("utf-16-be")), limit, reverse)


class IncludesTheEnd(_Queries):
    async def query(self, table: Table, partition: str, *, end: str | None = None, **options: Any) -> list[Row]:
        return await super().query(table, partition, end=None if end is None else end + "\0", **options)


class LimitsBeforeItReverses(_Queries):
    def choose(self, rows: list[Row], limit: int | None, reverse: bool) -> list[Row]:
        return rows[:limit][::-1] if reverse else rows[:limit]


class ReadsOnePage(_Queries):
    """Stops a query after the first 100 rows."""

    def choose(self, rows: list[Row], limit: int | None, reverse: bool) -> list[Row]:
        return super().choose(rows, limit, reverse)[:100]


class MixesPartitions(MemoryStateStore):
    """Takes partitions with the same beginning for one."""

    async def query(self, table: Table, partition: str, **options: Any) -> list[Row]:
        places = sorted(
            {key.partition for key in self._rows if key.table == table and key.partition.startswith(partition)}
        )
        return [row for place in places for row in await MemoryStateStore.query(self, table, place, **options)]


class SharesValues(MemoryStateStore):
    """Returns values again without a copy."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: dict[tuple[Key, str], Value] = {}

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        found = zip(keys, await super().get(keys), strict=True)
        return [None if v is None else self._shared.setdefault((k, self._rows[k]), v) for k, v in found]


class KeepsTheCallersValue(MemoryStateStore):
    """Stores the caller's own object until it is first read."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(name, operations)
        self._last = operations

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        for operation in getattr(self, "_last", ()):
            if isinstance(operation, Put):
                await super().transact("again", [Put(operation.key, operation.value)])
        self._last = ()
        return await super().get(keys)


class LosesLetters(MemoryStateStore):
    """Stores texts with one byte per letter."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        return [None if v is None else _latin(v) for v in await super().get(keys)]


class MakesFloats(MemoryStateStore):
    """Returns all numbers as floats."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        return [None if v is None else _floats(v) for v in await super().get(keys)]


class RefusesLargeValues(MemoryStateStore):
    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if any(len(repr(o.value)) > 64_000 for o in operations if isinstance(o, Put)):
            raise StoreError("the value is too large")
        await super().transact(name, operations)


class ClosesOnce(MemoryStateStore):
    _open = True

    async def close(self) -> None:
        if not self._open:
            raise StoreError("closed already")
        self._open = False


class DoesNotWake(MemoryStateStore):
    """Never wakes a watch before its timeout."""

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return Watchers().watch((table, partition))


class DeletesInSilence(MemoryStateStore):
    """Does not wake a watch after a deletion."""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        watchers = self._watchers
        if all(isinstance(operation, Delete) for operation in operations):
            self._watchers = Watchers()
        try:
            await super().transact(name, operations)
        finally:
            self._watchers = watchers


class WakesOnlyWhoWaits(MemoryStateStore):
    """Misses a change between `watch` and `changed`."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: defaultdict[tuple[str, str], set[asyncio.Event]] = defaultdict(set)

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await super().transact(name, operations)
        for operation in operations:
            for event in self._waiting[operation.key.table, operation.key.partition]:
                event.set()

    @contextmanager
    def _listen(self, table: Table, partition: str) -> Iterator[Watch]:
        yield _Ear(self._waiting[table, partition])

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self._listen(table, partition)


class _Ear:
    def __init__(self, waiting: set[asyncio.Event]) -> None:
        self._waiting = waiting

    async def changed(self, timeout_s: float) -> None:
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            await asyncio.wait_for(event.wait(), timeout_s)
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(event)


class NeverGivesUp(MemoryStateStore):
    """Ignores the timeout of a watch."""

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self._patient(table, partition)

    @contextmanager
    def _patient(self, table: Table, partition: str) -> Iterator[Watch]:
        with self._watchers.watch((table, partition)) as watch:
            yield _Patient(watch)


class _Patient:
    def __init__(self, inner: Watch) -> None:
        self._inner = inner

    async def changed(self, timeout_s: float) -> None:
        await self._inner.changed(3600)


def _latin(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("latin-1", "replace").decode("latin-1")
    if isinstance(value, dict):
        return {_latin(k): _latin(v) for k, v in value.items()}
    return [_latin(v) for v in value] if isinstance(value, list) else value


def _floats(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, dict):
        return {k: _floats(v) for k, v in value.items()}
    return [_floats(v) for v in value] if isinstance(value, list) else value
