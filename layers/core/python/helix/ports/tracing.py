"""Where spans go."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from helix.core.spans import Span, SpanRef


class Tracer(Protocol):
    """`on`: whether anybody wants spans; where not, none are made. `content`: whether they may carry what people, models
    and tools said."""

    @property
    def on(self) -> bool: ...

    @property
    def content(self) -> bool: ...

    def record(self, span: Span) -> None:
        """Take a span that is over. Returns at once and never raises; spans may be lost with their process, and the same
        one may come twice."""
        ...

    def within(self, ref: SpanRef) -> AbstractContextManager[object]:
        """Spans that other code makes in the block, in this task, have this one for a parent."""
        ...

    def flush(self, timeout_s: float) -> bool:
        """Wait until what was recorded is exported or given up, at most so long. Never raises; False if time ran out."""
        ...

    def close(self) -> None:
        """Flush, and let go of threads and connections; idempotent."""
        ...


class NoTracer:
    """For runs that nobody traces."""

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
