"""The Redis store and all services on rows, on a real server: one store, and two stores on one database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.contracts.budget_shards import SHARDS, BudgetShardsContract
from tests.contracts.budgets import BudgetsContract
from tests.contracts.model_limits import ModelLimitsContract
from tests.contracts.segments import SegmentLogContract
from tests.contracts.slots import SlotsContract
from tests.support.redis_server import RedisServer

from helix.adapters.redis import RedisStateStore, redis_streams
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.testing.contracts import StateStoreContract, StreamManagerContract


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as made:
        yield made


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStateStore]:
    server.ask("FLUSHALL")
    made = RedisStateStore(server.url)
    yield made
    await made.close()


@pytest.fixture
async def second(server: RedisServer) -> AsyncIterator[RedisStateStore]:
    made = RedisStateStore(server.url)
    yield made
    await made.close()


class TestStore(StateStoreContract):
    pass


class TestTwoStores(StateStoreContract):
    @pytest.fixture
    def other(self, second: RedisStateStore) -> RedisStateStore:
        return second


class TestStreamsOfTwoProcesses(StreamManagerContract):
    @pytest.fixture
    def streams(self, store: RedisStateStore) -> SegmentStreams:
        return redis_streams(store)

    @pytest.fixture
    def other(self, second: RedisStateStore) -> SegmentStreams:
        return redis_streams(second)


class TestLogOfTwoProjectors(SegmentLogContract):
    @pytest.fixture
    def log(self, store: RedisStateStore) -> SegmentStreams:
        return redis_streams(store)

    @pytest.fixture
    def other(self, second: RedisStateStore) -> SegmentStreams:
        return redis_streams(second)


class TestBudgetsOfTwoProcesses(BudgetsContract):
    @pytest.fixture
    def budgets(self, store: RedisStateStore) -> RowBudgets:
        return RowBudgets(store)

    @pytest.fixture
    def other(self, second: RedisStateStore) -> RowBudgets:
        return RowBudgets(second)


class TestBudgetShardsOfTwoProcesses(BudgetShardsContract):
    @pytest.fixture
    def budgets(self, store: RedisStateStore) -> RowBudgets:
        return RowBudgets(store, shards=SHARDS)

    @pytest.fixture
    def other(self, second: RedisStateStore) -> RowBudgets:
        return RowBudgets(second, shards=SHARDS)


class TestSlotsOfTwoProcesses(SlotsContract):
    @pytest.fixture
    def slots(self, store: RedisStateStore) -> RowSlots:
        return RowSlots(store)

    @pytest.fixture
    def other(self, second: RedisStateStore) -> RowSlots:
        return RowSlots(second)


class TestModelLimits(ModelLimitsContract):
    pass
