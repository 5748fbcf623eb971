"""What clients send, in each encoding, as one request.

Law: of a conversation that a client sends, only the newest text of its user and the answers to calls that wait are used.
All else is the client's copy of what the rows say, and might be anything. A request that asks for more than Helix does is
refused, and the error names it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue
from helix.http.bodies import Body

MAX_ID = 256


@dataclass(frozen=True, slots=True)
class Given:
    """An answer to a call that waits, by its id on the page. `result`: `data` is the result of a tool of the client
    (None: what it is depends on the call). `arguments`: what to execute in place of the model's. `shown`: the arguments
    that the page has in the call's part; others than the model's are what to execute too."""

    approved: bool = True
    data: JsonValue = None
    reason: str | None = None
    arguments: JsonObject | None = None
    result: bool | None = False
    shown: JsonValue = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A message for a session, or answers. `message_id`: the client's name of the message. `key`: of the request.

    edits: the message may take the place of one with its id. again: answer it anew, or give another answer than the page's
    message `target`. once: the client makes a new `key` for each request, so the same message under another key is another
    request. state: the client's copy of the session's custom state."""

    session_id: str | None
    message: Any = None
    message_id: str | None = None
    answers: dict[str, Given] = field(default_factory=dict)
    key: str | None = None
    again: bool = False
    target: str | None = None
    edits: bool = False
    once: bool = False
    state: JsonObject | None = None


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
    messages: list[_UIMessage] = Field(default_factory=list)
    trigger: str = "submit-message"
    message_id: str | None = Field(default=None, alias="messageId", max_length=MAX_ID)
    arguments: JsonValue = None


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
    state: JsonValue = None
    tools: JsonValue = None
    context: JsonValue = None
    forwarded_props: JsonValue = Field(default=None, alias="forwardedProps")


def plain_request(text: Body) -> Ask:
    """`{"message", "session_id", "key"}`, or
    `{"session_id", "answers": [{"tool_call_id", "approved", "data", "reason", "arguments"}]}`."""
    body = _parse(_Plain, text)
    answers = {
        one.tool_call_id: Given(one.approved, one.data, one.reason, one.arguments, result=None) for one in body.answers
    }
    if (body.message is None) == (not answers):
        raise InvalidInputError("the body must have a message, or answers")
    return Ask(body.session_id, body.message, answers=answers, key=body.key)


def ui_request(text: Body) -> Ask:
    """What the AI SDK's `DefaultChatTransport` sends."""
    body = _parse(_UIRequest, text)
    again, named = body.trigger == "regenerate-message", body.message_id
    if not body.messages and not again:
        raise InvalidInputError("messages is empty: send the conversation with the message to answer")
    newest = body.messages[-1] if body.messages else _UIMessage(role="assistant")
    if named is not None and not again:
        newest = next((m for m in reversed(body.messages) if m.id == named), newest)
    if newest.role == "assistant" and again:
        return Ask(body.id, again=True, target=named)
    if newest.role == "assistant":
        return Ask(body.id, answers=_ui_answers(newest.parts, body.arguments))
    if newest.role != "user":
        raise InvalidInputError(
            f"the newest message has the role {newest.role[:40]!r}: it must be the user's, or an answer"
        )
    words = _words([(str(part.get("type")), part.get("text")) for part in newest.parts])
    target = named if again and named != newest.id else None
    return Ask(body.id, words, newest.id or None, again=again, target=target, edits=not again and named == newest.id)


def _ui_answers(parts: list[JsonObject], given: JsonValue) -> dict[str, Given]:
    """Approvals that the page has given, and results of its tools; those that nobody waits for are left out later."""
    found: dict[str, Given] = {}
    edited = {} if given is None else given
    arguments = {name: one for name, one in edited.items() if isinstance(one, dict)} if isinstance(edited, dict) else {}
    if not isinstance(edited, dict) or len(arguments) < len(edited):
        raise InvalidInputError(
            "arguments must be an object that has, by the id of an approval, the arguments to execute"
        )
    for part in parts:
        call_id, approval, state = part.get("toolCallId"), part.get("approval"), part.get("state")
        if not isinstance(call_id, str):
            continue
        if state == "approval-responded" and isinstance(approval, dict) and isinstance(approval.get("id"), str):
            reason = approval.get("reason")
            shown_id, said = str(approval["id"]), reason if isinstance(reason, str) else None
            shown = part.get("input")
            found[shown_id] = Given(approval.get("approved") is True, None, said, arguments.get(shown_id), shown=shown)
        elif state == "output-available":
            found[call_id] = Given(data=part.get("output"), result=True)
        elif state == "output-error":
            found[call_id] = Given(False, reason=str(part.get("errorText", "")), result=True)
    if unknown := sorted(set(arguments) - set(found)):
        raise InvalidInputError(f"arguments has {unknown[0][:80]!r}, and the message has no answer to such an approval")
    return found


def agui_request(text: Body) -> Ask:
    """What AG-UI's `HttpAgent` sends: a `RunAgentInput`."""
    body = _parse(_AgUiRequest, text)
    for name, given in (("tools", body.tools), ("context", body.context), ("forwardedProps", body.forwarded_props)):
        if given:
            raise InvalidInputError(f"{name} is not supported, and would be lost: leave it empty")
    if body.state and not isinstance(body.state, dict):
        raise InvalidInputError("state must be an object: that of the thread")
    state = body.state if isinstance(body.state, dict) and body.state else None
    if body.resume:
        answers = {one.interrupt_id: _agui_answer(one) for one in body.resume}
        return Ask(body.thread_id, answers=answers, state=state)
    newest = body.messages[-1] if body.messages else None
    if newest is None or newest.role != "user":
        raise InvalidInputError("the newest message must be the user's, or resume must answer what the run waits for")
    content = newest.content if isinstance(newest.content, list) else [{"type": "text", "text": newest.content}]
    parts = [part if isinstance(part, dict) else {} for part in content]
    words = _words([(str(part.get("type")), part.get("text")) for part in parts])
    key = f"{newest.id}/{body.run_id}" if newest.id and body.run_id else None
    once = key is not None
    return Ask(body.thread_id, words, newest.id or None, key=key, edits=once, once=once, state=state)


def _agui_answer(entry: _Resume) -> Given:
    """The payload as the interrupt's `responseSchema` has it; that of a tool of the client is its result."""
    payload, resolved = entry.payload, entry.status == "resolved"
    if isinstance(payload, dict) and isinstance(payload.get("approved"), bool):
        reason, arguments = payload.get("reason"), payload.get("arguments")
        approved = resolved and payload["approved"] is True
        words = reason if isinstance(reason, str) else None
        return Given(approved, payload.get("data"), words, arguments if isinstance(arguments, dict) else None)
    return Given(resolved, payload, None if resolved else "cancelled", result=True if resolved else None)


def _words(parts: list[tuple[str, JsonValue]]) -> str:
    """The text of a message's parts, each with its type."""
    for kind, _ in parts:
        if kind != "text":
            raise InvalidInputError(
                f"the newest message has a part of the type {kind[:40]!r}, which is not supported: send text only"
            )
    text = "\n".join(str(words) for _, words in parts if words is not None)
    if not text:
        raise InvalidInputError("the newest message has no text")
    return text


def _parse(cls: type[BodyT], text: Body) -> BodyT:
    try:
        return cls.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise InvalidInputError(f"{where}: {first['msg']}") from None
