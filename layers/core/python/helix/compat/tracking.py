"""Tracks this process's model calls live, in a sliding window for each agent and for all agents together.

Law: a call is counted once. A key is not counted again while it is in the window. Counts of several processes are combined
through rows (`fleet.metric_rows`), never through these objects.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from helix.adapters.system import SystemClock
from helix.core.errors import InvalidInputError
from helix.core.llm_metrics import CallSample, LLMMetrics, Tally, metrics_of, total
from helix.core.measures import Measures
from helix.fleet.metric_rows import key_of, sample_of
from helix.ports.clock import Clock

WINDOW_S = 300.0
MAX_SAMPLES = 100_000
"""The maximum number of samples in a window. The oldest are dropped first."""


class LLMResourceTracker:
    """The calls of one agent in the last `window_size` seconds. `max_concurrent_calls` is its concurrency limit."""

    def __init__(
        self,
        agent_id: str,
        model: str,
        window_size: float = WINDOW_S,
        *,
        max_concurrent_calls: int = 10,
        clock: Clock | None = None,
    ) -> None:
        if not 0 < window_size < math.inf:
            raise InvalidInputError(f"window_size is {window_size}: it must be more than 0 seconds")
        self.agent_id, self.model, self.window_size = agent_id, model, window_size
        self.max_concurrent_calls = max_concurrent_calls
        self._clock = clock or SystemClock()
        self._events: deque[tuple[float, CallSample | float, Hashable | None]] = deque()
        self._seen: set[Hashable] = set()
        self._ever = Tally()
        self._load = {"queue_depth": 0, "concurrent": 0}

    async def record_request(
        self,
        input_tokens: int,
        output_tokens: int,
        latency_ms: float,
        ttft_ms: float | None = None,
        cost: float | None = None,
        wait_time_ms: float = 0,
        *,
        key: Hashable | None = None,
        throttled: bool = False,
        error: bool = False,
    ) -> bool:
        """Count one call. `cost` is in US dollars. `key` identifies the call, such as (run, step, attempt). Returns False
        if the call was already counted."""
        numbers = (input_tokens, output_tokens, latency_ms, ttft_ms or 0, cost or 0, wait_time_ms)
        if not all(0 <= number < math.inf for number in numbers):
            raise InvalidInputError(f"a request has a number that is negative or not finite: {numbers}")
        sample = CallSample(self._clock.now(), input_tokens, output_tokens, latency_ms, ttft_ms, cost or 0)
        return self.note(replace(sample, wait_ms=wait_time_ms, error=error, throttled=throttled), key)

    def note(self, event: CallSample | float, key: Hashable | None = None) -> bool:
        """Count a call, or the milliseconds that a run waited for admission. Returns False if it was already counted."""
        self._forget()
        if key is not None:
            if key in self._seen:
                return False
            self._seen.add(key)
        self._events.append((self._clock.now(), event, key))
        _count(self._ever, event)
        self._ever.latencies.clear()  # latencies are kept for the window only
        if len(self._events) > MAX_SAMPLES:
            self._drop()
        return True

    async def increment_queue(self) -> None:
        self._load["queue_depth"] += 1

    async def decrement_queue(self) -> None:
        self._load["queue_depth"] = max(0, self._load["queue_depth"] - 1)

    async def increment_concurrent(self) -> None:
        self._load["concurrent"] += 1

    async def decrement_concurrent(self) -> None:
        self._load["concurrent"] = max(0, self._load["concurrent"] - 1)

    async def get_metrics(self) -> LLMMetrics:
        return self.metrics()

    def metrics(self) -> LLMMetrics:
        load = {**self._load, "max_concurrent": self.max_concurrent_calls}
        return metrics_of(self.tally(), self.window_size, self._clock.now(), **load)

    def tally(self) -> Tally:
        """Return the totals of the calls and waits in the window."""
        self._forget()
        tally = Tally()
        for _, event, _ in self._events:
            _count(tally, event)
        return tally

    async def get_statistics(self) -> dict[str, Any]:
        """Return the totals of all calls since the tracker was created, and the metrics of the window."""
        ever, metrics = self._ever, self.metrics()
        return {
            "agent_id": self.agent_id,
            "model": self.model,
            "window_size": self.window_size,
            **{f"total_{name}": getattr(ever, name) for name in _EVER},
            "total_tokens": ever.input_tokens + ever.output_tokens,
            "metrics": metrics.model_dump(),
            "utilization": metrics.get_utilization(),
            "is_overloaded": metrics.is_overloaded(),
            "is_underutilized": metrics.is_underutilized(),
        }

    def _forget(self) -> None:
        oldest = self._clock.now() - self.window_size
        while self._events and self._events[0][0] <= oldest:
            self._drop()

    def _drop(self) -> None:
        self._seen.discard(self._events.popleft()[2])


class TokenThroughputMonitor:
    """The trackers of a process, by agent id."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._trackers: dict[str, LLMResourceTracker] = {}

    async def register_tracker(self, agent_id: str, tracker: LLMResourceTracker) -> None:
        """Register a tracker, replacing any earlier one with the same id."""
        self._trackers[agent_id] = tracker

    async def unregister_tracker(self, agent_id: str) -> None:
        self._trackers.pop(agent_id, None)

    def tracker(self, agent_id: str, model: str, window_size: float = WINDOW_S) -> LLMResourceTracker:
        """Return the agent's tracker. Create it if it does not exist."""
        if agent_id not in self._trackers:
            self._trackers[agent_id] = LLMResourceTracker(agent_id, model, window_size, clock=self._clock)
        return self._trackers[agent_id]

    async def get_aggregate_metrics(self) -> LLMMetrics:
        """Return the aggregated metrics of all agents. Throughput, queue and cost are sums; latencies are computed over all
        calls together."""
        trackers = list(self._trackers.values())
        own = [tracker.metrics() for tracker in trackers]
        window = max((tracker.window_size for tracker in trackers), default=WINDOW_S)
        whole = metrics_of(total(tracker.tally() for tracker in trackers), window, self._clock.now())
        # Each tracker's rates refer to its own window, so they are summed.
        return whole.model_copy(update={name: sum(getattr(m, name) for m in own) for name in _SUMS})

    async def get_per_agent_metrics(self) -> dict[str, LLMMetrics]:
        return {agent_id: tracker.metrics() for agent_id, tracker in self._trackers.items()}


_SUMS = (
    *("tokens_per_second", "input_tokens_per_second", "output_tokens_per_second", "requests_per_minute"),
    *("cost_per_hour", "queue_depth", "concurrent_llm_calls", "max_concurrent_calls"),
)
_EVER = ("requests", "errors", "throttles", "input_tokens", "output_tokens", "cost")


def _count(tally: Tally, event: CallSample | float) -> None:
    tally.count(event) if isinstance(event, CallSample) else tally.wait(event)


@lru_cache(maxsize=1)
def get_throughput_monitor() -> TokenThroughputMonitor:
    """Return the process-wide monitor."""
    return TokenThroughputMonitor()


class TrackingMetrics:
    """A `Metrics` implementation that feeds the trackers of a monitor. It creates a tracker for each agent that does not
    have one."""

    def __init__(
        self, monitor: TokenThroughputMonitor, clock: Clock | None = None, *, window_size: float = WINDOW_S
    ) -> None:
        self._monitor, self._clock, self._window = monitor, clock or SystemClock(), window_size

    def record(self, measures: Measures) -> None:
        agent = measures.agent
        if agent is None or not {"ModelCalls", "QueueWait"} & measures.values.keys():
            return
        tracker = self._monitor.tracker(agent, str(measures.details.get("model", "")), self._window)
        if "QueueWait" in measures.values:
            tracker.note(measures.values["QueueWait"])
        if "ModelCalls" in measures.values:
            tracker.note(sample_of(measures, self._clock.now()), key_of(measures))
