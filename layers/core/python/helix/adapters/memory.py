"""The state store in memory, for tests and for runs that need not outlive the process."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial

from pydantic_core import from_json

from helix.adapters.watching import Watchers
from helix.core.json import dumps
from helix.ports.state_store import (
    Check,
    Key,
    Operation,
    Row,
    Table,
    Value,
    Watch,
    applied,
    check_keys,
    check_operations,
    check_range,
    expired,
    read_value,
)


class MemoryStateStore:
    """A store that keeps rows as JSON text, so later changes to a caller's value do not affect it."""

    def __init__(self) -> None:
        self._rows: dict[Key, str] = {}
        self._sorts: dict[tuple[str, str], list[str]] = {}
        self._lock = threading.Lock()
        self._watchers = Watchers()

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        check_keys(keys)
        with self._lock:
            texts = [self._rows.get(key) for key in keys]
        return [None if text is None else read_value(key, text) for key, text in zip(keys, texts, strict=True)]

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
        check_range(partition, start, end)
        with self._lock:
            sorts = self._sorts.get((table, partition), [])
            chosen = sorts[bisect_left(sorts, start) : len(sorts) if end is None else bisect_left(sorts, end)]
            if reverse:
                chosen.reverse()
            keys = [Key(table, partition, sort) for sort in chosen[:limit]]
            texts = [self._rows[key] for key in keys]
        return [Row(key, read_value(key, text)) for key, text in zip(keys, texts, strict=True)]

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        check_operations(name, operations)
        with self._lock:
            after: list[tuple[Key, str | None]] = []
            for index, operation in enumerate(operations):
                value = applied(name, index, operation, partial(self._value, operation.key))
                if not isinstance(operation, Check):
                    after.append((operation.key, None if value is None else dumps(value)))
            for key, new in after:
                self._write(key, new)
        self._watchers.wake((key.table, key.partition) for key, _ in after)

    async def purge(self, now: float) -> int:
        with self._lock:
            mortal = [(key, text) for key, text in self._rows.items() if '"ttl":' in text]
            gone = [key for key, text in mortal if expired(from_json(text), now)]
            for key in gone:
                self._write(key, None)
        self._watchers.wake((key.table, key.partition) for key in gone)
        return len(gone)

    def _value(self, key: Key) -> Value | None:
        text = self._rows.get(key)
        return None if text is None else read_value(key, text)

    def _write(self, key: Key, text: str | None) -> None:
        place = (key.table, key.partition)
        if text is None:
            if self._rows.pop(key, None) is not None:
                self._sorts[place].remove(key.sort)
            return
        if key not in self._rows:
            insort(self._sorts.setdefault(place, []), key.sort)
        self._rows[key] = text

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self._watchers.watch((table, partition))

    async def close(self) -> None:
        return None
