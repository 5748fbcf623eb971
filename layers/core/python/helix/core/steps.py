"""The result of one model call: a union of four kinds, and the reason why the model stopped."""

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
    """The reason why a model stopped, the same for every provider. `unknown` is not an error."""

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
    """Return whether the reason is `max_tokens`, `content_filter`, `refusal` or `error`."""
    return reason in _ERRORS


class ParsedToolCall(ToolCallRequest):
    """A tool call as the model made it. Its id is not unique in the session yet: a repeated one gets a suffix later."""


class ParsedSubAgentCall(Record):
    """A call of a sub-agent as the model made it."""

    id: str
    """The model's id of the call, not unique in the session yet."""
    agent_type: str
    """The name of the sub-agent, without the prefix `subagent__` of its tool."""
    input: JsonObject = Field(default_factory=dict)
    """The parsed JSON object. Empty if `malformed` is set."""
    malformed: str | None = None
    """The raw text of an input that was not a JSON object, or the reason why it cannot be stored. Such a call is never
    executed."""


class _Result(Record):
    """The fields that every step result has."""

    thinking: list[ThinkingContent] = Field(default_factory=list)
    """The blocks of reasoning in the answer, in order."""
    stop_reason: StopReason | None = None
    """Why the model stopped. None if the adapter does not know."""
    usage: Usage = Usage()
    """The tokens and cost of the call, failed tries included."""
    model: str | None = None
    """The model that answered, which may be a fallback. None if the adapter does not know."""
    cached: bool = False
    """Whether the response cache gave the answer without a model call."""
    without_reasoning: bool = False
    """Whether the request left out the reasoning of earlier steps, because the provider had refused it."""
    phase: str | None = None
    """OpenAI's label of the text, such as `commentary`. It goes back to the model with the text."""


class TextStepResult(_Result):
    """An answer that is text without calls."""

    type: Literal["text"] = "text"
    """The tag of this kind of result."""
    content: str
    """The text of the answer."""
    should_stop: bool = True
    """Whether the turn is over. False if the provider only paused it (`pause_turn`): then the run goes on with another
    step."""


class ToolCallsStepResult(_Result):
    """An answer with calls of tools or sub-agents."""

    type: Literal["tool_calls"] = "tool_calls"
    """The tag of this kind of result."""
    content: str | None = None
    """The text beside the calls. None if the answer has no text."""
    tool_calls: list[ParsedToolCall] = Field(default_factory=list)
    """The calls of tools, `__finish__` included."""
    sub_agent_calls: list[ParsedSubAgentCall] = Field(default_factory=list)
    """The calls of sub-agents."""
    order: list[str] = Field(default_factory=list)
    """The ids of the calls in both lists, in the model's order. Empty means tools first, then sub-agents."""


class StructuredOutputStepResult(_Result):
    """An answer that is the output itself, as some adapters give it. The planner turns it into a `__finish__` call at
    once."""

    type: Literal["structured_output"] = "structured_output"
    """The tag of this kind of result."""
    output: JsonValue
    """The output. A value that is not an object becomes the argument `output` of `__finish__`."""


class ErrorStepResult(_Result):
    """A failed model call."""

    type: Literal["error"] = "error"
    """The tag of this kind of result."""
    error: str
    """The error message."""
    code: str = "model_error"
    """The code of the failure, as in `core.errors.ModelError`."""
    should_stop: bool = True
    """Whether a caller of `compat.stopping` should stop. The engine ends the run after an error in any case."""
    retryable: bool = False
    """Whether the same call may succeed later. The engine repeats it up to `LLMConfig.max_retries` times, whichever
    adapter gave it."""
    retry_after_s: float | None = None
    """The delay in seconds that the provider asked for. None if it asked for none."""


StepResult = Annotated[
    TextStepResult | ToolCallsStepResult | StructuredOutputStepResult | ErrorStepResult, Field(discriminator="type")
]
CallT = TypeVar("CallT", ParsedToolCall, ParsedSubAgentCall)
AnyStepResult = TextStepResult | ToolCallsStepResult | StructuredOutputStepResult | ErrorStepResult


def storable(result: AnyStepResult) -> AnyStepResult:
    """Return `result`, or a copy that can be stored if some of it cannot.

    Halves of characters are joined or replaced. Arguments or an output outside the limits of JSON make their call a
    malformed one, which says why.
    """
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
        result.model_dump_json(warnings="error")  # raises if an adapter set a field to a wrong type
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
    """Return the value with storable texts, or None and the reason why it is refused."""
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
