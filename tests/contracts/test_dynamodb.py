"""The DynamoDB store and all services on rows, on moto's DynamoDB and S3."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contracts.budget_shards import SHARDS, BudgetShardsContract
from tests.contracts.budgets import BudgetsContract
from tests.contracts.model_limits import ModelLimitsContract
from tests.contracts.slots import SlotsContract
from tests.support.aws_resources import make_store

from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.testing.contracts import StateStoreContract, StreamManagerContract

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def second(aws: dict[str, Any], prefix: str) -> DynamoDBStateStore:
    return make_store(aws["dynamodb"], aws["s3"], prefix)


class TestStore(StateStoreContract):
    purges = False


class TestStreams(StreamManagerContract):
    @pytest.fixture
    def streams(self, store: DynamoDBStateStore) -> SegmentStreams:
        return SegmentStreams(store)


class TestBudgets(BudgetsContract):
    @pytest.fixture
    def budgets(self, store: DynamoDBStateStore) -> RowBudgets:
        return RowBudgets(store)


class TestBudgetShards(BudgetShardsContract):
    @pytest.fixture
    def budgets(self, store: DynamoDBStateStore) -> RowBudgets:
        return RowBudgets(store, shards=SHARDS)


class TestSlots(SlotsContract):
    @pytest.fixture
    def slots(self, store: DynamoDBStateStore) -> RowSlots:
        return RowSlots(store)


class TestModelLimits(ModelLimitsContract):
    pass
