"""Where the numbers come from that scaling decides by."""

from __future__ import annotations

from typing import Protocol

from helix.core.llm_metrics import LLMMetrics


class MetricsSource(Protocol):
    async def read(self, agent: str, window_s: float) -> LLMMetrics:
        """The agent's model calls of the last `window_s` seconds, at least 60; zeros where it made none. Rates divide by
        the window; percentiles are of all its calls together, or an upper bound of that. Queue, running calls and limit
        are not known here: the caller adds them. Raises `StoreError` when nobody can be asked."""
        ...
