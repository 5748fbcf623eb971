"""The memory store and all services on rows."""

import pytest
from tests.contracts.budget_shards import SHARDS, BudgetShardsContract
from tests.contracts.budgets import BudgetsContract
from tests.contracts.model_limits import ModelLimitsContract
from tests.contracts.segments import SegmentLogContract
from tests.contracts.slots import SlotsContract
from tests.support.memory_sockets import MemoryPeers, MemorySockets

from helix import MemoryStateStore
from helix.services import slot_shards
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.testing.contracts import SocketsContract, StateStoreContract, StreamManagerContract


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


@pytest.fixture
def second(store: MemoryStateStore) -> MemoryStateStore:
    return store


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


class TestBudgetShards(BudgetShardsContract):
    @pytest.fixture
    def budgets(self, store: MemoryStateStore) -> RowBudgets:
        return RowBudgets(store, shards=SHARDS)


class TestSlots(SlotsContract):
    @pytest.fixture
    def slots(self, store: MemoryStateStore) -> RowSlots:
        return RowSlots(store)


class TestSlotsInShards(TestSlots):
    @pytest.fixture(autouse=True)
    def shards(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(slot_shards, "SLOTS_EACH", 1)


class TestModelLimits(ModelLimitsContract):
    pass
