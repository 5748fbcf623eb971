"""What the adapters of AWS work with, made by hand: tables, a bucket, a Kinesis stream, and what reads that stream."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
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
from helix.gateway.projecting import LogRecord, Projector
from helix.ports.state_store import Table
from helix.services.segments import SegmentStreams

BUCKET, CHUNKS = "test-bucket", "test-chunks"
CLOCK = SystemClock()
NUMBERS = itertools.count()


class Serial:
    """moto in process has no locks of its own: its conditional writes are atomic only one at a time."""

    def __init__(self, client: Any) -> None:
        self._client, self._lock = client, threading.Lock()

    def __getattr__(self, verb: str) -> Any:
        def call(**request: Any) -> Any:
            with self._lock:
                return getattr(self._client, verb)(**request)

        return call


@contextlib.contextmanager
def moto() -> Iterator[dict[str, Any]]:
    """Clients of AWS as moto plays it in this process, by service, and a bucket."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with mock_aws():
            made = {name: Serial(boto3.client(name)) for name in ("dynamodb", "s3", "kinesis")}
            made["s3"].create_bucket(Bucket=BUCKET)
            yield made


def fresh() -> str:
    """A prefix of tables that no other test has seen."""
    return f"t{next(NUMBERS)}"


def tables(prefix: str = "test") -> dict[Table, str]:
    return {"sessions": f"{prefix}-sessions", "streams": f"{prefix}-streams", "control": f"{prefix}-control"}


def make_tables(dynamodb: Any, prefix: str = "test") -> None:
    for name in tables(prefix).values():
        dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )


def make_store(dynamodb: Any, s3: Any, prefix: str = "test") -> DynamoDBStateStore:
    return DynamoDBStateStore(dynamodb, tables(prefix), clock=CLOCK, overflow=Overflow(s3, BUCKET), poll_s=0.02)


class Pump:
    """Plays the event source mapping: reads the shards and calls the projectors in turn, as many Lambdas would be; a batch
    comes again after every few, and from the first record on that failed. `position`s are the emulator's own."""

    def __init__(self, kinesis: Any, projectors: Sequence[Projector], chunks: str = CHUNKS) -> None:
        self._kinesis, self._projectors, self.chunks = kinesis, projectors, chunks
        self._iterators: dict[str, str] = {}
        self._lock, self._batches = asyncio.Lock(), 0

    async def drain(self) -> None:
        """Return once all that is on the stream now is projected."""
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
            done = await self._projectors[self._batches % len(self._projectors)].project(batch)
            if done.failed is None and self._batches % 4:
                break
            batch = [r for r in batch if done.failed is None or int(r.position) >= int(done.failed)]
        return bool(answer["Records"])


class PumpedStreams(KinesisStreams):
    """An append that returns once it is on the log: what the contract of a stream manager asks for."""

    def __init__(self, pump: Pump, kinesis: Any, log: SegmentStreams, *, overflow: Overflow | None = None) -> None:
        super().__init__(kinesis, pump.chunks, log, CLOCK, overflow=overflow)
        self._pump = pump

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        await super().append(stream_id, records)
        await self._pump.drain()


def make_projector(store: DynamoDBStateStore, overflow: Overflow | None = None) -> Projector:
    """One process: with heads of its own in mind."""
    fetch = None if overflow is None else overflow.read
    return Projector(SegmentStreams(store), Connections(store, CLOCK), MemorySockets(), CLOCK, fetch=fetch)
