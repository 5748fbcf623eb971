"""Exports spans to OpenTelemetry with OTLP over HTTP, in a separate thread.

Law: only `flush` waits for an exporter, and only for the requested time. Spans that cannot be sent are dropped, and do
not delay other work. The buffer is bounded. After a failure the exporter is not called for `REST_S`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

from opentelemetry import context as otel_context
from opentelemetry import trace as otel_trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from helix._log import get_logger
from helix._version import __version__
from helix.core.spans import Span, SpanRef
from helix.ports.clock import Clock

logger = get_logger("helix.tracing")

BUFFERED = 4096
BATCH = 512
PAUSE_S = 0.5
"""The time for which spans are buffered before they are sent, unless `flush` is called."""
REST_S = 30.0
"""The time for which a failed exporter is not called again."""
CLOSE_S = 3.0

_SCOPE = InstrumentationScope("helix", __version__)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}


class OtelTracer:
    """A tracer that exports spans. ratio: the share of traces to keep, 0 to 1. The decision follows from a trace's id,
    so either all its spans are kept or none are. content: whether spans may contain text from the conversation."""

    on = True

    def __init__(
        self,
        exporter: SpanExporter,
        clock: Clock,
        *,
        resource: Mapping[str, str] | None = None,
        ratio: float = 1.0,
        content: bool = False,
    ) -> None:
        self.content = content
        self._exporter, self._clock = exporter, clock
        self._resource = Resource.create(dict(resource or {}))
        self._below = round(ratio * (1 << 64))
        self._spans: deque[ReadableSpan] = deque(maxlen=BUFFERED)
        self._changed = threading.Condition()
        self._sending = self._hurry = self._closed = False
        self._rests_until = 0.0
        self._thread: threading.Thread | None = None

    def record(self, span: Span) -> None:
        if not self._is_sampled(span.ref.trace_id):
            return
        try:
            made = readable(span, self._resource)
        except Exception:
            logger.warning("span %r cannot be exported", span.name, exc_info=True)
            return
        with self._changed:
            if self._closed:
                return
            self._spans.append(made)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="helix-tracing", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def within(self, ref: SpanRef) -> AbstractContextManager[object]:
        return _within(ref, self._is_sampled(ref.trace_id))

    def flush(self, timeout_s: float) -> bool:
        with self._changed:
            self._hurry = bool(self._spans)
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._spans and not self._sending, timeout_s)

    def close(self) -> None:
        self.flush(CLOSE_S)
        with self._changed:
            already, self._closed = self._closed, True
            self._changed.notify_all()
        if not already:
            with contextlib.suppress(Exception):
                self._exporter.shutdown()

    # --- the thread ----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            if self._clock.now() >= self._rests_until and not self._export(batch):
                self._rests_until = self._clock.now() + REST_S
                logger.warning("traces cannot be exported; none are sent for %g s", REST_S)
            with self._changed:
                self._sending = False
                self._hurry = self._hurry and bool(self._spans)
                self._changed.notify_all()

    def _next(self) -> list[ReadableSpan] | None:
        """Return the next spans to send, or None once the tracer is closed. Waits for the first one, and then briefly for
        more."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._spans) or self._closed)
            self._changed.wait_for(lambda: self._hurry or self._closed or len(self._spans) >= BATCH, PAUSE_S)
            if not self._spans:
                return None
            self._sending = True
            return [self._spans.popleft() for _ in range(min(BATCH, len(self._spans)))]

    def _export(self, batch: list[ReadableSpan]) -> bool:
        token = otel_context.attach(otel_context.set_value("suppress_instrumentation", True))
        try:
            return self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception:
            logger.debug("the exporter raised", exc_info=True)
            return False
        finally:
            otel_context.detach(token)

    def _is_sampled(self, trace_id: str) -> bool:
        return int(trace_id[16:], 16) < self._below


@contextlib.contextmanager
def _within(ref: SpanRef, retained: bool) -> Iterator[None]:
    parent = NonRecordingSpan(_context(ref, _SAMPLED if retained else TraceFlags(0)))
    token = otel_context.attach(otel_trace.set_span_in_context(parent))
    try:
        yield
    finally:
        otel_context.detach(token)


def readable(span: Span, resource: Resource) -> ReadableSpan:
    """Return the span in the form that the SDK's exporters take."""
    parent = None if span.parent is None else _context(SpanRef(span.ref.trace_id, span.parent))
    return ReadableSpan(
        name=span.name,
        context=_context(span.ref),
        parent=parent,
        resource=resource,
        attributes=dict(span.attributes),
        events=[Event(event.name, dict(event.attributes), _ns(event.at)) for event in span.events],
        links=[Link(_context(ref)) for ref in span.links],
        kind=_KINDS[span.kind],
        status=Status(StatusCode.ERROR, span.error) if span.error is not None else Status(StatusCode.UNSET),
        start_time=_ns(span.start),
        end_time=_ns(span.end),
        instrumentation_scope=_SCOPE,
    )


def _context(ref: SpanRef, flags: TraceFlags = _SAMPLED) -> SpanContext:
    return SpanContext(int(ref.trace_id, 16), int(ref.span_id, 16), is_remote=False, trace_flags=flags)


def _ns(seconds: float) -> int:
    return round(seconds * 1_000_000) * 1_000
