"""Spans: units of work within a run, with start, end and parent. Each root run has one trace.

Law: span ids are derived from the ids of the work, so no trace context has to be propagated. A run's id determines its
trace, and a span that is recorded twice has the same id. Only a sub-agent's session stores context: the run ids of its
root and its parent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Attribute = str | bool | int | float | Sequence[str]
Kind = Literal["internal", "client"]


class SpanRef(NamedTuple):
    """The ids of a span, in the hexadecimal form of W3C Trace Context."""

    trace_id: str
    """The id of the root run's trace, 32 hex digits."""
    span_id: str
    """The id of the span within the trace, 16 hex digits."""


class Trace(NamedTuple):
    """The trace that a sub-agent's run belongs to."""

    root: str
    """The id of the root's run, from which the trace id is derived."""
    parent: str
    """The id of the run that called the sub-agent."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event at a point in time within a span."""

    name: str
    """The kind of event, such as `helix.model_retry`."""
    at: float
    """The time of the event in Unix seconds."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """Attributes of the event, under their OpenTelemetry names (`core.genai`)."""


@dataclass(frozen=True, slots=True)
class Span:
    """A completed unit of work. Times are in Unix seconds."""

    ref: SpanRef
    """The ids of the span."""
    name: str
    """The name that trace viewers show, such as `chat openai/gpt-4o-mini`."""
    start: float
    """The time at which the work began."""
    end: float
    """The time at which the work ended."""
    parent: str | None = None
    """The id of the parent span in the same trace. None for the root."""
    kind: Kind = "internal"
    """The OpenTelemetry span kind: `client` for a model call, `internal` for all other work."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """Attributes of the span, under their OpenTelemetry names (`core.genai`)."""
    events: Sequence[SpanEvent] = ()
    """The events within the span, such as retries of a model call."""
    links: Sequence[SpanRef] = ()
    """Related spans in other traces: a run that continues an earlier run links to it."""
    error: str | None = None
    """Why the work failed, as a short code. None for a success."""


def trace_id(root_run_id: str) -> str:
    return _digest("trace", root_run_id)[:32]


def run_span_id(run_id: str) -> str:
    """Return the id of the span of a run, from its claim to its end."""
    return _digest("run", run_id)[:16]


def queue_span_id(run_id: str) -> str:
    return _digest("queue", run_id)[:16]


def agent_span_id(run_id: str) -> str:
    """Return the id of the span of the agent's work. Model and tool calls are its children."""
    return _digest("agent", run_id)[:16]


def chat_span_id(session_id: str, attempt_id: str) -> str:
    return _digest("chat", session_id, attempt_id)[:16]


def tool_span_id(session_id: str, call_id: str, claim: int) -> str:
    """Return the id of the span of one claim of a call. A call that is retried after an unknown outcome has two
    spans."""
    return _digest("tool", session_id, call_id, str(claim))[:16]


def child_span_id(child_run_id: str) -> str:
    """Return the id of the span that covers one run of a sub-agent within its parent's tool call."""
    return _digest("child", child_run_id)[:16]


def run_ref(run_id: str, trace: Trace | None) -> SpanRef:
    return SpanRef(trace_id(trace.root if trace else run_id), run_span_id(run_id))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(("helix", *parts)).encode()).hexdigest()
