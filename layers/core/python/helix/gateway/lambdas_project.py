"""`project_stream` as a function: a Kinesis batch in, a partial batch response out.

Powertools' BatchProcessor takes record by record and reports every failure. Here the records of a stream are appended
together, streams run at once, and nothing of a stream may be done behind its first failure: so the batch is taken as
one, and the answer names its first record that has to come again. Lambda repeats from there on, in order.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field

from helix.core.delivery import Delivery
from helix.core.errors import StoreError
from helix.core.measures import NAMESPACE
from helix.gateway.connections import Connections
from helix.gateway.projecting import LogRecord, Projected, Projector
from helix.runtime.cloud import Application

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


class ProjectStreamEvent(_Event):
    records: list[KinesisRecord] = Field(alias="Records")


async def project_stream(app: Application, event: ProjectStreamEvent, delivery: Delivery) -> dict[str, Any]:
    """Raises `StoreError` where not even the first record is done: then nothing is, and the function counts an error."""
    found = (record.kinesis for record in event.records)
    batch = [LogRecord(record.position, record.partition, record.data, record.time) for record in found]
    done = await projector(app).project(batch)
    measure(done)
    if batch and done.failed == batch[0].position:
        raise StoreError(f"none of {len(batch)} records was projected: see the errors before")
    return {"batchItemFailures": [{"itemIdentifier": done.failed}] if done.failed is not None else []}


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


def measure(done: Projected) -> None:
    """How far the projector is behind is Lambda's own `IteratorAge`."""
    metrics = Metrics(namespace=NAMESPACE, service=VERB)
    metrics.add_metric("MessagesProjected", MetricUnit.Count, done.messages)
    metrics.add_metric("SocketsLagging", MetricUnit.Count, done.lagging)
    metrics.add_metric("RecordsSetAside", MetricUnit.Count, done.aside)
