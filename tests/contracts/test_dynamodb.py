"""The DynamoDB store, and everything that is built on rows, on moto's DynamoDB and S3."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.aws.overflow import Overflow
from helix.adapters.row_budgets import RowBudgets
from helix.adapters.row_slots import RowSlots
from helix.adapters.segments import SegmentStreams
from helix.adapters.system import SystemClock
from helix.ports.state_store import Key, Put, Table
from helix.testing.contracts import BudgetsContract, SlotsContract, StateStoreContract, StreamManagerContract

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
TABLES: dict[Table, str] = {"sessions": "test-sessions", "streams": "test-streams", "control": "test-control"}


class Serial:
    """moto in process has no locks of its own: its conditional writes are atomic only one at a time."""

    def __init__(self, client: Any) -> None:
        self._client, self._lock = client, threading.Lock()

    def __getattr__(self, verb: str) -> Any:
        def call(**request: Any) -> Any:
            with self._lock:
                return getattr(self._client, verb)(**request)

        return call


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        dynamodb, s3 = boto3.client("dynamodb"), boto3.client("s3")
        s3.create_bucket(Bucket="test-overflow")
        for name in TABLES.values():
            dynamodb.create_table(
                TableName=name,
                KeySchema=[
                    {"AttributeName": "pk", "KeyType": "HASH"},
                    {"AttributeName": "sk", "KeyType": "RANGE"},
                ],
                AttributeDefinitions=[
                    {"AttributeName": "pk", "AttributeType": "S"},
                    {"AttributeName": "sk", "AttributeType": "S"},
                ],
                BillingMode="PAY_PER_REQUEST",
            )
        yield {"dynamodb": Serial(dynamodb), "s3": s3}


@pytest.fixture
def store(aws: dict[str, Any]) -> DynamoDBStateStore:
    overflow = Overflow(aws["s3"], "test-overflow")
    return DynamoDBStateStore(aws["dynamodb"], TABLES, clock=SystemClock(), overflow=overflow, poll_s=0.02)


class TestStore(StateStoreContract):
    async def test_a_row_over_an_items_limit_goes_to_s3(self, store: DynamoDBStateStore, aws: dict[str, Any]) -> None:
        key = Key("sessions", "p", "large")
        value = {"status": "running", "state": {"text": random.Random(1).randbytes(400_000).hex()}}
        await store.transact("put", [Put(key, value)])
        assert await store.get([key]) == [value]
        item = aws["dynamodb"].get_item(TableName=TABLES["sessions"], Key={"pk": {"S": "p"}, "sk": {"S": "large"}})[
            "Item"
        ]
        assert item["status"] == {"S": "running"} and len(item["state"]["B"]) < 200


class TestStreams(StreamManagerContract):
    @pytest.fixture
    def streams(self, store: DynamoDBStateStore) -> SegmentStreams:
        return SegmentStreams(store)


class TestBudgets(BudgetsContract):
    @pytest.fixture
    def budgets(self, store: DynamoDBStateStore) -> RowBudgets:
        return RowBudgets(store)


class TestSlots(SlotsContract):
    @pytest.fixture
    def slots(self, store: DynamoDBStateStore) -> RowSlots:
        return RowSlots(store)
