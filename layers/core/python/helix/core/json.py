"""JSON as types: what crosses every boundary of Helix."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

from helix.core.errors import InvalidInputError

__all__ = ["JsonObject", "JsonValue", "dumps", "size"]

if TYPE_CHECKING:
    from pydantic import JsonValue
else:
    # Checked by `dumps` where a value leaves the process: pydantic's own check walks every value in Python, at every hop.
    JsonValue = Any
JsonObject: TypeAlias = dict[str, JsonValue]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def dumps(value: object) -> str:
    """Compact JSON text of `value`. NaN, infinities and non-JSON types raise `InvalidInputError`: nothing is guessed."""
    try:
        return _encode(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"value is not JSON: {error}") from error


def size(value: object) -> int:
    """Bytes of `value` as compact UTF-8 JSON."""
    return len(dumps(value).encode())
