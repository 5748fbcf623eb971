"""Rows as DynamoDB items: scalars are attributes that conditions can see, everything else is JSON in binary.

    pk, sk      the key
    string      S, if short; else binary
    number      N    (floats keep Python's shortest form; integers stay integers)
    bool, null  BOOL, NULL
    the rest    B: one tag byte, then JSON: `j` plain, `z` zlib, `s` a pointer to an object in S3

Law: `decode(encode(value)) == value` for every JSON object. An item never exceeds `MAX_ITEM_BYTES`, which leaves room
below DynamoDB's 400 KB for the key and attribute names.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from helix.core.errors import InvalidInputError
from helix.core.json import dumps

Attribute = dict[str, Any]
Item = dict[str, Attribute]
MAX_ITEM_BYTES = 360_000
MAX_ADDED_BYTES = 16_000  # per field in an update, so that a few fit in addition to MAX_ITEM_BYTES
LEAST_OFFLOADED = 1_000
COMPRESS_BYTES = 256  # bytes are billed, and small rows consist mostly of repeated names
SHORT_STRING = 1_024


def attribute(value: Any) -> Attribute:
    """Return one field's value as a DynamoDB attribute."""
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() if abs(value) < 10**38:
            return {"N": str(value)}
        case float() if value == 0 or 1e-130 <= abs(value) < 1e126:  # DynamoDB's own range
            return {"N": str(Decimal(repr(value)))}  # whole floats come back as integers, which are equal in JSON
        case str() if len(value) <= SHORT_STRING:
            return {"S": value}
        case _:
            return {"B": _pack(dumps(value).encode())}


def _pack(raw: bytes) -> bytes:
    if len(raw) >= COMPRESS_BYTES:
        packed = zlib.compress(raw, 6)
        if len(packed) < len(raw):
            return b"z" + packed
    return b"j" + raw


def encode(value: Mapping[str, Any], offload: Callable[[bytes], str] | None = None) -> Item:
    """Return the item's fields. `offload` stores bytes elsewhere and returns their name. It is used for the largest
    fields first, until the item fits. Raises `InvalidInputError` if it does not fit and there is no `offload`."""
    item = {name: attribute(field) for name, field in value.items()}
    total = item_bytes(item)
    while total > MAX_ITEM_BYTES:
        weight, name = largest_field(item)
        if weight < LEAST_OFFLOADED:
            raise InvalidInputError(f"a row of {total} bytes of short fields exceeds an item's {MAX_ITEM_BYTES}")
        if offload is None:
            raise InvalidInputError(
                f"a row of {total} bytes exceeds an item's {MAX_ITEM_BYTES}, and no bucket is configured"
            )
        total -= offload_field(item, name, offload)
    return item


def largest_field(item: Mapping[str, Attribute]) -> tuple[int, str]:
    """Return (bytes, name) of the largest field that can be offloaded, or (0, "") without one."""
    fields = [(_bytes(attr), name) for name, attr in item.items() if "B" in attr and bytes(attr["B"])[:1] != b"s"]
    return max(fields, default=(0, ""))


def offload_field(item: Item, name: str, offload: Callable[[bytes], str]) -> int:
    """Offload a field, leave a pointer in its place, and return the number of bytes saved."""
    before = _bytes(item[name])
    item[name] = {"B": b"s" + offload(item[name]["B"]).encode()}
    return before - _bytes(item[name])


def offload_fields(item: Item, offload: Callable[[bytes], str] | None) -> None:
    """Offload fields that are too large to be added to a row of unknown size."""
    while offload is not None and (found := largest_field(item))[0] > MAX_ADDED_BYTES:
        offload_field(item, found[1], offload)


def decode(item: Mapping[str, Attribute], fetch: Callable[[str], bytes] | None = None) -> dict[str, Any]:
    """Return the row's value. `fetch` reads offloaded fields."""
    return {name: _value(attr, fetch) for name, attr in item.items() if name not in ("pk", "sk")}


def _value(attr: Attribute, fetch: Callable[[str], bytes] | None) -> Any:
    ((kind, raw),) = attr.items()
    match kind:
        case "NULL":
            return None
        case "BOOL" | "S":
            return raw
        case "N":
            return int(raw) if raw.lstrip("-").isdigit() else float(raw)
        case "B":
            return _unpack(bytes(raw), fetch)
    raise InvalidInputError(f"an item has an attribute of type {kind!r}, which Helix does not write")


def _unpack(body: bytes, fetch: Callable[[str], bytes] | None) -> Any:
    tag, rest = body[:1], body[1:]
    if tag == b"s":
        if fetch is None:
            raise InvalidInputError("a row points to S3, and no bucket is configured")
        return _unpack(fetch(rest.decode()), fetch)
    return json.loads(zlib.decompress(rest) if tag == b"z" else rest)


def pointers(item: Mapping[str, Attribute]) -> list[str]:
    """Return the names of the objects that the item's fields were offloaded to."""
    bodies = [bytes(attr["B"]) for attr in item.values() if "B" in attr]
    return [body[1:].decode() for body in bodies if body[:1] == b"s"]


def item_bytes(item: Item) -> int:
    return sum(len(name.encode()) + _bytes(attr) for name, attr in item.items())


def _bytes(attr: Attribute) -> int:
    ((kind, raw),) = attr.items()
    if kind == "B":
        return len(raw)
    return len(str(raw).encode()) if kind in ("S", "N") else 1
