"""`project_stream` behind the log: it sends the segments that the table's stream reports to the sockets."""

from __future__ import annotations

import base64
import json
import random
import time
from typing import Any

import boto3
import pytest
from tests.functions.test_project_stream import CONTEXT, STREAM, api, app, handler, kinds, sample, subscribe
from tests.support.aws_resources import BUCKET, CLOCK, tables
from tests.support.management_api import ManagementApi

from helix.adapters.aws.direct import DirectStreams
from helix.core.errors import InvalidInputError, StoreError
from helix.core.sequencer import StreamRecord
from helix.gateway.connections import Connections
from helix.gateway.projector import LANE, REPOST_S
from helix.runtime.cloud import Application
from helix.testing.contracts.streams import committed, ended, started, text

__all__ = ["api", "app", "handler"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def append(app: Application, *records: StreamRecord, stream: str = STREAM) -> None:
    given = [record.model_copy(update={"session_id": stream}) for record in records]
    app.run(DirectStreams(app.store, clock=CLOCK).append(stream, given))


def event(*, stream: str = STREAM, age_s: float = 0.0) -> Any:
    """Return a batch of all segments of the stream, as Lambda reads it from the table's stream."""
    found = boto3.client("dynamodb").query(
        TableName=tables()["streams"],
        KeyConditionExpression="pk = :p",
        ExpressionAttributeValues={":p": {"S": stream}},
    )["Items"]

    def texted(attribute: dict[str, Any]) -> dict[str, Any]:
        return {"B": base64.b64encode(attribute["B"]).decode()} if "B" in attribute else attribute

    return {
        "Records": [
            {
                "eventSource": "aws:dynamodb",
                "eventName": "INSERT",
                "dynamodb": {
                    "ApproximateCreationDateTime": CLOCK.now() - age_s,
                    "Keys": {"pk": item["pk"], "sk": item["sk"]},
                    "NewImage": {name: texted(attribute) for name, attribute in item.items()},
                    "SequenceNumber": f"{stream}/{number}",
                },
            }
            for number, item in enumerate(found)
        ]
    }


def test_segments_are_posted_in_their_order(app: Application, handler: Any, api: ManagementApi, capsys: Any) -> None:
    name = subscribe(app, api)
    append(app, started(), text(0, "a"))
    append(app, text(1, "b"), committed(2))
    append(app, ended())
    assert handler(event(), CONTEXT) == {"batchItemFailures": []}
    assert kinds(api.frames[name]) == ["text_delta", "text_delta", "step_committed", "end"]
    posted = [message["sequence"] for frame in api.frames[name] for message in json.loads(frame)["messages"]]
    assert posted == [1, 2, 3, 4]
    assert handler(event(), CONTEXT) == {"batchItemFailures": []}
    assert len(kinds(api.frames[name])) == 8, "a repeated batch is posted again"


def test_a_day_that_comes_again_is_skipped(app: Application, handler: Any, api: ManagementApi) -> None:
    name = subscribe(app, api)
    append(app, started(), text(0, "a"))
    assert handler(event(age_s=REPOST_S + 1), CONTEXT) == {"batchItemFailures": []}
    assert api.frames.get(name, []) == []


def test_a_slow_socket_holds_up_its_shard_for_a_moment_only(app: Application, handler: Any, api: ManagementApi) -> None:
    """Batches of a shard wait for each other. The client of the slow socket reads the log when it subscribes again."""
    slow, quick = subscribe(app, api), subscribe(app, api)
    append(app, started(), text(0, "a"))
    assert handler(event(), CONTEXT) == {"batchItemFailures": []}  # opens the connections of this process once
    app.run(api.stall(slow))
    append(app, text(1, "b"))
    batch, begun = event(), time.monotonic()
    assert handler(batch, CONTEXT) == {"batchItemFailures": []}
    took = time.monotonic() - begun
    assert took < LANE.post_s, f"{took:.1f} s"
    assert kinds(api.frames[quick]) == ["text_delta"] * 3 and kinds(api.frames[slow]) == ["text_delta"]
    subscribers = app.run(Connections(app.store, CLOCK).subscribers(STREAM))
    assert {who.connection_id: who.lagging for who in subscribers} == {slow: True, quick: False}


def test_what_says_nothing_is_no_fault(app: Application, handler: Any, api: ManagementApi) -> None:
    """A run that begins without a chunk changes only the end of the log."""
    subscribe(app, api)
    append(app, started())
    assert handler(event(), CONTEXT) == {"batchItemFailures": []}


def test_a_segment_in_s3_is_fetched(app: Application, handler: Any, api: ManagementApi) -> None:
    name = subscribe(app, api)
    append(app, started(), text(0, random.Random(1).randbytes(400_000).hex()))
    s3 = app.client("s3")
    (large,) = s3.list_objects_v2(Bucket=BUCKET)["Contents"]
    assert handler(event(), CONTEXT) == {"batchItemFailures": []}
    frames = len(api.frames[name])
    assert frames > 1, "in parts"
    s3.delete_object(Bucket=BUCKET, Key=large["Key"])
    assert handler(event(), CONTEXT) == {"batchItemFailures": []}
    assert len(api.frames[name]) == frames, "the stream was deleted meanwhile"


def test_a_segment_that_cannot_be_read_holds_up_no_other(app: Application, handler: Any, api: ManagementApi) -> None:
    name = subscribe(app, api)
    append(app, started(), text(0, "a"))
    append(app, text(1, "b"))
    batch = event()
    batch["Records"][0]["dynamodb"]["NewImage"]["messages"] = {"B": base64.b64encode(b"j?").decode()}
    assert handler(batch, CONTEXT) == {"batchItemFailures": []}
    assert kinds(api.frames[name]) == ["text_delta"]


def test_a_fault_names_the_first_segment_that_is_to_come_again(
    app: Application, handler: Any, api: ManagementApi
) -> None:
    api.answers[subscribe(app, api)] = 403
    append(app, started(), text(0, "unwatched"), stream="another")
    append(app, started(), text(0, "a"))
    both = {"Records": [*event(stream="another")["Records"], *event()["Records"]]}
    assert handler(both, CONTEXT) == {"batchItemFailures": [{"itemIdentifier": f"{STREAM}/0"}]}
    with pytest.raises(StoreError):
        handler(event(), CONTEXT)


def test_what_is_no_batch_is_refused(handler: Any) -> None:
    with pytest.raises(InvalidInputError):
        handler({"Records": [{"dynamodb": {}}]}, CONTEXT)
    with pytest.raises(InvalidInputError):
        handler(
            {"Records": [{"kinesis": sample("project_stream")["Records"][0]["kinesis"]}, {"dynamodb": {}}]}, CONTEXT
        )
