"""The memory store, and everything that is built on rows, on it."""

import pytest

from helix import MemoryStateStore
from helix.adapters.row_budgets import RowBudgets
from helix.adapters.row_slots import RowSlots
from helix.adapters.segments import SegmentStreams
from helix.testing.contracts import BudgetsContract, SlotsContract, StateStoreContract, StreamManagerContract


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


class TestStore(StateStoreContract):
    pass


class TestStreams(StreamManagerContract):
    @pytest.fixture
    def streams(self, store: MemoryStateStore) -> SegmentStreams:
        return SegmentStreams(store)


class TestStreamsOfTwoManagers(TestStreams):
    @pytest.fixture
    def other(self, store: MemoryStateStore) -> SegmentStreams:
        return SegmentStreams(store)


class TestBudgets(BudgetsContract):
    @pytest.fixture
    def budgets(self, store: MemoryStateStore) -> RowBudgets:
        return RowBudgets(store)


class TestSlots(SlotsContract):
    @pytest.fixture
    def slots(self, store: MemoryStateStore) -> RowSlots:
        return RowSlots(store)
