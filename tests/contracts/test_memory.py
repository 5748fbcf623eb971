"""The memory store, and everything that is built on rows, on it."""

import pytest

from helix import MemoryStateStore
from helix.adapters.memory_sockets import MemorySockets
from helix.adapters.row_budgets import RowBudgets
from helix.adapters.row_slots import RowSlots
from helix.adapters.segments import SegmentStreams
from helix.testing.contracts import (
    BudgetsContract,
    SegmentLogContract,
    SlotsContract,
    SocketsContract,
    StateStoreContract,
    StreamManagerContract,
)
from helix.testing.peers import MemoryPeers


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


class TestLog(SegmentLogContract):
    @pytest.fixture
    def log(self, store: MemoryStateStore) -> SegmentStreams:
        return SegmentStreams(store)


class TestLogOfTwoProjectors(TestLog):
    @pytest.fixture
    def other(self, store: MemoryStateStore) -> SegmentStreams:
        return SegmentStreams(store)


class TestSockets(SocketsContract):
    @pytest.fixture
    def sockets(self) -> MemorySockets:
        return MemorySockets()

    @pytest.fixture
    def peers(self, sockets: MemorySockets) -> MemoryPeers:
        return MemoryPeers(sockets)


class TestBudgets(BudgetsContract):
    @pytest.fixture
    def budgets(self, store: MemoryStateStore) -> RowBudgets:
        return RowBudgets(store)


class TestSlots(SlotsContract):
    @pytest.fixture
    def slots(self, store: MemoryStateStore) -> RowSlots:
        return RowSlots(store)
