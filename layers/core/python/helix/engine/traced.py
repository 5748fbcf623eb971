"""Model calls and tools that are traced: what does the work, with a span around it.

Law: with nobody to tell, there is nothing around it. What is raised goes on; a span says that it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from helix.core import genai
from helix.core.agents import AnyAgent
from helix.core.json import dumps
from helix.core.messages import ToolCallRequest
from helix.core.rows import CallRow, SessionRow
from helix.core.spans import Attribute, Span, SpanEvent, SpanRef, agent_span_id, chat_span_id, tool_span_id
from helix.core.steps import AnyStepResult, ErrorStepResult, TextStepResult, ToolCallsStepResult
from helix.engine.engine import Engine
from helix.engine.spanning import about, failed, guarded, tool_attributes, trace_of
from helix.engine.tool_runner import ToolOutcome
from helix.ports.model import LLMAdapter, LLMGenerateInput, LLMStreamCallbacks


def traced_model(engine: Engine, agent: AnyAgent, session: SessionRow, adapter: LLMAdapter) -> LLMAdapter:
    """The adapter, for the step that the session has claimed: its call is the span `chat <model>` of this attempt. The
    "model" of a function agent is none."""
    traced = engine.tracer.on and agent.function is None
    return _Traced(engine, agent, session, adapter) if traced else adapter


def tell_remembered(engine: Engine, agent: AnyAgent, session: SessionRow, request: LLMGenerateInput) -> None:
    """The attempt was answered from the response cache: a span without a model's work."""
    if engine.tracer.on:
        told = _Traced(engine, agent, session, _Nobody())
        guarded(engine, lambda: told.remembered(request))


async def traced_tool(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    request: ToolCallRequest,
    row: CallRow,
    work: Awaitable[ToolOutcome],
) -> ToolOutcome:
    """`work`, as the span `execute_tool <tool>` of this claim of the call."""
    if not engine.tracer.on:
        return await work
    ref = SpanRef(trace_of(session), tool_span_id(session.session_id, row.call_id, row.claim))
    begun = engine.clock.now()
    outcome, error = None, "cancelled"
    try:
        with engine.tracer.within(ref):
            outcome = await work
        return outcome
    except Exception as raised:
        error = type(raised).__name__
        raise
    finally:
        guarded(engine, lambda: _tool_span(engine, agent, session, request, row, ref, begun, outcome, error))


def _tool_span(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    request: ToolCallRequest,
    row: CallRow,
    ref: SpanRef,
    begun: float,
    outcome: ToolOutcome | None,
    error: str | None,
) -> Span:
    if outcome is not None:
        error = None if outcome.success else "tool_error"
    told: dict[str, Attribute] = {
        **about(session, session.run_id, agent.name),
        **tool_attributes(row.tool_name, row.call_id, "function"),
        genai.STEP: row.step,
        genai.ATTEMPT: row.claim,
        **({genai.RETRY: True} if row.claim > 1 else {}),
    }
    if outcome is not None and outcome.usage is not None:
        told |= genai.usage_attributes(outcome.usage)
    if engine.tracer.content:
        told[genai.ARGUMENTS] = dumps(request.arguments)
        if outcome is not None:
            told[genai.RESULT] = outcome.content
    name, now = f"{genai.EXECUTE_TOOL} {row.tool_name}", engine.clock.now()
    parent = agent_span_id(session.run_id)
    return Span(ref, name, begun, now, parent=parent, attributes={**told, **failed(error)}, error=error)


class _Nobody:
    """The model that is not asked."""

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        raise AssertionError("the answer was remembered")


class _Traced:
    """Implements `LLMAdapter`."""

    def __init__(self, engine: Engine, agent: AnyAgent, session: SessionRow, inner: LLMAdapter) -> None:
        self._engine, self._agent, self._session, self._inner = engine, agent, session, inner
        self._begun, self._first = 0.0, 0.0
        self._tries: list[SpanEvent] = []

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        ref = self._ref
        self._begun = self._engine.clock.now()
        result, error = None, "cancelled"
        try:
            with self._engine.tracer.within(ref):
                result = await self._inner.generate_step(replace(request, callbacks=self._listening(request.callbacks)))
            return result
        except asyncio.CancelledError:
            raise
        except Exception as raised:
            error = str(getattr(raised, "code", type(raised).__name__))
            raise
        finally:
            guarded(self._engine, lambda: self._span(ref, request, result, error))

    def remembered(self, request: LLMGenerateInput) -> Span:
        self._begun = self._engine.clock.now()
        span = self._span(self._ref, request, request.remembered, None)
        return replace(span, attributes={**span.attributes, "helix.cached": True})

    @property
    def _ref(self) -> SpanRef:
        claim = self._session.claim
        assert claim is not None
        return SpanRef(trace_of(self._session), chat_span_id(self._session.session_id, claim.attempt_id))

    def _listening(self, inner: LLMStreamCallbacks) -> LLMStreamCallbacks:
        """The same, noting when the first piece of the answer came, and each try that failed."""

        def noting(callback: Callable[..., Any] | None) -> Callable[..., Any]:
            def note(*arguments: object) -> Any:
                self._first = self._first or self._engine.clock.now()
                return callback(*arguments) if callback is not None else None

            return note

        def tried(error: Exception) -> Any:
            self._first = 0.0
            which = {genai.ERROR_TYPE: str(getattr(error, "code", type(error).__name__))}
            self._tries.append(SpanEvent("helix.model_retry", self._engine.clock.now(), which))
            return inner.on_error(error) if inner.on_error is not None else None

        return LLMStreamCallbacks(
            on_text_delta=noting(inner.on_text_delta),
            on_thinking=noting(inner.on_thinking),
            on_tool_start=noting(inner.on_tool_start),
            on_tool_call=noting(inner.on_tool_call),
            on_error=tried,
        )

    def _span(self, ref: SpanRef, request: LLMGenerateInput, result: AnyStepResult | None, error: str | None) -> Span:
        claim, config = self._session.claim, request.config
        assert claim is not None
        if result is not None:
            error = result.code if isinstance(result, ErrorStepResult) else None
        told: dict[str, Attribute] = {
            **about(self._session, self._session.run_id, self._agent.name),
            genai.OPERATION: genai.CHAT,
            genai.PROVIDER: genai.provider_of((result.model if result else None) or config.model),
            genai.REQUEST_MODEL: config.model,
            genai.STEP: claim.step,
            genai.ATTEMPT: claim.attempt,
            **({genai.RETRY: True} if claim.attempt > 1 else {}),
        }
        if config.max_output_tokens is not None:
            told[genai.MAX_TOKENS] = config.max_output_tokens
        if config.temperature is not None:
            told[genai.TEMPERATURE] = config.temperature
        if self._first:
            told[genai.FIRST_CHUNK] = self._first - self._begun
        if result is not None:
            told |= _answered(result)
        if self._engine.tracer.content:
            told |= genai.input_content(request.messages) | _said(result)
        return Span(
            ref,
            f"{genai.CHAT} {config.model}",
            self._begun,
            self._engine.clock.now(),
            parent=agent_span_id(self._session.run_id),
            kind="client",
            attributes={**told, **failed(error)},
            events=self._tries,
            error=error,
        )


def _answered(result: AnyStepResult) -> dict[str, Attribute]:
    told: dict[str, Attribute] = {**genai.usage_attributes(result.usage)}
    if result.model:
        told[genai.RESPONSE_MODEL] = result.model
    if result.stop_reason is not None:
        told[genai.FINISH_REASONS] = [str(result.stop_reason)]
    return told


def _said(result: AnyStepResult | None) -> dict[str, str]:
    reason = str(result.stop_reason) if result is not None and result.stop_reason is not None else None
    match result:
        case TextStepResult():
            return genai.output_content(result.content, (), reason)
        case ToolCallsStepResult():
            calls = [ToolCallRequest(id=c.id, name=c.name, arguments=c.arguments) for c in result.tool_calls]
            calls += [ToolCallRequest(id=c.id, name=c.agent_type, arguments=c.input) for c in result.sub_agent_calls]
            return genai.output_content(result.content, calls, reason)
        case _:
            return {}
