"""Computes the `llm` health check of each agent from its model calls, and counts failing custom checks.

Law: an agent without calls or waiting runs is not evaluated, unless it was unhealthy, in which case it becomes healthy
again. The check `llm` is not counted as a failing check, because its metrics have their own alarms. Results older than
`FRESH_S` are not counted either, because such a check no longer runs, and a missing result is not a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from helix.core.delivery import Delivery
from helix.core.errors import HelixError
from helix.core.health import HealthResult, HealthStatus
from helix.core.llm_metrics import LLMMetrics
from helix.core.measures import Measures
from helix.engine.engine import logger
from helix.fleet import health_rows
from helix.fleet.governing import EARLY_S, MARGIN_S, WINDOW_S
from helix.fleet.health import LLM, HealthChecker
from helix.fleet.spending import AgentMoney
from helix.ports.clock import Clock
from helix.ports.metrics import Metrics
from helix.ports.metrics_source import MetricsSource
from helix.ports.state_store import StateStore
from helix.services.usage_counters import agent_scope, hour_key, read_counts

FRESH_S = 3_600.0
UNHEALTHY = "UnhealthyChecks"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Counts = Mapping[str | None, Mapping[str, float]]
"""The gauges by agent."""


class Calls(MetricsSource, Protocol):
    async def spent(self, window_s: float) -> float:
        """Return the US dollars spent on model calls of all agents in the last `window_s` seconds."""
        ...


class CachedCalls:
    """A cache of another source's results. An entry lives for almost `WINDOW_S`, because each request costs money."""

    def __init__(self, source: Calls, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._calls: dict[tuple[str, float], tuple[float, LLMMetrics]] = {}
        self._spent: dict[float, tuple[float, float]] = {}

    async def read(self, agent: str, window_s: float) -> LLMMetrics:
        return await self._cached(self._calls, (agent, window_s), partial(self._source.read, agent, window_s))

    async def spent(self, window_s: float) -> float:
        return await self._cached(self._spent, window_s, partial(self._source.spent, window_s))

    async def _cached(self, cache: dict[K, tuple[float, V]], key: K, ask: Callable[[], Awaitable[V]]) -> V:
        now, found = self._clock.now(), cache.get(key)
        if found is None or now >= found[0] + WINDOW_S - EARLY_S:
            found = cache[key] = now, await ask()
        return found[1]


async def find_recently_active(store: StateStore, agents: Iterable[str], counts: Counts, now: float) -> set[str]:
    """Return the agents with an active or waiting run, or with one that ended within the last hour. No other agent can have
    made a call."""
    found = {agent for agent in agents if any(_load(counts, agent))}
    for agent in set(agents) - found:
        if await read_counts(store, agent_scope(agent), start=hour_key(now - WINDOW_S)):
            found.add(agent)
    return found


async def evaluate_calls(
    health: HealthChecker,
    source: MetricsSource,
    counts: Counts,
    money: Mapping[str | None, AgentMoney],
    delivery: Delivery,
    clock: Clock,
    *,
    ask: Collection[str] | None = None,
) -> int:
    """Evaluate each agent in `money`, or as many as the deadline allows. `ask` contains the agents whose metrics are worth
    reading; None means all. Agents that could not be evaluated are logged. Returns their number."""
    failed = 0
    for agent in sorted(name for name in money if name is not None):
        if not delivery.may_act(clock.now() + MARGIN_S):
            break
        try:
            calls = await source.read(agent, WINDOW_S) if ask is None or agent in ask else LLMMetrics()
            await _evaluate(health, agent, calls, counts, money[agent])
        except HelixError as error:
            failed += 1
            logger.warning("the health of the model calls of agent %s could not be computed: %s", agent, error)
    return failed


async def _evaluate(health: HealthChecker, agent: str, calls: LLMMetrics, counts: Counts, money: AgentMoney) -> None:
    waiting, running = _load(counts, agent)
    limit = counts.get(agent, {}).get("ConcurrencyLimit", 0)  # without a limit, utilization is not computed
    load = {"queue_depth": waiting, "concurrent_llm_calls": running, "max_concurrent_calls": int(limit)}
    metrics = calls.model_copy(update=load)
    if metrics.requests or metrics.queue_depth or await _was_unwell(health, agent):
        await health.check_llm_health(agent, metrics, money.costs.get("max_cost_per_hour"))


def _load(counts: Counts, agent: str) -> tuple[int, int]:
    """Return the numbers of waiting and of active runs."""
    values = counts.get(agent, {})
    return int(values.get("QueueDepth", 0)), int(values.get("RunsActive", 0))


async def _was_unwell(health: HealthChecker, agent: str) -> bool:
    results = await health.results(agent)
    return any(result.check == LLM and result.status is not HealthStatus.HEALTHY for result in results)


async def record_checks(store: StateStore, metrics: Metrics, now: float, is_agent: Callable[[str], bool]) -> int:
    """Record the number of failing checks of each agent that has checks, and of all targets together, if any check runs.
    Returns the total number."""
    unhealthy = Counter[str]()
    for target in await health_rows.targets(store):
        checks = [result for result in await health_rows.results(store, target) if result.check != LLM]
        if any(_is_fresh(result, now) for result in checks):
            unhealthy[target] = sum(_is_failing(result, now) for result in checks)
    for target in sorted(filter(is_agent, unhealthy)):
        metrics.record(Measures({UNHEALTHY: unhealthy[target]}, agent=target))
    if unhealthy:
        metrics.record(Measures({UNHEALTHY: unhealthy.total()}))
    return unhealthy.total()


def _is_failing(result: HealthResult, now: float) -> bool:
    return result.status is HealthStatus.UNHEALTHY and _is_fresh(result, now)


def _is_fresh(result: HealthResult, now: float) -> bool:
    return now - (result.checked_at or 0) <= FRESH_S
