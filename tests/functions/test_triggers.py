"""`start_triggered` as SQS calls it: one event starts one run, even if it is delivered repeatedly or fails meanwhile."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import boto3
import pytest
from tests.functions.conftest import ACCOUNT, REGION, Functions
from tests.functions.test_session_files import denied_reads
from tests.support.sample_files import png

from helix.adapters.memory_blobs import MemoryBlobs
from helix.core import file_checks
from helix.core.errors import StoreError
from helix.core.files import FilePart
from helix.core.messages import UserMessage
from helix.core.triggers import Trigger, dump_starts
from helix.engine.runs.admission import in_line
from helix.runtime.cloud import Application
from helix.services.session_files import SessionFiles
from helix.testing.invariants import check_session

SHARED = f"arn:aws:sqs:{REGION}:{ACCOUNT}:helix-dev-triggers"
ORDERS = f"arn:aws:sqs:{REGION}:{ACCOUNT}:helix-dev-trigger-orders"
THEIRS = f"arn:aws:sqs:{REGION}:{ACCOUNT}:their-queue"
TRIGGERS = {
    "nightly": Trigger(agent="helper", schedule="rate(1 day)", prompt="Night of {time}", session="nightly", user="ops"),
    "orders": Trigger(agent="helper", queue=True, prompt="{order.id}: {order.items}"),
    "theirs": Trigger(agent="helper", queue=THEIRS),
    "uploads": Trigger(agent="helper", bucket="incoming", prompt="{detail.object.key}"),
    "paid": Trigger(agent="helper", event={"source": ["shop"]}),
    "letters": Trigger(agent="helper", bucket="incoming", prompt="Answer {detail.object.key}", attach=True, user="ops"),
    "archive": Trigger(agent="helper", bucket="incoming", attach=True, session="archive"),
}
TICK = {"detail-type": "Scheduled Event", "source": "aws.events", "id": "1", "time": "2026-11-23T02:00:00Z"}
OBJECT = {
    "detail-type": "Object Created",
    "source": "aws.s3",
    "id": "1",
    "detail": {"bucket": {"name": "incoming"}, "object": {"key": "a.txt", "sequencer": "0F"}},
}
AGAIN = {**OBJECT, "detail": {"bucket": {"name": "incoming"}, "object": {"key": "a.txt", "sequencer": "10"}}}
ORDER = {"order": {"id": "7", "items": 2}}


@pytest.fixture
def failed(functions: Functions) -> str:
    """Deploy a stage with all these triggers and return the URL of its dead-letter queue."""
    url: str = boto3.client("sqs").create_queue(QueueName="helix-dev-trigger-failures")["QueueUrl"]
    triggers = dump_starts(TRIGGERS)
    functions.app.settings = dataclasses.replace(functions.app.settings, triggers=triggers, dead_letters=url)
    functions.play([])
    return url


def message(body: Any, ident: str = "m1", queue: str = SHARED) -> dict[str, Any]:
    text = body if isinstance(body, str) else json.dumps(body)
    return {"messageId": ident, "body": text, "eventSourceARN": queue, "receiptHandle": "h", "attributes": {}}


def event(trigger: str, given: dict[str, Any], ident: str = "m1") -> dict[str, Any]:
    return message({"trigger": trigger, "event": given}, ident)


def deliver(functions: Functions, *records: dict[str, Any], left_s: float = 30.0) -> list[str]:
    """Deliver messages and return the ids of those that SQS has to deliver again."""
    answer = functions.invoke("start_triggered", {"Records": list(records)}, left_s=left_s)
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def dead(url: str) -> list[dict[str, Any]]:
    got = boto3.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
    return got.get("Messages", [])


def asked(functions: Functions, session_id: str) -> str:
    page = functions.app.run(functions.app.executor.sessions.get_messages(session_id))
    return str(page.messages[0].content)


def sessions(functions: Functions, user: str | None = None) -> list[Any]:
    return functions.app.run(functions.app.executor.sessions.list_sessions(user_id=user, limit=50)).sessions


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (event("nightly", TICK), event("nightly", {**TICK, "id": "2", "time": "2026-11-23T02:00:41Z"}, "m2")),
        (event("uploads", OBJECT), event("uploads", {**OBJECT, "id": "2"}, "m2")),
        (event("paid", {"id": "e1", "source": "shop"}), event("paid", {"id": "e1", "source": "shop"}, "m2")),
        (
            message(ORDER, queue=ORDERS),
            message(ORDER, queue=ORDERS),
        ),
        (message("no JSON", queue=THEIRS), message("no JSON", queue=THEIRS)),
    ],
    ids=["tick", "object", "event", "message", "their message"],
)
def test_a_second_delivery_starts_nothing(functions: Functions, failed: str, first: Any, second: Any) -> None:
    assert deliver(functions, first, second) == deliver(functions, second) == []
    assert len(functions.executions()) == 1 and not dead(failed)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (event("paid", {"id": "e1"}), event("paid", {"id": "e2"}, "m2")),
        (event("paid", {"id": "e1"}), event("uploads", {"id": "e1", "detail": {"object": {"key": "a"}}}, "m2")),
        (message({}, "m1", THEIRS), message({}, "m2", THEIRS)),
        (
            event("uploads", OBJECT),
            event("uploads", AGAIN),
        ),
    ],
    ids=["another event", "another trigger", "another message", "written again"],
)
def test_another_event_starts_another_run(functions: Functions, failed: str, first: Any, second: Any) -> None:
    assert deliver(functions, first, second) == []
    assert len(functions.executions()) == 2


def test_the_agent_gets_the_fields_that_the_prompt_names(functions: Functions, failed: str) -> None:
    deliver(functions, event("nightly", TICK), message({"order": {"id": "7", "items": ["cup"]}}, queue=ORDERS))
    assert asked(functions, "ops:nightly") == "Night of 2026-11-23T02:00:00Z"
    assert [s.session_id for s in sessions(functions, "ops")] == ["ops:nightly"]
    (other,) = sessions(functions)
    assert asked(functions, other.session_id) == '7: ["cup"]' and other.tags == ["trigger:orders"]


def test_without_a_prompt_the_event_is_the_message(functions: Functions, failed: str) -> None:
    deliver(functions, message({"n": 1}, "m1", THEIRS), message("plain", "m2", THEIRS))
    assert sorted(asked(functions, s.session_id) for s in sessions(functions)) == ['{"body":"plain"}', '{"n":1}']


def test_a_bad_event_is_put_aside_with_its_reason_and_the_others_go_on(functions: Functions, failed: str) -> None:
    bad = [
        message({"order": {"id": "7"}}, "m1", ORDERS),
        message("[]", "m2"),
        event("gone", {"id": "1"}, "m3"),
    ]
    good = message({"order": {"id": "8", "items": 1}}, "m4", ORDERS)
    assert deliver(functions, *bad, good) == []
    assert len(functions.executions()) == 1
    letters = {letter["Body"]: letter["MessageAttributes"] for letter in dead(failed)}
    assert letters.keys() == {record["body"] for record in bad}
    said = letters[bad[0]["body"]]
    assert said["error"]["StringValue"] == "invalid_input" and said["queue"]["StringValue"] == ORDERS
    assert said["reason"]["StringValue"] == "the event has no field 'order.items'"
    assert "there is no trigger 'gone'" in letters[bad[2]["body"]]["reason"]["StringValue"]


@pytest.mark.parametrize(
    "given", [{"source": "shop"}, {"id": ""}, {"id": None}, {**TICK, "time": None}, {**TICK, "time": ""}]
)
def test_an_event_that_nothing_tells_from_others_is_put_aside(
    functions: Functions, failed: str, given: dict[str, Any]
) -> None:
    assert deliver(functions, event("paid", given)) == [] and functions.executions() == []
    (letter,) = dead(failed)
    assert letter["MessageAttributes"]["reason"]["StringValue"].startswith("the event has no ")


def test_a_bad_event_comes_again_where_it_cannot_be_put_aside(functions: Functions, failed: str) -> None:
    boto3.client("sqs").delete_queue(QueueUrl=failed)
    assert deliver(functions, message("[]", "m2")) == ["m2"]


def test_an_event_waits_while_its_session_is_at_work(functions: Functions, failed: str) -> None:
    later = event("nightly", {**TICK, "time": "2026-11-24T02:00:00Z"}, "m2")
    assert deliver(functions, event("nightly", TICK), later) == ["m2"]
    assert not dead(failed)
    functions.app.run(functions.app.executor.abort(functions.app.agents.named("helper"), "ops:nightly"))
    assert deliver(functions, later) == [] and len(functions.executions()) == 2


def test_an_event_waits_while_the_line_is_full(functions: Functions, failed: str) -> None:
    app = functions.app
    app.run(functions.slots.set_limit("helper", 1))
    app.run(functions.slots.set_queue("helper", max_queue=1))
    events = [event("paid", {"id": f"e{n}"}, f"m{n}") for n in range(3)]
    assert deliver(functions, *events) == ["m2"] and not dead(failed)
    assert deliver(functions, events[2]) == ["m2"], "while the queue is full"
    waits = next(s.session_id for s in sessions(functions) if app.run(has_ticket(app, s)))
    app.run(app.executor.abort(app.agents.named("helper"), waits))
    assert deliver(functions, *events) == [] and len(sessions(functions)) == 3


async def has_ticket(app: Application, session: Any) -> bool:
    return await in_line(app.engine.slots, app.engine.history, session.session_id, session.current_run_id) is not None


def test_an_event_waits_while_the_tables_do_not_answer(
    functions: Functions, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        async def refuses(*_: Any, **__: Any) -> Any:
            raise StoreError("no answer")

        patched.setattr(type(functions.app.store), "transact", refuses)
        assert deliver(functions, event("paid", {"id": "e1"})) == ["m1"]
    assert not dead(failed) and deliver(functions, event("paid", {"id": "e1"})) == []
    assert len(functions.executions()) == 1


def test_a_crash_between_claim_and_start_leaves_one_run_that_the_sweep_starts(
    functions: Functions, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the process dies, SQS delivers the message again. It finds the claimed run and does not claim another."""

    class Died(BaseException):
        pass

    with monkeypatch.context() as patched:

        async def dies(*_: Any, **__: Any) -> Any:
            raise Died

        patched.setattr(type(functions.app.executor), "_begin", dies)
        with pytest.raises(Died):
            deliver(functions, event("paid", {"id": "e1"}))
    assert functions.executions() == []
    assert deliver(functions, event("paid", {"id": "e1"})) == []
    assert len(sessions(functions)) == 1
    functions.clock.ahead_s = 120
    functions.invoke("sweep", functions.sample("sweep"))
    assert len(functions.executions()) == 1 and not dead(failed)


# --- attached objects ---------------------------------------------------------------------------------------------------


@pytest.fixture
def incoming(functions: Functions, failed: str) -> Any:
    """Return an S3 client, and give the stage a place for files."""
    app = functions.app
    app.engine.files = SessionFiles(app.store, MemoryBlobs(), functions.clock, app.ids)
    client = boto3.client("s3")
    client.create_bucket(Bucket="incoming")
    return client


def created(key: str, trigger: str = "letters", sequencer: str = "0F") -> dict[str, Any]:
    detail = {"bucket": {"name": "incoming"}, "object": {"key": key, "sequencer": sequencer}}
    return event(trigger, {**OBJECT, "detail": detail}, f"{key}/{sequencer}")


def attached(functions: Functions, user: str | None = "ops") -> list[tuple[str, FilePart, bytes]]:
    """Return the text, the file and its bytes of each session's message, after checking the session's rows."""
    app, found = functions.app, []
    for session in sessions(functions, user):
        (message,) = app.run(app.executor.sessions.get_messages(session.session_id)).messages
        assert isinstance(message, UserMessage)
        (file,) = message.files
        found.append((message.content, file, app.run(app.executor.read_file(session.session_id, file))))
        app.run(check_session(app.store, app.executor.streams, session.session_id, at_rest=False))
    return found


@pytest.mark.parametrize(("trigger", "user"), [("letters", "ops"), ("archive", None)])
def test_a_new_object_arrives_as_a_file(functions: Functions, incoming: Any, trigger: str, user: str | None) -> None:
    incoming.put_object(Bucket="incoming", Key="in/ä b.png", Body=png(6, 4), ContentType="binary/octet-stream")
    assert deliver(functions, created("in/ä b.png", trigger)) == []
    ((text, file, data),) = attached(functions, user)
    assert (file.name, file.media_type, file.width, data) == ("ä b.png", "image/png", 6, png(6, 4))
    assert file.after_text == len(text) and (trigger == "archive" or text == "Answer in/ä b.png")


def test_a_second_delivery_of_an_object_starts_nothing_even_if_the_object_is_gone(
    functions: Functions, incoming: Any, failed: str
) -> None:
    incoming.put_object(Bucket="incoming", Key="a.txt", Body=b"Dear desk")
    first = created("a.txt")
    assert deliver(functions, first, first) == []
    incoming.delete_object(Bucket="incoming", Key="a.txt")
    assert deliver(functions, first) == [] and not dead(failed)
    assert [(file.media_type, data) for _, file, data in attached(functions)] == [("text/plain", b"Dear desk")]


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (None, "file_missing", "file 'a.txt' does not exist"),
        (b"", "invalid_file", "file 'a.txt' is empty"),
        (b"x" * 5_001, "invalid_file", "file 'a.txt' has 5001 bytes; a file has at most 5000"),
        (png(20_000, 20_000), "invalid_file", "20000 x 20000 pixels"),
    ],
    ids=["deleted", "empty", "too large", "too many pixels"],
)
def test_an_object_that_cannot_be_attached_is_put_aside(
    functions: Functions,
    incoming: Any,
    failed: str,
    monkeypatch: pytest.MonkeyPatch,
    body: bytes | None,
    code: str,
    reason: str,
) -> None:
    monkeypatch.setattr(file_checks, "MAX_BYTES", dict.fromkeys(file_checks.MAX_BYTES, 5_000))
    if body is not None:
        incoming.put_object(Bucket="incoming", Key="a.txt", Body=body)
    incoming.put_object(Bucket="incoming", Key="b.txt", Body=b"good")
    assert deliver(functions, created("a.txt"), created("b.txt")) == []
    (letter,) = dead(failed)
    assert letter["MessageAttributes"]["error"]["StringValue"] == code
    assert reason in letter["MessageAttributes"]["reason"]["StringValue"]
    assert [data for _, _, data in attached(functions)] == [b"good"]


def test_an_event_without_an_object_is_put_aside(functions: Functions, incoming: Any, failed: str) -> None:
    assert deliver(functions, event("archive", {"id": "e1", "detail": {"bucket": {"name": "incoming"}}})) == []
    (letter,) = dead(failed)
    assert "detail.object.key" in letter["MessageAttributes"]["reason"]["StringValue"]


def test_an_event_waits_while_its_object_cannot_be_read(functions: Functions, incoming: Any, failed: str) -> None:
    incoming.delete_bucket(Bucket="incoming")
    assert deliver(functions, created("a.txt")) == ["a.txt/0F"] and not dead(failed)
    incoming.create_bucket(Bucket="incoming")
    incoming.put_object(Bucket="incoming", Key="a.txt", Body=b"Dear desk")
    assert deliver(functions, created("a.txt")) == []
    assert [data for _, _, data in attached(functions)] == [b"Dear desk"]


@pytest.mark.parametrize("neighbour", [None, "a.txt.bak"], ids=["alone", "beside a longer key"])
def test_a_deleted_object_is_put_aside_although_s3_answers_that_access_is_denied(
    functions: Functions, incoming: Any, failed: str, neighbour: str | None
) -> None:
    """S3 says so to a role that may not list the whole bucket."""
    if neighbour is not None:
        incoming.put_object(Bucket="incoming", Key=neighbour, Body=b"other")
    with denied_reads(functions):
        assert deliver(functions, created("a.txt")) == []
    (letter,) = dead(failed)
    assert letter["MessageAttributes"]["error"]["StringValue"] == "file_missing"
    (line,) = [line for line in functions.lines() if line["level"] == "ERROR"]
    assert "file 'a.txt' does not exist" in line["message"]


def test_an_event_waits_while_its_object_may_not_be_read(functions: Functions, incoming: Any, failed: str) -> None:
    incoming.put_object(Bucket="incoming", Key="a.txt", Body=b"Dear desk")
    with denied_reads(functions):
        assert deliver(functions, created("a.txt")) == ["a.txt/0F"] and not dead(failed)
    assert deliver(functions, created("a.txt")) == []
    assert [data for _, _, data in attached(functions)] == [b"Dear desk"]


def test_messages_that_the_function_has_no_time_for_come_again(
    functions: Functions, incoming: Any, failed: str
) -> None:
    for key in ("a.txt", "b.txt"):
        incoming.put_object(Bucket="incoming", Key=key, Body=key.encode())

    def is_slow(**_: Any) -> None:
        functions.clock.ahead_s += 25

    functions.app.client("s3").meta.events.register("before-call.s3.GetObject", is_slow)
    batch = created("a.txt"), created("b.txt")
    assert deliver(functions, *batch) == ["b.txt/0F"] and not dead(failed)
    assert deliver(functions, *batch) == []
    assert sorted(data for _, _, data in attached(functions)) == [b"a.txt", b"b.txt"]
