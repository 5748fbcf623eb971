"""Metrics of model calls over a window, and the thresholds for too much and too little."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from helix.core.llm_metrics import CallSample, LLMMetrics, Tally, from_json, metrics_of, percentile, to_json, total


def tally(*latencies: float, **fields: Any) -> Tally:
    made = Tally()
    for latency in latencies:
        made.count(CallSample(at=0, latency_ms=latency, **fields))
    return made


def test_one_call_is_no_flood() -> None:
    """Rates divide by the window, which is at least a minute. $0.0045 once in five minutes is not $16 an hour."""
    one = tally(1500, input_tokens=150, output_tokens=200, cost=0.0045)
    metrics = metrics_of(one, 300, 1000)
    assert metrics.cost_per_hour == pytest.approx(0.054)
    assert metrics.requests_per_minute == pytest.approx(0.2)
    assert metrics.tokens_per_second == pytest.approx(350 / 300)
    assert (metrics.input_tokens_per_second, metrics.output_tokens_per_second) == pytest.approx((0.5, 200 / 300))
    assert metrics_of(one, 1, 1000) == metrics_of(one, 60, 1000)
    assert metrics_of(one, 60, 1000).requests_per_minute == 1


def test_sums_and_means() -> None:
    calls = Tally()
    calls.count(
        CallSample(at=1, input_tokens=100, output_tokens=10, latency_ms=1000, ttft_ms=200, cost=0.01, wait_ms=0)
    )
    calls.count(CallSample(at=2, input_tokens=300, output_tokens=30, latency_ms=3000, cost=0.03, wait_ms=500))
    calls.count(CallSample(at=3, error=True, latency_ms=8000))
    calls.count(CallSample(at=4, error=True, throttled=True, latency_ms=7))
    metrics = metrics_of(calls, 60, 10, queue_depth=3, concurrent=2, max_concurrent=4)
    assert (metrics.requests, metrics.errors, metrics.throttles) == (4, 2, 1)
    assert (metrics.avg_context_tokens, metrics.max_context_tokens, metrics.avg_response_tokens) == (200, 300, 20)
    assert (metrics.avg_ttft_ms, metrics.avg_wait_time_ms) == (200, 250)
    assert metrics.avg_completion_time_ms == 4000, "a throttled call does not show the speed of the model"
    assert (metrics.total_cost, metrics.cost_per_request) == pytest.approx((0.04, 0.01))
    assert (metrics.queue_depth, metrics.get_utilization(), metrics.timestamp) == (3, 0.5, 10)


def test_nothing_is_nothing() -> None:
    assert metrics_of(Tally(), 300, 5) == LLMMetrics(window_s=300, timestamp=5)


def test_percentiles_are_of_the_calls_and_not_of_means() -> None:
    quick, slow = tally(*[100] * 98), tally(*[10_000] * 2)
    whole = metrics_of(total([quick, slow]), 60, 0)
    assert (whole.p50_latency_ms, whole.p95_latency_ms, whole.p99_latency_ms) == (100, 100, 10_000)
    assert percentile(tally(5, 1, 3).latencies, 0.5) == 3
    assert percentile(tally(5, 1, 3).latencies, 1) == 5


def test_what_is_stored_adds_up_to_what_was_counted() -> None:
    """Merged histograms of several processes give percentiles at most 5 % above the exact ones. All other values are
    exact."""
    numbers = random.Random(7)
    samples = [
        CallSample(
            at=0,
            input_tokens=numbers.randrange(5000),
            output_tokens=numbers.randrange(500),
            latency_ms=numbers.lognormvariate(7, 1),
            ttft_ms=numbers.random() * 900,
            cost=0.5,
            wait_ms=7,
            error=numbers.random() < 0.1,
        )
        for _ in range(3000)
    ]
    exact, parts = Tally(), [Tally() for _ in range(5)]
    for place, sample in enumerate(samples):
        exact.count(sample)
        parts[place % 5].count(sample)
    merged = total(from_json(json.loads(json.dumps(to_json(part)))) for part in parts)
    want, got = metrics_of(exact, 300, 0), metrics_of(merged, 300, 0)
    for name in ("p50_latency_ms", "p95_latency_ms", "p99_latency_ms"):
        assert 1 <= getattr(got, name) / getattr(want, name) <= 1.05
    near = {"p50_latency_ms", "p95_latency_ms", "p99_latency_ms", "avg_completion_time_ms"}
    assert got.model_dump(exclude=near) == pytest.approx(want.model_dump(exclude=near))
    assert len(to_json(parts[0])["latencies"]) < 200  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "overloaded"),
    [
        ({"queue_depth": 10}, False),
        ({"queue_depth": 11}, True),
        ({"avg_wait_time_ms": 5000}, False),
        ({"avg_wait_time_ms": 5001}, True),
        ({"p95_latency_ms": 10_000}, False),
        ({"p95_latency_ms": 10_001}, True),
        ({"concurrent_llm_calls": 9}, False),
        ({"concurrent_llm_calls": 10}, True),
        ({"concurrent_llm_calls": 12}, True),
        ({"concurrent_llm_calls": 12, "max_concurrent_calls": 0}, False),
    ],
)
def test_overloaded(fields: dict[str, Any], overloaded: bool) -> None:
    assert LLMMetrics(**fields).is_overloaded() is overloaded


@pytest.mark.parametrize(
    ("fields", "idle"),
    [
        ({}, True),
        ({"queue_depth": 1}, False),
        ({"concurrent_llm_calls": 2}, True),
        ({"concurrent_llm_calls": 3}, False),
        ({"requests_per_minute": 0.9}, True),
        ({"requests_per_minute": 1.0}, False),
    ],
)
def test_underutilized(fields: dict[str, Any], idle: bool) -> None:
    assert LLMMetrics(**fields).is_underutilized() is idle


def test_utilization_is_a_share() -> None:
    assert LLMMetrics().max_concurrent_calls == 10
    assert LLMMetrics(concurrent_llm_calls=5).get_utilization() == 0.5
    assert LLMMetrics(concurrent_llm_calls=15).get_utilization() == 1
    assert LLMMetrics(concurrent_llm_calls=5, max_concurrent_calls=0).get_utilization() == 0
