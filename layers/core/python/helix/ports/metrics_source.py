"""The source of the metrics that scaling uses."""

from __future__ import annotations

from typing import Protocol

from helix.core.llm_metrics import LLMMetrics


class MetricsSource(Protocol):
    async def read(self, agent: str, window_s: float) -> LLMMetrics:
        """Return metrics of the agent's model calls in the last `window_s` seconds (at least 60). All values are 0 if
        there were no calls. Rates are averaged over the window. Percentiles are computed over all calls together, or
        are an upper bound. The caller adds the queue, the running calls and the limit, which the source does not know.
        Raises `StoreError` if the source cannot be reached."""
        ...
