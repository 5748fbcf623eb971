"""Parsers that turn a client's request, in each encoding, into one `Ask`.

Law: Helix uses only the user's newest message and the answers to waiting calls. The rest of the conversation that a client
sends is its own copy of the rows, which may be wrong. A request for something that Helix does not support is refused,
and the error names it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from helix.core.damage import first_problem
from helix.core.errors import InvalidInputError
from helix.core.inbox import WhenRunning, check_when_running
from helix.core.json import JsonObject, JsonValue
from helix.http.bodies import Body
from helix.http.message_parts import Parts, read_files
from helix.services.file_inputs import ReadContent, ReadFile

MAX_ID = 256


@dataclass(frozen=True, slots=True)
class Given:
    """An answer to a waiting call. `Ask.answers` stores it under the call's id on the page."""

    approved: bool = True
    """Whether the user approved the call. For a client tool: whether the tool succeeded."""
    data: JsonValue = None
    """The result of a client tool, the answers to questions, or the data that goes with an approval."""
    reason: str | None = None
    """The user's reason for a denial, or the error text of a client tool. None if the client gave neither."""
    arguments: JsonObject | None = None
    """The arguments to execute in place of the model's. None keeps the model's."""
    result: bool | None = False
    """Whether `data` is the result of a client tool. None if the request does not say; then the kind of the waiting
    call decides."""
    answer: Given | None = None
    """The response as the answer to a question, if the two forms differ. None: this response serves for both."""
    shown: JsonValue = None
    """The arguments in the call's part on the page. If they differ from the model's, they are executed. None if the
    encoding does not send them."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for a session: a message, or answers to waiting calls."""

    session_id: str | None
    """The session that the request is for. None starts a new session."""
    message: Any = None
    """The text of the message to answer, or an object that `Executor.execute` accepts as input. None if the request
    contains answers, or asks for another answer to a message."""
    files: list[ReadFile] = field(default_factory=list)
    """The files of the message, each with its position in the text. They are not stored yet."""
    message_id: str | None = None
    """The client's own id of the message. None if the client did not name it."""
    answers: dict[str, Given] = field(default_factory=dict)
    """Answers to waiting calls, by the call's id on the page. Empty for a request with a message."""
    key: str | None = None
    """The idempotency key of the request. None: the message's id serves as the key, if there is one."""
    again: bool = False
    """Whether to give another answer, to `message` or in place of the page's message `target`."""
    target: str | None = None
    """The page's message to replace with a new answer. None: the answer to `message`, or else the newest one."""
    edits: bool = False
    """Whether the message may replace the stored message with the same id."""
    once: bool = False
    """Whether the client creates a new `key` for each request. If so, the same message under another key is a different
    request."""
    state: JsonObject | None = None
    """The client's copy of the session's custom state. It is checked, never applied. None if the client sent none."""
    tools: list[JsonObject] = field(default_factory=list)
    """The tools that the page executes, in the form of `FrontendTool`. They are not checked yet. A request with answers has
    none, because its run keeps the tools that it was started with."""
    results: dict[str, str] = field(default_factory=dict)
    """The ids of the client's own messages with results of its tools, by the call's id on the page."""
    when_running: WhenRunning | None = None
    """What happens to the message while the session works, as in `Executor.execute`. None queues it. It also closes the
    calls of a session that waits for a person."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", defer_build=True)


BodyT = TypeVar("BodyT", bound=_Body)


class _Answer(_Body):
    tool_call_id: str
    """The waiting call's id, as the page shows it."""
    approved: bool = True
    """Whether the user approved the call, or the client tool succeeded."""
    data: JsonValue = None
    """The result of a client tool, or data for an approved call."""
    reason: str | None = None
    """The user's reason, which the model reads if the call is denied."""
    arguments: JsonObject | None = None
    """The arguments to execute in place of the model's. None keeps the model's."""


class _Plain(_Body):
    message: str | JsonObject | None = None
    """The message to answer: a string, or an object that `Executor.execute` accepts as input. None if the body contains
    answers, or only files."""
    files: list[JsonObject] = Field(default_factory=list)
    """The files of the message (`read_files`). Empty for a message without files, and if `message` is an object."""
    session_id: str | None = None
    """The session to continue. None starts a new session."""
    key: str | None = None
    """The idempotency key of the request, by which a repeat finds the first request's run. None: a repeat counts as
    another request."""
    answers: list[_Answer] = Field(default_factory=list)
    """Answers to waiting calls. Empty if the body contains a message."""
    tools: list[JsonObject] = Field(default_factory=list)
    """The tools that the client executes: `name`, `description` and `parameters`."""
    when_running: str = "refuse"
    """What happens to the message while the session works, as in `Executor.execute`."""


class _UIMessage(_Body):
    id: str = Field(default="", max_length=MAX_ID)
    """The page's own id of the message. Empty if the page did not name it."""
    role: str
    """The author. Only `user` and `assistant` are used."""
    parts: list[JsonObject] = Field(default_factory=list)
    """The parts of the message, as the AI SDK builds them."""


class _UIRequest(_Body):
    id: str
    """The AI SDK's chat id, which is the session's id."""
    messages: list[_UIMessage] = Field(default_factory=list)
    """The conversation as the page shows it, the newest message last."""
    trigger: str = "submit-message"
    """`submit-message`, or `regenerate-message` for another answer."""
    message_id: str | None = Field(default=None, alias="messageId", max_length=MAX_ID)
    """The message to edit or to regenerate. None for the newest one."""
    arguments: JsonValue = None
    """The arguments to execute in place of the model's, by approval id. None if the user changed none."""
    tools: JsonValue = None
    """The tools that the page executes, by name, each with `description` and `parameters`, as assistant-ui sends them. None
    for a page without such tools."""
    when_running: str | None = None
    """What happens to the message while the session works. None queues it (`Ask.when_running`)."""


class _AgUiMessage(_Body):
    id: str = Field(default="", max_length=MAX_ID)
    """The client's own id of the message. Empty if the client did not name it."""
    role: str
    """The author. The newest message must have the role `user`."""
    content: JsonValue = None
    """A string, or a list of parts with their types."""
    tool_call_id: str = Field(default="", alias="toolCallId")
    """For the role `tool`, the call's id on the page."""
    error: str | None = None
    """For the role `tool`, why the call failed. None if it succeeded."""


class _Resume(_Body):
    interrupt_id: str = Field(alias="interruptId")
    """The interrupt to answer: the waiting call's id as the page shows it, or the id of the pause itself."""
    status: str
    """`resolved` if the user answered. Anything else counts as a denial."""
    payload: JsonValue = None
    """The answer, in the form of the interrupt's `responseSchema`."""


class _AgUiRequest(_Body):
    thread_id: str = Field(alias="threadId")
    """AG-UI's thread, which is the session's id."""
    run_id: str = Field(default="", alias="runId", max_length=MAX_ID)
    """The client's own id of this request. Together with the message's id it forms the idempotency key. Empty: the
    message's id alone is the key."""
    messages: list[_AgUiMessage] = Field(default_factory=list)
    """The client's copy of the conversation, the newest message last."""
    resume: list[_Resume] = Field(default_factory=list)
    """Answers to interrupts. If there are any, `messages` is used only for results of the client's tools."""
    state: JsonValue = None
    """The client's copy of the thread's state, which a client cannot set. Empty or None is not checked."""
    tools: list[JsonObject] | None = None
    """The tools that the client executes: `name`, `description` and `parameters`."""
    context: JsonValue = None
    """Context for the model. It is not supported, so anything but an empty value is refused."""
    forwarded_props: JsonValue = Field(default=None, alias="forwardedProps")
    """The client's other properties. Only `when_running` is supported, so any other is refused."""


def plain_request(text: Body) -> Ask:
    """Parse a request in the `chunks` encoding. Its body is `{"message", "files", "session_id", "key", "when_running"}`, or
    `{"session_id", "answers": [{"tool_call_id", "approved", "data", "reason", "arguments"}]}`."""
    body = _parse(_Plain, text)
    answers = {
        one.tool_call_id: Given(one.approved, one.data, one.reason, one.arguments, result=None) for one in body.answers
    }
    if (body.message is None and not body.files) == (not answers):
        raise InvalidInputError("the body must have a message, or answers")
    message = "" if body.message is None and body.files else body.message
    if isinstance(message, dict) and body.files:
        raise InvalidInputError("files belong to a message that is a string: send the message as a string")
    files = read_files(body.files, message) if isinstance(message, str) else []
    when_running = _when_running(body.when_running)
    return Ask(
        body.session_id, message, files, answers=answers, key=body.key, tools=body.tools, when_running=when_running
    )


def ui_request(text: Body) -> Ask:
    """Parse a request of the AI SDK's `DefaultChatTransport`."""
    body = _parse(_UIRequest, text)
    tools = _ui_tools(body.tools)
    again, named = body.trigger == "regenerate-message", body.message_id
    if not body.messages and not again:
        raise InvalidInputError("messages is empty: send the conversation with the message to answer")
    newest = body.messages[-1] if body.messages else _UIMessage(role="assistant")
    if named is not None and not again:
        newest = next((m for m in reversed(body.messages) if m.id == named), newest)
    if newest.role == "assistant" and again:
        return Ask(body.id, again=True, target=named, tools=tools)
    if newest.role == "assistant":
        return Ask(body.id, answers=_ui_answers(newest.parts, body.arguments))
    if newest.role != "user":
        raise InvalidInputError(
            f"the newest message has the role {newest.role[:40]!r}: it must be the user's, or an answer"
        )
    content = _ui_content(newest.parts, body.id)
    target = named if again and named != newest.id else None
    return Ask(
        body.id,
        content.text,
        content.files,
        newest.id or None,
        again=again,
        target=target,
        edits=not again and named == newest.id,
        tools=tools,
        when_running=_when_running(body.when_running),
    )


def _ui_tools(given: JsonValue) -> list[JsonObject]:
    """Return the tools of the page. `providerOptions` is left out, because the agent chooses its provider."""
    if not given:
        return []
    if not isinstance(given, dict) or not all(isinstance(tool, dict) for tool in given.values()):
        raise InvalidInputError(
            "tools must be an object that has, by name, the description and parameters of each tool"
        )
    return [
        {"name": name, **{key: value for key, value in tool.items() if key != "providerOptions"}}
        for name, tool in given.items()
        if isinstance(tool, dict)
    ]


def _ui_content(parts: list[JsonObject], session_id: str) -> ReadContent:
    found = Parts(session_id)
    for part in parts:
        found.add_ui_part(part)
    return found.content()


def _ui_answers(parts: list[JsonObject], given: JsonValue) -> dict[str, Given]:
    """Return the approvals and the tool results on the page. The caller drops those that no call is waiting for."""
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
    """Parse a request of AG-UI's `HttpAgent`: a `RunAgentInput`."""
    body = _parse(_AgUiRequest, text)
    props = dict(body.forwarded_props) if isinstance(body.forwarded_props, dict) else body.forwarded_props
    when_running = _when_running(props.pop("when_running", None)) if isinstance(props, dict) else None
    for name, given in (("context", body.context), ("forwardedProps", props)):
        if given:
            raise InvalidInputError(f"{name} is not supported, and would be lost: leave it empty")
    if body.state and not isinstance(body.state, dict):
        raise InvalidInputError("state must be an object: that of the thread")
    state = body.state if isinstance(body.state, dict) and body.state else None
    results = _agui_results(body.messages)
    answers = {one.tool_call_id: _agui_result(one) for one in results}
    answers |= {one.interrupt_id: _agui_answer(one) for one in body.resume}
    if answers:
        return Ask(body.thread_id, answers=answers, state=state, results={one.tool_call_id: one.id for one in results})
    newest = body.messages[-1] if body.messages else None
    if newest is None or newest.role != "user":
        raise InvalidInputError(
            "the newest message must be the user's or the result of a tool of the client, or resume must answer what the "
            "run waits for"
        )
    content = _agui_content(newest.content, body.thread_id)
    once = bool(newest.id and body.run_id)
    return Ask(
        body.thread_id,
        content.text,
        content.files,
        newest.id or None,
        key=f"{newest.id}/{body.run_id}" if once else None,
        edits=once,
        once=once,
        state=state,
        tools=_agui_tools(body.tools),
        when_running=when_running,
    )


def _agui_tools(given: list[JsonObject] | None) -> list[JsonObject]:
    """Return the fields of the client's tools that the agent reads. Others, such as `metadata`, are for the client."""
    names = ("name", "description", "parameters")
    return [{name: tool[name] for name in names if tool.get(name) is not None} for tool in given or ()]


def _agui_results(messages: list[_AgUiMessage]) -> list[_AgUiMessage]:
    """Return the results of the client's tools: the messages behind the newest answer."""
    found: list[_AgUiMessage] = []
    for message in reversed(messages):
        if message.role != "tool":
            break
        found.append(message)
    return found[::-1]


def _agui_result(message: _AgUiMessage) -> Given:
    """Return the result as the client's: its text, as the model reads it."""
    content = message.content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        if len(texts) < len(content):
            raise InvalidInputError(f"the result of call {message.tool_call_id[:80]!r} has parts that are not text")
        content = "\n".join(map(str, texts))
    if message.error is not None:
        return Given(False, reason=message.error or str(content or ""), result=True)
    return Given(data=content, result=True)


def _agui_content(content: JsonValue, session_id: str) -> ReadContent:
    found = Parts(session_id)
    parts: list[JsonValue] = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for part in parts:
        found.add_agui_part(part if isinstance(part, dict) else {})
    return found.content()


def _agui_answer(entry: _Resume) -> Given:
    """Read the payload in the form that the interrupt's `responseSchema` requires. For a client tool, the payload is
    the tool's result."""
    payload, resolved = entry.payload, entry.status == "resolved"
    if isinstance(payload, dict) and isinstance(payload.get("approved"), bool):
        reason, arguments = payload.get("reason"), payload.get("arguments")
        approved = resolved and payload["approved"] is True
        words = reason if isinstance(reason, str) else None
        given = arguments if isinstance(arguments, dict) else None
        return Given(approved, payload.get("data"), words, given, answer=Given(resolved, payload, result=True))
    return Given(resolved, payload, None if resolved else "cancelled", result=True if resolved else None)


def _when_running(given: JsonValue) -> WhenRunning | None:
    if given is not None:
        check_when_running(given)
    return cast("WhenRunning | None", given)


def _parse(cls: type[BodyT], text: Body) -> BodyT:
    try:
        return cls.model_validate_json(text)
    except ValidationError as error:
        raise InvalidInputError(first_problem(error, "the body")) from None
