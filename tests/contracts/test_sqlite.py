"""The SQLite store: alone, and as two stores on one file, which is what two processes have."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helix import SQLiteStateStore
from helix.adapters.row_budgets import RowBudgets
from helix.adapters.row_slots import RowSlots
from helix.adapters.segments import SegmentStreams
from helix.ports.state_store import Key, Put
from helix.testing.contracts import BudgetsContract, SlotsContract, StateStoreContract, StreamManagerContract


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStateStore]:
    made = SQLiteStateStore(tmp_path / "helix.db", synchronous="NORMAL")
    yield made
    await made.close()


@pytest.fixture
async def second(tmp_path: Path) -> AsyncIterator[SQLiteStateStore]:
    made = SQLiteStateStore(tmp_path / "helix.db", synchronous="NORMAL")
    yield made
    await made.close()


class TestStore(StateStoreContract):
    pass


class TestTwoStores(StateStoreContract):
    @pytest.fixture
    def other(self, second: SQLiteStateStore) -> SQLiteStateStore:
        return second


async def test_rows_whose_time_is_over_are_deleted(store: SQLiteStateStore) -> None:
    """Nobody else does it for a file."""
    keys = [Key("control", "p", name) for name in ("stays", "is over", "is young")]
    values: list[dict[str, Any]] = [{"n": 1}, {"ttl": 99}, {"ttl": 101}]
    await store.transact("rows", [Put(key, value) for key, value in zip(keys, values, strict=True)])
    assert await store.purge(100.0) == 1
    assert await store.get(keys) == [{"n": 1}, None, {"ttl": 101}]


async def test_very_many_expired_rows_are_deleted(store: SQLiteStateStore) -> None:
    for first in range(0, 1300, 100):
        puts = [Put(Key("control", "p", f"{n:05d}"), {"ttl": 5 + n % 2}) for n in range(first, first + 100)]
        await store.transact("rows", puts)
    assert [await store.purge(now) for now in (5.5, 5.5, 6.5)] == [650, 0, 650]
    assert await store.query("control", "p") == []


async def test_who_looks_for_expired_rows_holds_up_no_writer(store: SQLiteStateStore) -> None:
    """The search takes a tenth of a second for 100,000 rows; it must not keep other processes from writing."""
    await store.transact("row", [Put(Key("control", "p", "young"), {"ttl": 101})])
    with sqlite3.connect(store.path, isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")  # whoever writes now
        async with asyncio.timeout(5):
            assert await store.purge(100.0) == 0
        writer.execute("ROLLBACK")
    writer.close()


class TestStreamsOfTwoProcesses(StreamManagerContract):
    @pytest.fixture
    def streams(self, store: SQLiteStateStore) -> SegmentStreams:
        return SegmentStreams(store)

    @pytest.fixture
    def other(self, second: SQLiteStateStore) -> SegmentStreams:
        return SegmentStreams(second)


class TestBudgetsOfTwoProcesses(BudgetsContract):
    @pytest.fixture
    def budgets(self, store: SQLiteStateStore) -> RowBudgets:
        return RowBudgets(store)

    @pytest.fixture
    def other(self, second: SQLiteStateStore) -> RowBudgets:
        return RowBudgets(second)


class TestSlotsOfTwoProcesses(SlotsContract):
    @pytest.fixture
    def slots(self, store: SQLiteStateStore) -> RowSlots:
        return RowSlots(store)

    @pytest.fixture
    def other(self, second: SQLiteStateStore) -> RowSlots:
        return RowSlots(second)
