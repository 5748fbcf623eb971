"""Rows as Redis stores them: one hash for each row, its top-level fields as JSON text under their names.

    prefix:table:partition          the partition's index: a sorted set of sort keys, byte-wise; also its channel's name
    prefix:table:partition:sort     the row
    prefix:expiries                 rows that carry `ttl`, by that time

Law: a field's text represents its value exactly, so conditions on texts (`scripts.py`) mean the same as `When.holds`. A
number's text contains its exact decimal digits. From 2**53 on, Python's short form of a float is not the exact number,
so all digits are written in that case. `values(texts(value)) == value` for every JSON object, with its types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from helix.core.errors import InvalidInputError
from helix.core.json import dumps
from helix.ports.state_store import Damaged, Key, Value

EXACT = 2.0**53
MARK = b"\xff"  # the field of a row without fields, because Redis has no empty hash; never valid UTF-8


def text(value: object) -> str:
    """Return one field's text. Raises `InvalidInputError` if the value is not JSON."""
    if type(value) is float and EXACT <= abs(value) < float("inf"):
        return f"{value:.1f}"
    return dumps(value)


def texts(value: Mapping[str, Any]) -> list[str]:
    """Return alternating names and texts."""
    found: list[str] = []
    for name, field in value.items():
        found += (_name(name), text(field))
    return found


def value_of(key: Key, row: Mapping[bytes, bytes]) -> Value | None:
    """Return the row of a hash in Redis's form, or None if there is no hash."""
    if not row:
        return None
    try:
        return {name.decode(): from_json(field) for name, field in row.items() if name != MARK}
    except ValueError as error:
        return Damaged(key, error)


def index_of(prefix: str, table: str, partition: str) -> str:
    return f"{prefix}:{table}:{partition.replace('%', '%25').replace(':', '%3A')}"


def row_of(prefix: str, key: Key) -> str:
    return f"{index_of(prefix, key.table, key.partition)}:{key.sort}"


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidInputError(f"value is not JSON: the name {name!r} is not a string")
    dumps(name)
    return name
