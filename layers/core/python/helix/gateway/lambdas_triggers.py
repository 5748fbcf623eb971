"""The function behind the triggers, which turns SQS messages into runs.

Law: an event starts its run as a client's message does, under a key that is derived from the event. A second delivery
therefore finds the run of the first. A message is done once its run is claimed. From then on, the run's rows and the
sweep are responsible. A message that can never start a run is put into the dead-letter queue with the reason. One that
may start later is delivered again. Neither delays the other messages of its batch.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helix._log import get_logger
from helix.core.damage import first_problem
from helix.core.errors import (
    AgentAlreadyRunningError,
    CallerError,
    DefinitionError,
    HelixError,
    InvalidInputError,
    StaleStateError,
)
from helix.core.json import JsonObject, check_json, clean_text, dumps, load_object
from helix.core.run_requests import ReportCall, Run
from helix.core.triggers import Start, filled, read_starts
from helix.gateway import actions
from helix.gateway.authoriser import prefix_of
from helix.gateway.connections import Connection
from helix.gateway.lambdas import backend as backend_of
from helix.runtime.cloud import Application

if TYPE_CHECKING:
    from helix.core.delivery import Delivery
    from helix.gateway.backend import Backend
    from helix.services.file_inputs import ReadFile

logger = get_logger("helix.gateway")
LATER: Final = (AgentAlreadyRunningError, StaleStateError)
"""Caller errors that are temporary, because the session is running. Operator errors count as temporary too."""
PREFIX: Final = "trigger:"
MAX_REASON: Final = 512
SPARE_S: Final = 10.0
"""The time that one message may take, in seconds. A message is not started later than this before the function's end. A
batch with large objects may take longer than the function has."""


class QueueRecord(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True, defer_build=True)

    message_id: str = Field(alias="messageId", min_length=1)
    """The id of the message in SQS."""
    body: str
    """The text of the message."""
    queue: str = Field(alias="eventSourceARN", min_length=1)
    """The ARN of the queue. It identifies a trigger that reads from a queue directly."""


class QueueEvent(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True, defer_build=True)

    records: list[QueueRecord] = Field(alias="Records")
    """The batch of messages."""


class Occurrence(NamedTuple):
    """One event of a trigger."""

    trigger: str
    """The name of the trigger."""
    ident: str
    """The identity of the event: the same for every delivery of it, and different for any other event of the
    trigger."""
    event: JsonObject
    """The event as JSON: an EventBridge event, or the body of a queue message."""


async def start_triggered(app: Application, event: QueueEvent, delivery: Delivery) -> JsonObject:
    """Start the runs of the messages. Return to SQS the messages that must be delivered again."""
    again: list[Any] = []
    for record in event.records:
        if app.clock.now() > delivery.deadline - SPARE_S:
            again.append({"itemIdentifier": record.message_id})
            continue
        try:
            await _start(app, record)
        except Exception as error:
            code = error.code if isinstance(error, HelixError) else "internal_error"
            final = isinstance(error, CallerError | DefinitionError) and not isinstance(error, LATER)
            extra = {"message_id": record.message_id, "code": code}
            if final:
                logger.error("a trigger's event cannot start a run: %s: %s", code, error, extra=extra)
            else:
                logger.warning(
                    "a trigger's event cannot be processed yet: %s",
                    code,
                    extra=extra,
                    exc_info=None if final else error,
                )
            if not (final and await _set_aside(app, record, code, str(error))):
                again.append({"itemIdentifier": record.message_id})
    return {"batchItemFailures": again}


async def _start(app: Application, record: QueueRecord) -> None:
    found = occurrence_of(app.settings.stage, read_triggers(app), record)
    start = read_triggers(app).get(found.trigger)
    if start is None:
        raise InvalidInputError(f"there is no trigger {found.trigger!r} here")
    backend = backend_of(app)
    if start.calls:
        await actions.report_call(backend, None, report_of(found))
        logger.info("trigger %s reported a call", found.trigger, extra={"message_id": record.message_id})
        return
    caller = Connection(f"{PREFIX}{found.trigger}", start.user, 0.0, 0.0)
    request = request_of(backend, start, found)
    reply = await actions.run(backend, caller, request, _object_reader(app, found, request) if start.attach else None)
    ids = {"session_id": reply["session_id"], "run_id": reply["run_id"], "message_id": record.message_id}
    logger.info("trigger %s started a run", found.trigger, extra=ids)


def _object_reader(app: Application, found: Occurrence, request: Run) -> actions.ReadFiles:
    """Return the function that reads the event's object, to attach it after the message's text."""
    from helix.runtime.trigger_files import read_object

    async def read() -> list[ReadFile]:
        return [await read_object(app, found.event, len(request.message or ""))]

    return read


@lru_cache(maxsize=1)
def read_triggers(app: Application) -> dict[str, Start]:
    """Return the stage's triggers, by name."""
    return read_starts(app.settings.triggers)


def occurrence_of(stage: str, known: dict[str, Start], record: QueueRecord) -> Occurrence:
    """Find the event and the trigger of a message. Raises `InvalidInputError`."""
    name = record.queue.rpartition(":")[2]
    body = load_object(record.body)
    for trigger, start in known.items():
        if record.queue == start.queue or (start.queue is True and name == f"helix-{stage}-{PREFIX[:-1]}-{trigger}"):
            return Occurrence(trigger, record.message_id, body if body is not None else {"body": record.body})
    if body is None or not isinstance(body.get("trigger"), str) or not isinstance(body.get("event"), dict):
        raise InvalidInputError("the message is not an event of a trigger")
    event: Any = body["event"]
    return Occurrence(body["trigger"], _ident(event), event)


def _ident(event: Any) -> str:
    """Return the identity of an event. For a tick it is the minute, regardless of the id that EventBridge assigned. For
    a change to an object it is the bucket, key and sequencer, which S3 repeats. For any other event it is the id.
    Raises `InvalidInputError` if that is missing, because all such events would otherwise count as one."""
    match event:
        case {"detail-type": "Scheduled Event", "time": str(time)} if len(time) >= len("2026-11-23T02:00"):
            return time[:16]
        case {"detail-type": "Scheduled Event"}:
            raise InvalidInputError("the event has no time, which identifies a scheduled event")
        case {"source": "aws.s3", "detail": {"bucket": {"name": bucket}, "object": {"key": key, "sequencer": number}}}:
            return dumps([event.get("detail-type"), bucket, key, number])
        case {"id": str(ident)} if ident:
            return ident
    raise InvalidInputError("the event has no id: send it through EventBridge, which gives it one")


def request_of(backend: Backend, start: Start, found: Occurrence) -> Run:
    """Build the request that a client would send. Raises a `CallerError` if the event does not fit."""
    check_json(found.event, "the event")
    given: dict[str, Any] = {"v": 1, "action": "run", "agent": start.agent, "subscribe": False}
    given["id"] = hashlib.sha256(found.ident.encode()).hexdigest()
    session = None if start.session is None else prefix_of(start.user) + filled(start.session, found.event)
    agent = backend.agent(start.agent, start.user, session)
    if start.prompt is not None:
        given["message"] = filled(start.prompt, found.event)
    elif agent.function is not None:
        given["input"] = found.event
    else:
        given["message"] = dumps(found.event)
    try:
        return Run(**given, session_id=session, tags=[f"{PREFIX}{found.trigger}"])
    except ValidationError as error:
        raise InvalidInputError(first_problem(error, "event")) from None


def report_of(found: Occurrence) -> ReportCall:
    """Build the report of a call from an EventBridge event's `detail`, or from a queue message. Raises
    `InvalidInputError`."""
    detail = found.event.get("detail", found.event)
    if not isinstance(detail, dict):
        raise InvalidInputError("the event's detail must be an object with the call's token")
    given: Any = {name: detail[name] for name in ("token", "data", "error", "heartbeat") if name in detail}
    try:
        return ReportCall(v=1, id="trigger", action="report_call", **given)
    except ValidationError as error:
        raise InvalidInputError(first_problem(error, "event")) from None


async def _set_aside(app: Application, record: QueueRecord, code: str, reason: str) -> bool:
    """Put the message into the dead-letter queue, where a person can see the reason. Return False if that failed."""
    said = {"error": code, "reason": clean_text(reason)[:MAX_REASON], "queue": record.queue}
    try:
        app.client("sqs").send_message(
            QueueUrl=app.settings.dead_letters,
            MessageBody=record.body,
            MessageAttributes={name: {"DataType": "String", "StringValue": text} for name, text in said.items()},
        )
    except Exception as error:
        logger.error("the dead-letter queue did not accept a message: %s", type(error).__name__, exc_info=error)
        return False
    return True
