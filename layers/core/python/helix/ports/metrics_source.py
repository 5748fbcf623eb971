"""The source of the numbers by which agents are scaled."""

from __future__ import annotations

from typing import Protocol

from helix.core.llm_metrics import LLMMetrics


class MetricsSource(Protocol):
    async def read(self, agent: str, window_s: float) -> LLMMetrics:
        """Return the agent's model calls of the last `window_s` seconds, at least 60; zeros if it made none. Rates
        divide by the window. Percentiles are those of all its calls together, or an upper bound of that. The queue,
        running calls and the limit are not known here; the caller adds them. Raises `StoreError` if the source cannot
        be reached."""
        ...
