"""The deployed function with real events, on moto's DynamoDB and S3 and a management API on loopback."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws
from tests.support.aws_resources import BUCKET, CLOCK, make_tables, tables
from tests.support.management_api import ManagementApi

from helix.adapters.aws.sockets import ApiGatewaySockets
from helix.core.errors import InvalidInputError, StoreError
from helix.gateway.connections import Connections
from helix.runtime.cloud import Application, application

ROOT = Path(__file__).parents[2]
STREAM = "ses_01KA8ZQ3V5T1N2C6X7M8P9R0SD"
CONTEXT = SimpleNamespace(aws_request_id="request", get_remaining_time_in_millis=lambda: 60_000)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def sample(name: str) -> Any:
    return json.loads((ROOT / "events" / f"{name}.json").read_text())


def present(event: Any) -> Any:
    """Date the event's records now."""
    for record in event["Records"]:
        record["kinesis"]["approximateArrivalTimestamp"] = CLOCK.now()
    return event


@pytest.fixture
def api() -> Iterator[ManagementApi]:
    with ManagementApi() as made:
        yield made


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, api: ManagementApi) -> Iterator[Application]:
    names = tables()
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "NO_PROXY": "127.0.0.1",
        "HELIX_STREAMS_TABLE": names["streams"],
        "HELIX_BUCKET": BUCKET,
        "HELIX_SOCKETS": api.url,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    application.cache_clear()
    with mock_aws():
        make_tables(boto3.client("dynamodb"))
        place = {"LocationConstraint": "eu-central-1"}
        boto3.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=place)
        made = application()
        yield made
        made._runner.close()
        if "sockets" in vars(made):
            assert isinstance(made.sockets, ApiGatewaySockets)
            made.sockets.close()
        for client in made._clients.values():
            client.close()
    application.cache_clear()


@pytest.fixture
def handler(app: Application) -> Any:
    spec = importlib.util.spec_from_file_location("project_stream", ROOT / "functions/project_stream/handler.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


def subscribe(app: Application, api: ManagementApi) -> str:
    async def work() -> str:
        name = await api.connect()
        connections = Connections(app.store, CLOCK)
        await connections.open(name, "ada", CLOCK.now() + 3600)
        await connections.subscribe(name, STREAM)
        return name

    return app.run(work())


def kinds(frames: list[bytes]) -> list[str]:
    messages = [message for frame in frames for message in json.loads(frame)["messages"]]
    return [m["chunk"]["type"] if "chunk" in m else m["kind"] for m in messages]


def test_a_batch_is_projected_and_posted(app: Application, handler: Any, api: ManagementApi) -> None:
    name = subscribe(app, api)
    assert handler(sample("project_stream"), CONTEXT) == {"batchItemFailures": []}
    wanted = ["checkpoint_created", "text_delta", "text_delta", "step_committed", "output", "end"]
    assert kinds(api.frames[name]) == wanted and len(api.frames[name]) == 1
    found = app.run(app.log.read(STREAM))
    assert [m.sequence for m in found] == [1, 2, 3, 4, 5, 6]


def test_a_batch_that_comes_again_is_posted_again(app: Application, handler: Any, api: ManagementApi) -> None:
    event = present(sample("project_stream"))
    assert handler(event, CONTEXT) == {"batchItemFailures": []}
    name = subscribe(app, api)
    later = {"Records": event["Records"][2:]}
    assert handler(later, CONTEXT) == {"batchItemFailures": []}
    assert len(app.run(app.log.read(STREAM))) == 6
    assert kinds(api.frames[name])[-2:] == ["output", "end"]


def test_a_day_that_comes_again_is_skipped(app: Application, handler: Any, api: ManagementApi) -> None:
    """A new event source mapping starts with the oldest record in Kinesis. Records of the sample are a year old."""
    event = sample("project_stream")
    handler(event, CONTEXT)
    name = subscribe(app, api)
    assert handler(event, CONTEXT) == {"batchItemFailures": []}
    assert api.frames.get(name, []) == [] and len(app.run(app.log.read(STREAM))) == 6


def test_a_record_that_cannot_be_read_is_kept_in_s3(app: Application, handler: Any, monkeypatch: Any) -> None:
    log = io.StringIO()
    monkeypatch.setattr(logging.getLogger("helix").handlers[0], "stream", log)
    assert handler(sample("project_stream_unreadable"), CONTEXT) == {"batchItemFailures": []}
    s3 = app.client("s3")
    (kept,) = s3.list_objects_v2(Bucket=BUCKET, Prefix=f"failed/project_stream/{STREAM}/")["Contents"]
    assert s3.get_object(Bucket=BUCKET, Key=kept["Key"])["Body"].read() == b"not a record"
    info = app.run(app.log.info(STREAM))
    assert info is not None and info.status == "failed"
    assert "is set aside" in log.getvalue()


def test_a_fault_names_the_first_record_that_is_to_come_again(
    app: Application, handler: Any, api: ManagementApi
) -> None:
    """Half of the batch belongs to another stream, and the gateway refuses every frame. Only the watched part is delivered
    again."""
    event = present(sample("project_stream"))
    other = json.loads(json.dumps(event["Records"][0]))
    other["kinesis"] |= {"partitionKey": "unwatched", "sequenceNumber": "1", "data": "e30="}
    api.answers[subscribe(app, api)] = 403
    first = event["Records"][0]["kinesis"]["sequenceNumber"]
    both = {"Records": [other, *event["Records"]]}
    assert handler(both, CONTEXT) == {"batchItemFailures": [{"itemIdentifier": first}]}
    with pytest.raises(StoreError):
        handler(event, CONTEXT)


def test_what_is_no_batch_is_refused(handler: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"Records\.0\.kinesis"):
        handler({"Records": [{}]}, CONTEXT)
