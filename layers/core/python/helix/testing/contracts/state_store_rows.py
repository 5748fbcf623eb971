"""Rows for the contract tests of `StateStore`: their keys, and short ways to write and read them."""

from __future__ import annotations

from typing import Any

import pytest

from helix.core.errors import ConditionFailedError
from helix.ports.state_store import Key, Operation, Put, StateStore, Value

P = "partition"
"""The partition of the rows, unless a test names another."""


def key(sort: str, partition: str = P) -> Key:
    return Key("sessions", partition, sort)


async def put(store: StateStore, sort: str, value: Value, partition: str = P) -> None:
    await store.transact("put", [Put(key(sort, partition), value)])


async def get(store: StateStore, sort: str, partition: str = P) -> Value | None:
    (value,) = await store.get([key(sort, partition)])
    return value


async def sorts(store: StateStore, **options: Any) -> list[str]:
    return [row.key.sort for row in await store.query("sessions", P, **options)]


async def refused(store: StateStore, *operations: Operation) -> int:
    """Return the index of the operation that made the store refuse the transaction."""
    with pytest.raises(ConditionFailedError) as caught:
        await store.transact("refused", operations)
    return caught.value.index
