"""The destination of spans."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from helix.core.spans import Span, SpanRef


class Tracer(Protocol):
    """A destination of spans. `on`: whether spans are made at all. `content`: whether they may carry the texts of
    people, models and tools."""

    @property
    def on(self) -> bool: ...

    @property
    def content(self) -> bool: ...

    def record(self, span: Span) -> None:
        """Take a span that is over. Returns at once and never raises. Spans may be lost with their process, and the
        same one may come twice."""
        ...

    def within(self, ref: SpanRef) -> AbstractContextManager[object]:
        """Make this span the parent of spans that other code makes in the block, in this task."""
        ...

    def flush(self, timeout_s: float) -> bool:
        """Wait until the recorded spans are exported or given up, for `timeout_s` seconds at most. Never raises. False:
        time ran out."""
        ...

    def close(self) -> None:
        """Flush, and release threads and connections. Idempotent."""
        ...


class NoTracer:
    """Implements `Tracer` for engines without tracing."""

    on = False
    content = False

    def record(self, span: Span) -> None:
        return

    def within(self, ref: SpanRef) -> AbstractContextManager[object]:
        return nullcontext()

    def flush(self, timeout_s: float) -> bool:
        return True

    def close(self) -> None:
        return
