"""Checks of values against the JSON schemas of questions.

Law: pure, and never stricter than the schema. Keywords that are not listed here, such as `format`, are ignored: the tool
that asked reads the value with its own type and asks again if it does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from helix.core.json import JsonObject, JsonValue

MAX_PROBLEMS = 10
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_DEFINITION = "#/$defs/"


def schema_problems(schema: JsonObject, value: JsonValue, whole: str) -> list[str]:
    """Return what is wrong with the value, each problem with its field. Empty: it fits. `whole` names the value itself."""
    found: list[str] = []
    for place, problem in _check(schema, value, (), schema):
        found.append(f"{'.'.join(map(str, place)) or whole}: {problem}")
        if len(found) == MAX_PROBLEMS:
            break
    return found


Problems = Iterator[tuple[tuple[str | int, ...], str]]


def _check(schema: Any, value: Any, place: tuple[str | int, ...], root: JsonObject) -> Problems:
    if schema is False:
        yield place, "is not allowed"
    if not isinstance(schema, dict):
        return
    if isinstance(name := schema.get("$ref"), str) and name.startswith(_DEFINITION):
        definitions: Any = root.get("$defs", {})
        yield from _check(definitions.get(name[len(_DEFINITION) :], {}), value, place, root)
    for part in schema.get("allOf", ()):
        yield from _check(part, value, place, root)
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if options and not any(next(_check(option, value, place, root), None) is None for option in options):
            yield from _closest(options, value, place, root)
    kinds = schema.get("type")
    wanted = [kinds] if isinstance(kinds, str) else kinds or []
    if wanted and not any(_is_of(kind, value) for kind in wanted):
        yield place, f"must be {' or '.join(wanted)}, not {_type_of(value)}"
        return
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        yield place, f"must be one of {', '.join(map(repr, schema['enum']))}"
    if "const" in schema and not _same(value, schema["const"]):
        yield place, f"must be {schema['const']!r}"
    match value:
        case dict():
            yield from _check_object(schema, value, place, root)
        case list():
            yield from _check_array(schema, value, place, root)
        case str():
            yield from _check_string(schema, value, place)
        case int() | float() if not isinstance(value, bool):
            yield from _check_number(schema, value, place)


def _closest(options: Any, value: Any, place: tuple[str | int, ...], root: JsonObject) -> Problems:
    """Yield the problems of the option that the value's type fits, or one problem if none is that close."""
    for option in options:
        problems = list(_check(option, value, place, root))
        if problems and len(problems[0][0]) > len(place):
            yield from problems
            return
    yield place, "fits none of the allowed forms"


def _check_object(
    schema: JsonObject, value: dict[str, Any], place: tuple[str | int, ...], root: JsonObject
) -> Problems:
    known: Any = schema.get("properties", {})
    for name in schema.get("required", ()):  # type: ignore[union-attr]
        if name not in value:
            yield (*place, str(name)), "is missing"
    for name, item in value.items():
        yield from _check(known.get(name, schema.get("additionalProperties")), item, (*place, name), root)


def _check_array(schema: JsonObject, value: list[Any], place: tuple[str | int, ...], root: JsonObject) -> Problems:
    first: Any = schema.get("prefixItems", [])
    for index, item in enumerate(value):
        yield from _check(first[index] if index < len(first) else schema.get("items"), item, (*place, index), root)
    yield from _check_size(schema, len(value), place, ("minItems", "maxItems"), "items")
    if schema.get("uniqueItems") and any(_same(a, b) for i, a in enumerate(value) for b in value[:i]):
        yield place, "has an item twice"


def _check_string(schema: JsonObject, value: str, place: tuple[str | int, ...]) -> Problems:
    yield from _check_size(schema, len(value), place, ("minLength", "maxLength"), "characters")
    if isinstance(pattern := schema.get("pattern"), str):
        try:
            fits = re.search(pattern, value) is not None
        except re.error:  # the regular expressions of JavaScript have more forms than those of Python
            fits = True
        if not fits:
            yield place, f"must match {pattern!r}"


def _check_size(
    schema: JsonObject, size: int, place: tuple[str | int, ...], keywords: tuple[str, str], what: str
) -> Problems:
    least, most = (schema.get(keyword) for keyword in keywords)
    if isinstance(least, int) and size < least:
        yield place, f"must have at least {least} {what}"
    if isinstance(most, int) and size > most:
        yield place, f"must have at most {most} {what}"


def _check_number(schema: JsonObject, value: float, place: tuple[str | int, ...]) -> Problems:
    limits: Any = schema
    if value < limits.get("minimum", value):
        yield place, f"must be at least {limits['minimum']}"
    if value > limits.get("maximum", value):
        yield place, f"must be at most {limits['maximum']}"
    if "exclusiveMinimum" in limits and value <= limits["exclusiveMinimum"]:
        yield place, f"must be more than {limits['exclusiveMinimum']}"
    if "exclusiveMaximum" in limits and value >= limits["exclusiveMaximum"]:
        yield place, f"must be less than {limits['exclusiveMaximum']}"


def _is_of(kind: str, value: Any) -> bool:
    if kind == "integer":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, (object,)))


def _type_of(value: Any) -> str:
    return next((kind for kind in ("null", "boolean", "integer", *_TYPES) if _is_of(kind, value)), "unknown")


def _same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. In Python, but not in JSON, True equals 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
