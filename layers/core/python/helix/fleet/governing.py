"""The function `govern`: read the agents' metrics, decide according to their scaling policies, apply the decision, and
record the reason.

Law: a trigger names the agents to evaluate, never the action. Decisions use current metrics, so a message that arrives
twice, late or out of order does no harm. One decision at a time is written, applied and marked. A retry continues where the
previous attempt stopped. After a change, its effect must become visible before the next one, so within `QUIET_S` only spent
money can change the agent again. A limit of 0 that was not set here was set by an operator, and is kept.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from helix.core.delivery import Delivery
from helix.core.errors import HelixError
from helix.core.fleet_policy import policy_of
from helix.core.llm_scaling import CostAwareScalingPolicy
from helix.core.measures import Measures
from helix.core.resources import ResourceConfig
from helix.core.scaling import ScalingDecision
from helix.engine.engine import Engine, logger
from helix.engine.runs.admission import begin_granted
from helix.fleet.decisions import DecisionLog, DecisionRow, Standing
from helix.fleet.spending import AgentMoney, BudgetMoney
from helix.ports.capacity import Capacity, NoCapacity
from helix.ports.clock import Clock
from helix.ports.metrics import Metrics, NoMetrics
from helix.ports.metrics_source import MetricsSource
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import SlotCounter

WINDOW_S = 300.0
"""The time window of the metrics that a decision uses."""
QUIET_S = 45.0
"""The time after a change during which only spent money can change the agent again. It is less than the minute between two
scheduled evaluations."""
EARLY_S = 15.0
"""The time by which a scheduled evaluation may precede the end of a cooldown. EventBridge starts each evaluation within its
minute, not on the second (https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html). Without this
tolerance, a cooldown of one minute would often end just after the next evaluation."""
MARGIN_S = 5.0
FAILED = "failed"
STOP: Final = "budget stop"

Counters = Mapping[str | None, SlotCounter]


@dataclass(frozen=True, slots=True)
class Trigger:
    """The cause of an evaluation of agents."""

    name: str = "schedule"
    """The trigger's name in decision records, such as `schedule` or `monitor`."""
    agents: frozenset[str] | None = None
    """The agents to evaluate. None: all."""
    event: str = ""
    """The id of the message, to detect duplicates. Empty: duplicates are not detected."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The registered settings of an agent."""

    resources: ResourceConfig | None
    """The agent's resources, with the bounds and policy for scaling. None: the agent requested none, so it is not
    scaled."""
    stopped: bool = False
    """Whether an operator stopped the agent."""


@dataclass(frozen=True, slots=True)
class Governor:
    """The ports and functions that `govern` uses."""

    slots: RowSlots
    """The slot counters, whose limits the decisions change."""
    grant: Callable[[], Awaitable[None]]
    """A function that starts waiting runs after a limit was raised."""
    registered: Callable[[str], Awaitable[Registered | None]]
    """A function that returns an agent's registered settings, or None for an unknown agent."""
    money: BudgetMoney
    """The budgets that apply to each agent."""
    source: MetricsSource
    """The source of the model call metrics that decisions are based on."""
    log: DecisionLog
    """The stored decisions."""
    clock: Clock
    """The clock, whose times are Unix seconds."""
    capacity: Capacity = field(default_factory=NoCapacity)
    """The capacity to keep ready for a limit. By default none is kept."""
    metrics: Metrics = field(default_factory=NoMetrics)
    """The receiver of scaling metrics. By default they are dropped."""

    async def govern(self, trigger: Trigger, delivery: Delivery) -> Counter[str]:
        """Evaluate every agent that the trigger names once, but stop when the deadline is near. Returns how often each
        result occurred. An error for one agent is logged and does not affect the others."""
        done: Counter[str] = Counter()
        counters = await self.slots.counters()
        agents = self._order(counters, trigger)
        money = await self.money.read(agents) if agents else {}
        for agent in agents:
            if not delivery.may_act(self.clock.now() + MARGIN_S):
                done["left for the next look"] += 1
                break
            try:
                done[await self._evaluate(agent, counters[agent], money[agent], trigger)] += 1
            except HelixError as error:
                done[FAILED] += 1
                logger.warning("govern: agent %s: %s", agent, error)
            except Exception as error:
                done[FAILED] += 1
                logger.exception("govern: agent %s: %s", agent, type(error).__name__)
        return done

    def _order(self, counters: Counters, trigger: Trigger) -> list[str]:
        """Return the agents to evaluate, in order. The order rotates each minute, so that agents that were skipped for lack
        of time come earlier in a later evaluation."""
        agents = sorted(name for name in counters if name is not None)
        if trigger.agents is not None:
            return [name for name in agents if name in trigger.agents]
        first = int(self.clock.now() // 60) % len(agents) if agents else 0
        return agents[first:] + agents[:first]

    async def _evaluate(self, agent: str, counter: SlotCounter, money: AgentMoney, trigger: Trigger) -> str:
        standing = await self.log.read_standing(agent)
        registered = await self.registered(agent)
        resources = registered.resources if registered is not None else None
        if standing.pending is not None:
            return await self._apply(agent, standing.pending, resources, money)
        if trigger.event and trigger.event in standing.seen:
            return "seen before"
        if registered is None or resources is None or counter.bound is None:
            return "not limited"
        if registered.stopped or (counter.bound == 0 and standing.state.instances != 0):
            return "closed by an operator"
        if standing.owed and await self._keep_ready(agent, counter.bound, resources):
            await self.log.mark_requested(agent, standing)
            standing = await self.log.read_standing(agent)
        early_s = EARLY_S if trigger.agents is None else 0.0
        policy = policy_of(resources, money.costs, early_s=early_s)
        if trigger.agents is None and _is_at_rest(counter, standing, policy, money):
            return "at rest"
        if self._is_within_quiet_time(standing) and not money.used_up:
            return "unsettled"
        decision = await self._decide(agent, counter, standing, policy, money)
        decision = decision.because_of(trigger.name)
        if decision.rule == STOP and money.used_up:
            decision = decision.model_copy(update={"budget": money.used_up[0][0].name})
        if decision.action == "hold":
            noted = await self.log.record_block(agent, standing, decision)
            return f"held by {decision.blocked_by}" if noted else "held"
        row = await self.log.propose(agent, standing, decision, event=trigger.event)
        return "decided elsewhere" if row is None else await self._apply(agent, row, resources, money)

    async def _decide(
        self, agent: str, counter: SlotCounter, standing: Standing, policy: CostAwareScalingPolicy, money: AgentMoney
    ) -> ScalingDecision:
        limit = counter.bound or 0
        now_running = {
            "queue_depth": counter.queued,
            "concurrent_llm_calls": counter.running,
            "max_concurrent_calls": limit,
        }
        metrics = (await self.source.read(agent, WINDOW_S)).model_copy(update=now_running)
        now = self.clock.now()
        return policy.evaluate_scaling(metrics, limit, standing.state, now=now, spent=money.spent)

    async def _apply(self, agent: str, row: DecisionRow, resources: ResourceConfig | None, money: AgentMoney) -> str:
        """Apply the decision, or apply it again after a crash before the mark. A limit that was changed in the meantime is
        kept. The alert about a stop is written before the mark, so a crash cannot lose it."""
        alive, stops = self.log.check_open(agent, row), row.rule == STOP
        by = (f"budget {row.budget}" if row.budget else "a budget") if stops else None
        if not await self.slots.change_limit(agent, row.before, row.after, alive=alive, stopped_by=by):
            return "given up" if await self.log.give_up(agent, row) else "decided elsewhere"
        if stops:
            await self.money.raise_stop(money, agent)
        if row.action == "up":
            await self.grant()
        ready = await self._keep_ready(agent, row.after, resources)
        if not await self.log.confirm(agent, row, owed=not ready):
            return "decided elsewhere"
        level = logging.WARNING if stops else logging.INFO
        logger.log(level, "govern scales agent %s from %d to %d: %s", agent, row.before, row.after, row.reason)
        self.metrics.record(Measures({"ScalingDecisions": 1}, agent=agent, details=row.model_dump(include=_DETAILS)))
        return row.action

    async def _keep_ready(self, agent: str, limit: int, resources: ResourceConfig | None) -> bool:
        """Request the capacity for a limit. The limit applies without it, so an error is retried at the next evaluation."""
        try:
            await self.capacity.set_instances(agent, _ready_instances(limit, resources))
        except HelixError as error:
            logger.warning("govern: agent %s: %s", agent, error)
            return False
        return True

    def _is_within_quiet_time(self, standing: Standing) -> bool:
        changed = standing.state.changed_at
        return changed is not None and self.clock.now() < changed + QUIET_S


def governor_of(
    engine: Engine,
    registered: Callable[[str], Awaitable[Registered | None]],
    source: MetricsSource,
    capacity: Callable[[RowSlots], Capacity] = lambda slots: NoCapacity(),
) -> Governor:
    """Return a governor for the agents whose limits, budgets and decisions are rows in the engine's store."""
    slots = engine.slots
    assert slots is not None, "this engine admits every run"

    async def grant() -> None:
        await begin_granted(engine, await slots.grant())

    return Governor(
        slots=slots,
        grant=grant,
        registered=registered,
        money=BudgetMoney(engine.budgets, engine.clock, engine.on_alert),
        source=source,
        log=DecisionLog(engine.store, engine.clock, engine.ids),
        clock=engine.clock,
        capacity=capacity(slots),
        metrics=engine.metrics,
    )


_DETAILS = {"before", "after", "rule", "reason", "trigger"}


def _is_at_rest(counter: SlotCounter, standing: Standing, policy: CostAwareScalingPolicy, money: AgentMoney) -> bool:
    """Return whether no metrics could lead to a change. If so, they are not read, because reading them costs money."""
    if standing.state.stopped:
        return bool(money.used_up) and counter.bound == 0
    idle = counter.running == 0 and counter.queued == 0
    return idle and counter.bound == policy.min_instances and not money.used_up


def _ready_instances(limit: int, resources: ResourceConfig | None) -> int:
    """Return the capacity for a limit: none for a stopped agent, and the minimum of its definition at the lowest limit."""
    if resources is None or limit == 0:
        return limit
    return resources.min_instances if limit <= 1 else min(max(limit, resources.min_instances), resources.max_instances)
