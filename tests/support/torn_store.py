"""A store in which something happens between two reads, or between a read and the write that depends on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from helix import MemoryStateStore
from helix.ports.state_store import Key, Row, Value


class Torn(MemoryStateStore):
    """A store in which something happens once, after a row of the partition `at` was read or queried."""

    at = ""
    then: Callable[[], Awaitable[Any]] | None = None

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        values = []
        for key in keys:
            values += await super().get([key])
            await self._happens(key.partition)
        return values

    async def query(self, table: Any, partition: str, **options: Any) -> list[Row]:
        rows = await super().query(table, partition, **options)
        await self._happens(partition)
        return list(rows)

    async def _happens(self, partition: str) -> None:
        if self.at and self.at in partition and (then := self.then) is not None:
            self.then = None
            await then()
