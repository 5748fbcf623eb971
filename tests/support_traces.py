"""Spans as a test reads them: the exporter's input, as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helix.adapters.otel import OtelTracer
from helix.adapters.system import SystemClock


class Traces:
    """A tracer whose spans stay in memory."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracer = OtelTracer(self.exporter, SystemClock(), **options)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        assert self.tracer.flush(10)
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def all(self, name: str) -> list[ReadableSpan]:
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_time or 0)

    def trees(self) -> list[list[str]]:
        """Return one tree for each trace, in the order of their starts: names, indented below their parents."""
        traces: dict[int, list[ReadableSpan]] = {}
        for span in sorted(self.spans, key=lambda span: (span.start_time or 0, -(span.end_time or 0))):
            traces.setdefault(span.context.trace_id, []).append(span)
        return [_tree(spans) for spans in traces.values()]


def _tree(spans: list[ReadableSpan]) -> list[str]:
    ids = {span.context.span_id for span in spans}
    assert len(ids) == len(spans), "a span's id is its own"
    lines: list[str] = []

    def show(parent: int | None, depth: int) -> None:
        for span in spans:
            above = span.parent.span_id if span.parent else None
            if above == parent:
                lines.append("  " * depth + span.name)
                show(span.context.span_id, depth + 1)

    show(None, 0)
    lost = [span.name for span in spans if span.parent and span.parent.span_id not in ids]
    assert not lost, f"these have no parent in their trace: {lost}"
    return lines
