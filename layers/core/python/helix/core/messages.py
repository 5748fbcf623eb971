"""Messages of a conversation, as the model reads them and as history stores them.

Law: a system message is built for each call and never stored. Every assistant tool call has exactly one result before
the next message (`core.prompt` repairs history from other sources that breaks this).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, check_text


class Record(BaseModel):
    """The base of stored values. An unknown field is an error, so that a misspelt name is not silently lost. Values
    that are sent have all fields, and their JSON schema says so (`core.replies`)."""

    model_config = ConfigDict(
        extra="forbid",
        ser_json_inf_nan="null",
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )


class ToolCallRequest(Record):
    """A tool call that the model asked for."""

    id: str
    """The id of the call, unique in its session."""
    name: str
    """The tool that the model called."""
    arguments: JsonObject = Field(default_factory=dict)
    """The parsed JSON object. Empty if `malformed` is set."""
    malformed: str | None = None
    """The raw text of arguments that were not a JSON object, or the reason why they cannot be stored. Such a call is
    never executed; its result is a failure. None for a well-formed call."""


class ThinkingContent(Record):
    """One block of reasoning, stored without loss: its model expects it back beside the tool results."""

    text: str = ""
    """The text to show. OpenAI's models give a summary."""
    signature: str | None = None
    """The token by which the provider verifies or reads the block. For OpenAI's models it is the encrypted reasoning.
    None if the provider gives none."""
    redacted: str | None = None
    """The data of a block that only the provider can read, in place of `text`."""
    id: str | None = None
    """The provider's id of the block, if it gives one."""
    after_text: int = 0
    """The number of characters of the answer's text that came before the block."""
    after_calls: int = 0
    """The number of calls of the answer that came before the block."""


class Edit(Record):
    """The author and the time of a change to a call's arguments before it was executed."""

    by: str | None = None
    """The user who changed the arguments. None if the service does not know its users, or if its operator did it."""
    at: float = 0
    """The time of the change in Unix seconds."""


class EditedArguments(Edit):
    """The arguments that replace those that the model asked for."""

    arguments: JsonObject
    """The arguments that a person approved, with which the call is executed."""


class _Stored(Record):
    """The fields that every stored message has."""

    id: str = ""
    """The message's place in history, `msg_<lineage>_<index>`. Empty for a message that does not come from history."""
    run_id: str | None = None
    """The run that added the message."""
    step: int | None = None
    """The step of an answer, or of the call that a result belongs to. None for a user's message."""
    created_at: float | None = Field(default=None, description="Unix seconds.")
    """The time at which the message was stored. None for a message that is not from history."""
    metadata: JsonObject = Field(default_factory=dict)
    """Further facts about the message. A user's message has what its sender gave, an answer its model and stop reason,
    a result the edit of its call."""


class SystemMessage(Record):
    """The system prompt as it is sent. It is never stored."""

    role: Literal["system"] = "system"
    """The author of the message, which tells the types of messages apart."""
    content: str
    """The system prompt, evaluated for this call."""


class UserMessage(_Stored):
    """A message of the user."""

    role: Literal["user"] = "user"
    """The author of the message, which tells the types of messages apart."""
    content: str
    """The text, as the user gave it."""


class AssistantMessage(_Stored):
    """An answer of the model."""

    role: Literal["assistant"] = "assistant"
    """The author of the message, which tells the types of messages apart."""
    content: str | None = None
    """The text of the answer. None if the answer has calls only."""
    tool_calls: list[ToolCallRequest] = Field(default_factory=list)
    """The calls in the answer, in the model's order. Calls of sub-agents and of `__finish__` are among them."""
    thinking: list[ThinkingContent] = Field(default_factory=list)
    """The blocks of reasoning in the answer, which go back to the same model only."""


class ToolResultMessage(_Stored):
    """The result of a tool call. If a person changed the call's arguments, `metadata` has them as `edited`
    (`EditedArguments`)."""

    role: Literal["tool"] = "tool"
    """The author of the message, which tells the types of messages apart."""
    tool_call_id: str
    """The call that the result belongs to."""
    tool_name: str
    """The tool that was called."""
    content: str
    """A text result verbatim, any other value as JSON. A failure is `{"error": message}`."""
    success: bool = True
    """Whether the call succeeded."""


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolResultMessage, Field(discriminator="role")]
AnyMessage = SystemMessage | UserMessage | AssistantMessage | ToolResultMessage
M = TypeVar("M", bound=AnyMessage)


def check_message(text: object) -> None:
    """Raise `InvalidInputError` unless `text` can be a user's message."""
    check_text(text, "message")
    if not str(text).strip():
        raise InvalidInputError("message is empty: say what the agent should do")


def is_assistant_message(message: AnyMessage) -> TypeGuard[AssistantMessage]:
    return isinstance(message, AssistantMessage)


def is_tool_result_message(message: AnyMessage) -> TypeGuard[ToolResultMessage]:
    return isinstance(message, ToolResultMessage)


def strip_thinking(messages: Iterable[M]) -> list[M]:
    """Return copies without reasoning. An assistant message that becomes empty stays, because the order of the roles
    depends on it."""
    return [m.model_copy(update={"thinking": []}) if isinstance(m, AssistantMessage) else m for m in messages]


def get_tool_results_from_messages(messages: Sequence[AnyMessage]) -> dict[str, ToolResultMessage]:
    """Return the results by call id, in message order."""
    return {m.tool_call_id: m for m in messages if isinstance(m, ToolResultMessage)}
