"""Metrics of model calls in a time window: rates, latencies and cost, and whether the load is too high or too low.

Law: rates are per length of the window, never per span of the calls in it, so that a single call cannot look like a
burst. Percentiles are computed over all latencies together and never averaged.
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
"""The growth factor of the latency bins. Stored latencies are rounded up to a power of it, so percentiles are at most 5
% too high."""

OVERLOADED_QUEUE, OVERLOADED_WAIT_MS, OVERLOADED_P95_MS, OVERLOADED_UTILIZATION = 10, 5_000.0, 10_000.0, 0.9
IDLE_UTILIZATION, IDLE_RPM = 0.3, 1.0


class LLMMetrics(Record):
    """Metrics of the model calls of one agent, or of several, in one window. Rates are per the unit in their name,
    times are in milliseconds, and costs in US dollars.

    A field is 0 if its source does not measure it. For example, CloudWatch has no time to first token and no answer
    sizes.
    """

    tokens_per_second: float = 0
    """Prompt and answer tokens together, per second."""
    input_tokens_per_second: float = 0
    """Prompt tokens per second."""
    output_tokens_per_second: float = 0
    """Answer tokens per second."""
    requests_per_minute: float = 0
    """Model calls per minute, including failed calls."""
    queue_depth: int = 0
    """The number of runs that currently wait for a slot."""
    avg_wait_time_ms: float = 0
    """The mean wait of admitted runs for a slot."""
    avg_ttft_ms: float = 0
    """The mean time to first token: from a call's start to the first piece of its answer."""
    avg_completion_time_ms: float = 0
    """The mean latency of a call, including retries. Like all latencies, it excludes calls that failed because of
    throttling."""
    p50_latency_ms: float = 0
    """The median latency of a call."""
    p95_latency_ms: float = 0
    """The 95th percentile of latency."""
    p99_latency_ms: float = 0
    """The 99th percentile of latency."""
    concurrent_llm_calls: int = 0
    """The number of calls that currently count against the limit. The fleet counts active runs here."""
    max_concurrent_calls: int = 10
    """The current concurrency limit. 0 admits no runs."""
    cost_per_hour: float = 0
    """The cost of the window, extrapolated to an hour."""
    cost_per_request: float = 0
    """The mean cost of a call."""
    total_cost: float = 0
    """The cost of all calls in the window."""
    avg_context_tokens: float = 0
    """The mean prompt size in tokens, over calls with an answer."""
    max_context_tokens: int = 0
    """The size of the largest prompt in tokens."""
    avg_response_tokens: float = 0
    """The mean answer size in tokens."""
    requests: int = 0
    """The number of calls, including failed calls."""
    throttles: int = 0
    """The number of calls that the provider throttled (429) at least once."""
    errors: int = 0
    """The number of calls without an answer."""
    window_s: float = Field(default=MIN_WINDOW_S, gt=0)
    """The length of the window in seconds, at least 60."""
    timestamp: float = 0
    """The end of the window in Unix seconds."""

    def get_utilization(self) -> float:
        """Return the used fraction of the concurrency limit, from 0 to 1. It is 0 if the limit is 0."""
        if self.max_concurrent_calls <= 0:
            return 0.0
        return min(1.0, self.concurrent_llm_calls / self.max_concurrent_calls)

    def is_overloaded(self) -> bool:
        """Return whether more than 10 runs wait, waits take over 5 s, p95 is over 10 s, or utilization is over 90 %."""
        return (
            self.queue_depth > OVERLOADED_QUEUE
            or self.avg_wait_time_ms > OVERLOADED_WAIT_MS
            or self.p95_latency_ms > OVERLOADED_P95_MS
            or self.get_utilization() > OVERLOADED_UTILIZATION
        )

    def is_underutilized(self) -> bool:
        """Return whether no run waits, less than 30 % of the limit is in use, and there is less than one call a
        minute."""
        return (
            self.queue_depth == 0 and self.get_utilization() < IDLE_UTILIZATION and self.requests_per_minute < IDLE_RPM
        )


@dataclass(frozen=True, slots=True)
class CallSample:
    """The measurements of one model call. Times are in milliseconds, None if they were not measured."""

    at: float
    """The end of the call in Unix seconds."""
    input_tokens: int = 0
    """Tokens of the prompt."""
    output_tokens: int = 0
    """Tokens of the answer."""
    latency_ms: float | None = None
    """The time from the call's start to its end, including retries."""
    ttft_ms: float | None = None
    """The time to first token: from the call's start to the first piece of the answer."""
    cost: float = 0
    """The cost in US dollars."""
    wait_ms: float | None = None
    """The time that the call waited for admission before it started."""
    error: bool = False
    """Whether the call ended without an answer."""
    throttled: bool = False
    """Whether the provider throttled the call at least once."""


@dataclass(slots=True)
class Tally:
    """Totals over model calls. Adding two tallies gives the tally of all their calls."""

    requests: int = 0
    """The number of calls, including failed calls."""
    errors: int = 0
    """The number of calls without an answer."""
    throttles: int = 0
    """The number of calls that the provider throttled at least once."""
    input_tokens: int = 0
    """Tokens of all prompts."""
    output_tokens: int = 0
    """Tokens of all answers."""
    cost: float = 0
    """The cost in US dollars."""
    wait_ms: float = 0
    """The total wait for admission in milliseconds."""
    waits: int = 0
    """The number of waits in `wait_ms`. A wait may be counted without a call."""
    ttft_ms: float = 0
    """The total time to first token in milliseconds."""
    ttfts: int = 0
    """The number of calls that `ttft_ms` covers."""
    max_context: int = 0
    """The size of the largest prompt in tokens."""
    latencies: Counter[float] = field(default_factory=Counter)
    """The number of calls per latency in milliseconds, without calls that failed because of throttling."""

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
    """Convert the tally to its stored form. Latencies are binned, so the size does not grow with the load."""
    bins: Counter[str] = Counter()
    for latency, calls in tally.latencies.items():
        bins[str(_bin(latency))] += calls
    return {**{name: getattr(tally, name) for name in _NUMBERS}, "latencies": dict(bins)}


def from_json(value: Mapping[str, Any]) -> Tally:
    """Restore a tally from `to_json`. Each latency becomes the upper bound of its bin."""
    numbers = {name: value.get(name) or 0 for name in _NUMBERS}
    latencies = Counter({GROWTH ** int(bin_): int(calls) for bin_, calls in value.get("latencies", {}).items()})
    return Tally(**numbers, latencies=latencies)


def _bin(latency_ms: float) -> int:
    """Return the smallest exponent of `GROWTH` whose power is at least the latency."""
    return 0 if latency_ms <= 1 else math.ceil(math.log(latency_ms) / math.log(GROWTH) - 1e-9)


def percentile(latencies: Counter[float], share: float) -> float:
    """Return the latency percentile `share` (0 to 1), or 0 if there were no calls."""
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
    """Convert the tally of the `window_s` seconds (at least 60) before `now` to metrics."""
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
