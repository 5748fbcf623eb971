"""The result of one model call: a union of four kinds, with the model's stop reason."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue, check_json, clean_json
from helix.core.messages import Citation, Record, ServerBlock, ThinkingContent, ToolCallRequest
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
    INTERRUPTED = "interrupted"
    """Not from a provider: the run was interrupted, and `Agent.keep_partial` kept the text so far."""
    ERROR = "error"
    UNKNOWN = "unknown"


_ERRORS = frozenset({StopReason.MAX_TOKENS, StopReason.CONTENT_FILTER, StopReason.REFUSAL, StopReason.ERROR})


def is_error_stop_reason(reason: StopReason | str | None) -> bool:
    """Return whether the reason is `max_tokens`, `content_filter`, `refusal` or `error`."""
    return reason in _ERRORS


class ParsedToolCall(ToolCallRequest):
    """A tool call as the model made it. Its id may not be unique in the session yet: a repeated id gets a suffix
    later."""


class ParsedSubAgentCall(Record):
    """A call of a sub-agent as the model made it."""

    id: str
    """The model's id of the call. It may not be unique in the session yet."""
    agent_type: str
    """The name of the sub-agent, without the prefix `subagent__` of its tool."""
    input: JsonObject = Field(default_factory=dict)
    """The parsed JSON object. Empty if `malformed` is set."""
    malformed: str | None = None
    """The raw text of an input that is not a JSON object, or the reason why it cannot be stored. Such a call is never
    executed."""


class _Result(Record):
    """The fields that every step result has."""

    thinking: list[ThinkingContent] = Field(default_factory=list)
    """The blocks of reasoning in the answer, in order."""
    server_blocks: list[ServerBlock] = Field(default_factory=list)
    """The items of the provider's own tools in the answer, in order."""
    citations: list[Citation] = Field(default_factory=list)
    """The sources of the answer's text, by their place in it."""
    stop_reason: StopReason | None = None
    """Why the model stopped. None if the adapter does not know."""
    usage: Usage = Usage()
    """The tokens and cost of the call, including failed attempts."""
    model: str | None = None
    """The model that answered, which may be a fallback. None if the adapter does not know."""
    cached: bool = False
    """Whether the answer came from the response cache, without a model call."""
    without_reasoning: bool = False
    """Whether the request omitted the reasoning of earlier steps because the provider had rejected it."""
    phase: str | None = None
    """OpenAI's label of the text, such as `commentary`. It is sent back to the model with the text."""


class TextStepResult(_Result):
    """An answer with text and no calls."""

    type: Literal["text"] = "text"
    """The tag of this kind of result."""
    content: str
    """The text of the answer."""
    should_stop: bool = True
    """Whether the turn is complete. False if the provider only paused it (`pause_turn`); the run then continues with
    another step."""


class ToolCallsStepResult(_Result):
    """An answer with calls of tools or sub-agents."""

    type: Literal["tool_calls"] = "tool_calls"
    """The tag of this kind of result."""
    content: str | None = None
    """The text that accompanies the calls. None if the answer has no text."""
    tool_calls: list[ParsedToolCall] = Field(default_factory=list)
    """The calls of tools, including `__finish__`."""
    sub_agent_calls: list[ParsedSubAgentCall] = Field(default_factory=list)
    """The calls of sub-agents."""
    order: list[str] = Field(default_factory=list)
    """The ids of the calls in both lists, in the model's order. Empty means tools first, then sub-agents."""


class StructuredOutputStepResult(_Result):
    """An answer that is itself the output, as some adapters return it. The planner converts it to a `__finish__`
    call."""

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
    """Whether the same call may succeed later. The engine retries it up to `LLMConfig.max_retries` times, regardless of
    the adapter."""
    retry_after_s: float | None = None
    """The retry delay in seconds that the provider requested, if any."""


StepResult = Annotated[
    TextStepResult | ToolCallsStepResult | StructuredOutputStepResult | ErrorStepResult, Field(discriminator="type")
]
CallT = TypeVar("CallT", ParsedToolCall, ParsedSubAgentCall)
AnyStepResult = TextStepResult | ToolCallsStepResult | StructuredOutputStepResult | ErrorStepResult


def storable(result: AnyStepResult) -> AnyStepResult:
    """Return `result` if it can be stored, otherwise a sanitized copy.

    Split surrogate pairs are joined and lone surrogates replaced. A call whose arguments or output exceed the JSON
    limits becomes a malformed call with the reason. Items of the provider's tools that exceed them are left out, all of
    an answer, because its model expects all or none. The stop reason `interrupted` becomes `unknown`, because only Helix
    knows of interrupts.
    """
    if result.stop_reason == StopReason.INTERRUPTED:
        result = result.model_copy(update={"stop_reason": StopReason.UNKNOWN})
    if result.server_blocks and not _are_storable(result.server_blocks):
        plain = [citation.model_copy(update={"raw": {}}) for citation in result.citations]
        result = result.model_copy(update={"server_blocks": [], "citations": plain})
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
        return type(result).model_validate(clean_json(result.model_dump(mode="python", warnings="error")))


def _are_storable(blocks: Sequence[ServerBlock]) -> bool:
    try:
        check_json([block.raw for block in blocks], "the items of the provider's tools")
    except InvalidInputError:
        return False
    return True


def _shared(result: _Result) -> dict[str, Any]:
    return {name: getattr(result, name) for name in _Result.model_fields}


def _call_within_limits(call: CallT, field: str) -> CallT:
    arguments, malformed = _within_limits(getattr(call, field), "the value")
    if malformed is not None:
        return call.model_copy(update={field: {}, "malformed": malformed})
    return call if arguments is getattr(call, field) else call.model_copy(update={field: arguments})


def _within_limits(value: JsonValue, what: str) -> tuple[JsonValue, str | None]:
    """Return the value with storable strings, or None and the reason why it is rejected."""
    try:
        check_json(value, what)
        return value, None
    except InvalidInputError as error:
        try:
            value = clean_json(value)
            check_json(value, what)
            return value, None
        except (InvalidInputError, RecursionError):
            return None, str(error)
