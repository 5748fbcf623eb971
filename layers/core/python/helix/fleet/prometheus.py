"""`/metrics`: figures as Prometheus text, rendered by the official client.

Law: what is called `_total` comes from totals that only grow; what a process counts for itself starts again with it, as
Prometheus expects. The registry is made for each answer, so nothing of the process's own default registry is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

PREFIX = "helix"


@dataclass(frozen=True, slots=True)
class ModelTotals:
    """All-time totals of an agent's calls to a model. Cost in millionths of a US dollar."""

    agent: str
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    cost_micros: int


@dataclass(frozen=True, slots=True)
class Queue:
    """Runs of an agent that wait, those admitted, and how many may be."""

    agent: str
    depth: int
    active: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Figures:
    """None, or nothing in a list: not known, and left out."""

    uptime_s: float
    ready: bool
    requests: int | None = None
    errors: int | None = None
    cpu_percent: float | None = None
    memory_percent: float | None = None
    memory_bytes: int | None = None
    totals: Sequence[ModelTotals] = ()
    queues: Sequence[Queue] = ()
    health: dict[str, int] = field(default_factory=dict)


def render(figures: Figures) -> tuple[str, str]:
    """(text, content type)."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(figures))
    return generate_latest(registry).decode(), CONTENT_TYPE_LATEST


class _Collector:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        f = self._figures
        gauges = {
            "uptime_seconds": ("Seconds since the process started.", f.uptime_s),
            "ready": ("1 if new work is accepted.", float(f.ready)),
            "cpu_percent": ("Processor use of the process.", f.cpu_percent),
            "memory_percent": ("Memory of the process, of what it may use.", f.memory_percent),
            "memory_used_bytes": ("Resident memory of the process.", f.memory_bytes),
        }
        counters = {
            "requests": ("Requests, or runs, that were taken on.", f.requests),
            "errors": ("Those that failed.", f.errors),
        }
        for name, (told, value) in gauges.items():
            if value is not None:
                yield GaugeMetricFamily(f"{PREFIX}_{name}", told, value=value)
        for name, (told, count) in counters.items():
            if count is not None:
                yield CounterMetricFamily(f"{PREFIX}_{name}", told, value=count)
        yield from self._models(CounterMetricFamily)
        yield from self._queues(GaugeMetricFamily)

    def _models(self, family: Any) -> Iterator[Any]:
        labels = ["agent", "model"]
        requests = family(f"{PREFIX}_llm_requests", "Model calls.", labels=labels)
        tokens = family(f"{PREFIX}_llm_tokens", "Tokens of model calls.", labels=[*labels, "direction"])
        cost = family(f"{PREFIX}_llm_cost", "US dollars that model calls cost.", labels=labels)
        for one in self._figures.totals:
            place = [one.agent, one.model]
            requests.add_metric(place, one.requests)
            tokens.add_metric([*place, "input"], one.input_tokens)
            tokens.add_metric([*place, "output"], one.output_tokens)
            cost.add_metric(place, one.cost_micros / 1_000_000)
        yield from (requests, tokens, cost)

    def _queues(self, family: Any) -> Iterator[Any]:
        depth = family(f"{PREFIX}_queue_depth", "Runs that wait to be admitted.", labels=["agent"])
        active = family(f"{PREFIX}_runs_active", "Runs that are admitted.", labels=["agent"])
        limit = family(f"{PREFIX}_concurrency_limit", "How many runs may be admitted at once.", labels=["agent"])
        for queue in self._figures.queues:
            depth.add_metric([queue.agent], queue.depth)
            active.add_metric([queue.agent], queue.active)
            if queue.limit is not None:
                limit.add_metric([queue.agent], queue.limit)
        health = family(f"{PREFIX}_targets", "Targets of health checks, by status.", labels=["status"])
        for status, count in sorted(self._figures.health.items()):
            health.add_metric([status], count)
        yield from (depth, active, limit, health)
