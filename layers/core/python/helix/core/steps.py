"""What one model call gave: the step result union, and why the model stopped."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue, check_json, clean_text
from helix.core.messages import Record, ThinkingContent, ToolCallRequest
from helix.core.tools import FINISH_TOOL_NAME
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


class ParsedToolCall(ToolCallRequest):
    """A call as the model made it: its id is not unique yet."""


class ParsedSubAgentCall(Record):
    id: str
    agent_type: str
    input: JsonObject = Field(default_factory=dict)
    malformed: str | None = None


class _Result(Record):
    """`cached`: given again by the response cache, without a model call. `without_reasoning`: given without the reasoning
    of earlier steps, which the provider had refused. `phase`: what OpenAI calls the text, such as `commentary`."""

    thinking: list[ThinkingContent] = Field(default_factory=list)
    stop_reason: StopReason | None = None
    usage: Usage = Usage()
    model: str | None = None
    cached: bool = False
    without_reasoning: bool = False
    phase: str | None = None


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
    """`code` as in `core.errors.ModelError`; `retryable`: the same call may succeed later, and is repeated up to
    `LLMConfig.max_retries` times, whatever adapter gave it. `retry_after_s` is what the provider asked for."""

    type: Literal["error"] = "error"
    error: str
    code: str = "model_error"
    should_stop: bool = True
    retryable: bool = False
    retry_after_s: float | None = None


StepResult = Annotated[
    TextStepResult | ToolCallsStepResult | StructuredOutputStepResult | ErrorStepResult, Field(discriminator="type")
]
CallT = TypeVar("CallT", ParsedToolCall, ParsedSubAgentCall)
AnyStepResult = TextStepResult | ToolCallsStepResult | StructuredOutputStepResult | ErrorStepResult


def storable(result: AnyStepResult) -> AnyStepResult:
    """`result`, or where some of it cannot be stored, one that can: halves of characters are joined or replaced, and
    arguments or an output outside the limits of JSON make their call a malformed one, which says why."""
    match result:
        case StructuredOutputStepResult():
            output, malformed = _within_limits(result.output, "the value")
            if malformed is not None:
                call = ParsedToolCall(id="finish", name=FINISH_TOOL_NAME, malformed=malformed)
                result = ToolCallsStepResult(tool_calls=[call], **_shared(result))
            elif output is not result.output:
                result = result.model_copy(update={"output": output})
        case ToolCallsStepResult():
            tools = [_call_within_limits(call, "arguments") for call in result.tool_calls]
            children = [_call_within_limits(call, "input") for call in result.sub_agent_calls]
            if tools != result.tool_calls or children != result.sub_agent_calls:
                result = result.model_copy(update={"tool_calls": tools, "sub_agent_calls": children})
    try:
        result.model_dump_json(warnings="error")  # an error where an adapter set a field to another type
        return result
    except ValueError:
        return type(result).model_validate(_clean(result.model_dump(mode="python", warnings="error")))


def _shared(result: _Result) -> dict[str, Any]:
    return {name: getattr(result, name) for name in _Result.model_fields}


def _call_within_limits(call: CallT, field: str) -> CallT:
    arguments, malformed = _within_limits(getattr(call, field), "the value")
    if malformed is not None:
        return call.model_copy(update={field: {}, "malformed": malformed})
    return call if arguments is getattr(call, field) else call.model_copy(update={field: arguments})


def _within_limits(value: JsonValue, what: str) -> tuple[JsonValue, str | None]:
    """The value, its texts made storable; or why it is refused."""
    try:
        check_json(value, what)
        return value, None
    except InvalidInputError as error:
        try:
            value = _clean(value)
            check_json(value, what)
            return value, None
        except (InvalidInputError, RecursionError):
            return None, str(error)


def _clean(value: Any) -> Any:
    match value:
        case str():
            return clean_text(str(value))
        case list():
            return [_clean(item) for item in value]
        case dict():
            return {_clean(key): _clean(item) for key, item in value.items()}
        case _:
            return value
