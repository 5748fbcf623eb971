"""Reports of calls that end elsewhere, as HTTP requests: the result, a failure, or a heartbeat.

Law: the token in the path is the only credential. A request is answered with 200 only after its result is stored.
"""

from __future__ import annotations

from typing import Final

from helix.core.errors import BodyTooLargeError, InvalidInputError
from helix.core.json import JsonObject, JsonValue, loads
from helix.runtime.session_verbs import SessionVerbs

MAX_BODY_BYTES: Final = 1_000_000
"""The limit of a body in bytes. JSON can be longer than the result that it stands for."""


async def report_call(
    executor: SessionVerbs, token: str, how: str, body: bytes | bytearray, content_type: str
) -> JsonObject:
    """Report a call and return the response. how: `` (the body is the result), `fail` (the body is the error message, as
    text or `{"error": ...}`) or `heartbeat`. Raises like `SessionVerbs.complete_call`."""
    if len(body) > MAX_BODY_BYTES:
        raise BodyTooLargeError(f"the body is larger than {MAX_BODY_BYTES} bytes: store the result, and send its place")
    match how:
        case "":
            await executor.complete_call(token, _value(body, content_type))
        case "fail":
            given = _value(body, content_type)
            error = given.get("error") if isinstance(given, dict) else given
            if not isinstance(error, str) or not error:
                raise InvalidInputError('the body must be the error message: {"error": "..."}')
            await executor.fail_call(token, error)
        case "heartbeat":
            return {"expires_at": await executor.prolong_call(token)}
        case _:
            raise InvalidInputError(f"there is no report {how[:80]!r}: use /calls/TOKEN, or add /fail or /heartbeat")
    return {"expires_at": None}


def _value(body: bytes | bytearray, content_type: str) -> JsonValue:
    """Return the value of a body: JSON, or a text with the content type `text/plain`. Without a body it is None."""
    try:
        text = body.decode()
        if content_type.partition(";")[0].strip().lower() == "text/plain":
            return text
        value: JsonValue = loads(text) if text.strip() else None
    except (ValueError, RecursionError):
        raise InvalidInputError("the body must be JSON, or UTF-8 text with the content type text/plain") from None
    return value
