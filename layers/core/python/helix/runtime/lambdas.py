"""The path from a Lambda invocation to a verb: parse the event, act once, respond in JSON, and log.

Law: a handler is `serve(verb)`. Errors of a verb reach the platform, whose retry rules refer to the error classes by
name. The log contains the event's ids and no content. Nothing is measured here, because Lambda's own metrics count each
function's invocations, durations and errors for free.
"""

from __future__ import annotations

from helix.core.damage import first_problem

from helix.runtime.starting import started, starting  # isort: skip  first: it makes all other imports faster

import json
import os
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from aws_lambda_powertools import Logger
from pydantic import BaseModel, ValidationError

from helix._log import WithoutContent, get_logger
from helix.core.delivery import Delivery
from helix.core.errors import HelixError, InvalidInputError
from helix.runtime.cloud import Application, application
from helix.runtime.cloud_settings import STAGE

EventT = TypeVar("EventT", bound=BaseModel)
IDS = ("session_id", "run_id", "part", "step")
EACH_MINUTE = frozenset({"sweep", "govern"})
"""Functions that run so often that they log only their actions, without a line for each invocation."""
DONE = "done"
FLUSH_S = 2.0
"""The longest time that a response waits for its traces to be sent, in seconds."""
started()


class LambdaContext(Protocol):
    aws_request_id: str
    """The id of the invocation, which each log line contains as `request_id`."""

    def get_remaining_time_in_millis(self) -> int: ...


Verb = Callable[[Application, EventT, Delivery], Coroutine[Any, Any, Any]]
Handler = Callable[[Any, LambdaContext], Any]
Prepare = Callable[[Application], None]


def serve(name: str, event_type: type[EventT], verb: Verb[EventT], prepare: Prepare | None = None) -> Handler:
    """Return the handler of one function. In a deployed function, the application is created and prepared now, while
    the platform starts the process. That is before the first call, and before SnapStart's snapshot. A failure is only
    logged here. A call that encounters it again reports it."""
    level = os.environ.get("HELIX_LOG", "INFO").upper()
    logger = Logger(service=name, level=level, log_uncaught_exceptions=False, json_serializer=_json)
    logger.addFilter(WithoutContent())
    helix = get_logger("helix")
    helix.handlers, helix.propagate = list(logger.handlers), False
    helix.setLevel(logger.log_level)
    if os.environ.get(STAGE):
        app = application()
        if prepare is not None:
            starting()
            try:
                prepare(app)
            except HelixError as error:
                logger.error("%s", error)
            except Exception:
                logger.exception("could not be prepared")
            started()

    def handler(event: Any, context: LambdaContext) -> Any:
        app = application()
        begun, ids = app.clock.now(), dict[str, Any]()
        delivery = Delivery(app.ids.new("d"), begun + context.get_remaining_time_in_millis() / 1000)
        logger.append_keys(request_id=context.aws_request_id)
        try:
            parsed = parse(name, event_type, event)
            ids = {key: value for key in IDS if (value := getattr(parsed, key, None)) is not None}
            logger.append_keys(**ids)
            answer = app.run(verb(app, parsed, delivery))
            if name not in EACH_MINUTE:
                logger.info(DONE, extra={"took_ms": round((app.clock.now() - begun) * 1000, 1)})
            return answer
        except HelixError as error:
            logger.warning("%s: %s", type(error).__name__, error, extra={"error": error.code})
            raise
        except Exception as error:
            logger.exception("unhandled exception", extra={"exception_name": type(error).__name__})
            raise
        finally:
            logger.remove_keys([*ids, "request_id"])
            app.flush(min(FLUSH_S, context.get_remaining_time_in_millis() / 2000))

    return handler


def _json(line: dict[str, Any]) -> str:
    """Encode a log line. An error may quote half of a surrogate pair, which no output accepts, so it is escaped."""
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "backslashreplace").decode()


def parse(name: str, event_type: type[EventT], event: Any) -> EventT:
    """Parse the event. Raises `InvalidInputError`, which names the invalid field and does not show its value."""
    try:
        return event_type.model_validate(event)
    except ValidationError as error:
        raise InvalidInputError(f"{name}: {first_problem(error, 'event')}") from None
