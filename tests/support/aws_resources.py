"""Manually created resources for the AWS adapters: tables, a bucket, a Kinesis stream, and the reader of that stream."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import boto3
import pytest
from moto import mock_aws
from tests.support.memory_sockets import MemorySockets

from helix.adapters.aws.dynamodb import DynamoDBStateStore
from helix.adapters.aws.kinesis import KinesisStreams
from helix.adapters.aws.overflow import Overflow
from helix.adapters.system import SystemClock
from helix.core.sequencer import StreamRecord
from helix.gateway.connections import Connections
from helix.gateway.projector import LogRecord, Projector
from helix.ports.state_store import Table
from helix.services.segments import SegmentStreams
from helix.testing.aws import LockedClient, create_tables

BUCKET, CHUNKS = "test-bucket", "test-chunks"
CLOCK = SystemClock()
NUMBERS = itertools.count()


@contextlib.contextmanager
def moto() -> Iterator[dict[str, Any]]:
    """Yield moto's AWS clients in this process, by service, and a bucket."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with mock_aws():
            made = {name: LockedClient(boto3.client(name)) for name in ("dynamodb", "s3", "kinesis")}
            made["s3"].create_bucket(Bucket=BUCKET)
            yield made


def fresh() -> str:
    """Return a prefix of tables that no other test uses."""
    return f"t{next(NUMBERS)}"


def tables(prefix: str = "test") -> dict[Table, str]:
    return {"sessions": f"{prefix}-sessions", "streams": f"{prefix}-streams", "control": f"{prefix}-control"}


def make_tables(dynamodb: Any, prefix: str = "test") -> None:
    create_tables(dynamodb, tables(prefix))


def make_store(dynamodb: Any, s3: Any, prefix: str = "test") -> DynamoDBStateStore:
    return DynamoDBStateStore(dynamodb, tables(prefix), clock=CLOCK, overflow=Overflow(s3, BUCKET), poll_s=0.02)


class Pump:
    """An event source mapping. It reads the shards and calls the projectors in turn, as many Lambdas would be called. Every
    few batches one is delivered again, and after a failure a batch is repeated from its first failed record on. Each
    `position` is the emulator's own."""

    def __init__(self, kinesis: Any, projectors: Sequence[Projector], chunks: str = CHUNKS) -> None:
        self._kinesis, self._projectors, self.chunks = kinesis, projectors, chunks
        self._iterators: dict[str, str] = {}
        self._lock, self._batches = asyncio.Lock(), 0

    async def drain(self) -> None:
        """Return once everything that is on the stream now was projected."""
        async with self._lock:
            if not self._iterators:
                described = await asyncio.to_thread(self._kinesis.describe_stream, StreamName=self.chunks)
                for shard in described["StreamDescription"]["Shards"]:
                    ident = shard["ShardId"]
                    place = {"StreamName": self.chunks, "ShardId": ident, "ShardIteratorType": "TRIM_HORIZON"}
                    answer = await asyncio.to_thread(self._kinesis.get_shard_iterator, **place)
                    self._iterators[ident] = answer["ShardIterator"]
            for shard in self._iterators:
                while await self._batch(shard):
                    pass

    async def _batch(self, shard: str) -> bool:
        iterator = self._iterators[shard]
        answer = await asyncio.to_thread(self._kinesis.get_records, ShardIterator=iterator, Limit=20)
        self._iterators[shard] = answer["NextShardIterator"]
        batch = [LogRecord(r["SequenceNumber"], r["PartitionKey"], r["Data"], CLOCK.now()) for r in answer["Records"]]
        while batch:
            self._batches += 1
            failed = await self._projectors[self._batches % len(self._projectors)].project(batch)
            if failed is None and self._batches % 4:
                break
            batch = [r for r in batch if failed is None or int(r.position) >= int(failed)]
        return bool(answer["Records"])


class PumpedStreams(KinesisStreams):
    """Streams whose append returns once it is on the log, as the contract of a stream manager requires."""

    def __init__(self, pump: Pump, kinesis: Any, log: SegmentStreams, *, overflow: Overflow | None = None) -> None:
        super().__init__(kinesis, pump.chunks, log, CLOCK, overflow=overflow)
        self._pump = pump

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        await super().append(stream_id, records)
        await self._pump.drain()


def make_projector(store: DynamoDBStateStore, overflow: Overflow | None = None) -> Projector:
    """Make the projector of one process, which remembers its own stream heads."""
    fetch = None if overflow is None else overflow.read
    return Projector(SegmentStreams(store), Connections(store, CLOCK), MemorySockets(), CLOCK, fetch=fetch)
