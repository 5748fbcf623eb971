"""The `/metrics` page: metrics in the Prometheus text format, rendered by the official client.

Law: metrics with the suffix `_total` come from totals that only grow. In-process counters reset when the process restarts,
as Prometheus expects. Each response uses a new registry, so it contains nothing from the process's default registry.
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
    """The all-time totals of an agent's calls to one model, in runs that have ended."""

    agent: str
    """The agent's name."""
    model: str
    """The model's name under which usage is recorded."""
    requests: int
    """The number of model calls."""
    input_tokens: int
    """The input tokens of all calls."""
    output_tokens: int
    """The output tokens of all calls."""
    cost_micros: int
    """The cost in millionths of a US dollar."""
    lost_tokens: int = 0
    """The input tokens that the provider's prompt cache should have had, and that were not read from it."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The admission of one agent: its waiting and running runs, and its limit."""

    agent: str
    """The agent's name."""
    depth: int
    """The number of runs waiting to be admitted."""
    active: int
    """The number of admitted runs."""
    limit: int | None
    """The maximum number of runs that may be admitted at the same time. None: no limit."""


@dataclass(slots=True)
class Figures:
    """The values of one `/metrics` page. The page omits values that are None or empty, because they are unknown."""

    uptime_s: float
    """Seconds since the process started to serve."""
    ready: bool
    """Whether new work is accepted."""
    requests: int | None = None
    """The number of accepted requests; on a deployed stage, of ended runs."""
    errors: int | None = None
    """The number of those requests or runs that failed."""
    cpu_percent: float | None = None
    """The CPU usage of the process since the last page, in percent of one core: two busy cores are 200."""
    memory_percent: float | None = None
    """The percentage of the machine's memory that the process uses, 0 to 100."""
    memory_bytes: int | None = None
    """The resident memory of the process in bytes."""
    totals: Sequence[ModelTotals] = ()
    """The totals of each agent and model."""
    queues: Sequence[Queue] = ()
    """The admission state of each agent that has, or had, a limit."""
    health: dict[str, int] = field(default_factory=dict)
    """The number of health check targets by status."""


def render(figures: Figures) -> tuple[str, str]:
    """Render the page. Returns the text and its content type."""
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
            (GaugeMetricFamily, "ready", "1 if the process accepts new work, otherwise 0.", float(f.ready)),
            (GaugeMetricFamily, "cpu_percent", "CPU usage of the process in percent of one core.", f.cpu_percent),
            (
                GaugeMetricFamily,
                "memory_percent",
                "Memory usage of the process in percent of the machine's memory.",
                f.memory_percent,
            ),
            (GaugeMetricFamily, "memory_used_bytes", "Resident memory of the process in bytes.", f.memory_bytes),
            (CounterMetricFamily, "requests", "Accepted requests; on a deployed stage, ended runs.", f.requests),
            (CounterMetricFamily, "errors", "Requests or runs that failed.", f.errors),
        )
        for family, name, help_text, value in plain:
            if value is not None:
                yield family(f"{PREFIX}_{name}", help_text, value=value)
        agent, model = ["agent"], ["agent", "model"]
        health = [([status], float(count)) for status, count in sorted(f.health.items())]
        limits = [([q.agent], q.limit) for q in f.queues if q.limit is not None]
        tokens = [([t.agent, t.model, "input"], t.input_tokens) for t in f.totals]
        tokens += [([t.agent, t.model, "output"], t.output_tokens) for t in f.totals]
        lost = [([t.agent, t.model], t.lost_tokens) for t in f.totals]
        calls = [([t.agent, t.model], t.requests) for t in f.totals]
        cost = [([t.agent, t.model], t.cost_micros / 1_000_000) for t in f.totals]
        labelled: tuple[tuple[Any, str, str, list[str], Sequence[tuple[list[str], float]]], ...] = (
            (CounterMetricFamily, "llm_requests", "Model calls.", model, calls),
            (CounterMetricFamily, "llm_tokens", "Tokens of model calls, by direction.", [*model, "direction"], tokens),
            (CounterMetricFamily, "llm_lost_cache_tokens", "Input tokens that prompt caches lost.", model, lost),
            (CounterMetricFamily, "llm_cost", "Cost of model calls in US dollars.", model, cost),
            (GaugeMetricFamily, "queue_depth", "Runs that wait for a slot.", agent, _of(f.queues, "depth")),
            (GaugeMetricFamily, "runs_active", "Runs that hold a slot.", agent, _of(f.queues, "active")),
            (GaugeMetricFamily, "concurrency_limit", "The most runs that may hold a slot at once.", agent, limits),
            (GaugeMetricFamily, "targets", "Number of health check targets, by status.", ["status"], health),
        )
        for family, name, help_text, labels, values in labelled:
            metric = family(f"{PREFIX}_{name}", help_text, labels=labels)
            for place, number in values:
                metric.add_metric(place, number)
            yield metric


def _of(queues: Sequence[Queue], name: str) -> list[tuple[list[str], float]]:
    return [([queue.agent], getattr(queue, name)) for queue in queues]


# --- figures for all processes together, read from the store, so that a restart does not reset them ---


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """The stored totals of all agents."""

    models: list[ModelTotals]
    """The totals of each agent and model, sorted by both."""
    runs: int
    """The number of runs that have ended."""
    failed: int
    """The number of those runs that failed with their own error."""


async def stored_usage(store: StateStore) -> StoredUsage:
    """Read the all-time totals by agent and model. A run's usage is counted when the run has ended."""
    counts = await read_totals(store)
    found: dict[tuple[str, str], Counter[str]] = {}
    for one in counts:
        if one.calls or one.tokens or one.micros:
            sums = found.setdefault((one.agent, one.model), Counter())
            used = {"input_tokens": one.input, "output_tokens": one.output, "lost_tokens": one.lost}
            used["cost_micros"] = one.micros
            sums.update({"requests": one.calls, **used})
    models = [ModelTotals(agent, model, **sums) for (agent, model), sums in sorted(found.items())]
    return StoredUsage(models, sum(one.runs for one in counts), sum(one.failed for one in counts))


async def model_totals(store: StateStore) -> list[ModelTotals]:
    return (await stored_usage(store)).models


async def queues(store: StateStore) -> list[Queue]:
    """Return the admission state of each agent that has, or had, a limit."""
    counters = await RowSlots(store).counters()
    return [
        Queue(agent, counter.queued, counter.running, counter.bound)
        for agent, counter in sorted((a, c) for a, c in counters.items() if a is not None)
    ]
