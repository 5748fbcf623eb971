"""Turns facts into metrics and spans.

    run <agent> from claim to end; the root, or below a parent's execute_tool ├─ queue wait from claim to admission, if
    the run had to wait └─ invoke_agent <agent> the agent at work ├─ chat <model> one for each attempt └─ execute_tool
    <tool> one for each claim of a call; for a sub-agent, one for each of its runs

Law: the worker that does the work measures it, once. A delivery that finds its work already done measures nothing. A
span that cannot be created never fails the work that it describes. A run's spans are computed from its row alone, so a
second finisher records the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from helix.core import genai
from helix.core.entries import CallRow
from helix.core.json import dumps
from helix.core.measures import Measures
from helix.core.messages import ToolCallRequest
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.spans import (
    Attribute,
    Span,
    SpanEvent,
    SpanRef,
    agent_span_id,
    chat_span_id,
    child_span_id,
    queue_span_id,
    run_ref,
    tool_span_id,
    trace_id,
)
from helix.core.steps import AnyStepResult, ErrorStepResult, TextStepResult, ToolCallsStepResult
from helix.engine import facts
from helix.engine.context import RunContext
from helix.engine.engine import logger
from helix.ports.metrics import NoMetrics

Details = dict[str, str | int | float]


def record_metrics(run: RunContext, fact: facts.Fact) -> None:
    if isinstance(run.engine.metrics, NoMetrics):
        return
    match fact:
        case facts.ModelCallEnded() if run.agent.function is None and not fact.cached:
            _model_call(run, fact)
        case facts.ToolEnded() if fact.done is not None:
            row = fact.row
            values = {"ToolCalls": 1.0, "ToolErrors": int(not fact.done.success)}
            values["ToolLatency"] = (run.now() - fact.begun) * 1000
            _record(run, values, {"tool": row.tool_name, "call_id": row.call_id, "step": row.step})
        case facts.RunStarted(started):
            _record(run, {"RunsStarted": 1}, {"turn": started.turn, "mode": started.mode})
        case facts.CacheAsked(model, saved):
            hit = {"CacheMisses": 1.0} if saved is None else {"CacheHits": 1.0, "CacheSavedUsd": saved / 1_000_000}
            _record(run, hit, {"model": model})
        case facts.CacheLost(row):
            details: Details = {"reason": row.lost_cache or "", "tokens": row.usage.lost_tokens, "step": row.step}
            _record(run, {"PromptCacheLosses": 1}, details | {"model": row.model or ""})
        case facts.BudgetRefused(budget):
            _record(run, {"BudgetRefusals": 1}, {"budget": budget})
        case facts.RunCounted(ended):
            _run_end(run, ended)
        case facts.RunQueued(queued):
            _record(run, {"QueueDepth": queued}, {})
        case facts.RunAdmitted(_, since):
            _record(run, {"QueueWait": max(0.0, run.now() - since) * 1000}, {})


def _record(run: RunContext, values: dict[str, float], details: Details) -> None:
    ids: Details = {"session_id": run.session_id, "run_id": run.run_id}
    run.engine.metrics.record(Measures(values, run.session.agent_type, details | ids))


def _run_end(run: RunContext, ended: RunRow) -> None:
    """Record the metrics at a run's end. A run that a person stopped, or that waits for people, is not a failure."""
    aborted = ended.error is not None and ended.error.code == "aborted"
    if ended.status == "failed" and not aborted:
        name = "RunsFailed"
    else:
        name = "RunsCompleted" if ended.status == "completed" else "RunsStopped"
    details: Details = {"turn": ended.turn, "status": ended.status, "steps": ended.steps}
    if ended.error is not None:
        details["error"] = ended.error.code
    seconds = (ended.ended_at or ended.started_at) - ended.started_at
    _record(run, {name: 1, "RunDuration": seconds * 1000}, details)


def _model_call(run: RunContext, call: facts.ModelCallEnded) -> None:
    result, model = call.result, call.request.config.model
    details: Details = {"step": call.claim.step, "attempt": call.claim.attempt, "model": model}
    values: dict[str, float] = {"ModelCalls": 1, "ModelThrottles": int(call.throttled)}
    latency = (run.now() - call.begun) * 1000
    if result is None:
        cancelled = call.error == "cancelled"
        values["ModelErrors"] = int(not cancelled)
        details["outcome"] = "cancelled" if cancelled else "failed"
        if not cancelled and not call.throttled:
            values["ModelLatency"] = latency
        _record(run, values, details)
        return
    failed, usage = isinstance(result, ErrorStepResult), result.usage
    values |= {
        "ModelErrors": int(failed),
        "InputTokens": usage.prompt_tokens,
        "OutputTokens": usage.completion_tokens,
        "CachedTokens": usage.cached_tokens,
        "TotalTokens": usage.total_tokens,
        "CostUsd": usage.cost_usd,
    }
    if not (failed and call.throttled):  # a call that failed from throttling says nothing about the model's latency
        values["ModelLatency"] = latency
    if call.first is not None and not failed:
        values["TimeToFirstToken"] = (call.first - call.begun) * 1000
    outcome = "failed" if failed else "summary" if call.claim.summary else "answered"
    _record(run, values, details | {"model": result.model or model, "outcome": outcome})


GOES_ON = frozenset(
    {"continue", "with_confirmation", "with_message", "takeover", "retry", "from_start", "from_checkpoint", "abort"}
)
"""The modes of runs that continue where another run stopped, and are linked to it."""


def record_spans(run: RunContext, fact: facts.Fact) -> None:
    if not run.engine.tracer.on:
        return
    match fact:
        case facts.ModelCallEnded() if run.agent.function is None:
            _guarded(run, partial(_chat_span, run, fact))
        case facts.ToolEnded():
            _guarded(run, partial(_tool_span, run, fact))
        case facts.RunFinished(ended) if ended.ended_at is not None:
            for make in (_run_span, _agent_span, _parent_call_span):
                _guarded(run, partial(make, run.session, ended))
        case facts.RunAdmitted(admitted, _):
            _guarded(run, partial(_queue_span, run.session, admitted, run.now()))


def trace_of(session: SessionRow) -> str:
    return trace_id(session.trace.root if session.trace else session.run_id)


def within_chat(run: RunContext, attempt_id: str) -> AbstractContextManager[object]:
    """Make the model call's span the parent of spans that other code creates inside the block."""
    return run.engine.tracer.within(chat_ref(run.session, attempt_id)) if run.engine.tracer.on else nullcontext()


def within_tool(run: RunContext, row: CallRow) -> AbstractContextManager[object]:
    """Make the tool call's span the parent of spans that other code creates inside the block."""
    if not run.engine.tracer.on:
        return nullcontext()
    return run.engine.tracer.within(tool_ref(run.session, row.call_id, row.claim))


def chat_ref(session: SessionRow, attempt_id: str) -> SpanRef:
    return SpanRef(trace_of(session), chat_span_id(session.session_id, attempt_id))


def tool_ref(session: SessionRow, call_id: str, claim: int) -> SpanRef:
    return SpanRef(trace_of(session), tool_span_id(session.session_id, call_id, claim))


def _guarded(run: RunContext, make: Callable[[], Span | None]) -> None:
    try:
        span = make()
        if span is not None:
            run.engine.tracer.record(span)
    except Exception:
        logger.warning("a span could not be recorded", exc_info=True)


def _about(session: SessionRow, run_id: str, agent: str) -> dict[str, Attribute]:
    return {genai.CONVERSATION: session.session_id, genai.AGENT_NAME: agent, genai.RUN: run_id}


def _tool_attributes(name: str, call_id: str, kind: str) -> dict[str, Attribute]:
    return {
        genai.OPERATION: genai.EXECUTE_TOOL,
        genai.TOOL_NAME: name,
        genai.TOOL_CALL: call_id,
        genai.TOOL_TYPE: kind,
    }


def _failed(error: str | None) -> dict[str, Attribute]:
    return {} if error is None else {genai.ERROR_TYPE: error}


def _tool_span(run: RunContext, fact: facts.ToolEnded) -> Span:
    session, row, done, error = run.session, fact.row, fact.done, fact.error
    if done is not None:
        error = None if done.success else "tool_error"
    attributes: dict[str, Attribute] = {
        **_about(session, run.run_id, run.agent.name),
        **_tool_attributes(row.tool_name, row.call_id, "function"),
        genai.STEP: row.step,
        genai.ATTEMPT: row.claim,
        **({genai.RETRY: True} if row.claim > 1 else {}),
    }
    if done is not None and done.usage is not None:
        attributes |= genai.usage_attributes(done.usage)
    if run.engine.tracer.content:
        attributes[genai.ARGUMENTS] = dumps(fact.request.arguments)
        if done is not None:
            attributes[genai.RESULT] = done.content or ""
    name, parent = f"{genai.EXECUTE_TOOL} {row.tool_name}", agent_span_id(run.run_id)
    ref = tool_ref(session, row.call_id, row.claim)
    return Span(
        ref, name, fact.begun, run.now(), parent=parent, attributes={**attributes, **_failed(error)}, error=error
    )


def _chat_span(run: RunContext, call: facts.ModelCallEnded) -> Span:
    session, config, result, error = run.session, call.request.config, call.result, call.error
    if result is not None:
        error = result.code if isinstance(result, ErrorStepResult) else None
    attributes: dict[str, Attribute] = {
        **_about(session, run.run_id, run.agent.name),
        genai.OPERATION: genai.CHAT,
        genai.PROVIDER: genai.provider_of((result.model if result else None) or config.model),
        genai.REQUEST_MODEL: config.model,
        genai.STEP: call.claim.step,
        genai.ATTEMPT: call.claim.attempt,
        **({genai.RETRY: True} if call.claim.attempt > 1 else {}),
        **({"helix.cached": True} if call.cached else {}),
    }
    if config.max_output_tokens is not None:
        attributes[genai.MAX_TOKENS] = config.max_output_tokens
    if config.temperature is not None:
        attributes[genai.TEMPERATURE] = config.temperature
    if call.first:
        attributes[genai.FIRST_CHUNK] = call.first - call.begun
    if result is not None:
        attributes |= _answer_attributes(result)
    if run.engine.tracer.content:
        attributes |= genai.input_content(call.request.messages) | _answer_content(result)
    return Span(
        chat_ref(session, call.claim.attempt_id),
        f"{genai.CHAT} {config.model}",
        call.begun,
        run.now(),
        parent=agent_span_id(run.run_id),
        kind="client",
        attributes={**attributes, **_failed(error)},
        events=[SpanEvent("helix.model_retry", at, {genai.ERROR_TYPE: code}) for at, code in call.tries],
        error=error,
    )


def _answer_attributes(result: AnyStepResult) -> dict[str, Attribute]:
    attributes: dict[str, Attribute] = {**genai.usage_attributes(result.usage)}
    if result.model:
        attributes[genai.RESPONSE_MODEL] = result.model
    if result.stop_reason is not None:
        attributes[genai.FINISH_REASONS] = [str(result.stop_reason)]
    return attributes


def _answer_content(result: AnyStepResult | None) -> dict[str, str]:
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


def _run_span(session: SessionRow, run: RunRow) -> Span:
    attributes: dict[str, Attribute] = {
        **_about(session, run.run_id, run.agent_type),
        **genai.usage_attributes(run.usage),
        "helix.run.mode": run.mode,
        "helix.run.status": run.status,
        "helix.run.turn": run.turn,
        "helix.run.steps": run.steps,
        "helix.run.parts": run.part,
    }
    if run.completion_reason is not None:
        attributes["helix.run.completion"] = run.completion_reason
    links = []
    if run.mode in GOES_ON and run.previous_run_id is not None:
        attributes["helix.run.continues"] = run.previous_run_id
        if run.trace is None:  # the trace of a sub-agent's earlier run is no longer known
            links.append(run_ref(run.previous_run_id, None))
    parent = child_span_id(run.run_id) if run.trace else None
    ref, name = run_ref(run.run_id, run.trace), f"run {run.agent_type}"
    return _of_run(run, Span(ref, name, 0, 0, parent=parent, attributes=attributes, links=links))


def _agent_span(session: SessionRow, run: RunRow) -> Span:
    above = run_ref(run.run_id, run.trace)
    attributes = {
        **_about(session, run.run_id, run.agent_type),
        genai.OPERATION: genai.INVOKE_AGENT,
        **({genai.REQUEST_MODEL: run.model, genai.PROVIDER: genai.provider_of(run.model)} if run.model else {}),
        **genai.usage_attributes(run.usage),
    }
    events: list[SpanEvent] = []
    if run.claim is not None:  # the answer of its open call was never recorded
        which = {genai.STEP: run.claim.step, genai.ATTEMPT: run.claim.attempt}
        events.append(SpanEvent("helix.attempt_abandoned", run.ended_at or run.started_at, which))
    ref = SpanRef(above.trace_id, agent_span_id(run.run_id))
    name = f"{genai.INVOKE_AGENT} {run.agent_type}"
    return _of_run(run, Span(ref, name, 0, 0, parent=above.span_id, attributes=attributes, events=events))


def _queue_span(session: SessionRow, run: RunRow, granted: float) -> Span:
    above = run_ref(run.run_id, run.trace)
    ref = SpanRef(above.trace_id, queue_span_id(run.run_id))
    attributes = _about(session, run.run_id, run.agent_type)
    return Span(
        ref, "queue wait", run.started_at, max(granted, run.started_at), parent=above.span_id, attributes=attributes
    )


def _parent_call_span(session: SessionRow, run: RunRow) -> Span | None:
    """Create the span of the parent's tool call, for the part of the call that this run of the sub-agent covers."""
    if run.trace is None or session.parent is None:
        return None
    attributes: dict[str, Attribute] = {
        genai.CONVERSATION: session.parent.session_id,
        genai.RUN: run.trace.parent,
        **_tool_attributes(run.agent_type, session.parent.call_id, "agent"),
    }
    ref = SpanRef(trace_id(run.trace.root), child_span_id(run.run_id))
    name = f"{genai.EXECUTE_TOOL} {run.agent_type}"
    return _of_run(run, Span(ref, name, 0, 0, parent=agent_span_id(run.trace.parent), attributes=attributes))


def _of_run(run: RunRow, span: Span) -> Span:
    """Return the span with the time from the run's claim to its end. Only the span of a failed run has an error; the
    span of a run that waits or was stopped does not."""
    error = (run.error.code if run.error is not None else "failed") if run.status == "failed" else None
    end = max(run.started_at, run.ended_at or 0.0)
    return replace(span, start=run.started_at, end=end, attributes={**span.attributes, **_failed(error)}, error=error)
