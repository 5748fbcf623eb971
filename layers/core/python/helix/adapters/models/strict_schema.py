"""JSON Schemas in the form that strict function calling accepts, and the way back.

Law: a schema is closed if each object in it lists its properties and allows no others, each list says what its items
are, and each value has a type. Only closed schemas have a strict form. `drop_nulls` removes from the arguments exactly
those nulls that only OpenAI's strict form allowed. So a tool's validation and defaults see values that match its own
schema. Rules: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas and
https://platform.claude.com/docs/en/build-with-claude/structured-outputs#json-schema-limitations
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, cast

from helix.core.json import JsonObject, JsonValue, dumps
from helix.core.json_schema import schema_problems

Form = Literal["openai", "claude"]
"""The two strict forms. `openai`: every property is required, and an optional one may be null. `claude`: optional
properties stay optional, and limits of numbers and lists are not part of the schema."""

_DEFINITIONS: Final = ("$defs", "definitions")
_STRUCTURE: Final = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "anyOf", "oneOf", "enum", "const", "$ref"),
        *("description", *_DEFINITIONS),
    }
)
_OPEN: Final = frozenset(
    {
        *("allOf", "not", "if", "then", "else", "patternProperties", "dependentSchemas", "dependentRequired"),
        *("prefixItems", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems"),
    }
)
"""The keywords that neither form has. Leaving one out would allow other values."""
_UNSAID: Final = frozenset(
    {"title", "discriminator", "$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly"}
)
"""The keywords that say nothing to a model. They are left out."""
_LIMITS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_SUPPORTED: Final = {"openai": _LIMITS | {"minItems", "maxItems"}, "claude": frozenset({"default"})}
"""The further keywords of each form. All others are said in the description, and the tool checks them."""
_FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)
_UNSUPPORTED_PATTERN: Final = re.compile(r"\(\?|\\[bB1-9]")
"""A pattern for regular expressions with lookaround, references or word boundaries."""
_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


class OpenSchemaError(Exception):
    """Raised for a schema that has no strict form. The message says where, and why."""


def strict_schema(schema: JsonObject, form: Form = "openai") -> JsonObject:
    """Return the strict form of a tool's `parameters`. Raises `OpenSchemaError` if the schema is not closed."""
    if schema.get("type") != "object":
        raise OpenSchemaError("the arguments are not an object")
    closed = _close(schema, "", schema, form)
    for key in _DEFINITIONS:
        if isinstance(named := schema.get(key), dict):
            closed[key] = {name: _close(part, name, schema, form) for name, part in named.items()}
    return closed


def drop_nulls(schema: JsonObject, arguments: JsonObject) -> JsonObject:
    """Return the `arguments` of a strict call in the form that the tool's own `schema` expects."""
    return cast(JsonObject, _relax(schema, arguments, schema))


def _close(schema: JsonValue, place: str, root: JsonObject, form: Form) -> JsonObject:
    """Return the strict form of a part of `root`. `place` is its path in the arguments, which is empty for the whole."""
    if not isinstance(schema, dict):
        raise OpenSchemaError(f"{_named(place)} may be any value")
    if found := sorted(_OPEN & schema.keys()):
        raise OpenSchemaError(f"{_named(place)} has {found[0]!r}, which strict schemas do not have")
    if isinstance(name := schema.get("$ref"), str):
        return _close_reference(schema, name, place, root, form)
    closed = _described(schema, form)
    closed |= {key: schema[key] for key in ("type", "enum", "const") if key in schema}
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        closed["anyOf"] = [_close(option, place, root, form) for option in options]
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "items" in schema or "array" in kinds:
        closed["items"] = _close(schema.get("items"), f"{place}[]", root, form)
    if "object" in kinds or "properties" in schema:
        closed |= _close_object(schema, place, root, form)
    elif "enum" in closed or "const" in closed:
        closed["type"] = _type_of_choices(schema, place)
    elif kind is None and not isinstance(options, list):
        raise OpenSchemaError(f"{_named(place)} may be any value")
    return closed


def _close_object(schema: JsonObject, place: str, root: JsonObject, form: Form) -> JsonObject:
    properties = schema.get("properties")
    if schema.get("additionalProperties", False) is not False or not isinstance(properties, dict):
        raise OpenSchemaError(f"{_named(place)} may have any properties")
    required = _required(schema)
    closed: JsonObject = {}
    for name, part in properties.items():
        made = _close(part, f"{place}.{name}" if place else name, root, form)
        closed[name] = made if form == "claude" or name in required else _nullable(made, root)
    needed = list(properties) if form == "openai" else [name for name in properties if name in required]
    return {"properties": closed, "required": [*needed], "additionalProperties": False}


def _close_reference(schema: JsonObject, name: str, place: str, root: JsonObject, form: Form) -> JsonObject:
    """Return the strict form of a reference. OpenAI refuses a description beside it. Claude has no union to spare, and no
    schema that refers to itself, so the definition itself takes the place of a reference with a description."""
    if not isinstance(definition := _resolve(name, root), dict):
        raise OpenSchemaError(f"{_named(place)} refers to {name!r}, which is not a definition of the schema")
    if form == "claude" and _reaches(name, definition, root, set()):
        raise OpenSchemaError(f"{_named(place)} refers to itself, which Claude does not accept")
    beside = _described({key: value for key, value in schema.items() if key != "$ref"}, form)
    if not beside:
        return {"$ref": name}
    if form == "openai":
        return {"anyOf": [{"$ref": name}], **beside}
    return {**_close(definition, place, root, form), **beside}


def _described(schema: JsonObject, form: Form) -> JsonObject:
    """Return the keywords of the form that are no structure. The description names the others, because the model should
    still follow them."""
    others = {key: value for key, value in schema.items() if key not in _STRUCTURE | _UNSAID}
    supported = {key: value for key, value in others.items() if _keeps(key, value, form)}
    said = [f"{key}: {dumps(value)}" for key, value in others.items() if key not in supported and value is not None]
    description = schema.get("description")
    text = " ".join(
        [*([description] if isinstance(description, str) else []), *([f"({', '.join(said)})"] if said else [])]
    )
    return {**supported, "description": text} if text else supported


def _keeps(key: str, value: JsonValue, form: Form) -> bool:
    match key:
        case "format":
            return value in _FORMATS and (form == "claude" or value != "uri")
        case "pattern":
            return isinstance(value, str) and not _UNSUPPORTED_PATTERN.search(value)
        case "minItems" if form == "claude":
            return value in (0, 1)
        case _:
            return key in _SUPPORTED[form]


def _type_of_choices(schema: JsonObject, place: str) -> JsonValue:
    """Return the type of an `enum` or `const`, which OpenAI requires."""
    choices = schema["enum"] if "enum" in schema else [schema.get("const")]
    if not isinstance(choices, list) or any(type(choice) not in _TYPES for choice in choices):
        raise OpenSchemaError(f"{_named(place)} is one of several objects or lists")
    if "type" in schema:
        return schema["type"]
    found = list(dict.fromkeys(_TYPES[type(choice)] for choice in choices))
    return found[0] if len(found) == 1 else [*found]


def _named(place: str) -> str:
    return repr(place) if place else "the whole schema"


def _required(schema: JsonObject) -> list[JsonValue]:
    required = schema.get("required")
    return required if isinstance(required, list) else []


def _nullable(schema: JsonObject, root: JsonObject) -> JsonObject:
    return schema if _takes_null(schema, root) else {"anyOf": [schema, {"type": "null"}]}


def _takes_null(schema: JsonValue, root: JsonObject) -> bool:
    if not isinstance(schema, dict):
        return False
    if isinstance(name := schema.get("$ref"), str):
        return not _reaches(name, found := _resolve(name, root), root, set()) and _takes_null(found, root)
    kind, options = schema.get("type"), schema.get("anyOf") or schema.get("oneOf")
    choices = schema.get("enum")
    if isinstance(choices, list):
        return None in choices
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return True
    return isinstance(options, list) and any(_takes_null(option, root) for option in options)


def _relax(schema: JsonValue, value: JsonValue, root: JsonObject) -> JsonValue:
    if not isinstance(schema, dict):
        return value
    if isinstance(reference := schema.get("$ref"), str):
        return _relax(_resolve(reference, root), value, root)
    if isinstance(options := schema.get("anyOf") or schema.get("oneOf"), list):
        return _relax_union(options, value, root)
    if isinstance(value, list):
        return [_relax(schema.get("items"), item, root) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    required = _required(schema)
    return {
        name: _relax(properties.get(name), item, root)
        for name, item in value.items()
        if item is not None or name in required or _takes_null(properties.get(name), root)
    }


def _relax_union(options: list[JsonValue], value: JsonValue, root: JsonObject) -> JsonValue:
    """Return the value in the form of the first option that it fits. An object fits only an option with the same
    properties, because its strict form requires all of them."""
    for option in options:
        found = _target(option, root)
        properties = found.get("properties") if isinstance(found, dict) else None
        if isinstance(value, dict) and isinstance(properties, dict) and value.keys() != properties.keys():
            continue
        relaxed = _relax(option, value, root)
        whole: JsonObject = {key: root[key] for key in _DEFINITIONS if key in root}
        whole |= found if isinstance(found, dict) else {}
        if not schema_problems(whole, relaxed, "value", patterns=False):
            return relaxed
    return value


def _target(schema: JsonValue, root: JsonObject) -> JsonValue:
    """Return the schema, or the definition that it refers to."""
    name = schema.get("$ref") if isinstance(schema, dict) else None
    return _resolve(name, root) if isinstance(name, str) else schema


def _resolve(reference: str, root: JsonObject) -> JsonValue:
    found: JsonValue = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _reaches(name: str, schema: JsonValue, root: JsonObject, seen: set[str]) -> bool:
    """Return whether the schema refers to `name`, directly or through other definitions."""
    for reference in _references(schema):
        if reference == name:
            return True
        if reference not in seen:
            seen.add(reference)
            if _reaches(name, _resolve(reference, root), root, seen):
                return True
    return False


def _references(schema: JsonValue) -> Iterator[str]:
    match schema:
        case {"$ref": str(name)}:
            yield name
        case dict():
            for part in schema.values():
                yield from _references(part)
        case list():
            for part in schema:
                yield from _references(part)
