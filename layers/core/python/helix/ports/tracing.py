"""The tracing sink."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from helix.core.spans import Span, SpanRef


class Tracer(Protocol):
    """A sink for spans. `on`: whether spans are recorded at all. `content`: whether they may include text from users,
    models and tools."""

    @property
    def on(self) -> bool: ...

    @property
    def content(self) -> bool: ...

    def record(self, span: Span) -> None:
        """Record a completed span. Returns immediately and never raises. Spans may be lost if the process dies, and the
        same span may be recorded twice."""
        ...

    def within(self, ref: SpanRef) -> AbstractContextManager[object]:
        """Make this span the parent of all spans that other code creates within the block, in this task."""
        ...

    def flush(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds until the recorded spans are exported or dropped. Never raises. False on
        timeout."""
        ...

    def close(self) -> None:
        """Flush, and release threads and connections. Idempotent."""
        ...


class NoTracer:
    """An implementation of `Tracer` for engines without tracing."""

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
