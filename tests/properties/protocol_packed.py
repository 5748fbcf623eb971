"""The state stores of several processes on one memory store, as on DynamoDB. Each remembers the packed rows that it saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from zlib import crc32

from tests.properties.protocol_rights import RecordedStore
from tests.properties.protocol_world import ACTOR, START

from helix.adapters.aws.packing import PackingStore
from helix.core.json import dumps
from helix.ports.state_store import Key, Operation, Row, Table, Value, Watch

SKEWS = 0.0, 2.0, -2.0


class Skewed:
    """A process's own clock."""

    def __init__(self, stores: PackedStores, skew: float) -> None:
        self._stores, self._skew = stores, skew

    def now(self) -> float:
        return self._stores.time() + self._skew

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a store does not wait")


class PackedStores:
    """Routes each call to the store of its actor's process. Deliveries share processes, as they share Lambda
    environments."""

    def __init__(self) -> None:
        self.memory = RecordedStore()
        self.time: Callable[[], float] = lambda: START
        self.stores = [PackingStore(self.memory, lambda v: len(dumps(v)), Skewed(self, skew)) for skew in SKEWS]

    def _own(self) -> PackingStore:
        actor = ACTOR.get()
        return self.stores[crc32(actor.name.encode()) % len(self.stores) if actor is not None else 0]

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        return await self._own().get(keys)

    async def query(self, table: Table, partition: str, **options: Any) -> list[Row]:
        return await self._own().query(table, partition, **options)

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await self._own().transact(name, operations)

    async def purge(self, now: float) -> int:
        return await self.memory.purge(now)

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self.memory.watch(table, partition)

    async def close(self) -> None:
        await self.memory.close()
