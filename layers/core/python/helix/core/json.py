"""JSON types, and the limits for all JSON that enters Helix.

Law: `check_json` runs wherever a value enters: from a client, a model, a tool, a hook, an agent's definition or a
merge. So no value is nested too deeply for pydantic (200 levels for reading, 255 for writing), and stores keep every
number exactly (DynamoDB has 38 digits). Stored values are not checked again, so rows of older versions stay readable.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from helix.core.errors import InvalidInputError

__all__ = [
    "JsonObject",
    "JsonValue",
    "check_json",
    "check_text",
    "clean_json",
    "clean_text",
    "dumps",
    "loads",
    "size",
    "text_of",
    "text_size",
]

MAX_DEPTH: Final = 64
"""The maximum nesting depth of lists and objects in one value. `{}` has depth 1."""
MAX_BYTES: Final = 1_000_000
"""The maximum size of one value, in bytes of compact JSON."""
MAX_STATE_BYTES: Final = 4_000_000
"""The maximum size of a session's custom state in bytes. It is larger because the state consists of many values."""
MAX_DIGITS: Final = 38
"""The maximum number of digits of an integer."""

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    # `dumps` checks values that leave the process. Pydantic's own check would walk every value in Python, at every hop.
    JsonValue = Any
JsonObject: TypeAlias = dict[str, JsonValue]

_JSON_ONLY = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def dumps(value: object) -> str:
    """Return `value` as compact JSON text. Raises `InvalidInputError` for NaN, infinities, lone surrogates, and values
    that are not JSON; it never converts them."""
    try:
        text = orjson.dumps(value, option=_JSON_ONLY)
    except TypeError:
        return _dumps_exactly(value)  # a large number, a key that is not a string, a subclass, or an error to explain
    return _dumps_exactly(value) if b"null" in text else text.decode()  # orjson writes NaN as null


def _dumps_exactly(value: object) -> str:
    try:
        text = _encode(value)
        if not text.isascii():
            text.encode()
        return text
    except UnicodeEncodeError as error:
        raise InvalidInputError("a text has a lone surrogate and cannot be stored") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"value is not JSON: {error}") from error


def loads(text: str | bytes) -> Any:
    """Parse a JSON text. Raises `InvalidInputError`, a `ValueError`, for NaN, infinities, texts nested too deeply to
    parse, and texts that are not JSON."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise InvalidInputError("the text is nested too deeply to be read") from error
    except ValueError as error:
        raise InvalidInputError(f"the text is not JSON: {error}") from error


def load_object(text: str | bytes) -> dict[str, Any] | None:
    """Parse a JSON object. None if the text is anything else."""
    try:
        value = loads(text)
    except InvalidInputError:
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def check_json(value: object, what: str, limit: int | None = MAX_BYTES, depth: int = MAX_DEPTH) -> None:
    """Raise `InvalidInputError` unless `value` is JSON within the limits. `what` names the value in the message.

    `limit` is in bytes; None skips the size check, for values whose size is limited elsewhere. `depth` is in nesting
    levels.
    """
    try:
        text = _dumps_exactly(value)
    except InvalidInputError as error:
        raise InvalidInputError(f"{what}{_problem(value, depth) or f': {error}'}") from error
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        raise InvalidInputError(f"{what} has a key that is no text")
    suspicious = text.count("[") + text.count("{") > depth and not _is_shallow(value, depth)
    if (suspicious or _LONG_NUMBER.search(text)) and (problem := _problem(value, depth)):
        raise InvalidInputError(f"{what}{problem}")
    if limit is not None and (n := text_size(text)) > limit:
        raise InvalidInputError(f"{what} has {n} bytes of JSON; the limit is {limit}")


_LONG_NUMBER: Final = re.compile(rf"\d{{{MAX_DIGITS + 1}}}")
_BOXES: Final = (dict, list, tuple)  # a tuple, because `isinstance` is twice as fast with it as with a union
_END: Final = object()


def _is_shallow(value: object, depth: int) -> bool:
    """Return whether the value is nested at most `depth` levels deep. This fast check is enough for valid values."""
    boxes = [value] if isinstance(value, _BOXES) else []
    for _ in range(depth):
        items = (item for box in boxes for item in (box.values() if isinstance(box, dict) else box))
        boxes = [item for item in items if isinstance(item, _BOXES)]
        if not boxes:
            return True
    return False


def _problem(value: object, depth: int) -> str | None:
    """Return a description of the first problem and where it is. None if there is no problem."""
    levels: list[Iterator[tuple[object, object]]] = [iter((("", value),))]
    path: list[object] = [""]
    while levels:
        path[-1], item = next(levels[-1], (_END, None))
        place = f" at {'/'.join(map(str, path))[:200]!r}" if len(path) > 1 else ""
        if path[-1] is _END:
            levels.pop()
            path.pop()
        elif isinstance(item, dict | list | tuple):
            if len(levels) > depth:
                return f" is nested more than {depth} levels deep, which is the limit"
            levels.append(iter(item.items() if isinstance(item, dict) else enumerate(item)))
            path.append("")
        elif isinstance(item, int) and not -(10**MAX_DIGITS) < item < 10**MAX_DIGITS:
            return f"{place} is a whole number of more than {MAX_DIGITS} digits, which is the limit"
        elif isinstance(item, float) and not math.isfinite(item):
            return f"{place} is {'NaN' if math.isnan(item) else 'an infinite number'}, which is not JSON"
    return None


def check_text(value: object, what: str, limit: int = MAX_BYTES) -> None:
    """Raise `InvalidInputError` unless `value` is a string of at most `limit` bytes that can be stored."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{what} must be a string, not {type(value).__name__}")
    try:
        n = text_size(value)
    except InvalidInputError as error:
        raise InvalidInputError(f"{what}: {error}") from error
    if n > limit:
        raise InvalidInputError(f"{what} has {n} bytes; the limit is {limit}")


def size(value: object) -> int:
    """Return the number of bytes of `value` as compact UTF-8 JSON."""
    return text_size(dumps(value))


def text_size(text: str) -> int:
    """Return the size of `text` in UTF-8 bytes. Raises `InvalidInputError` for a lone surrogate, which no store
    accepts."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInputError("the text has a lone surrogate and cannot be stored") from error


def text_of(error: BaseException) -> str:
    """Return the message of a third-party exception, or its type if the exception cannot be converted to a string."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__} without a readable message"


def clean_text(text: str) -> str:
    """Return `text` with split surrogate pairs joined again. Lone surrogates become U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_json(value: Any) -> Any:
    """Return the value with storable strings: split surrogate pairs are joined, and lone surrogates replaced."""
    match value:
        case str():
            return clean_text(str(value))
        case list():
            return [clean_json(item) for item in value]
        case dict():
            return {clean_json(key): clean_json(item) for key, item in value.items()}
        case _:
            return value
