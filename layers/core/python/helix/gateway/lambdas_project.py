"""`project_stream` as a function: a batch of Kinesis, or of the log's own stream, in; a partial batch response out.

Powertools' BatchProcessor takes record by record and reports every failure. Here the records of a stream are appended
together, streams run at once, and nothing of a stream may be done behind its first failure: so the batch is taken as
one, and the answer names its first record that has to come again. Lambda repeats from there on, in order.
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
from helix.gateway.following import Appended, Follower
from helix.gateway.projecting import LogRecord, Projector
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
    position: str = Field(alias="sequenceNumber", pattern=r"^\d+$")
    data: Base64Bytes
    time: float = Field(alias="approximateArrivalTimestamp")


class KinesisRecord(_Event):
    kinesis: KinesisData


class TableKeys(_Event):
    pk: dict[str, str]
    sk: dict[str, str]


class TableData(_Event):
    keys: TableKeys = Field(alias="Keys")
    position: str = Field(alias="SequenceNumber")
    time: float = Field(alias="ApproximateCreationDateTime")
    image: dict[str, dict[str, Any]] = Field(alias="NewImage")


class TableRecord(_Event):
    dynamodb: TableData


def _source(record: Any) -> str:
    return "dynamodb" if isinstance(record, dict) and "dynamodb" in record else "kinesis"


AnyRecord = Annotated[
    Annotated[KinesisRecord, Tag("kinesis")] | Annotated[TableRecord, Tag("dynamodb")], Discriminator(_source)
]


class ProjectStreamEvent(_Event):
    """All records of an event are of one source."""

    records: list[AnyRecord] = Field(alias="Records")


async def project_stream(app: Application, event: ProjectStreamEvent, delivery: Delivery) -> dict[str, Any]:
    """Raises `StoreError` where not even the first record is done: then nothing is, and the function counts an error."""
    batch: list[LogRecord] | list[Appended]
    kinesis = [r.kinesis for r in event.records if isinstance(r, KinesisRecord)]
    if kinesis:
        batch = [LogRecord(record.position, record.partition, record.data, record.time) for record in kinesis]
        done = await projector(app).project(batch)
    else:
        rows = [r.dynamodb for r in event.records if isinstance(r, TableRecord)]
        batch = await asyncio.to_thread(lambda: [_appended(app, row) for row in rows])
        done = await Follower(Connections(app.store, app.clock), app.sockets, app.clock).post(batch)
    if batch and done.failed == batch[0].position:
        raise StoreError(f"none of {len(batch)} records was projected: see the errors before")
    return {"batchItemFailures": [{"itemIdentifier": done.failed}] if done.failed is not None else []}


def _appended(app: Application, row: TableData) -> Appended:
    """A segment that cannot be read is skipped here: readers of the log get the error."""
    stream_id, objects = row.keys.pk["S"], app.overflow
    messages: list[StreamMessage] = []
    try:
        value = row_of(row.image, objects.read if objects else None)
        if value is not None:
            messages = segment_messages(Row(Key("streams", stream_id, row.keys.sk["S"]), value))
    except (DamagedRowError, ValueError, LookupError, TypeError) as error:
        logger.error("a segment of stream %r cannot be read: %s", stream_id, type(error).__name__)
    return Appended(row.position, stream_id, messages, row.time)


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
