"""Streams a finished answer as a provider would. All models that are implemented as programs use it.

Law: the callbacks receive the contents of the result: thinking, text, the output, then tool calls. An exception raised
by a callback is dropped.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from helix._log import get_logger
from helix.core.errors import ModelError
from helix.core.planning import output_text
from helix.core.server_tools import server_calls
from helix.core.steps import (
    AnyStepResult,
    ErrorStepResult,
    ParsedToolCall,
    StopReason,
    TextStepResult,
    ToolCallsStepResult,
    storable,
)
from helix.core.tools import SUBAGENT_TOOL_PREFIX
from helix.ports.clock import Clock
from helix.ports.model import OUT_OF_TIME, LLMGenerateInput

logger = get_logger(__name__)
DELTA_CHARS = 12


class OutOfTimeError(Exception):
    """Raised if the caller's deadline passes before the answer is complete."""


class Pace:
    """A clock with a deadline. It raises `OutOfTimeError` at the caller's deadline (`limit_s` from now; None: no
    deadline)."""

    def __init__(self, clock: Clock, limit_s: float | None) -> None:
        self._clock, self._limit_s, self._spent_s = clock, limit_s, 0.0

    async def wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        left = seconds if self._limit_s is None else self._limit_s - self._spent_s
        await self._clock.sleep(max(0.0, min(seconds, left)))
        self._spent_s += seconds
        if seconds > left:
            raise OutOfTimeError


async def play(
    result: AnyStepResult,
    request: LLMGenerateInput,
    pace: Pace,
    delta_delay_s: float = 0.0,
    delta_chars: int = DELTA_CHARS,
) -> AnyStepResult:
    """Stream `result` to the request's callbacks and return it. A missing stop reason is added."""
    callbacks = request.callbacks
    for block in result.thinking:
        for delta in pieces(block.text, delta_chars):
            await pace.wait(delta_delay_s)
            await notify(callbacks.on_thinking, delta, False)
        await notify(callbacks.on_thinking, block.text, True)
    for served in server_calls(result.server_blocks):
        await notify(callbacks.on_server_call, served)
    if isinstance(result, (TextStepResult, ToolCallsStepResult)):
        for delta in pieces(result.content or "", delta_chars):
            await pace.wait(delta_delay_s)
            await notify(callbacks.on_text_delta, delta)
    for citation in result.citations:
        await notify(callbacks.on_citation, citation)
    for delta in pieces(output_text(storable(result)), delta_chars):
        await pace.wait(delta_delay_s)
        await notify(callbacks.on_output_delta, delta)
    if isinstance(result, ToolCallsStepResult):
        for call in calls_in_order(result):
            await pace.wait(delta_delay_s)
            await notify(callbacks.on_tool_start, call.name)
            await notify(callbacks.on_tool_call, call)
    if isinstance(result, ErrorStepResult):
        error = ModelError(result.error, retryable=result.retryable, retry_after_s=result.retry_after_s)
        await notify(callbacks.on_error, error)
    return result if result.stop_reason is not None else result.model_copy(update={"stop_reason": _stop_reason(result)})


def out_of_time(request: LLMGenerateInput, model: str) -> ErrorStepResult:
    problem = f"no complete answer within the {request.timeout_s} s that were left"
    return ErrorStepResult(error=problem, code=OUT_OF_TIME, retryable=True, model=model, stop_reason=StopReason.ERROR)


async def notify(callback: Callable[..., Awaitable[None] | None] | None, *arguments: Any) -> None:
    """Call the callback and await it. Its exceptions are logged and dropped, except for cancellation."""
    if callback is None:
        return
    try:
        waiting = callback(*arguments)
        if inspect.isawaitable(waiting):
            await waiting
    except Exception:
        logger.warning("a model callback failed; the model call goes on", exc_info=True)


def calls_in_order(result: ToolCallsStepResult) -> list[ParsedToolCall]:
    """Return all calls, with sub-agents under the tool name that the model used."""
    calls = {call.id: call for call in result.tool_calls}
    for child in result.sub_agent_calls:
        name = SUBAGENT_TOOL_PREFIX + child.agent_type
        calls[child.id] = ParsedToolCall(id=child.id, name=name, arguments=child.input, malformed=child.malformed)
    return [calls[id] for id in (result.order or calls)]


def pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _stop_reason(result: AnyStepResult) -> StopReason:
    reasons = {"tool_calls": StopReason.TOOL_USE, "error": StopReason.ERROR}
    return reasons.get(result.type, StopReason.END_TURN)
