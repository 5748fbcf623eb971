"""Converts calls that wait for a person to MCP elicitation forms, and the filled-in forms to answers.

Law: only a form that a person filled in is an answer. A form that was closed, or that does not match, leaves the call
waiting. An approval with edited arguments that cannot be read never approves the original ones.
"""

from __future__ import annotations

from typing import Any, assert_never

from mcp_types import ClientCapabilities, ElicitRequest, ElicitRequestFormParams, ElicitResult

from helix.core.json import JsonObject, JsonValue, dumps, loads
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
        case "child":
            return f"The sub-agent {call.tool_name} waits."
        case _:
            assert_never(call.kind)


def form(question: Question, meta: dict[str, Any] | None = None) -> ElicitRequest:
    properties: dict[str, Any]
    match question.call.kind:
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
    schema = {"type": "object", "properties": properties, "required": [next(iter(properties))]}
    return ElicitRequest(
        params=ElicitRequestFormParams(message=describe_question(question), requested_schema=schema, _meta=meta)
    )


def verdict(question: Question, filled: ElicitResult) -> JsonObject | None:
    """Return the answer in a filled-in form. None if the form does not answer the question."""
    kind = question.call.kind
    if filled.action == "cancel":
        return None
    if filled.action == "decline":
        return {"approved": False, "reason": "declined"}
    given = filled.content or {}
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


def _value(text: str) -> JsonValue:
    try:
        value: JsonValue = loads(text)
    except ValueError:
        return text
    return value
