"""Messages of a conversation: what the model reads and what history keeps.

Law: a system message is built for each call and never stored; every assistant tool call has exactly one result
before the next message (`core.prompt` repairs what a foreign source broke).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeGuard, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, check_text


class Record(BaseModel):
    """Base of stored values: closed, so that a typing error in a field name is an error, not a silent loss. What is sent
    has all fields, and its JSON schema says so (`core.replies`)."""

    model_config = ConfigDict(
        extra="forbid",
        ser_json_inf_nan="null",
        defer_build=True,
        json_schema_serialization_defaults_required=True,
    )


class ToolCallRequest(Record):
    """A call the model asked for. `id` is unique in the session; `arguments` is the parsed JSON object.

    `malformed` holds the raw text where the model's arguments were no JSON object: never executed, answered as failed.
    """

    id: str
    name: str
    arguments: JsonObject = Field(default_factory=dict)
    malformed: str | None = None


class ThinkingContent(Record):
    """One reasoning block, kept losslessly: its model wants it back beside the tool results.

    text: what is shown. Of OpenAI's models it is a summary.
    signature: what the provider proves or reads the block by; of OpenAI's models the encrypted reasoning.
    redacted: a block that only the provider can read, in place of text.
    id: the provider's name of the block, where it has one.
    after_text, after_calls: how many characters of the answer's text, and how many of its calls, came before the block.
    """

    text: str = ""
    signature: str | None = None
    redacted: str | None = None
    id: str | None = None
    after_text: int = 0
    after_calls: int = 0


class Edit(Record):
    """Who changed the arguments of a call before it was executed, and when (Unix seconds). `by` is None where the service
    does not know its users, or its operator did it."""

    by: str | None = None
    at: float = 0


class EditedArguments(Edit):
    """In place of those that the model asked for."""

    arguments: JsonObject


class _Stored(Record):
    id: str = ""
    run_id: str | None = None
    step: int | None = None
    created_at: float | None = Field(default=None, description="Unix seconds.")
    metadata: JsonObject = Field(default_factory=dict)


class SystemMessage(Record):
    role: Literal["system"] = "system"
    content: str


class UserMessage(_Stored):
    role: Literal["user"] = "user"
    content: str


class AssistantMessage(_Stored):
    role: Literal["assistant"] = "assistant"
    content: str | None = None
    tool_calls: list[ToolCallRequest] = Field(default_factory=list)
    thinking: list[ThinkingContent] = Field(default_factory=list)


class ToolResultMessage(_Stored):
    """`content` is a string result verbatim, any other value as JSON; a failure is `{"error": message}`. Where a person
    changed the call's arguments, `metadata` has them as `edited` (`EditedArguments`)."""

    role: Literal["tool"] = "tool"
    tool_call_id: str
    tool_name: str
    content: str
    success: bool = True


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
    """Copies without reasoning. An assistant message that becomes empty stays: its place in the turn order counts."""
    return [m.model_copy(update={"thinking": []}) if isinstance(m, AssistantMessage) else m for m in messages]


def get_tool_results_from_messages(messages: Sequence[AnyMessage]) -> dict[str, ToolResultMessage]:
    """Results by call id, in message order."""
    return {m.tool_call_id: m for m in messages if isinstance(m, ToolResultMessage)}
