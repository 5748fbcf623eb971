"""What clients send, in each encoding, as one request.

Law: of a conversation that a client sends, only the newest text of its user and the answers to calls that wait are used.
All else is the client's copy of what the rows say, and might be anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue

MAX_ID = 256


@dataclass(frozen=True, slots=True)
class Given:
    """An answer to a call that waits, by its id on the page. `result`: `data` is the result of a tool of the client
    (None: what it is depends on the call). `arguments`: what to execute in place of the model's."""

    approved: bool = True
    data: JsonValue = None
    reason: str | None = None
    arguments: JsonObject | None = None
    result: bool | None = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A message for a session, or answers. `message_id`: the client's name of the message. `key`: of the request."""

    session_id: str | None
    message: Any = None
    message_id: str | None = None
    answers: dict[str, Given] = field(default_factory=dict)
    key: str | None = None
    again: bool = False


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


BodyT = TypeVar("BodyT", bound=_Body)


class _Answer(_Body):
    tool_call_id: str
    approved: bool = True
    data: JsonValue = None
    reason: str | None = None
    arguments: JsonObject | None = None


class _Plain(_Body):
    message: str | JsonObject | None = None
    session_id: str | None = None
    key: str | None = None
    answers: list[_Answer] = Field(default_factory=list)


class _UIMessage(_Body):
    id: str = Field(default="", max_length=MAX_ID)
    role: str
    parts: list[JsonObject] = Field(default_factory=list)


class _UIRequest(_Body):
    id: str
    messages: list[_UIMessage] = Field(min_length=1)
    trigger: str = "submit-message"
    message_id: str | None = Field(default=None, alias="messageId")


class _AgUiMessage(_Body):
    id: str = Field(default="", max_length=MAX_ID)
    role: str
    content: JsonValue = None


class _Resume(_Body):
    interrupt_id: str = Field(alias="interruptId")
    status: str
    payload: JsonValue = None


class _AgUiRequest(_Body):
    thread_id: str = Field(alias="threadId")
    run_id: str = Field(default="", alias="runId", max_length=MAX_ID)
    messages: list[_AgUiMessage] = Field(default_factory=list)
    resume: list[_Resume] = Field(default_factory=list)


def plain_request(text: bytes) -> Ask:
    """`{"message", "session_id", "key"}`, or
    `{"session_id", "answers": [{"tool_call_id", "approved", "data", "reason", "arguments"}]}`."""
    body = _parse(_Plain, text)
    answers = {
        one.tool_call_id: Given(one.approved, one.data, one.reason, one.arguments, result=None) for one in body.answers
    }
    if (body.message is None) == (not answers):
        raise InvalidInputError("the body must have a message, or answers")
    return Ask(body.session_id, body.message, answers=answers, key=body.key)


def ui_request(text: bytes) -> Ask:
    """What the AI SDK's `DefaultChatTransport` sends."""
    body = _parse(_UIRequest, text)
    again = body.trigger == "regenerate-message"
    newest = body.messages[-1]
    if body.message_id is not None and not again:
        newest = next((m for m in reversed(body.messages) if m.id == body.message_id), newest)
    if newest.role == "assistant":
        return Ask(body.id, answers=_ui_answers(newest.parts))
    if newest.role != "user":
        raise InvalidInputError(
            f"the newest message has the role {newest.role[:40]!r}: it must be the user's, or an answer"
        )
    words = [str(part.get("text", "")) for part in newest.parts if part.get("type") == "text"]
    return Ask(body.id, _words(words), newest.id or None, again=again)


def _ui_answers(parts: list[JsonObject]) -> dict[str, Given]:
    """Approvals that the page has given, and results of its tools; those that nobody waits for are left out later."""
    found: dict[str, Given] = {}
    for part in parts:
        call_id, approval, state = part.get("toolCallId"), part.get("approval"), part.get("state")
        if not isinstance(call_id, str):
            continue
        if state == "approval-responded" and isinstance(approval, dict) and isinstance(approval.get("id"), str):
            reason = approval.get("reason")
            given = Given(approval.get("approved") is True, None, reason if isinstance(reason, str) else None)
            found[str(approval["id"])] = given
        elif state == "output-available":
            found[call_id] = Given(data=part.get("output"), result=True)
        elif state == "output-error":
            found[call_id] = Given(False, reason=str(part.get("errorText", "")), result=True)
    return found


def agui_request(text: bytes) -> Ask:
    """What AG-UI's `HttpAgent` sends: a `RunAgentInput`."""
    body = _parse(_AgUiRequest, text)
    if body.resume:
        return Ask(body.thread_id, answers={one.interrupt_id: _agui_answer(one) for one in body.resume})
    newest = body.messages[-1] if body.messages else None
    if newest is None or newest.role != "user":
        raise InvalidInputError("the newest message must be the user's, or resume must answer what the run waits for")
    content = newest.content if isinstance(newest.content, list) else [{"type": "text", "text": newest.content}]
    words = [str(part.get("text")) for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return Ask(body.thread_id, _words(words), newest.id or None)


def _agui_answer(entry: _Resume) -> Given:
    """The payload as the interrupt's `responseSchema` has it; that of a tool of the client is its result."""
    payload, resolved = entry.payload, entry.status == "resolved"
    if isinstance(payload, dict) and isinstance(payload.get("approved"), bool):
        reason, arguments = payload.get("reason"), payload.get("arguments")
        approved = resolved and payload["approved"] is True
        words = reason if isinstance(reason, str) else None
        return Given(approved, payload.get("data"), words, arguments if isinstance(arguments, dict) else None)
    return Given(resolved, payload, None if resolved else "cancelled", result=True if resolved else None)


def _words(words: list[str]) -> str:
    text = "\n".join(words)
    if not text:
        raise InvalidInputError("the newest message has no text")
    return text


def _parse(cls: type[BodyT], text: bytes) -> BodyT:
    try:
        return cls.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise InvalidInputError(f"{where}: {first['msg']}") from None
