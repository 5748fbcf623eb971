"""Agents as MCP tools: their names, their schemas, and the results of calls.

Law: each agent is one tool with the same name. Agents and Helix's own tools never share a name, because an agent's name
must not contain `__`. A result fits the output schema, however the run ended.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations, ToolExecution
from pydantic import ConfigDict

from helix.client import HelixClient
from helix.core.json import JsonObject, JsonValue, dumps
from helix.core.messages import Record
from helix.core.request_fields import PAGE
from helix.mcp.questions import describe_question
from helix.mcp.runs import Found, Question
from helix.stream.ui_calls import shown_question

WAIT: Final = "helix__wait"
ANSWER: Final = "helix__answer"
INTERRUPT: Final = "helix__interrupt"
_ID: Final[JsonObject] = {"type": "string", "minLength": 1, "maxLength": 256}
_TASK: Final[JsonObject] = {"session_id": _ID, "run_id": _ID}
_CHAT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "minLength": 1, "description": "What to say to the agent"},
        "session_id": {**_ID, "description": "Continue this conversation; without, a new one begins"},
    },
    "required": ["message"],
    "additionalProperties": False,
}


class Card(Record):
    """An agent, as `list_agents` returns it."""

    model_config = ConfigDict(extra="ignore")

    name: str
    """The agent's name, which is also the name of its tool."""
    description: str
    """The tool's description for the model. If it is empty, the tool gets a default description."""
    kind: Literal["chat", "function"]
    """A `chat` agent accepts a message, and continues conversations. A `function` agent accepts parameters."""
    input: dict[str, Any]
    """The JSON schema of the fields that `run` accepts. A function agent's parameters are its `input` property."""
    output: dict[str, Any]
    """The JSON schema of a result's `output`."""


async def cards_of(client: HelixClient) -> list[Card]:
    found: list[Card] = []
    after: str | None = None
    while True:
        page = await client.list_agents(limit=PAGE, after=after)
        rows: Any = page["agents"]
        found += [Card.model_validate(row) for row in rows]
        if page["cursor"] is None:
            return found
        after = str(page["cursor"])


def tool_of(card: Card) -> Tool:
    return Tool(
        name=card.name,
        description=card.description or f"Runs the agent {card.name!r}.",
        input_schema=_CHAT if card.kind == "chat" else {"type": "object", **card.input["properties"]["input"]},
        output_schema=_outcome(card),
        execution=ToolExecution(task_support="optional"),  # for the protocol 2025-11-25
    )


def own_tools(answers: bool) -> list[Tool]:
    """Return Helix's own tools, which continue a run. `answers`: whether the client may answer waiting calls."""
    wait = Tool(
        name=WAIT,
        description="Wait for a run that was still running or waiting, and return what became of it.",
        input_schema=_object(_TASK, "session_id", "run_id"),
        output_schema=_outcome(None),
        annotations=ToolAnnotations(read_only_hint=True),
    )
    interrupt = Tool(
        name=INTERRUPT,
        description="Stop a run at its next point. Its conversation can be continued.",
        input_schema=_object(_TASK, "session_id", "run_id"),
        output_schema=_object({"interrupted": {"type": "boolean"}}, "interrupted"),
        annotations=ToolAnnotations(idempotent_hint=True, destructive_hint=False),
    )
    fields = {**_TASK, "call_id": _ID, "call_session_id": _ID, "approved": {"type": "boolean"}}
    fields |= {
        "data": {"description": "The call's result, where the client gives it, or the answer to its question"},
        "round": {"type": "integer", "description": "For a question: its round, as in pending"},
        "reason": {"type": "string"},
    }
    fields |= {
        "arguments": {"type": "object", "description": "Other arguments than those of the call, approved instead"}
    }
    answer = Tool(
        name=ANSWER,
        description="Give a person's decision on a call that waits. Ask the person first; never decide for them.",
        input_schema=_object(fields, "session_id", "run_id", "call_id", "approved"),
        output_schema=_outcome(None),
        annotations=ToolAnnotations(destructive_hint=True),
    )
    return [wait, interrupt, *([answer] if answers else [])]


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


_CALL: dict[str, Any] = {
    "arguments": {"type": "object"},
    "questions": {"type": "array", "items": {"type": "object"}, "description": "Each with its text and its schema"},
    "round": {"type": "integer", "description": "The round of the questions, which an answer names"},
}


def _outcome(card: Card | None) -> dict[str, Any]:
    """Return the schema of `outcome`. The definitions of the agent's schema move to the root, because references start
    there."""
    output = {} if card is None else dict(card.output)
    definitions = output.pop("$defs", None)
    call = {"call_id": _ID, "session_id": _ID, "tool_name": {"type": "string"}, "kind": {"type": "string"}}
    schema = _object(
        {
            "status": {"enum": ["running", "completed", "failed", "interrupted", "paused"]},
            **_TASK,
            "output": output,
            "error": {"type": "string"},
            "error_code": {"type": "string"},
            "pending": {"type": "array", "items": _object({**call, **_CALL}, *call)},
        },
        "status",
        "session_id",
        "run_id",
    )
    return schema | ({"$defs": definitions} if definitions else {})


def outcome(found: Found, answers: bool) -> CallToolResult:
    """Return the result of a call. It names the run that began the task, because that run identifies the task."""
    value: JsonObject = {
        "status": found.status,
        "session_id": found.ref.session_id,
        "run_id": found.ref.run_id,
    }
    result, again = found.result, f'session_id "{found.ref.session_id}" and run_id "{found.ref.run_id}"'
    if found.status == "running" or result is None:
        return structured(value, f"Still running. Call {WAIT} with {again}.")
    if found.status == "completed":
        value |= {} if result.output is None else {"output": result.output}
        return structured(value, result.output if isinstance(result.output, str) else dumps(result.output))
    if found.questions:
        pending: list[JsonValue] = [
            {
                "call_id": question.call.call_id,
                "session_id": question.session_id,
                "tool_name": question.call.tool_name,
                "kind": question.call.kind,
                "arguments": question.call.arguments,
                **_questions(question),
            }
            for question in found.questions
        ]
        asked = " ".join(describe_question(question) for question in found.questions)
        advice = f"Ask the person, then call {ANSWER} with {again}." if answers else f"Then call {WAIT} with {again}."
        return structured(value | {"pending": pending}, f"Waits for a person. {asked} {advice}")
    value |= {"error": result.error} if result.error is not None else {}
    value |= {"error_code": result.error_code} if result.error_code is not None else {}
    why = result.error or result.completion_reason or ""
    return structured(value, f"The run is {found.status}{f': {why}' if why else ''}.", failed=found.status == "failed")


def _questions(question: Question) -> JsonObject:
    asked: list[JsonValue] = [shown_question(each) for each in question.call.questions]
    return {"questions": asked, "round": question.call.round} if asked else {}


def refusal(message: str) -> CallToolResult:
    """Return an error as a result, for the model to read and correct."""
    return CallToolResult(content=[TextContent(text=message)], is_error=True)


def structured(value: JsonObject, text: str, *, failed: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], structured_content=value, is_error=failed)
