"""What a window of model calls amounts to: rates, latencies, cost, and whether that is too much or too little.

Law: rates divide by the window, never by the span of the calls in it, so that one call cannot look like a flood;
percentiles come from all latencies together and are never averaged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import Field

from helix.core.json import JsonObject
from helix.core.messages import Record

MIN_WINDOW_S = 60.0
GROWTH = 1.05
"""A latency is kept as a power of this where it is stored: percentiles are at most 5 % above what was measured."""

OVERLOADED_QUEUE, OVERLOADED_WAIT_MS, OVERLOADED_P95_MS, OVERLOADED_UTILIZATION = 10, 5_000.0, 10_000.0, 0.9
IDLE_UTILIZATION, IDLE_RPM = 0.3, 1.0


class LLMMetrics(Record):
    """Model calls of an agent, or of several, in one window. Rates are per the unit in their name; times in ms; costs in
    US dollars. `requests` counts every call, `errors` those without an answer, `throttles` those that the provider put
    off (429). Latencies leave out calls that ended as throttled. `max_concurrent_calls` is the concurrency limit in
    force. `timestamp`: the window's end, Unix seconds."""

    tokens_per_second: float = 0
    input_tokens_per_second: float = 0
    output_tokens_per_second: float = 0
    requests_per_minute: float = 0
    queue_depth: int = 0
    avg_wait_time_ms: float = 0
    avg_ttft_ms: float = 0
    avg_completion_time_ms: float = 0
    p50_latency_ms: float = 0
    p95_latency_ms: float = 0
    p99_latency_ms: float = 0
    concurrent_llm_calls: int = 0
    max_concurrent_calls: int = 10
    cost_per_hour: float = 0
    cost_per_request: float = 0
    total_cost: float = 0
    avg_context_tokens: float = 0
    max_context_tokens: int = 0
    avg_response_tokens: float = 0
    requests: int = 0
    throttles: int = 0
    errors: int = 0
    window_s: float = Field(default=MIN_WINDOW_S, gt=0)
    timestamp: float = 0

    def get_utilization(self) -> float:
        """Share of the concurrency limit in use, 0 to 1; 0 where nothing is allowed."""
        if self.max_concurrent_calls <= 0:
            return 0.0
        return min(1.0, self.concurrent_llm_calls / self.max_concurrent_calls)

    def is_overloaded(self) -> bool:
        """More than 10 wait, or they wait over 5 s, or p95 is over 10 s, or over 90 % of the limit is in use."""
        return (
            self.queue_depth > OVERLOADED_QUEUE
            or self.avg_wait_time_ms > OVERLOADED_WAIT_MS
            or self.p95_latency_ms > OVERLOADED_P95_MS
            or self.get_utilization() > OVERLOADED_UTILIZATION
        )

    def is_underutilized(self) -> bool:
        """Nobody waits, less than 30 % of the limit is in use, and less than one call a minute is made."""
        return (
            self.queue_depth == 0 and self.get_utilization() < IDLE_UTILIZATION and self.requests_per_minute < IDLE_RPM
        )


@dataclass(frozen=True, slots=True)
class CallSample:
    """One model call. `at`: when it ended, Unix seconds. Times in ms, None where not measured; `cost` in US dollars.
    `error`: no answer came; `throttled`: the provider put it off at least once."""

    at: float
    input_tokens: int = 0
    output_tokens: int = 0
    latency_ms: float | None = None
    ttft_ms: float | None = None
    cost: float = 0
    wait_ms: float | None = None
    error: bool = False
    throttled: bool = False


@dataclass(slots=True)
class Tally:
    """Calls counted together. `latencies`: latency in ms -> how many calls took it. Two tallies add up to what one that
    counted both would hold."""

    requests: int = 0
    errors: int = 0
    throttles: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0
    wait_ms: float = 0
    waits: int = 0
    ttft_ms: float = 0
    ttfts: int = 0
    max_context: int = 0
    latencies: Counter[float] = field(default_factory=Counter)

    def count(self, sample: CallSample) -> None:
        self.requests += 1
        self.errors += sample.error
        self.throttles += sample.throttled
        self.input_tokens += sample.input_tokens
        self.output_tokens += sample.output_tokens
        self.cost += sample.cost
        self.max_context = max(self.max_context, sample.input_tokens)
        if sample.wait_ms is not None:
            self.wait(sample.wait_ms)
        if sample.ttft_ms is not None:
            self.ttft_ms += sample.ttft_ms
            self.ttfts += 1
        if sample.latency_ms is not None and not (sample.error and sample.throttled):
            self.latencies[sample.latency_ms] += 1

    def wait(self, wait_ms: float) -> None:
        """Add one wait for admission."""
        self.wait_ms += wait_ms
        self.waits += 1


def total(tallies: Iterable[Tally]) -> Tally:
    every = list(tallies)
    whole = Tally(**{name: sum(getattr(tally, name) for tally in every) for name in _NUMBERS})
    whole.max_context = max((tally.max_context for tally in every), default=0)
    for tally in every:
        whole.latencies.update(tally.latencies)
    return whole


def to_json(tally: Tally) -> JsonObject:
    """The tally to store: latencies become few, whatever the load."""
    bins: Counter[str] = Counter()
    for latency, calls in tally.latencies.items():
        bins[str(_bin(latency))] += calls
    return {**{name: getattr(tally, name) for name in _NUMBERS}, "latencies": dict(bins)}


def from_json(value: Mapping[str, Any]) -> Tally:
    """What `to_json` gave, with each latency as the upper bound of what it was."""
    numbers = {name: value.get(name) or 0 for name in _NUMBERS}
    latencies = Counter({GROWTH ** int(bin_): int(calls) for bin_, calls in value.get("latencies", {}).items()})
    return Tally(**numbers, latencies=latencies)


def _bin(latency_ms: float) -> int:
    """The power of `GROWTH` that is not below it."""
    return 0 if latency_ms <= 1 else math.ceil(math.log(latency_ms) / math.log(GROWTH) - 1e-9)


def percentile(latencies: Counter[float], share: float) -> float:
    """The smallest latency that `share` (0 to 1) of the calls did not exceed; 0 without calls."""
    wanted = math.ceil(share * latencies.total())
    for latency in sorted(latencies):
        wanted -= latencies[latency]
        if wanted <= 0:
            return latency
    return 0.0


def metrics_of(
    tally: Tally,
    window_s: float,
    now: float,
    *,
    queue_depth: int = 0,
    concurrent: int = 0,
    max_concurrent: int = 10,
) -> LLMMetrics:
    """The metrics of the calls that the tally counted in the `window_s` seconds (at least 60) before `now`."""
    window = max(window_s, MIN_WINDOW_S)
    answered = tally.requests - tally.errors
    timed = tally.latencies.total()
    return LLMMetrics(
        tokens_per_second=(tally.input_tokens + tally.output_tokens) / window,
        input_tokens_per_second=tally.input_tokens / window,
        output_tokens_per_second=tally.output_tokens / window,
        requests_per_minute=tally.requests * 60 / window,
        queue_depth=queue_depth,
        avg_wait_time_ms=_mean(tally.wait_ms, tally.waits),
        avg_ttft_ms=_mean(tally.ttft_ms, tally.ttfts),
        avg_completion_time_ms=_mean(sum(ms * n for ms, n in tally.latencies.items()), timed),
        p50_latency_ms=percentile(tally.latencies, 0.5),
        p95_latency_ms=percentile(tally.latencies, 0.95),
        p99_latency_ms=percentile(tally.latencies, 0.99),
        concurrent_llm_calls=concurrent,
        max_concurrent_calls=max_concurrent,
        cost_per_hour=tally.cost * 3600 / window,
        cost_per_request=_mean(tally.cost, tally.requests),
        total_cost=tally.cost,
        avg_context_tokens=_mean(tally.input_tokens, answered),
        max_context_tokens=tally.max_context,
        avg_response_tokens=_mean(tally.output_tokens, answered),
        requests=tally.requests,
        throttles=tally.throttles,
        errors=tally.errors,
        window_s=window,
        timestamp=now,
    )


_NUMBERS = tuple(f.name for f in fields(Tally) if f.name != "latencies")


def _mean(amount: float, count: int) -> float:
    return amount / count if count > 0 else 0.0
