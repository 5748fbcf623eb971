"""Model calls of this process as they come: a window of them per agent, and all agents together.

Law: what is counted is a call that was made, once: a key that was seen is not counted again while it is in the window.
Several processes count together by rows (`fleet.metric_rows`), never by these objects.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from helix.adapters.system import SystemClock
from helix.core.errors import InvalidInputError
from helix.core.llm_metrics import CallSample, LLMMetrics, Tally, metrics_of, total
from helix.core.measures import Measures
from helix.ports.clock import Clock
from helix.ports.metrics import Metrics

WINDOW_S = 300.0
MAX_SAMPLES = 100_000
"""What a window holds at most; the oldest go first."""


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
        self._samples: deque[tuple[CallSample, Hashable | None]] = deque()
        self._waits: deque[tuple[float, float]] = deque()
        self._seen: set[Hashable] = set()
        self._ever = Tally()
        self._queue = self._concurrent = 0

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
        """Count one call; `cost` in US dollars. `key`: what names the call, such as (run, step, attempt). False: it was
        counted before."""
        numbers = (input_tokens, output_tokens, latency_ms, ttft_ms or 0, cost or 0, wait_time_ms)
        if not all(0 <= number < math.inf for number in numbers):
            raise InvalidInputError(f"a request has a number that is negative or not finite: {numbers}")
        sample = CallSample(
            at=self._clock.now(),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            latency_ms=latency_ms,
            ttft_ms=ttft_ms,
            cost=cost or 0,
            wait_ms=wait_time_ms,
            error=error,
            throttled=throttled,
        )
        return self.note(sample, key)

    def note(self, sample: CallSample, key: Hashable | None = None) -> bool:
        """As `record_request`, for a call that is described already."""
        self._forget()
        if key is not None:
            if key in self._seen:
                return False
            self._seen.add(key)
        self._samples.append((sample, key))
        self._ever.count(sample)
        self._ever.latencies.clear()  # memory is the window's
        if len(self._samples) > MAX_SAMPLES:
            self._drop()
        return True

    def note_wait(self, wait_ms: float) -> None:
        """A run waited so long for admission."""
        self._waits.append((self._clock.now(), wait_ms))
        self._ever.wait(wait_ms)

    async def increment_queue(self) -> None:
        self._queue += 1

    async def decrement_queue(self) -> None:
        self._queue = max(0, self._queue - 1)

    async def increment_concurrent(self) -> None:
        self._concurrent += 1

    async def decrement_concurrent(self) -> None:
        self._concurrent = max(0, self._concurrent - 1)

    async def get_metrics(self) -> LLMMetrics:
        return self.metrics()

    def metrics(self) -> LLMMetrics:
        return metrics_of(
            self.tally(),
            self.window_size,
            self._clock.now(),
            queue_depth=self._queue,
            concurrent=self._concurrent,
            max_concurrent=self.max_concurrent_calls,
        )

    def tally(self) -> Tally:
        """The calls in the window, added up."""
        self._forget()
        tally = Tally()
        for sample, _ in self._samples:
            tally.count(sample)
        for _, wait_ms in self._waits:
            tally.wait(wait_ms)
        return tally

    async def get_statistics(self) -> dict[str, Any]:
        """All calls since the tracker was made, and the window's metrics."""
        ever, metrics = self._ever, self.metrics()
        return {
            "agent_id": self.agent_id,
            "model": self.model,
            "window_size": self.window_size,
            "total_requests": ever.requests,
            "total_errors": ever.errors,
            "total_throttles": ever.throttles,
            "total_input_tokens": ever.input_tokens,
            "total_output_tokens": ever.output_tokens,
            "total_tokens": ever.input_tokens + ever.output_tokens,
            "total_cost": ever.cost,
            "metrics": metrics.model_dump(),
            "utilization": metrics.get_utilization(),
            "is_overloaded": metrics.is_overloaded(),
            "is_underutilized": metrics.is_underutilized(),
        }

    def _forget(self) -> None:
        oldest = self._clock.now() - self.window_size
        while self._samples and self._samples[0][0].at <= oldest:
            self._drop()
        while self._waits and self._waits[0][0] <= oldest:
            self._waits.popleft()

    def _drop(self) -> None:
        _, key = self._samples.popleft()
        self._seen.discard(key)


class TokenThroughputMonitor:
    """Trackers by the id they were registered under."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._trackers: dict[str, LLMResourceTracker] = {}

    async def register_tracker(self, agent_id: str, tracker: LLMResourceTracker) -> None:
        """A second one under the same id takes the first one's place."""
        self._trackers[agent_id] = tracker

    async def unregister_tracker(self, agent_id: str) -> None:
        self._trackers.pop(agent_id, None)

    def tracker(self, agent_id: str, model: str, window_size: float = WINDOW_S) -> LLMResourceTracker:
        """The agent's tracker, made where there is none."""
        found = self._trackers.get(agent_id)
        if found is None:
            found = self._trackers[agent_id] = LLMResourceTracker(agent_id, model, window_size, clock=self._clock)
        return found

    async def get_aggregate_metrics(self) -> LLMMetrics:
        """All agents as one: throughput, queue and cost are sums, latencies are those of all calls together."""
        trackers = list(self._trackers.values())
        own = [tracker.metrics() for tracker in trackers]
        whole = metrics_of(
            total(tracker.tally() for tracker in trackers),
            max((tracker.window_size for tracker in trackers), default=WINDOW_S),
            self._clock.now(),
            queue_depth=sum(m.queue_depth for m in own),
            concurrent=sum(m.concurrent_llm_calls for m in own),
            max_concurrent=sum(m.max_concurrent_calls for m in own),
        )
        # Rates are of each tracker's own window.
        return whole.model_copy(update={name: sum(getattr(m, name) for m in own) for name in _RATES})

    async def get_per_agent_metrics(self) -> dict[str, LLMMetrics]:
        return {agent_id: tracker.metrics() for agent_id, tracker in self._trackers.items()}


_RATES = (
    "tokens_per_second",
    "input_tokens_per_second",
    "output_tokens_per_second",
    "requests_per_minute",
    "cost_per_hour",
)


@lru_cache(maxsize=1)
def get_throughput_monitor() -> TokenThroughputMonitor:
    """This process's monitor."""
    return TokenThroughputMonitor()


class TrackingMetrics:
    """A `Metrics` that feeds the trackers of a monitor, making one for each agent that has none."""

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
            tracker.note_wait(measures.values["QueueWait"])
        if "ModelCalls" in measures.values:
            tracker.note(sample_of(measures, self._clock.now()), key_of(measures))


class ManyMetrics:
    """A `Metrics` that tells several."""

    def __init__(self, *metrics: Metrics) -> None:
        self._metrics = metrics

    def record(self, measures: Measures) -> None:
        for metrics in self._metrics:
            metrics.record(measures)


def sample_of(measures: Measures, now: float) -> CallSample:
    """The model call that the measures tell of."""
    values = measures.values
    return CallSample(
        at=now,
        input_tokens=int(values.get("InputTokens", 0)),
        output_tokens=int(values.get("OutputTokens", 0)),
        latency_ms=values.get("ModelLatency"),
        ttft_ms=values.get("TimeToFirstToken"),
        cost=values.get("CostUsd", 0),
        error=values.get("ModelErrors", 0) > 0,
        throttled=values.get("ModelThrottles", 0) > 0,
    )


def key_of(measures: Measures) -> Hashable | None:
    """(run, step, attempt), where the measures name them."""
    place = tuple(measures.details.get(name) for name in ("run_id", "step", "attempt"))
    return None if None in place else place
