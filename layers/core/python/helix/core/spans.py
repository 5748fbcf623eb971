"""Spans: what was done within a run, from when to when, and what it belongs to. One trace for each root run.

Law: the ids of a span follow from the ids of what it is about, so no context travels: a run's id gives its
trace, and a span that is recorded twice has one id. Only a sub-agent's session carries something: the ids of its
root's run and of its parent's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Attribute = str | bool | int | float | Sequence[str]
Kind = Literal["internal", "client"]


class SpanRef(NamedTuple):
    """Hexadecimal, as W3C Trace Context has them: 32 and 16 digits."""

    trace_id: str
    span_id: str


class Trace(NamedTuple):
    """Where a sub-agent's run belongs: the run ids of its root and of its parent."""

    root: str
    parent: str


@dataclass(frozen=True, slots=True)
class SpanEvent:
    name: str
    at: float
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """Something that is over. Times in Unix seconds. `parent`: a span's id in the same trace, None for the root.
    `error`: why it failed, in a word, or None."""

    ref: SpanRef
    name: str
    start: float
    end: float
    parent: str | None = None
    kind: Kind = "internal"
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    events: Sequence[SpanEvent] = ()
    links: Sequence[SpanRef] = ()
    error: str | None = None


def trace_id(root_run_id: str) -> str:
    return _digest("trace", root_run_id)[:32]


def run_span_id(run_id: str) -> str:
    """Of the run itself, from its claim to its end."""
    return _digest("run", run_id)[:16]


def queue_span_id(run_id: str) -> str:
    return _digest("queue", run_id)[:16]


def agent_span_id(run_id: str) -> str:
    """Of the agent at work: what it asks of models and tools is below it."""
    return _digest("agent", run_id)[:16]


def chat_span_id(session_id: str, attempt_id: str) -> str:
    return _digest("chat", session_id, attempt_id)[:16]


def tool_span_id(session_id: str, call_id: str, claim: int) -> str:
    """Of one claim of a call: a call whose outcome was unknown, and which is repeated, has two."""
    return _digest("tool", session_id, call_id, str(claim))[:16]


def child_span_id(child_run_id: str) -> str:
    """Of a parent's tool call, as far as this run of its sub-agent is it."""
    return _digest("child", child_run_id)[:16]


def run_ref(run_id: str, trace: Trace | None) -> SpanRef:
    return SpanRef(trace_id(trace.root if trace else run_id), run_span_id(run_id))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(("helix", *parts)).encode()).hexdigest()
