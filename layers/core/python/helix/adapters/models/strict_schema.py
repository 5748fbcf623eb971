"""JSON Schemas in the form that strict function calling accepts, and the way back.

Law: `strict_schema` closes every object (no extra properties, all properties required; an optional one may be null), or
returns None if the schema cannot be closed. `drop_nulls` removes from the arguments exactly those nulls that only the
strict form allowed. So a tool's validation and defaults see values that match its own schema. Rules:
https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""

from __future__ import annotations

from typing import cast

from helix.core.json import JsonObject, JsonValue

# Keywords that the strict subset does not support. Dropping them only widens the schema, and the tool validates anyway.
_DROPPED = frozenset(
    {"default", "title", "examples", "minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties"}
)
_UNCLOSABLE = frozenset({"allOf", "oneOf", "not", "if", "then", "else", "patternProperties", "dependentSchemas"})


class _CannotCloseError(Exception):
    pass


def strict_schema(schema: JsonObject) -> JsonObject | None:
    """Return the closed form of a tool's `parameters`, or None if it has free-form objects or unsupported keywords."""
    if schema.get("type") != "object":
        return None
    try:
        return _close(schema)
    except _CannotCloseError:
        return None


def drop_nulls(schema: JsonObject, arguments: JsonObject) -> JsonObject:
    """Return the `arguments` of a strict call in the form that the tool's own `schema` expects."""
    return cast(JsonObject, _relax(schema, arguments, schema))


def _close(schema: JsonObject) -> JsonObject:
    if _UNCLOSABLE & schema.keys():
        raise _CannotCloseError
    closed: JsonObject = {key: value for key, value in schema.items() if key not in _DROPPED}
    for key in ("$defs", "definitions"):
        if isinstance(named := schema.get(key), dict):
            closed[key] = {name: _close(_schema(value)) for name, value in named.items()}
    if isinstance(options := schema.get("anyOf"), list):
        closed["anyOf"] = [_close(_schema(option)) for option in options]
    if "items" in schema:
        closed["items"] = _close(_schema(schema["items"]))
    elif schema.get("type") == "array":
        raise _CannotCloseError
    if schema.get("type") == "object" or "properties" in schema:
        if schema.get("additionalProperties", False) is not False:
            raise _CannotCloseError
        properties = _schema(schema.get("properties", {}))
        required = _required(schema)
        closed["properties"] = {
            name: _close(_schema(value)) if name in required else _nullable(_close(_schema(value)))
            for name, value in properties.items()
        }
        closed["required"] = list(properties)
        closed["additionalProperties"] = False
    elif not {"type", "$ref", "anyOf", "enum", "const"} & schema.keys():
        raise _CannotCloseError
    if "$ref" in closed and len(closed) > 1:  # OpenAI refuses a description beside a reference
        closed = {"anyOf": [{"$ref": closed.pop("$ref")}], **closed}
    return closed


def _schema(value: JsonValue) -> JsonObject:
    if not isinstance(value, dict):
        raise _CannotCloseError
    return value


def _required(schema: JsonObject) -> list[JsonValue]:
    required = schema.get("required")
    return required if isinstance(required, list) else []


def _nullable(schema: JsonObject) -> JsonObject:
    return schema if _takes_null(schema) else {"anyOf": [schema, {"type": "null"}]}


def _takes_null(schema: JsonValue) -> bool:
    if not isinstance(schema, dict):
        return False
    kind, options = schema.get("type"), schema.get("anyOf")
    if kind == "null" or (isinstance(kind, list) and "null" in kind):
        return True
    return isinstance(options, list) and any(_takes_null(option) for option in options)


def _relax(schema: JsonValue, value: JsonValue, root: JsonObject) -> JsonValue:
    if not isinstance(schema, dict):
        return value
    if isinstance(reference := schema.get("$ref"), str):
        return _relax(_resolve(reference, root), value, root)
    if isinstance(options := schema.get("anyOf"), list):
        # Optional[X] is the only union whose branch is known. A wider one keeps its nulls, and the tool decides.
        branches = [option for option in options if not _takes_null(option)]
        return _relax(branches[0], value, root) if len(branches) == 1 and value is not None else value
    if isinstance(value, list):
        return [_relax(schema.get("items"), item, root) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    required = _required(schema)
    return {
        name: _relax(properties.get(name), item, root)
        for name, item in value.items()
        if item is not None or name in required or _takes_null(properties.get(name))
    }


def _resolve(reference: str, root: JsonObject) -> JsonValue:
    found: JsonValue = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    return found
