"""`/metrics`: figures as Prometheus text, rendered by the official client.

Law: what is called `_total` comes from totals that only grow; what a process counts for itself starts again with it, as
Prometheus expects. The registry is made for each answer, so nothing of the process's own default registry is in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.ports.state_store import StateStore
from helix.services.row_slots import RowSlots
from helix.services.usage_counters import read_totals

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


@dataclass(slots=True)
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
        plain: tuple[tuple[Any, str, str, float | None], ...] = (
            (GaugeMetricFamily, "uptime_seconds", "Seconds since the process started.", f.uptime_s),
            (GaugeMetricFamily, "ready", "1 if new work is accepted.", float(f.ready)),
            (GaugeMetricFamily, "cpu_percent", "Processor use of the process.", f.cpu_percent),
            (GaugeMetricFamily, "memory_percent", "Memory of the process, of what it may use.", f.memory_percent),
            (GaugeMetricFamily, "memory_used_bytes", "Resident memory of the process.", f.memory_bytes),
            (CounterMetricFamily, "requests", "Requests, or runs, that were taken on.", f.requests),
            (CounterMetricFamily, "errors", "Those that failed.", f.errors),
        )
        for family, name, help_text, value in plain:
            if value is not None:
                yield family(f"{PREFIX}_{name}", help_text, value=value)
        agent, model = ["agent"], ["agent", "model"]
        health = [([status], float(count)) for status, count in sorted(f.health.items())]
        limits = [([q.agent], q.limit) for q in f.queues if q.limit is not None]
        tokens = [([t.agent, t.model, "input"], t.input_tokens) for t in f.totals]
        tokens += [([t.agent, t.model, "output"], t.output_tokens) for t in f.totals]
        calls = [([t.agent, t.model], t.requests) for t in f.totals]
        cost = [([t.agent, t.model], t.cost_micros / 1_000_000) for t in f.totals]
        labelled: tuple[tuple[Any, str, str, list[str], Sequence[tuple[list[str], float]]], ...] = (
            (CounterMetricFamily, "llm_requests", "Model calls.", model, calls),
            (CounterMetricFamily, "llm_tokens", "Tokens of model calls.", [*model, "direction"], tokens),
            (CounterMetricFamily, "llm_cost", "US dollars that model calls cost.", model, cost),
            (GaugeMetricFamily, "queue_depth", "Runs that wait to be admitted.", agent, _of(f.queues, "depth")),
            (GaugeMetricFamily, "runs_active", "Runs that are admitted.", agent, _of(f.queues, "active")),
            (GaugeMetricFamily, "concurrency_limit", "How many runs may be admitted at once.", agent, limits),
            (GaugeMetricFamily, "targets", "Targets of health checks, by status.", ["status"], health),
        )
        for family, name, help_text, labels, values in labelled:
            metric = family(f"{PREFIX}_{name}", help_text, labels=labels)
            for place, number in values:
                metric.add_metric(place, number)
            yield metric


def _of(queues: Sequence[Queue], name: str) -> list[tuple[list[str], float]]:
    return [([queue.agent], getattr(queue, name)) for queue in queues]


# --- figures from the store, of all processes together: a restart takes nothing back ---


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """`runs`: those that have ended, of all agents; `failed`: of these, in an error of their own."""

    models: list[ModelTotals]
    runs: int
    failed: int


async def stored_usage(store: StateStore) -> StoredUsage:
    """All-time totals, by agent and model. What a run used is counted when it has ended."""
    counts = await read_totals(store)
    found: dict[tuple[str, str], Counter[str]] = {}
    for one in counts:
        if one.calls or one.tokens or one.micros:
            sums = found.setdefault((one.agent, one.model), Counter())
            used = {"input_tokens": one.input, "output_tokens": one.output, "cost_micros": one.micros}
            sums.update({"requests": one.calls, **used})
    models = [ModelTotals(agent, model, **sums) for (agent, model), sums in sorted(found.items())]
    return StoredUsage(models, sum(one.runs for one in counts), sum(one.failed for one in counts))


async def model_totals(store: StateStore) -> list[ModelTotals]:
    return (await stored_usage(store)).models


async def queues(store: StateStore) -> list[Queue]:
    """Of each agent that is, or was, limited."""
    counters = await RowSlots(store).counters()
    return [
        Queue(agent, counter.queued, counter.running, counter.bound)
        for agent, counter in sorted((a, c) for a, c in counters.items() if a is not None)
    ]
