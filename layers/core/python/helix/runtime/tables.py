"""The store of a deployed stage, opened outside the stage's functions: by the command line, or alongside the
emulator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from helix.ports.blobs import Blobs
from helix.ports.objects import Objects
from helix.ports.state_store import TABLES, StateStore, Table


def open_tables(client: Any, tables: Mapping[Table, str], *, storage: Any = None, bucket: str = "") -> StateStore:
    """Open the store. `client` is a botocore DynamoDB client. `storage` is a botocore S3 client, for fields that are
    stored in `bucket`."""
    from helix.adapters.aws.dynamodb import DynamoDBStateStore
    from helix.adapters.aws.overflow import Overflow
    from helix.adapters.system import SystemClock

    return DynamoDBStateStore(
        client, dict(tables), clock=SystemClock(), overflow=Overflow(storage, bucket) if storage is not None else None
    )


def open_stage(client: Callable[[str], Any], stack: str) -> StateStore:
    """Open the store of the stage that `stack` has deployed. `client` creates a botocore client for a service."""
    tables: dict[Table, str] = {table: f"{stack}-{table}" for table in TABLES}
    return open_tables(client("dynamodb"), tables, storage=client("s3"), bucket=_bucket(client, stack))


def _bucket(client: Callable[[str], Any], stack: str) -> str:
    found = client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}
    return str(outputs["BucketName"])


def open_stage_blobs(client: Callable[[str], Any], stack: str) -> Blobs:
    """Open the place of the files of the stage's sessions. The client for S3 must sign with version 4."""
    from helix.adapters.aws.blobs import S3Blobs

    return S3Blobs(client("s3"), _bucket(client, stack))


class _StageObjects:
    """Implements `Objects` on the bucket of a stage."""

    def __init__(self, overflow: Any) -> None:
        self._overflow = overflow

    async def count(self, partition: str) -> int:
        return int(await asyncio.to_thread(self._overflow.count, partition))

    async def clear(self, partition: str) -> None:
        await asyncio.to_thread(self._overflow.clear, partition)


def open_objects(client: Callable[[str], Any], stack: str) -> Objects:
    """Open the objects that the stage's rows store outside the tables."""
    from helix.adapters.aws.overflow import Overflow

    return _StageObjects(Overflow(client("s3"), _bucket(client, stack)))


def open_files(client: Callable[[str], Any], stack: str) -> Blobs:
    """Open the bytes of the stage's files."""
    from helix.adapters.aws.blobs import S3Blobs

    return S3Blobs(client("s3"), _bucket(client, stack))


def sorts_of(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sort keys of the rows that a DynamoDB item holds: its own, and those of its packed rows."""
    from helix.adapters.aws.items import decode
    from helix.adapters.aws.packs import PACKED

    yield item["sk"]["S"]
    if PACKED in item:
        yield from decode({PACKED: item[PACKED]})[PACKED]
