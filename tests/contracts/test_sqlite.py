"""The SQLite store: alone, and as two stores on one file, which is what two processes have."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix import SQLiteStateStore
from helix.adapters.row_budgets import RowBudgets
from helix.adapters.row_slots import RowSlots
from helix.adapters.segments import SegmentStreams
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
