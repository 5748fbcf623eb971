"""The policies that move the limits: the deployed `govern`, fixed limits, and the policies of the original source.

The last follows the source's rules: one cooldown that begins with the decision, no lock against oscillation, the hourly
rate as its only budget, which it never enforces, and no notion of a throttling provider.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from helix.adapters.system import SystemIds
from helix.core.delivery import Delivery
from helix.core.fleet_policy import FleetPolicy
from helix.core.llm_metrics import LLMMetrics
from helix.core.measures import Measures
from helix.core.resources import ResourceConfig
from helix.fleet.decisions import DecisionLog
from helix.fleet.governing import Governor, Registered, Trigger
from helix.fleet.spending import BudgetMoney

from .load import Kind

if TYPE_CHECKING:
    from .replay import Replay

ALARM_DEPTH = 5


@dataclass(slots=True)
class Governed:
    """The deployed `govern`, run by its schedule and by the alarm on the queue's depth."""

    enforced: bool = True
    _ringing: set[str] = field(default_factory=set)
    _alarms: int = 0
    _governor: Governor | None = None

    async def begin(self, replay: Replay) -> None:
        resources = {name: ResourceConfig.of(kind.resources, name) for name, kind in replay.kinds.items()}
        for name, asked in resources.items():
            await replay.slots.set_limit(name, asked.min_instances)

        async def registered(agent: str) -> Registered | None:
            return Registered(resources[agent])

        self._governor = Governor(
            slots=replay.slots,
            grant=replay.grant,
            registered=registered,
            money=BudgetMoney(replay.budgets, replay.clock),
            source=_Source(replay),
            log=DecisionLog(replay.store, replay.clock, SystemIds()),
            clock=replay.clock,
            metrics=_Moves(replay),
        )

    async def tick(self, replay: Replay) -> None:
        if replay.time % 60:
            return
        for agent, counter in (await replay.slots.counters()).items():
            if agent is not None and counter.queued < ALARM_DEPTH:
                self._ringing.discard(agent)
        await self._govern(replay, Trigger())

    async def queued(self, replay: Replay, agent: str, depth: int) -> None:
        if depth >= ALARM_DEPTH and agent not in self._ringing:
            self._ringing.add(agent)
            self._alarms += 1
            await self._govern(replay, Trigger("queue-depth", frozenset({agent}), f"m{self._alarms}"))

    async def _govern(self, replay: Replay, trigger: Trigger) -> None:
        assert self._governor is not None
        await self._governor.govern(trigger, Delivery("replay", replay.clock.now() + 60))


class _Source:
    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    async def read(self, agent: str, window_s: float) -> LLMMetrics:
        return await self._replay.metrics(agent)


class _Moves:
    """The decisions in force, as measured."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay

    def record(self, measures: Measures) -> None:
        told: Any = measures.details
        assert measures.agent is not None
        self._replay.moved(measures.agent, told["before"], told["after"], told["rule"])


@dataclass(slots=True)
class Fixed:
    """A constant limit."""

    share: float = 0.5
    enforced: bool = False

    async def begin(self, replay: Replay) -> None:
        for kind in replay.kinds.values():
            await replay.slots.set_limit(kind.name, max(1, round(kind.resources["max"] * self.share)))

    async def tick(self, replay: Replay) -> None:
        return

    async def queued(self, replay: Replay, agent: str, depth: int) -> None:
        return


@dataclass(slots=True)
class AsInTheSource:
    """A check every 30 seconds, as in the source's monitor."""

    enforced: bool = False
    _decided: dict[str, float] = field(default_factory=dict)

    async def begin(self, replay: Replay) -> None:
        for kind in replay.kinds.values():
            await replay.slots.set_limit(kind.name, kind.resources["min"])

    async def tick(self, replay: Replay) -> None:
        for kind in replay.kinds.values():
            metrics = await replay.metrics(kind.name)
            current = metrics.max_concurrent_calls
            wanted = self._evaluate(kind, metrics, current, replay.time)
            if wanted and wanted != current:
                self._decided[kind.name] = replay.time
                await replay.set_limit(kind.name, wanted, "source")

    async def queued(self, replay: Replay, agent: str, depth: int) -> None:
        return

    def _evaluate(self, kind: Kind, metrics: LLMMetrics, current: int, now: float) -> int | None:
        ratio = metrics.cost_per_hour / kind.hour_usd
        if ratio >= 0.95:
            return max(current - 1, int(kind.resources["min"]))
        wanted = self._by_load(kind, metrics, current, now)
        if ratio >= 0.8:
            return wanted if wanted and wanted < current else None
        if wanted and wanted > current and metrics.cost_per_hour * wanted / current > kind.hour_usd:
            return min(int(kind.hour_usd / metrics.cost_per_hour * current), wanted)
        return wanted

    def _by_load(self, kind: Kind, metrics: LLMMetrics, current: int, now: float) -> int | None:
        policy = FleetPolicy.model_validate(kind.resources["scaling"])
        since = now - self._decided.get(kind.name, float("-inf"))
        each = metrics.tokens_per_second / current if current else 0
        target = policy.target_tokens_per_second * (1 - policy.tokens_per_second_buffer)
        up = (
            each > target
            or metrics.queue_depth >= policy.queue_depth_threshold
            or metrics.p95_latency_ms > policy.target_p95_latency_ms
            or metrics.p99_latency_ms > policy.target_p99_latency_ms
        )
        down = each < target * 0.5
        if up and since < policy.scale_up_cooldown:
            return None
        if down and not up and since < policy.scale_down_cooldown:
            return None
        if up:
            wanted = min(current + policy.scale_up_step, kind.resources["max"])
        elif down:
            wanted = max(current - policy.scale_down_step, kind.resources["min"])
        else:
            return None
        return wanted if wanted != current else None
