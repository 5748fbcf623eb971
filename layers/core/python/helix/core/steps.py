"""What one model call gave: the step result union, and why the model stopped."""

from __future__ import annotations

from enum import StrEnum
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import Field

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue, clean_text, size
from helix.core.messages import Record, ThinkingContent
from helix.core.usage import Usage


class StopReason(StrEnum):
    END_TURN = "end_turn"
    STOP_SEQUENCE = "stop_sequence"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    ERROR = "error"
    UNKNOWN = "unknown"


_ERRORS = frozenset({StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER, StopReason.REFUSAL, StopReason.ERROR})


def is_error_stop_reason(reason: StopReason | str | None) -> bool:
    """True for exactly `max_tokens, content_filter, refusal, error`."""
    return reason in _ERRORS


class ParsedToolCall(Record):
    """`malformed` holds the raw text where the arguments were no JSON object; `arguments` is then empty."""

    id: str
    name: str
    arguments: JsonObject = Field(default_factory=dict)
    malformed: str | None = None


class ParsedSubAgentCall(Record):
    id: str
    agent_type: str
    input: JsonObject = Field(default_factory=dict)
    malformed: str | None = None


class _Result(Record):
    """`cached`: given again by the response cache, without a model call."""

    thinking: list[ThinkingContent] = Field(default_factory=list)
    stop_reason: StopReason | None = None
    usage: Usage = Usage()
    model: str | None = None
    cached: bool = False


class TextStepResult(_Result):
    type: Literal["text"] = "text"
    content: str
    should_stop: bool = True


class ToolCallsStepResult(_Result):
    """`order` lists the call ids of both lists as the model gave them; empty means tools first, then sub-agents."""

    type: Literal["tool_calls"] = "tool_calls"
    content: str | None = None
    tool_calls: list[ParsedToolCall] = Field(default_factory=list)
    sub_agent_calls: list[ParsedSubAgentCall] = Field(default_factory=list)
    order: list[str] = Field(default_factory=list)


class StructuredOutputStepResult(_Result):
    """Some adapters answer with the output itself; the planner turns it into a `__finish__` call at once."""

    type: Literal["structured_output"] = "structured_output"
    output: JsonValue


class ErrorStepResult(_Result):
    """`code` as in `core.errors.ModelError`; `retry_after_s` is what the provider asked for."""

    type: Literal["error"] = "error"
    error: str
    code: str = "model_error"
    should_stop: bool = True
    retryable: bool = False
    retry_after_s: float | None = None


StepResult = Annotated[
    TextStepResult | ToolCallsStepResult | StructuredOutputStepResult | ErrorStepResult, Field(discriminator="type")
]
AnyStepResult = TextStepResult | ToolCallsStepResult | StructuredOutputStepResult | ErrorStepResult


def storable(result: AnyStepResult) -> AnyStepResult:
    """`result`, or where some of it is no Unicode text or no JSON, one that can be stored: half characters are joined or
    replaced, and arguments that JSON does not have (NaN) make their call a malformed one."""
    try:
        size(result.model_dump(mode="python"))
        return result
    except InvalidInputError:
        return type(result).model_validate(_storable(result.model_dump(mode="python")))


def _finite(value: Any) -> bool:
    match value:
        case float():
            return isfinite(value)
        case list():
            return all(map(_finite, value))
        case dict():
            return all(map(_finite, value.values()))
        case _:
            return True


def _storable(value: Any) -> Any:
    match value:
        case str():
            return clean_text(str(value))
        case list():
            return [_storable(item) for item in value]
        case float() if not isfinite(value):
            return None
        case dict():
            broken = [n for n in ("arguments", "input") if "malformed" in value and not _finite(value.get(n))]
            value = value | {name: {} for name in broken}
            if broken:
                value["malformed"] = "arguments with NaN or Infinity, which JSON does not have"
            return {_storable(key): _storable(item) for key, item in value.items()}
        case _:
            return value
