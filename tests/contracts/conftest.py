"""Fixtures for contracts of adapters on DynamoDB and S3, which run on moto. Other stores have a `store` fixture of their
own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.aws_resources import fresh, make_store, make_tables, moto

from helix.adapters.aws.dynamodb import DynamoDBStateStore

MANY_CALLS = {
    "test_purge_deletes_any_number",
    "test_a_long_stream_is_read_whole",
    "test_very_many_draws_are_given_back",
}
"""Tests with large numbers, which take several seconds each over HTTP."""
REMOTE = {"test_dynamodb", "test_aws_servers", "test_kinesis", "test_direct", "test_packing"}


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/contracts/" in item.path.as_posix() and item.path.stem in REMOTE and item.name in MANY_CALLS:
            item.add_marker(pytest.mark.slow)


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
