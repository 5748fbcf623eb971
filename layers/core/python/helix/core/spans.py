"""Spans: the work within a run, with its start and end and the work that it is part of. There is one trace for each
root run.

Law: the ids of a span follow from the ids of the work that it describes, so no context travels. A run's id gives its
trace, and a span that is recorded twice has one id. Only a sub-agent's session carries something: the ids of its root's
run and of its parent's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Attribute = str | bool | int | float | Sequence[str]
Kind = Literal["internal", "client"]


class SpanRef(NamedTuple):
    """The ids of a span, in hexadecimal as in W3C Trace Context."""

    trace_id: str
    """The trace of the root run, 32 digits."""
    span_id: str
    """The span within the trace, 16 digits."""


class Trace(NamedTuple):
    """The trace that a sub-agent's run belongs to."""

    root: str
    """The id of the root's run, which the trace's id follows from."""
    parent: str
    """The id of the run that called the sub-agent."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A moment within a span."""

    name: str
    """The kind of event, such as `helix.model_retry`."""
    at: float
    """The time of the event in Unix seconds."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """Further facts about the event, by OpenTelemetry's names (`core.genai`)."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of work that is over. Times are in Unix seconds."""

    ref: SpanRef
    """The ids of the span."""
    name: str
    """The name that trace viewers show, such as `chat openai/gpt-4o-mini`."""
    start: float
    """The time at which the work began."""
    end: float
    """The time at which the work ended."""
    parent: str | None = None
    """The id of the span above it in the same trace. None for the root."""
    kind: Kind = "internal"
    """The kind of OpenTelemetry: `client` for a model call, `internal` for all other work."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """Facts about the work, by OpenTelemetry's names (`core.genai`)."""
    events: Sequence[SpanEvent] = ()
    """The events within the span, such as repeats of a model call."""
    links: Sequence[SpanRef] = ()
    """Related spans in other traces: a run that goes on from an earlier one is linked to it."""
    error: str | None = None
    """Why the work failed, as a short code. None for a success."""


def trace_id(root_run_id: str) -> str:
    return _digest("trace", root_run_id)[:32]


def run_span_id(run_id: str) -> str:
    """Return the id of the span of the run itself, from its claim to its end."""
    return _digest("run", run_id)[:16]


def queue_span_id(run_id: str) -> str:
    return _digest("queue", run_id)[:16]


def agent_span_id(run_id: str) -> str:
    """Return the id of the span of the agent at work. Its calls of models and tools are below it."""
    return _digest("agent", run_id)[:16]


def chat_span_id(session_id: str, attempt_id: str) -> str:
    return _digest("chat", session_id, attempt_id)[:16]


def tool_span_id(session_id: str, call_id: str, claim: int) -> str:
    """Return the id of the span of one claim of a call. A call that is repeated after an unknown outcome has two."""
    return _digest("tool", session_id, call_id, str(claim))[:16]


def child_span_id(child_run_id: str) -> str:
    """Return the id of the span of a parent's tool call, for the part of it that this run of its sub-agent is."""
    return _digest("child", child_run_id)[:16]


def run_ref(run_id: str, trace: Trace | None) -> SpanRef:
    return SpanRef(trace_id(trace.root if trace else run_id), run_span_id(run_id))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(("helix", *parts)).encode()).hexdigest()
