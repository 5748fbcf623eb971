"""Run the cloud's streams on moto: two processes project records from Kinesis, some of them twice."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.contracts.segments import SegmentLogContract
from tests.support.aws_resources import (
    BUCKET,
    CHUNKS,
    CLOCK,
    Pump,
    PumpedStreams,
    fresh,
    make_projector,
    make_tables,
    tables,
)

from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.aws.kinesis import KinesisStreams
from helix.adapters.aws.overflow import Overflow
from helix.core.errors import StoreError
from helix.services.segments import SegmentStreams
from helix.testing.contracts import StreamManagerContract
from helix.testing.contracts.streams import S, everything, started, text

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def prefix(aws: dict[str, Any]) -> str:
    found = fresh()
    make_tables(aws["dynamodb"], found)
    aws["kinesis"].create_stream(StreamName=f"{found}-{CHUNKS}", ShardCount=2)
    return found


@pytest.fixture
def transit(aws: dict[str, Any]) -> Overflow:
    return Overflow(aws["s3"], BUCKET, "transit/")


@pytest.fixture
def pump(aws: dict[str, Any], prefix: str, store: DynamoDBStateStore, transit: Overflow) -> Pump:
    projectors = [make_projector(store, transit), make_projector(store, transit)]
    return Pump(aws["kinesis"], projectors, f"{prefix}-{CHUNKS}")


class TestStreams(StreamManagerContract):
    @pytest.fixture
    def streams(self, aws: dict[str, Any], store: DynamoDBStateStore, pump: Pump, transit: Overflow) -> PumpedStreams:
        return PumpedStreams(pump, aws["kinesis"], SegmentStreams(store), overflow=transit)

    @pytest.fixture
    def other(self, aws: dict[str, Any], store: DynamoDBStateStore, pump: Pump, transit: Overflow) -> PumpedStreams:
        return PumpedStreams(pump, aws["kinesis"], SegmentStreams(store), overflow=transit)

    async def test_what_kinesis_does_not_take_goes_by_s3(self, streams: PumpedStreams) -> None:
        """A flush of many records is split. A record of three megabytes that does not compress arrives complete."""
        large = random.Random(1).randbytes(1_500_000).hex()
        await streams.append(S, [started(), *(text(n, f"{n:04d}" * 20_000) for n in range(30)), text(30, large)])
        found = await everything(streams)
        assert [str(m.chunk["delta"])[:4] for m in found[:30] if m.chunk] == [f"{n:04d}" for n in range(30)]
        assert found[30].chunk is not None and found[30].chunk["delta"] == large


class TestLog(SegmentLogContract):
    @pytest.fixture
    def log(self, store: DynamoDBStateStore) -> SegmentStreams:
        return SegmentStreams(store)

    @pytest.fixture
    def other(self, store: DynamoDBStateStore) -> SegmentStreams:
        return SegmentStreams(store)

    async def test_no_segment_exceeds_an_item(self, log: SegmentStreams, aws: dict[str, Any], prefix: str) -> None:
        given = [text(n, random.Random(n).randbytes(40_000).hex()) for n in range(20)]
        await log.append(S, [started(), *given])
        assert len(await everything(log)) == 20
        items = aws["dynamodb"].scan(TableName=tables(prefix)["streams"])["Items"]
        assert 8 <= len(items) <= 20 and max(len(item["messages"]["B"]) for item in items) < 200_000


async def test_an_append_that_kinesis_refuses_is_a_store_error(aws: dict[str, Any], store: DynamoDBStateStore) -> None:
    streams = KinesisStreams(aws["kinesis"], "no-such-stream", SegmentStreams(store), CLOCK)
    with pytest.raises(StoreError, match="no-such-stream"):
        await streams.append(S, [started()])
