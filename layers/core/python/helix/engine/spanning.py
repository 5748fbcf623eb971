"""The spans of a run that is over, and what they share with those of its calls.

    run <agent>                    from claim to end; the root, or below a parent's execute_tool
    ├─ queue wait                  from claim to admission, where it had to wait
    └─ invoke_agent <agent>        the agent at work
       ├─ chat <model>             one for each attempt: `engine.traced`
       └─ execute_tool <tool>      one for each claim of a call; of a sub-agent one for each of its runs

Law: telling never fails what is told of. A run's spans follow from its row alone, so whoever finishes it again tells the
same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from helix.core import genai
from helix.core.rows import RunRow, SessionRow
from helix.core.spans import (
    Attribute,
    Span,
    SpanEvent,
    SpanRef,
    Trace,
    agent_span_id,
    child_span_id,
    queue_span_id,
    run_ref,
    trace_id,
)
from helix.engine.engine import Engine, logger

GOES_ON = frozenset(
    {"continue", "with_confirmation", "with_message", "takeover", "retry", "from_start", "from_checkpoint"}
)
"""Modes of runs that go on where another one stopped, and are linked to it."""


def trace_below(session: SessionRow) -> Trace:
    """What a sub-agent of this session's run is given."""
    return Trace(session.trace.root if session.trace else session.run_id, session.run_id)


def trace_of(session: SessionRow) -> str:
    return trace_id(session.trace.root if session.trace else session.run_id)


def tell_run(engine: Engine, session: SessionRow, run: RunRow) -> None:
    """The run has ended, as its row says: the run and its agent; of a sub-agent also its parent's call."""
    if engine.tracer.on and run.ended_at is not None:
        for make in (_run_span, _agent_span, _parent_call_span):
            guarded(engine, lambda make=make: make(session, run))  # type: ignore[misc]


def tell_wait(engine: Engine, session: SessionRow, run: RunRow) -> None:
    """A run that waited for a slot is begun now."""
    if engine.tracer.on:
        granted = engine.clock.now()
        guarded(engine, lambda: _queue_span(session, run, granted))


def guarded(engine: Engine, make: Callable[[], Span | None]) -> None:
    try:
        span = make()
        if span is not None:
            engine.tracer.record(span)
    except Exception:
        logger.warning("a span could not be told", exc_info=True)


def about(session: SessionRow, run_id: str, agent: str) -> dict[str, Attribute]:
    return {
        genai.CONVERSATION: session.session_id,
        genai.AGENT_NAME: agent,
        genai.RUN: run_id,
    }


def tool_attributes(name: str, call_id: str, kind: str) -> dict[str, Attribute]:
    return {
        genai.OPERATION: genai.EXECUTE_TOOL,
        genai.TOOL_NAME: name,
        genai.TOOL_CALL: call_id,
        genai.TOOL_TYPE: kind,
    }


def failed(error: str | None) -> dict[str, Attribute]:
    return {} if error is None else {genai.ERROR_TYPE: error}


# --- one function for each span ------------------------------------------------------------------------------------


def _run_span(session: SessionRow, run: RunRow) -> Span:
    told: dict[str, Attribute] = {
        **about(session, run.run_id, run.agent_type),
        **genai.usage_attributes(run.usage),
        "helix.run.mode": run.mode,
        "helix.run.status": run.status,
        "helix.run.turn": run.turn,
        "helix.run.steps": run.steps,
        "helix.run.parts": run.part,
    }
    if run.completion_reason is not None:
        told["helix.run.completion"] = run.completion_reason
    links = []
    if run.mode in GOES_ON and run.previous_run_id is not None:
        told["helix.run.continues"] = run.previous_run_id
        if run.trace is None:  # of a sub-agent's run before, the trace is not known any more
            links.append(run_ref(run.previous_run_id, None))
    parent = child_span_id(run.run_id) if run.trace else None
    return _span(run, run_ref(run.run_id, run.trace), f"run {run.agent_type}", parent, told, links=links)


def _agent_span(session: SessionRow, run: RunRow) -> Span:
    above = run_ref(run.run_id, run.trace)
    told = {
        **about(session, run.run_id, run.agent_type),
        genai.OPERATION: genai.INVOKE_AGENT,
        **({genai.REQUEST_MODEL: run.model, genai.PROVIDER: genai.provider_of(run.model)} if run.model else {}),
        **genai.usage_attributes(run.usage),
    }
    events: list[SpanEvent] = []
    if run.claim is not None:  # its answer was never told: whoever waited for it is gone
        which = {genai.STEP: run.claim.step, genai.ATTEMPT: run.claim.attempt}
        events.append(SpanEvent("helix.attempt_abandoned", run.ended_at or run.started_at, which))
    ref = SpanRef(above.trace_id, agent_span_id(run.run_id))
    name = f"{genai.INVOKE_AGENT} {run.agent_type}"
    return _span(run, ref, name, above.span_id, told, events=events)


def _queue_span(session: SessionRow, run: RunRow, granted: float) -> Span:
    above = run_ref(run.run_id, run.trace)
    ref = SpanRef(above.trace_id, queue_span_id(run.run_id))
    told = about(session, run.run_id, run.agent_type)
    return Span(ref, "queue wait", run.started_at, max(granted, run.started_at), parent=above.span_id, attributes=told)


def _parent_call_span(session: SessionRow, run: RunRow) -> Span | None:
    """A parent's tool call, as far as this run of the sub-agent was it."""
    if run.trace is None or session.parent is None:
        return None
    told: dict[str, Attribute] = {
        genai.CONVERSATION: session.parent.session_id,
        genai.RUN: run.trace.parent,
        **tool_attributes(run.agent_type, session.parent.call_id, "agent"),
    }
    ref = SpanRef(trace_id(run.trace.root), child_span_id(run.run_id))
    name = f"{genai.EXECUTE_TOOL} {run.agent_type}"
    return _span(run, ref, name, agent_span_id(run.trace.parent), told)


def _span(
    run: RunRow,
    ref: SpanRef,
    name: str,
    parent: str | None,
    told: Mapping[str, Attribute],
    *,
    events: Sequence[SpanEvent] = (),
    links: Sequence[SpanRef] = (),
) -> Span:
    """From the run's claim to its end. Only a failed run has an error: one that waits, or was asked to stop, has not."""
    error = (run.error.code if run.error is not None else "failed") if run.status == "failed" else None
    return Span(
        ref,
        name,
        run.started_at,
        max(run.started_at, run.ended_at or 0.0),
        parent=parent,
        attributes={**told, **failed(error)},
        events=events,
        links=links,
        error=error,
    )
