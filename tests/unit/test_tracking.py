"""Trackers of model calls in one process, and rows in which several processes count together."""

from __future__ import annotations

import asyncio
from math import inf, nan
from typing import Any

import pytest

from helix import MemoryStateStore
from helix.compat.tracking import (
    LLMResourceTracker,
    TokenThroughputMonitor,
    TrackingMetrics,
    get_throughput_monitor,
)
from helix.core.errors import InvalidInputError, StoreError
from helix.core.measures import Measures
from helix.fleet.metric_rows import BUCKET_S, StoreMetrics, agents_measured, read_metrics
from helix.testing.clocks import SetClock


def hands() -> SetClock:
    return SetClock(1_700_000_000.0)


def call_of(agent: str = "chat", *, step: int = 1, attempt: int = 1, **values: float) -> Measures:
    told = {"ModelCalls": 1, "InputTokens": 100, "OutputTokens": 10, "CostUsd": 0.01, "ModelLatency": 1000, **values}
    return Measures(told, agent, {"run_id": "r", "step": step, "attempt": attempt, "model": "m"})


async def test_a_request_as_the_source_records_it() -> None:
    clock = hands()
    tracker = LLMResourceTracker(agent_id="chat-agent", model="gpt-4", window_size=300, clock=clock)
    await tracker.record_request(
        input_tokens=150, output_tokens=200, latency_ms=1500.0, ttft_ms=250.0, cost=0.0045, wait_time_ms=100.0
    )
    metrics = await tracker.get_metrics()
    assert (metrics.requests_per_minute, metrics.cost_per_hour) == pytest.approx((0.2, 0.054))
    assert (metrics.avg_ttft_ms, metrics.avg_wait_time_ms, metrics.p99_latency_ms) == (250, 100, 1500)
    told = await tracker.get_statistics()
    assert (told["total_requests"], told["total_tokens"], told["utilization"]) == (1, 350, 0)
    assert (told["is_overloaded"], told["is_underutilized"]) == (False, True)


async def test_a_key_counts_once_while_it_is_in_the_window() -> None:
    clock = hands()
    tracker = LLMResourceTracker("a", "m", 60, clock=clock)
    assert await tracker.record_request(1, 1, 5, key=("run", 1, 1))
    assert not await tracker.record_request(1, 1, 5, key=("run", 1, 1))
    assert await tracker.record_request(1, 1, 5, key=("run", 1, 2))
    assert await tracker.record_request(1, 1, 5) and await tracker.record_request(1, 1, 5)
    assert (await tracker.get_metrics()).requests == 4


async def test_the_window_moves_on() -> None:
    clock = hands()
    tracker = LLMResourceTracker("a", "m", 100, clock=clock)
    await tracker.record_request(1, 1, 5_000, error=True)
    clock.advance(99)
    await tracker.record_request(2, 2, 10, throttled=True)
    now = await tracker.get_metrics()
    assert (now.requests, now.errors, now.throttles, now.p95_latency_ms) == (2, 1, 1, 5_000)
    clock.advance(1)
    later = await tracker.get_metrics()
    assert (later.requests, later.errors, later.throttles, later.p95_latency_ms) == (1, 0, 1, 10)
    assert (await tracker.get_statistics())["total_requests"] == 2, "all time is all time"


async def test_queue_and_concurrency_do_not_fall_below_nothing() -> None:
    tracker = LLMResourceTracker("a", "m", clock=hands())
    await tracker.decrement_queue()
    await tracker.decrement_concurrent()
    for _ in range(2):
        await tracker.increment_queue()
        await tracker.increment_concurrent()
    await tracker.decrement_queue()
    metrics = await tracker.get_metrics()
    assert (metrics.queue_depth, metrics.concurrent_llm_calls, metrics.get_utilization()) == (1, 2, 0.2)


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (0, 0, nan), (0, 0, inf)])
async def test_a_number_that_cannot_be_is_refused(numbers: tuple[int, int, float]) -> None:
    with pytest.raises(InvalidInputError, match="negative"):
        await LLMResourceTracker("a", "m").record_request(*numbers)
    with pytest.raises(InvalidInputError, match="window_size"):
        LLMResourceTracker("a", "m", 0)
    with pytest.raises(InvalidInputError, match="window_size"):
        LLMResourceTracker("a", "m", nan)


async def test_all_agents_together() -> None:
    """Rates, queues and costs are added. Percentiles are computed from all calls and are not means of percentiles."""
    clock = hands()
    monitor = TokenThroughputMonitor(clock)
    quick, slow = (LLMResourceTracker(name, "m", 60, clock=clock) for name in ("quick", "slow"))
    await monitor.register_tracker("quick", quick)
    await monitor.register_tracker("slow", slow)
    for _ in range(98):
        await quick.record_request(60, 0, 100, cost=0.01)
    for _ in range(2):
        await slow.record_request(0, 60, 9_000, cost=0.5)
    await slow.increment_queue()
    whole = await monitor.get_aggregate_metrics()
    assert whole.tokens_per_second == pytest.approx(100) and whole.requests_per_minute == 100
    assert (whole.p50_latency_ms, whole.p95_latency_ms, whole.p99_latency_ms) == (100, 100, 9_000)
    assert (whole.queue_depth, whole.max_concurrent_calls) == (1, 20)
    assert whole.cost_per_hour == pytest.approx((0.98 + 1) * 60)
    each = await monitor.get_per_agent_metrics()
    assert (each["quick"].requests, each["slow"].requests) == (98, 2)
    await monitor.unregister_tracker("slow")
    assert (await monitor.get_aggregate_metrics()).p99_latency_ms == 100
    assert get_throughput_monitor() is get_throughput_monitor()


async def test_trackers_hear_what_the_engine_measures() -> None:
    clock = hands()
    monitor = TokenThroughputMonitor(clock)
    metrics = TrackingMetrics(monitor, clock)
    metrics.record(call_of(step=1))
    metrics.record(call_of(step=1))  # the same call again
    metrics.record(call_of(step=2, ModelErrors=1, ModelThrottles=1, ModelLatency=0))
    metrics.record(Measures({"QueueWait": 700}, "chat"))
    metrics.record(Measures({"ToolCalls": 1}, "chat"))
    metrics.record(Measures({"QueueDepth": 4}))
    (heard,) = (await monitor.get_per_agent_metrics()).values()
    assert (heard.requests, heard.errors, heard.throttles, heard.avg_wait_time_ms) == (2, 1, 1, 700)
    assert heard.total_cost == pytest.approx(0.02)


# --- rows -------------------------------------------------------------------------------------------------------------


async def test_processes_count_together() -> None:
    store, clock = MemoryStateStore(), hands()
    first, second = (StoreMetrics(store, clock, name) for name in ("p1", "p2"))
    for step in range(98):
        first.record(call_of(step=step))
    for step in range(2):
        second.record(call_of(step=step, ModelLatency=8_000))
    second.record(call_of("other", step=99))
    second.record(Measures({"QueueWait": 900}, "chat"))
    await asyncio.gather(first.flush(), second.flush())
    found = await read_metrics(store, "chat", 300, clock.now(), queue_depth=7, concurrent=3, max_concurrent=6)
    assert (found.requests, found.queue_depth, found.get_utilization()) == (100, 7, 0.5)
    assert found.tokens_per_second == pytest.approx(11_000 / 300) and found.avg_wait_time_ms == 900
    assert 1 <= found.p95_latency_ms / 1000 <= 1.05 and 1 <= found.p99_latency_ms / 8000 <= 1.05
    assert await agents_measured(store) == ["chat", "other"]
    assert (await read_metrics(store, None, 300, clock.now())).requests == 101


async def test_a_flush_repeated_adds_nothing_and_a_later_one_adds_what_came() -> None:
    store, clock = MemoryStateStore(), hands()
    metrics = StoreMetrics(store, clock, "p1")
    metrics.record(call_of(step=1))
    for _ in range(3):
        await metrics.flush()
    metrics.record(call_of(step=1))  # a repeated call
    metrics.record(call_of(step=2))
    await metrics.flush()
    assert (await read_metrics(store, "chat", 60, clock.now())).requests == 2


async def test_old_buckets_are_not_in_the_window_and_rows_say_when_they_may_go() -> None:
    store, clock = MemoryStateStore(), hands()
    metrics = StoreMetrics(store, clock, "p1")
    metrics.record(call_of(step=1))
    await metrics.flush()
    clock.advance(200)
    metrics.record(call_of(step=2))
    await metrics.flush()
    assert (await read_metrics(store, "chat", 60, clock.now())).requests == 1
    assert (await read_metrics(store, "chat", 300, clock.now())).requests == 2
    rows = await store.query("control", "metrics#chat")
    assert len(rows) == 2 and all(row.value["ttl"] > clock.now() for row in rows)


class Broken:
    """A store that refuses writes until it is repaired."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.broken = inner, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def transact(self, name: str, operations: Any) -> None:
        if self.broken:
            raise StoreError("out of order")
        await self._inner.transact(name, operations)


async def test_what_the_store_does_not_take_is_written_later() -> None:
    store, clock = Broken(MemoryStateStore()), hands()
    metrics = StoreMetrics(store, clock, "p1")
    metrics.record(call_of(step=1))
    await metrics.flush()
    clock.advance(BUCKET_S)
    metrics.record(call_of(step=2))
    store.broken = False
    await metrics.flush()
    assert (await read_metrics(store, "chat", 60, clock.now())).requests == 2


async def test_rows_are_written_in_the_background_and_at_the_end() -> None:
    store, clock = MemoryStateStore(), hands()
    metrics = StoreMetrics(store, clock, "p1")
    metrics.start()
    metrics.record(call_of(step=1))
    with store.watch("control", "metrics#chat") as watch:
        while not clock.sleepers:
            await asyncio.sleep(0)
        clock.advance(BUCKET_S)
        async with asyncio.timeout(10):
            while not await store.query("control", "metrics#chat"):
                await watch.changed(1)
    metrics.record(call_of(step=2))
    await metrics.stop()
    assert (await read_metrics(store, "chat", 60, clock.now())).requests == 2
