"""JSON as types: what crosses every boundary of Helix."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from helix.core.errors import InvalidInputError

__all__ = ["JsonObject", "JsonValue", "clean_text", "dumps", "size", "text_size"]

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    # Checked by `dumps` where a value leaves the process: pydantic's own check walks every value in Python, at every hop.
    JsonValue = Any
JsonObject: TypeAlias = dict[str, JsonValue]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def dumps(value: object) -> str:
    """Compact JSON text of `value`. NaN, infinities, lone surrogates and what is not JSON raise `InvalidInputError`:
    nothing is guessed."""
    try:
        text = _encode(value)
        if not text.isascii():
            text.encode()
        return text
    except UnicodeEncodeError as error:
        raise InvalidInputError("a text has a lone surrogate and cannot be stored") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"value is not JSON: {error}") from error


def size(value: object) -> int:
    """Bytes of `value` as compact UTF-8 JSON."""
    return text_size(dumps(value))


def text_size(text: str) -> int:
    """Bytes of `text` in UTF-8. A lone surrogate, which no store can keep, raises `InvalidInputError`."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidInputError("the text has a lone surrogate and cannot be stored") from error


def clean_text(text: str) -> str:
    """`text` with the halves of a character that came apart joined again, and what stays half a character as U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
