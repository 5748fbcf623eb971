"""Checks of values against JSON schemas: those of questions, and those of tools that a front end declares.

Law: pure, and never stricter than the schema. Keywords that are not listed here, such as `format`, are ignored: the tool
that asked reads the value with its own type and asks again if it does not fit. A check does bounded work, because a
stranger may have written the schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from helix.core.json import JsonObject, JsonValue

MAX_PROBLEMS = 10
MAX_CHECKS = 10_000
"""The number of subschemas that one check applies. What is left then counts as fitting."""
MAX_CHAIN = 16
"""The number of subschemas of a declared tool that may apply to one value inside each other."""
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_DEFINITIONS = ("$defs", "definitions")


@dataclass(slots=True)
class _Root:
    """The whole schema of a check, and the work that the check may still do."""

    schema: JsonObject
    """The schema, whose definitions its parts refer to."""
    patterns: bool
    """Whether to match strings against `pattern`."""
    left: int = MAX_CHECKS
    """The number of subschemas that may still be applied."""


def schema_problems(schema: JsonObject, value: JsonValue, whole: str, *, patterns: bool = True) -> list[str]:
    """Return what is wrong with the value, each problem with its field. Empty: it fits. `whole` names the value itself.
    `patterns`: whether to match regular expressions, which may take forever if a stranger wrote them."""
    found: list[str] = []
    try:
        for place, problem in _check(schema, value, (), _Root(schema, patterns)):
            found.append(f"{'.'.join(map(str, place)) or whole}: {problem}")
            if len(found) == MAX_PROBLEMS:
                break
    except RecursionError:
        found.append(f"{whole}: is nested too deeply to be checked")
    return found


Problems = Iterator[tuple[tuple[str | int, ...], str]]


def _check(schema: Any, value: Any, place: tuple[str | int, ...], root: _Root) -> Problems:
    root.left -= 1
    if root.left < 0:
        return
    if schema is False:
        yield place, "is not allowed"
    if not isinstance(schema, dict):
        return
    if isinstance(name := schema.get("$ref"), str):
        yield from _check(_referred(root.schema, name), value, place, root)
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
            yield from _check_string(schema, value, place, root)
        case int() | float() if not isinstance(value, bool):
            yield from _check_number(schema, value, place)


def _closest(options: Any, value: Any, place: tuple[str | int, ...], root: _Root) -> Problems:
    """Yield the problems of the option that the value's type fits, or one problem if none is that close."""
    for option in options:
        problems = list(_check(option, value, place, root))
        if problems and len(problems[0][0]) > len(place):
            yield from problems
            return
    yield place, "fits none of the allowed forms"


def _check_object(schema: JsonObject, value: dict[str, Any], place: tuple[str | int, ...], root: _Root) -> Problems:
    known: Any = schema.get("properties", {})
    others = None if "patternProperties" in schema else schema.get("additionalProperties")
    for name in schema.get("required", ()):  # type: ignore[union-attr]
        if name not in value:
            yield (*place, str(name)), "is missing"
    for name, item in value.items():
        yield from _check(known.get(name, others), item, (*place, name), root)


def _check_array(schema: JsonObject, value: list[Any], place: tuple[str | int, ...], root: _Root) -> Problems:
    first: Any = schema.get("prefixItems", [])
    for index, item in enumerate(value):
        yield from _check(first[index] if index < len(first) else schema.get("items"), item, (*place, index), root)
    yield from _check_size(schema, len(value), place, ("minItems", "maxItems"), "items")
    if schema.get("uniqueItems") and any(_same(a, b) for i, a in enumerate(value) for b in value[:i]):
        yield place, "has an item twice"


def _check_string(schema: JsonObject, value: str, place: tuple[str | int, ...], root: _Root) -> Problems:
    yield from _check_size(schema, len(value), place, ("minLength", "maxLength"), "characters")
    if root.patterns and isinstance(pattern := schema.get("pattern"), str):
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


def _referred(schema: JsonObject, reference: str) -> Any:
    """Return the subschema that a reference names: `#`, or a definition of the schema. None for any other."""
    if reference == "#":
        return schema
    start, _, name = reference.removeprefix("#/").partition("/")
    definitions = schema.get(start) if reference.startswith("#/") and start in _DEFINITIONS else None
    return definitions.get(name) if isinstance(definitions, dict) else None


# --- whether a schema is one ------------------------------------------------------------------------------------------

_ONE = ("additionalProperties", "items", "not", "contains", "propertyNames", "if", "then", "else")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", *_DEFINITIONS)
_SIZES = ("minLength", "maxLength", "minItems", "maxItems")
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_TEXTS = ("$ref", "pattern", "title", "description", "format")


def schema_fault(schema: JsonObject) -> str | None:
    """Return why the value is not a JSON schema that `schema_problems` can apply, with the place. None if it is one."""
    fault, known = next(_faults(schema, "", schema), None), dict[int, int]()
    if fault is None and any(_is_long(part, schema, MAX_CHAIN, known) for part in _parts(schema)):
        return f"a $ref leads back to itself, or more than {MAX_CHAIN} references and alternatives describe one value"
    return fault


def _faults(schema: Any, place: str, root: JsonObject) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{place or 'the schema'} is not a schema: an object, true or false"
        return
    kinds = schema.get("type", [])
    if not all(isinstance(kind, str) and kind in (*_TYPES, "integer") for kind in _listed(kinds)):
        yield f"{place}/type is not a type of JSON"
    for keyword in _TEXTS:
        if keyword in schema and not isinstance(schema[keyword], str):
            yield f"{place}/{keyword} is not a string"
    for keyword in (*_SIZES, *_LIMITS):
        if keyword in schema and (not isinstance(schema[keyword], int | float) or isinstance(schema[keyword], bool)):
            yield f"{place}/{keyword} is not a number"
    required: Any = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield f"{place}/required is not a list of names"
    if not isinstance(schema.get("enum", []), list):
        yield f"{place}/enum is not a list"
    if isinstance(name := schema.get("$ref"), str) and not isinstance(_referred(root, name), dict | bool):
        yield f"{place}/$ref is {name[:80]!r}, which is not a definition of the schema"
    yield from _faults_below(schema, place, root)


def _faults_below(schema: dict[str, Any], place: str, root: JsonObject) -> Iterator[str]:
    for keyword in _ONE:
        if keyword in schema and not (keyword == "items" and isinstance(schema[keyword], list)):
            yield from _faults(schema[keyword], f"{place}/{keyword}", root)
    for keyword in (*_LISTS, "items"):
        parts = schema.get(keyword, [])
        if keyword == "items" and not isinstance(parts, list):
            continue
        if not isinstance(parts, list):
            yield f"{place}/{keyword} is not a list of schemas"
            continue
        for index, part in enumerate(parts):
            yield from _faults(part, f"{place}/{keyword}/{index}", root)
    for keyword in _NAMED:
        named = schema.get(keyword, {})
        if not isinstance(named, dict):
            yield f"{place}/{keyword} is not an object of schemas"
            continue
        for name, part in named.items():
            yield from _faults(part, f"{place}/{keyword}/{name}", root)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _parts(schema: Any) -> Iterator[Any]:
    """Yield the value and all objects and lists in it."""
    if isinstance(schema, dict | list):
        yield schema
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from _parts(part)


def _is_long(schema: Any, root: JsonObject, left: int, known: dict[int, int]) -> bool:
    """Return whether checking one value by this schema applies more than `left` subschemas inside each other, or has no
    end. `known`: the numbers for subschemas that are known already, by identity."""
    if not isinstance(schema, dict):
        return False
    if left == 0:
        return True
    if id(schema) not in known:
        lists = (schema.get(keyword) for keyword in ("allOf", "anyOf", "oneOf"))
        same: list[Any] = [part for found in lists if isinstance(found, list) for part in found]
        if isinstance(name := schema.get("$ref"), str):
            same.append(_referred(root, name))
        if any(_is_long(part, root, left - 1, known) for part in same):
            return True
        known[id(schema)] = 1 + max((known.get(id(part), 0) for part in same), default=0)
    return known[id(schema)] > left
