"""The refusals of strict schemas, and of Converse, in the providers' words. None for an accepted request.

They follow the documents of OpenAI, Anthropic and Amazon Bedrock about structured outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

_STRUCTURE = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "anyOf",
    "enum",
    "const",
    "description",
}
_STRUCTURE |= {"$ref", "$defs", "definitions", "format", "pattern"}
_OPENAI = _STRUCTURE | {
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
}
_CLAUDE = _STRUCTURE | {"default", "minItems"}
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}


def openai_refusal(strict: Mapping[str, Any]) -> str | None:
    """Return OpenAI's refusal of the strict schemas, by the names of their functions."""
    for name, whole in strict.items():
        for place, schema in _parts(whole, ()):
            if problem := _openai_problem(schema):
                return f"Invalid schema for function '{name}': In context={place}, {problem}"
    return None


def _openai_problem(schema: Any) -> str | None:
    if "$ref" in schema and len(schema) > 1:
        return f"$ref cannot have keywords {set(schema) - {'$ref'}}."
    if unknown := sorted(schema.keys() - _OPENAI):
        return f"'{unknown[0]}' is not permitted."
    if not schema.keys() & {"type", "$ref", "anyOf"}:
        return "schema must have a 'type' key."
    if schema.get("format", "date") not in _FORMATS:
        return f"'{schema['format']}' is not a valid format."
    if "(?" in schema.get("pattern", ""):
        return "lookaround is not supported in 'pattern'."
    if "object" in schema.get("type", ""):
        if schema.get("additionalProperties") is not False:
            return "'additionalProperties' is required to be supplied and to be false."
        if sorted(schema.get("required", ())) != sorted(schema["properties"]):
            return "'required' is required to be supplied and to be an array including every key in properties."
    return None


def claude_refusal(strict: Mapping[int, Any]) -> str | None:
    """Return Anthropic's refusal of the strict schemas, by the numbers of their tools."""
    optional = unions = 0
    if len(strict) > 20:
        return f"Too many strict tools ({len(strict)}). The maximum number of strict tools supported is 20."
    for number, whole in strict.items():
        if any(name in str(part) for name, part in whole.get("$defs", {}).items()):
            return f"tools.{number}.custom: Circular reference detected in schema definitions"
        for _, schema in _parts(whole, ()):
            unions += "anyOf" in schema or isinstance(schema.get("type"), list)
            if unknown := sorted(schema.keys() - _CLAUDE):
                of = schema.get("type")
                return f"tools.{number}.custom: For '{of}' type, property '{unknown[0]}' is not supported"
            if schema.get("minItems", 0) > 1:
                return f"tools.{number}.custom: For 'array' type, 'minItems' values other than 0 or 1 are not supported"
            if schema.get("type") == "object":
                if schema.get("additionalProperties") is not False:
                    problem = "'additionalProperties' must be explicitly set to false"
                    return f"tools.{number}.custom: For 'object' type, {problem}"
                optional += len(schema["properties"]) - len(schema.get("required", ()))
    if optional > 24:
        return f"Schemas contains too many optional parameters ({optional}). The maximum is 24."
    if unions > 16:
        return f"Schemas contains too many parameters with union types ({unions} parameters with type arrays or anyOf)."
    return None


def converse_refusal(path: str, body: Any) -> str | None:
    """Return the refusal of Amazon Bedrock's Converse."""
    model, config = unquote(path), body.get("toolConfig") or {}
    specs = [tool["toolSpec"] for tool in config.get("tools", ()) if "toolSpec" in tool]
    strict = {n: spec["inputSchema"]["json"] for n, spec in enumerate(specs) if spec.get("strict")}
    if strict and "claude" not in model:
        return (
            "This model doesn't support the strict field in toolConfig.tools.0.toolSpec. Remove strict and try again."
        )
    more = body.get("additionalModelRequestFields") or {}
    if "type" in more.get("tool_choice", {}) and "toolChoice" in config:
        return "The additional field tool_choice.type conflicts with an existing field."
    if "tool_choice" in more and "claude" not in model:
        return "The model returned the following errors: extraneous key [tool_choice] is not permitted"
    if refused := claude_refusal(strict):
        return f"The model returned the following errors: {refused}"
    if {"temperature", "topP"} <= (body.get("inferenceConfig") or {}).keys() and "4-5" in model:
        return "The model returned the following errors: `temperature` and `top_p` cannot both be specified for this model."
    return None


def _parts(schema: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the schema and its subschemas, each with its place."""
    yield place, schema
    for keyword in ("properties", "$defs", "definitions"):
        for name, part in schema.get(keyword, {}).items():
            yield from _parts(part, (*place, keyword, name))
    for number, part in enumerate(schema.get("anyOf", ())):
        yield from _parts(part, (*place, "anyOf", str(number)))
    if "items" in schema:
        yield from _parts(schema["items"], (*place, "items"))
