"""Messages of a conversation, as sent to the model and as stored in history.

Law: a system message is built for each call and never stored. Every tool call has exactly one result before the next
message (`core.prompt` repairs history from other sources that violates this).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from helix.core.errors import InvalidInputError
from helix.core.files import FilePart
from helix.core.json import JsonObject, JsonValue, check_text


class Record(BaseModel):
    """The base of stored values. An unknown field is an error, so that a misspelled name is not silently dropped.
    Serialized values contain all fields, and their JSON schema marks these as required (`core.replies`)."""

    model_config = ConfigDict(
        extra="forbid",
        ser_json_inf_nan="null",
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )


class ToolCallRequest(Record):
    """A tool call that the model requested."""

    id: str
    """The id of the call, unique in its session."""
    name: str
    """The tool that the model called."""
    arguments: JsonObject = Field(default_factory=dict)
    """The parsed JSON object. Empty if `malformed` is set."""
    malformed: str | None = None
    """The raw text of arguments that are not a JSON object, or the reason why they cannot be stored. Such a call is
    never executed and gets a failed result. None for a well-formed call."""


class ThinkingContent(Record):
    """One block of reasoning, stored without loss because its model expects it back together with the tool results."""

    text: str = ""
    """The text to display. OpenAI models provide a summary."""
    signature: str | None = None
    """The token by which the provider verifies or decrypts the block. For OpenAI models it is the encrypted reasoning.
    None if the provider sends no token."""
    redacted: str | None = None
    """The encrypted data of a redacted block, in place of `text`. Only the provider can read it."""
    id: str | None = None
    """The provider's id of the block, if any."""
    after_text: int = 0
    """The number of characters of the answer's text before the block."""
    after_calls: int = 0
    """The number of tool calls of the answer before the block."""


class ServerCall(Record):
    """A call that the provider executed with its own tool (`core.server_tools`), as readers see it."""

    id: str
    """The provider's id of the call, unique in its answer."""
    name: str
    """The tool: `web_search`, `code_execution`, `file_search`, or `<server>.<tool>` of an MCP server."""
    arguments: JsonObject = Field(default_factory=dict)
    """The arguments of the call."""
    done: bool = False
    """Whether the call has its result."""
    result: JsonValue = None
    """The result without the provider's encrypted parts. None if it has none yet, or if the provider does not show it."""
    error: str | None = None
    """The error of a call that failed. None otherwise."""


class ServerBlock(Record):
    """An item of an answer that a tool of the provider produced (`core.server_tools`): a call, its result, or a list of
    tools. It is stored without loss because its model expects it back."""

    raw: JsonObject
    """The item as the provider sent it."""
    call: ServerCall | None = None
    """The call that the item begins or ends. None for another item."""
    after_text: int = 0
    """The number of characters of the answer's text before the item."""
    after_calls: int = 0
    """The number of tool calls of the answer before the item."""
    after_thinking: int = 0
    """The number of blocks of reasoning before the item."""


class Citation(Record):
    """A source of a part of an answer's text."""

    start: int
    """The index of the first character of the part in the answer's text."""
    end: int
    """The index after the last character of the part."""
    url: str | None = None
    """The address of the source. None for a file or a document."""
    title: str | None = None
    """The title of the source, or the name of the file."""
    quote: str | None = None
    """The cited text of the source. None if the provider does not give it."""
    raw: JsonObject = Field(default_factory=dict)
    """The citation as the provider sent it, if its model expects it back. Empty otherwise."""


def distinct_sources(citations: Iterable[Citation]) -> list[Citation]:
    """Return the sources, each once, in the order of their first citations."""
    found: dict[tuple[str | None, str | None], Citation] = {}
    for citation in citations:
        found.setdefault((citation.url, citation.title), citation)
    return list(found.values())


class AskedQuestion(Record):
    """A question that a tool asked while it ran, and its answer."""

    model_config = ConfigDict(extra="ignore")

    text: str
    """The text that the person reads."""
    answer_schema: JsonObject = Field(default_factory=dict)
    """The JSON schema of the answer."""
    problem: str | None = None
    """Why the tool did not accept the last answer. None if the question was not asked before."""
    answered: bool = False
    """Whether the question has an answer."""
    data: JsonValue = None
    """The answer. None until there is one."""
    timeout_s: float | None = None
    """The number of seconds that the question waits. None: forever."""
    on_timeout: Literal["deny", "fail", "default"] = "deny"
    """The policy after `timeout_s`. `deny` fails the call, `fail` also the run, and `default` gives the
    `default_answer`."""
    default_answer: JsonValue = None
    """The answer if none came in time. None without the policy `default`."""
    timed_out: bool = False
    """Whether the answer is the default, because none came in time."""
    remind_s: list[float] = Field(default_factory=list)
    """The numbers of seconds after which a reminder is recorded, if the question is still open."""
    round: int = 0
    """The round in which the question was asked, as in `Pending.round`. 0 in rows of earlier versions."""
    by: str | None = None
    """The user who answered, as the service identified them. None if it does not identify its users, or if an operator
    answered."""
    at: float | None = None
    """The time of the answer in Unix seconds. None until there is one, and in rows of earlier versions."""


class CallResponse(Record):
    """A response to a call that waited, except for the answers to questions, which are in `AskedQuestion`."""

    model_config = ConfigDict(extra="ignore")

    kind: Literal["approval", "client", "unknown", "question"]
    """The response that the call waited for, as in `Pending.kind`. For `question`, the person did not answer."""
    approved: bool = True
    """Whether the call was approved, or the client had a result. False for a denial."""
    by: str | None = None
    """The user who responded, as the service identified them. None if it does not identify its users, or if an operator
    responded."""
    at: float = 0
    """The time of the response in Unix seconds."""


class Edit(Record):
    """An edit of a call's arguments before its execution."""

    by: str | None = None
    """The user who edited the arguments, or `guard:` and the name of the guard that did. None if the service does not
    identify its users, or if an operator made the edit."""
    at: float = 0
    """The time of the edit in Unix seconds."""


class EditedArguments(Edit):
    """The edited arguments that replace the model's."""

    arguments: JsonObject
    """The arguments that a person approved, or that a guard wrote. The call is executed with them."""


class _Stored(Record):
    """The fields that every stored message has."""

    id: str = ""
    """The message's position in history, `msg_<lineage>_<index>`. Empty for a message that is not from history."""
    run_id: str | None = None
    """The run that added the message."""
    step: int | None = None
    """The step of an answer, or of the call that a result belongs to. None for a user's message."""
    created_at: float | None = Field(default=None, description="Unix seconds.")
    """The time at which the message was stored. None for a message that is not from history."""
    metadata: JsonObject = Field(default_factory=dict)
    """Additional data: the sender's metadata on a user message, the model and stop reason on an answer, and the edit of
    the call on a result."""


class SystemMessage(Record):
    """The system prompt as it is sent. It is never stored."""

    role: Literal["system"] = "system"
    """The role of the author, which distinguishes the message types."""
    content: str
    """The system prompt, evaluated for this call."""


class UserMessage(_Stored):
    """A user message."""

    role: Literal["user"] = "user"
    """The role of the author, which distinguishes the message types."""
    content: str
    """The text as the user sent it."""
    files: list[FilePart] = Field(default_factory=list)
    """The files of the message, by their place in the text."""
    queued_id: str = ""
    """The id under which the message waited for a run (`core.inbox`). Empty if it did not wait."""


class AssistantMessage(_Stored):
    """An answer of the model."""

    role: Literal["assistant"] = "assistant"
    """The role of the author, which distinguishes the message types."""
    content: str | None = None
    """The text of the answer. None if the answer only has tool calls."""
    tool_calls: list[ToolCallRequest] = Field(default_factory=list)
    """The tool calls in the answer, in the model's order, including calls of sub-agents and of `__finish__`."""
    thinking: list[ThinkingContent] = Field(default_factory=list)
    """The blocks of reasoning in the answer. They are sent back only to the same model."""
    server_blocks: list[ServerBlock] = Field(default_factory=list)
    """The items of the provider's own tools in the answer, in order. They are sent back only to the same model."""
    citations: list[Citation] = Field(default_factory=list)
    """The sources of the answer's text, by their place in it."""


class ToolResultMessage(_Stored):
    """The result of a tool call. `metadata` has what people did: `edited` (`EditedArguments`) if the call's arguments were
    changed, `questions` (a list of `AskedQuestion`), `responses` (a list of `CallResponse`) and `reminded` (the number of
    reminders)."""

    role: Literal["tool"] = "tool"
    """The role of the author, which distinguishes the message types."""
    tool_call_id: str
    """The call that the result belongs to."""
    tool_name: str
    """The tool that was called."""
    content: str
    """The result: a string verbatim, or any other value as JSON. A failure is `{"error": message}`."""
    success: bool = True
    """Whether the call succeeded."""
    files: list[FilePart] = Field(default_factory=list)
    """The files that the tool returned, by their place in the text."""


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolResultMessage, Field(discriminator="role")]
AnyMessage = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage
M = TypeVar("M", bound=AnyMessage)


def check_message(text: object, files: Sequence[FilePart] = ()) -> None:
    """Raise `InvalidInputError` unless `text` is valid as a user message with these files."""
    check_text(text, "message")
    if not str(text).strip() and not files:
        raise InvalidInputError("message is empty: say what the agent should do")


def files_of(messages: Iterable[AnyMessage]) -> list[FilePart]:
    """Return the files of all messages, in their order."""
    return [f for message in messages if isinstance(message, UserMessage | ToolResultMessage) for f in message.files]


def latest_files(messages: Sequence[AnyMessage]) -> Sequence[FilePart]:
    """Return the files of the last user message."""
    return next((message.files for message in reversed(messages) if isinstance(message, UserMessage)), ())


def is_assistant_message(message: AnyMessage) -> TypeGuard[AssistantMessage]:
    return isinstance(message, AssistantMessage)


def is_tool_result_message(message: AnyMessage) -> TypeGuard[ToolResultMessage]:
    return isinstance(message, ToolResultMessage)


def strip_thinking(messages: Iterable[M]) -> list[M]:
    """Return copies without reasoning. An assistant message that becomes empty is kept to preserve the order of
    roles."""
    return [m.model_copy(update={"thinking": []}) if isinstance(m, AssistantMessage) else m for m in messages]


def get_tool_results_from_messages(messages: Sequence[AnyMessage]) -> dict[str, ToolResultMessage]:
    """Return the results by call id, in message order."""
    return {m.tool_call_id: m for m in messages if isinstance(m, ToolResultMessage)}
