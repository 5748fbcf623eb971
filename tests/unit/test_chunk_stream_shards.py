"""`helix deploy` refuses a number of shards that Kinesis would refuse in the middle of the update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from helix.cli.cloud.deploy_checks import check_shards
from helix.cli.output import RefusedError


@pytest.fixture
def kinesis(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        client = boto3.client("kinesis", region_name="eu-central-1")
        client.create_stream(StreamName="chunks", ShardCount=5)
        yield client


@pytest.mark.parametrize("shards", [0, 3, 5, 10])
def test_one_step_is_taken(kinesis: Any, shards: int) -> None:
    check_shards(kinesis, "chunks", shards)


@pytest.mark.parametrize(("shards", "step"), [(1, 3), (2, 3), (11, 10), (40, 10)])
def test_more_than_a_step_is_refused_with_the_step_to_take(kinesis: Any, shards: int, step: int) -> None:
    with pytest.raises(RefusedError, match=rf"has 5 shards.*-c shards={step} first.*until there are {shards}"):
        check_shards(kinesis, "chunks", shards)


def test_a_new_stream_has_any_number(kinesis: Any) -> None:
    check_shards(kinesis, "another", 40)
