"""The WebSocket protocol, version 1: parses requests, and formats replies and errors.

`core.requests` has the union of the requests, `core.replies` the table of the replies.

    client -> server   {"v":1,"action":"run","id":"r1", ...}
    server -> client   {"v":1,"type":"reply","id":"r1","action":"run","result":{...}}
                       {"v":1,"type":"error","id":"r1","action":"run","error":{"code","message","recoverable","details"}}
                       {"v":1,"type":"messages","stream_id","messages":[...]}   see `core.wire` and `core.frames`
                       {"v":1,"type":"lagging","stream_id","after"}             frames were missed, so subscribe again
                       {"v":1,"type":"part", ...}                               see `core.frames`

Law: a request is validated completely before anything is done. Its model allows no unknown fields, and every field is
bounded. Each request gets exactly one reply or error, with the request's id. An error contains only what its reader may
know: no stack trace, and no echo of the request.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from pydantic import TypeAdapter, ValidationError

from helix.core.errors import InvalidInputError, ProtocolError
from helix.core.frames import MAX_FRAME_BYTES
from helix.core.json import JsonObject, check_json, dumps, load_object, text_size
from helix.core.request_fields import ID
from helix.core.requests import ACTIONS, AnyRequest, Part, Request

VERSION: Final = 1
MAX_REQUEST_BYTES: Final = 128 * 1024  # API Gateway's limit of a message


@lru_cache(maxsize=1)
def _requests() -> TypeAdapter[AnyRequest]:
    """Build the adapter at first use, because the authorizer imports this module only for two names."""
    return TypeAdapter(Request)


def parse_request(body: str | bytes) -> AnyRequest:
    """Parse a request. Raises `ProtocolError`, which names the first invalid field but does not echo its value."""
    if (n := len(body) if isinstance(body, bytes) else len(body.encode("utf-8", "surrogatepass"))) > MAX_REQUEST_BYTES:
        raise ProtocolError(f"the message has {n} bytes; the limit is {MAX_REQUEST_BYTES}", "body")
    data = load_object(body)
    if data is None:
        raise ProtocolError("the message is not a JSON object", "body")
    if type(data.get("v")) is not int or data["v"] != VERSION:
        raise ProtocolError(f"v must be {VERSION}, the only version of this protocol", "v")
    action = data.get("action")
    if not isinstance(action, str) or action not in ACTIONS:
        raise ProtocolError(f"action must be one of {', '.join(sorted(ACTIONS))}", "action")
    for field, value in data.items():
        try:
            check_json(value, "the value")
        except InvalidInputError as error:
            raise _refused(field, str(error)) from None
    try:
        return _requests().validate_python(data)
    except ValidationError as error:
        raise _refusal(error) from None


def parse_part(body: str | bytes) -> Part | None:
    """Parse a part of a long request. None if the body is not a part. Raises `ProtocolError` like `parse_request`."""
    named = b'"part"' in body if isinstance(body, bytes) else '"part"' in body
    if not named or len(body) > MAX_REQUEST_BYTES:
        return None
    data = load_object(body)
    if data is None or data.get("type") != "part":
        return None
    try:
        part = Part.model_validate(data, strict=True)
    except ValidationError as error:
        raise _refusal(error, tagged=False) from None
    if (n := text_size(part.data)) > MAX_FRAME_BYTES:
        raise _refused("data", f"it has {n} bytes; the limit is {MAX_FRAME_BYTES}")
    return part


def request_tags(body: str | bytes) -> tuple[str | None, str | None]:
    """Return the id and action of a message, for an error about it. None for each one that is missing.

    The message need not be a valid request. For a part, the id is that of its request.
    """
    data = load_object(body) if len(body) <= MAX_REQUEST_BYTES else None
    if data is None:
        return None, None
    ident, action = data.get("part" if data.get("type") == "part" else "id"), data.get("action")
    known = ident if isinstance(ident, str) and re.fullmatch(ID, ident) else None
    return known, action if isinstance(action, str) and action in ACTIONS else None


def _refusal(error: ValidationError, *, tagged: bool = True) -> ProtocolError:
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    place = [str(part) for part in first["loc"][tagged:]]  # without the tag of the union, which comes first
    return _refused(".".join(place), first["msg"].removeprefix("Value error, "))


def _refused(field: str, problem: str) -> ProtocolError:
    field = field[:200]
    return ProtocolError(f"{field or 'the request'}: {problem}", field or None)


# --- what the server sends ----------------------------------------------------------------------------------------------


def reply(request_id: str, action: str, result: JsonObject) -> str:
    return dumps({"v": VERSION, "type": "reply", "id": request_id, "action": action, "result": result})


def error_reply(request_id: str | None, action: str | None, error: JsonObject) -> str:
    """Return the JSON text of an error frame. `error` comes from `core.refusals.refusal_of`."""
    return dumps({"v": VERSION, "type": "error", "id": request_id, "action": action, "error": error})


def request(action: str, request_id: str, fields: JsonObject) -> str:
    """Return the JSON text of a client's request. Raises `ProtocolError` if it is too long for the socket."""
    text = dumps({"v": VERSION, "action": action, "id": request_id, **fields})
    if (n := text_size(text)) > MAX_REQUEST_BYTES:
        raise ProtocolError(f"the message has {n} bytes; the limit is {MAX_REQUEST_BYTES}", "body")
    return text
