"""`project_stream` as a function: it takes a batch from Kinesis, or from the log's own stream, and returns a partial
batch response.

Powertools' BatchProcessor handles records one by one and reports every failure. Here the records of a stream are
appended together, streams run concurrently, and no record of a stream may be processed after its first failure. The
batch is therefore handled as a whole. The response names the first record that must be delivered again, and Lambda
retries from there, in order.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import Base64Bytes, BaseModel, ConfigDict, Discriminator, Field, Tag

from helix._log import get_logger
from helix.core.delivery import Delivery
from helix.core.errors import DamagedRowError, StoreError
from helix.core.wire import StreamMessage
from helix.gateway.connections import Connections
from helix.gateway.log_follower import AppendedSegment, Follower
from helix.gateway.projector import LogRecord, Projector
from helix.ports.state_store import Key, Row
from helix.runtime.cloud import Application
from helix.runtime.table_streams import row_of
from helix.services.segment_rows import segment_messages

logger = get_logger("helix.gateway")
VERB = "project_stream"


class _Event(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class KinesisData(_Event):
    partition: str = Field(alias="partitionKey")
    """The stream's id."""
    position: str = Field(alias="sequenceNumber", pattern=r"^\d+$")
    """The record's Kinesis sequence number."""
    data: Base64Bytes
    """The packed records (`core.log_records`), which arrive in base64."""
    time: float = Field(alias="approximateArrivalTimestamp")
    """The time of arrival at Kinesis, in Unix seconds."""


class KinesisRecord(_Event):
    kinesis: KinesisData
    """The record itself."""


class TableKeys(_Event):
    pk: dict[str, str]
    """The partition key in DynamoDB's notation: the stream's id under `S`."""
    sk: dict[str, str]
    """The sort key in DynamoDB's notation: the segment's key under `S`."""


class TableData(_Event):
    keys: TableKeys = Field(alias="Keys")
    """The keys of the segment's row."""
    position: str = Field(alias="SequenceNumber")
    """The sequence number of the record in the table's stream."""
    time: float = Field(alias="ApproximateCreationDateTime")
    """The time of the write, in Unix seconds."""
    image: dict[str, dict[str, Any]] = Field(alias="NewImage")
    """The item after the write, in DynamoDB's notation."""


class TableRecord(_Event):
    dynamodb: TableData
    """The change to the table."""


def _source(record: Any) -> str:
    return "dynamodb" if isinstance(record, dict) and "dynamodb" in record else "kinesis"


AnyRecord = Annotated[
    Annotated[KinesisRecord, Tag("kinesis")] | Annotated[TableRecord, Tag("dynamodb")], Discriminator(_source)
]


class ProjectStreamEvent(_Event):
    """An event with records from one source."""

    records: list[AnyRecord] = Field(alias="Records")
    """The batch, in order. All records are from Kinesis, or all from the table's stream."""


async def project_stream(app: Application, event: ProjectStreamEvent, delivery: Delivery) -> dict[str, Any]:
    """Project a batch. Raises `StoreError` if the first record must be delivered again, so that Lambda retries the
    whole batch and counts an error."""
    batch: list[LogRecord] | list[AppendedSegment]
    kinesis = [r.kinesis for r in event.records if isinstance(r, KinesisRecord)]
    if kinesis:
        batch = [LogRecord(record.position, record.partition, record.data, record.time) for record in kinesis]
        failed = await projector(app).project(batch)
    else:
        rows = [r.dynamodb for r in event.records if isinstance(r, TableRecord)]
        batch = await asyncio.to_thread(lambda: [_decode_segment(app, row) for row in rows])
        failed = await Follower(Connections(app.store, app.clock), app.sockets, app.clock).post(batch)
    if batch and failed == batch[0].position:
        raise StoreError(
            f"the first of {len(batch)} records was not projected, so the batch is retried: see the errors above"
        )
    return {"batchItemFailures": [{"itemIdentifier": failed}] if failed is not None else []}


def _decode_segment(app: Application, row: TableData) -> AppendedSegment:
    """Decode a segment. One that cannot be read is skipped here; readers of the log get the error."""
    stream_id, objects = row.keys.pk["S"], app.overflow
    messages: list[StreamMessage] = []
    try:
        value = row_of(row.image, objects.read if objects else None)
        if value is not None:
            messages = segment_messages(Row(Key("streams", stream_id, row.keys.sk["S"]), value))
    except (DamagedRowError, ValueError, LookupError, TypeError) as error:
        logger.error("a segment of stream %r cannot be read: %s", stream_id, type(error).__name__)
    return AppendedSegment(row.position, stream_id, messages, row.time)


def projector(app: Application) -> Projector:
    objects = app.overflow
    return Projector(
        app.log,
        Connections(app.store, app.clock),
        app.sockets,
        app.clock,
        fetch=objects.read if objects else None,
        aside=app.aside,
    )
