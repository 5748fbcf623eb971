"""Converts calls that wait for a person to MCP elicitation forms, and the filled-in forms to answers.

Law: only a form that a person filled in is an answer. A form that was closed, or that does not match, leaves the call
waiting. An approval with edited arguments that cannot be read never approves the original ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from mcp_types import ClientCapabilities, ElicitRequest, ElicitRequestFormParams, ElicitResult

from helix.core.json import JsonObject, JsonValue, dumps, loads
from helix.core.messages import AskedQuestion
from helix.mcp.runs import Question

SHOWN_CHARS = 2_000
_TEXT = {"type": "string"}


def can_elicit(capabilities: ClientCapabilities | None) -> bool:
    """Return whether the client can show forms. A client that names no mode can."""
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def describe_question(question: Question) -> str:
    call = question.call
    arguments = dumps(call.arguments)
    if len(arguments) > SHOWN_CHARS:
        arguments = f"{arguments[:SHOWN_CHARS]}… ({len(arguments)} characters)"
    match call.kind:
        case "approval":
            why = f" {call.reason}" if call.reason else ""
            return f"Allow the call of {call.tool_name} with {arguments}?{why}"
        case "client":
            return f"The agent needs the result of {call.tool_name} with {arguments}."
        case "unknown":
            return f"It is not known whether {call.tool_name} was done with {arguments}. Call it again?"
        case "question":
            asked = [q.text if q.problem is None else f"{q.text} ({q.problem})" for q in call.questions]
            return "\n".join(asked) or f"The tool {call.tool_name} asks a question."
        case "child" | "elsewhere":
            return f"{call.tool_name} waits for {'its sub-agent' if call.kind == 'child' else 'another system'}."
        case _:
            assert_never(call.kind)


def form(question: Question, meta: dict[str, Any] | None = None) -> ElicitRequest:
    properties: dict[str, Any]
    needed: list[str] | None = None
    match question.call.kind:
        case "question":
            properties, needed = _question_fields(question.call.questions)
        case "client":
            properties = {"result": {**_TEXT, "title": "Result", "description": "Text, or JSON"}}
        case "unknown":
            properties = {
                "approve": {"type": "boolean", "title": "Call it again"},
                "result": {**_TEXT, "title": "Its result, if it was done", "description": "Text, or JSON"},
            }
        case _:
            properties = {
                "approve": {"type": "boolean", "title": "Approve"},
                "reason": {**_TEXT, "title": "Reason"},
                "arguments": {**_TEXT, "title": "Other arguments", "description": "A JSON object, to change the call"},
            }
    needed = [next(iter(properties))] if needed is None else needed
    schema = {"type": "object", "properties": properties, "required": needed}
    return ElicitRequest(
        params=ElicitRequestFormParams(message=describe_question(question), requested_schema=schema, _meta=meta)
    )


def verdict(question: Question, filled: ElicitResult) -> JsonObject | None:
    """Return the answer in a filled-in form. None if the form does not answer the question."""
    kind = question.call.kind
    if filled.action == "cancel":
        return None
    if filled.action == "decline":
        declined: JsonObject = {"approved": False, "reason": "declined"}
        return declined if kind != "question" else declined | {"round": question.call.round}
    given = filled.content or {}
    if kind == "question":
        return {"approved": True, "data": _answers(question.call.questions, given), "round": question.call.round}
    text = given.get("result")
    if kind == "client":
        return {"approved": True, "data": _value(text)} if isinstance(text, str) else None
    approved, reason = given.get("approve"), given.get("reason")
    if not isinstance(approved, bool):
        return None
    answer: JsonObject = {"approved": approved}
    if isinstance(reason, str) and reason:
        answer["reason"] = reason[:SHOWN_CHARS]
    edited = given.get("arguments")
    if kind == "approval" and approved and isinstance(edited, str) and edited.strip():
        arguments = _value(edited)
        if not isinstance(arguments, dict):
            return None
        answer["arguments"] = arguments
    if kind == "unknown" and not approved and isinstance(text, str) and text:
        answer["data"] = _value(text)
    return answer


def _question_fields(questions: Sequence[AskedQuestion]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a form for the questions, and the names of the required ones. A flat object has a field for each
    property, another simple value has one field, and a form takes all else as JSON text."""
    fields: dict[str, Any] = {}
    needed: list[str] = []
    for number, asked in enumerate(questions, 1):
        schema, about = asked.answer_schema, {"description": asked.text[:SHOWN_CHARS]}
        if (flat := _flat_properties(schema)) is not None:
            required: Any = schema.get("required", [])
            fields |= {_field(number, name): field for name, field in flat.items()}
            needed += [_field(number, name) for name in flat if name in required]
            continue
        simple = _is_simple(schema)
        more = about if simple else {"description": f"{about['description']} (JSON)"}
        fields[_field(number)] = {"title": "Answer", **(schema if simple else _TEXT), **more}
        needed.append(_field(number))
    return fields, needed


def _answers(questions: Sequence[AskedQuestion], given: dict[str, Any]) -> JsonValue:
    """Return the data of the response: the answer in the form's fields, or a list of them."""
    answers: list[JsonValue] = []
    for number, asked in enumerate(questions, 1):
        if (flat := _flat_properties(asked.answer_schema)) is not None:
            filled = {name: given.get(_field(number, name)) for name in flat}
            answers.append({name: value for name, value in filled.items() if value is not None})
            continue
        value = given.get(_field(number))
        answers.append(value if not isinstance(value, str) or _is_simple(asked.answer_schema) else _value(value))
    return answers[0] if len(answers) == 1 else answers


def _field(number: int, name: str = "answer") -> str:
    return f"{name}_{number}" if number > 1 else name


def _flat_properties(schema: JsonObject) -> dict[str, Any] | None:
    """Return the properties of an object's schema if a form can have a field for each. None: it cannot."""
    properties: Any = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict) or not properties:
        return None
    return properties if all(map(_is_simple, properties.values())) else None


def _is_simple(schema: Any) -> bool:
    """Return whether MCP allows a field with this schema."""
    if not isinstance(schema, dict):
        return False
    if schema.get("type") == "array":
        items: Any = schema.get("items")
        return isinstance(items, dict) and items.get("type") == "string" and "enum" in items
    return schema.get("type") in ("string", "integer", "number", "boolean")


def _value(text: str) -> JsonValue:
    try:
        value: JsonValue = loads(text)
    except ValueError:
        return text
    return value
