"""Scalers: policies by target, decided in this process or any other on the same store.

Law: evaluating changes nothing but the history of what was blocked; a change counts from `record_scaling_action`, which its
caller calls when it is in force. The state is rows (`helix.fleet.decisions`), so scalers may come, go and share a store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from helix.core.cost_status import Spending
from helix.core.errors import HelixError, InvalidInputError
from helix.core.llm_metrics import LLMMetrics
from helix.core.llm_scaling import CostAwareScalingPolicy, TokenAwareScalingPolicy
from helix.core.scaling import ScalingDecision, ScalingMetrics, ScalingPolicy, hold
from helix.engine.engine import logger
from helix.fleet.decisions import DecisionLog, DecisionRow
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.state_store import StateStore
from helix.runtime.local import open_store
from helix.runtime.system import SystemClock, SystemIds
from helix.workers.tasks import end_tasks

MONITOR_S = 30.0
NO_SPENDING = Spending()
AnyPolicy = ScalingPolicy | TokenAwareScalingPolicy | CostAwareScalingPolicy


@dataclass(frozen=True, slots=True)
class Reading:
    """What a target is doing now. `metrics` of the kind that its policy judges."""

    metrics: ScalingMetrics | LLMMetrics
    instances: int
    spent: Spending = NO_SPENDING


class Scaled(Protocol):
    """What a monitoring scaler looks at, and acts on."""

    async def read(self, target_id: str) -> Reading | None:
        """None: nothing of that name runs now."""
        ...

    async def apply(self, target_id: str, decision: ScalingDecision) -> None:
        """Make `decision.after` the number of instances. Harmless when it is that already."""
        ...


class _Recorded:
    """What both scalers share: the log, in `store` or this process's memory, and each target's last decision here."""

    def __init__(self, *, store: StateStore | None = None, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self.clock = clock or SystemClock()
        self.log = DecisionLog(store or open_store(":memory:"), self.clock, ids or SystemIds())
        self._decided: dict[str, ScalingDecision] = {}

    async def record_scaling_action(
        self, target_id: str, decision: ScalingDecision | None = None
    ) -> DecisionRow | None:
        """That change is in force: cooldowns count from now. Without `decision`, the last one that this scaler gave for the
        target. A hold is no action: None. Raises `InvalidInputError` when there is none to record."""
        decision = decision or self._decided.get(target_id)
        if decision is None:
            raise InvalidInputError(f"nothing was decided for {target_id!r} here: evaluate first, or give the decision")
        self._decided.pop(target_id, None)
        return None if decision.action == "hold" else await self.log.record(target_id, decision)

    async def scaling_history(self, target_id: str, limit: int = 10) -> list[DecisionRow]:
        """The last decisions, the oldest first; those that something blocked among them."""
        return await self.log.history(target_id, limit)

    async def reset_cooldown(self, target_id: str) -> None:
        """The next decision waits for nothing that was applied before."""
        await self.log.forget(target_id)

    async def _decide(
        self, target_id: str, policy: AnyPolicy, metrics: Any, instances: int, spent: Spending = NO_SPENDING
    ) -> ScalingDecision:
        """Only a policy by cost looks at what is spent."""
        standing, more = await self.log.standing(target_id), {}
        if isinstance(policy, CostAwareScalingPolicy):
            more = {"spent": spent}
        decision = policy.evaluate_scaling(metrics, instances, standing.state, now=self.clock.now(), **more)
        self._decided[target_id] = decision
        if decision.action == "hold":
            await self.log.note(target_id, standing, decision)
        return decision


class LLMScaler(_Recorded):
    """One pair of policies for many agents: by cost where there is a cost policy, which asks its base for the rest."""

    def __init__(
        self,
        token_policy: TokenAwareScalingPolicy | None = None,
        cost_policy: CostAwareScalingPolicy | None = None,
        **where: Any,
    ) -> None:
        super().__init__(**where)
        self.token_policy = token_policy or TokenAwareScalingPolicy()
        self.cost_policy = cost_policy
        self._agents: set[str] = set()

    async def evaluate_scaling(
        self, agent_id: str, llm_metrics: LLMMetrics, current_instances: int, spent: Spending = NO_SPENDING
    ) -> ScalingDecision:
        """What should be done now. Nothing is, and no cooldown begins, until the caller has done and recorded it."""
        self._agents.add(agent_id)
        policy = self.cost_policy or self.token_policy
        return await self._decide(agent_id, policy, llm_metrics, current_instances, spent)

    async def get_scaling_history(self, agent_id: str, limit: int = 10) -> list[DecisionRow]:
        return await self.scaling_history(agent_id, limit)

    async def get_statistics(self) -> dict[str, Any]:
        """Of the agents that were evaluated here; events are the changes that their histories still hold."""
        histories = [await self.log.history(agent, 1000) for agent in sorted(self._agents)]
        return {
            "tracked_agents": len(self._agents),
            "total_scaling_events": sum(row.applied for rows in histories for row in rows),
            "token_policy": self.token_policy.model_dump(),
            "cost_policy": self.cost_policy.model_dump() if self.cost_policy else None,
        }


class Scaler(_Recorded):
    """A policy for each target. `llm` decides by tokens and cost for targets that have none of those of their own."""

    def __init__(self, *, llm: LLMScaler | None = None, **where: Any) -> None:
        super().__init__(**where)
        self._llm = llm
        self._policies: dict[str, ScalingPolicy] = {}
        self._monitor: asyncio.Task[None] | None = None

    async def register_policy(self, target_id: str, policy: ScalingPolicy) -> None:
        """From now on; in place of the one before."""
        self._policies[target_id] = policy

    async def unregister_policy(self, target_id: str) -> None:
        """The target keeps its instances, and loses its cooldowns. Harmless when it has no policy."""
        if self._policies.pop(target_id, None) is not None:
            await self.log.forget(target_id)

    @property
    def policies(self) -> Mapping[str, ScalingPolicy]:
        return dict(self._policies)

    async def evaluate_scaling(
        self, target_id: str, metrics: ScalingMetrics, current_instances: int
    ) -> ScalingDecision:
        """What should be done now. Nothing is, and no cooldown begins, until the caller has done and recorded it."""
        policy = self._policies.get(target_id)
        if policy is None:
            return hold(current_instances, "no policy is registered", {})
        return await self._decide(target_id, policy, metrics, current_instances)

    async def evaluate_llm_scaling(
        self, target_id: str, llm_metrics: LLMMetrics, current_instances: int, spent: Spending = NO_SPENDING
    ) -> ScalingDecision:
        """By tokens, queue, latency and cost, with the bounds, steps and cooldowns of the target's policy if it has one."""
        policy, llm = self._policies.get(target_id), self._llm or get_llm_scaler()
        tokens, cost = llm.token_policy, llm.cost_policy
        if policy is not None:
            shared = {name: getattr(policy, name) for name in _PACE}
            tokens = tokens.model_copy(update=shared)
            bounds = {"min_instances": policy.min_instances, "max_instances": policy.max_instances}
            cost = cost and cost.model_copy(update={**bounds, "base_scaling_policy": tokens})
        return await self._decide(target_id, cost or tokens, llm_metrics, current_instances, spent)

    async def start_monitoring(self, scaled: Scaled, *, interval: float = MONITOR_S) -> None:
        """Look at every target with a policy each `interval` seconds, and act. Started twice, it runs once. What goes wrong
        with one target is logged and does not keep the others waiting."""
        if self._monitor is None:
            self._monitor = asyncio.create_task(self._watch(scaled, interval))

    async def stop_monitoring(self) -> None:
        """Returns once nothing is being looked at any more; harmless when nothing was."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            await end_tasks(monitor)

    async def _watch(self, scaled: Scaled, interval: float) -> None:
        while True:
            await self.clock.sleep(interval)
            for target_id in list(self._policies):
                try:
                    await self._look(scaled, target_id)
                except (HelixError, OSError) as error:
                    logger.warning("scaling of %r: %s", target_id, error)

    async def _look(self, scaled: Scaled, target_id: str) -> None:
        reading = await scaled.read(target_id)
        if reading is None:
            return
        if isinstance(reading.metrics, LLMMetrics):
            decision = await self.evaluate_llm_scaling(target_id, reading.metrics, reading.instances, reading.spent)
        else:
            decision = await self.evaluate_scaling(target_id, reading.metrics, reading.instances)
        if decision.action != "hold":
            decision = decision.because_of("monitor")
            await scaled.apply(target_id, decision)
            await self.record_scaling_action(target_id, decision)


_PACE = tuple(name for name in ScalingPolicy.model_fields if name in TokenAwareScalingPolicy.model_fields)


def create_llm_scaler(
    target_tokens_per_second: float = 1000,
    max_cost_per_hour: float | None = None,
    min_instances: int = 1,
    max_instances: int = 10,
    **options: Any,
) -> LLMScaler:
    """A scaler by tokens; with any `max_cost_per_...`, by cost too. `options` are fields of the two policies, and
    `store`, `clock`, `ids`. Raises `InvalidInputError` for an option that nothing has, `ValueError` for one that is out of
    range."""
    where = {name: options.pop(name) for name in ("store", "clock", "ids") if name in options}
    tokens = {name: value for name, value in options.items() if name in TokenAwareScalingPolicy.model_fields}
    costs = {name: value for name, value in options.items() if name in CostAwareScalingPolicy.model_fields}
    if unknown := set(options) - set(tokens) - set(costs):
        raise InvalidInputError(f"no scaling policy has {', '.join(sorted(map(repr, unknown)))}")
    bounds = {"min_instances": min_instances, "max_instances": max_instances}
    token_policy = TokenAwareScalingPolicy(**{**bounds, "target_tokens_per_second": target_tokens_per_second, **tokens})
    cost_policy = None
    if max_cost_per_hour is not None or costs:
        given = {"max_cost_per_hour": max_cost_per_hour, "base_scaling_policy": token_policy}
        cost_policy = CostAwareScalingPolicy(**{**bounds, **given, **costs})
    return LLMScaler(token_policy, cost_policy, **where)


@lru_cache(maxsize=1)
def get_llm_scaler() -> LLMScaler:
    """This process's own, with the default policies and a history in memory."""
    return LLMScaler()
