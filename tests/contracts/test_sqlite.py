"""The SQLite store: alone, and as two stores on one file, which is what two processes have."""

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
