"""DynamoDB and S3 on moto, for the contracts of what stands on them. Other stores have a `store` of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.aws_resources import fresh, make_store, make_tables, moto

from helix.adapters.aws.dynamodb import DynamoDBStateStore


@pytest.fixture(scope="module")
def aws() -> Iterator[dict[str, Any]]:
    with moto() as made:
        yield made


@pytest.fixture
def prefix(aws: dict[str, Any]) -> str:
    found = fresh()
    make_tables(aws["dynamodb"], found)
    return found


@pytest.fixture
def store(aws: dict[str, Any], prefix: str) -> DynamoDBStateStore:
    return make_store(aws["dynamodb"], aws["s3"], prefix)
