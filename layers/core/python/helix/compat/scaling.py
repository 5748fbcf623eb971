"""Scalers with per-target policies, whose state can be shared by processes with the same store.

Law: an evaluation only writes the history of blocked decisions. A change counts once the caller has applied it and called
`record_scaling_action`. The state is rows (`helix.fleet.decisions`), so scalers may start, stop and share a store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from helix.adapters.system import SystemClock, SystemIds
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
from helix.runtime.stores import MEMORY, open_store
from helix.workers.tasks import end_tasks

MONITOR_S = 30.0
NO_SPENDING = Spending()
AnyPolicy = ScalingPolicy | TokenAwareScalingPolicy | CostAwareScalingPolicy


@dataclass(frozen=True, slots=True)
class Reading:
    """The current load of a target."""

    metrics: ScalingMetrics | LLMMetrics
    """The metrics, of the kind that the target's policy uses."""
    instances: int
    """The number of running instances."""
    spent: Spending = NO_SPENDING
    """The target's spending, for a cost policy."""


class Scaled(Protocol):
    """Access to the targets that a monitoring scaler reads and changes."""

    async def read(self, target_id: str) -> Reading | None:
        """Return the load of the target. None if no target with that name is running."""
        ...

    async def apply(self, target_id: str, decision: ScalingDecision) -> None:
        """Set the number of instances to `decision.after`. Idempotent."""
        ...


class _RecordingScaler:
    """The common base of both scalers: the decision log, in `store` or in memory, and this scaler's last decision for each
    target."""

    def __init__(self, *, store: StateStore | None = None, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self.clock = clock or SystemClock()
        self.log = DecisionLog(store or open_store(MEMORY), self.clock, ids or SystemIds())
        self._decided: dict[str, ScalingDecision] = {}

    async def record_scaling_action(
        self, target_id: str, decision: ScalingDecision | None = None
    ) -> DecisionRow | None:
        """Record that a change was applied. Cooldowns start now. `decision` defaults to this scaler's last one for the
        target. Returns None for a hold, which is not an action. Raises `InvalidInputError` if there is no decision to
        record."""
        decision = decision or self._decided.get(target_id)
        if decision is None:
            raise InvalidInputError(
                f"no decision for {target_id!r} was made here: evaluate first, or give the decision"
            )
        self._decided.pop(target_id, None)
        return None if decision.action == "hold" else await self.log.record(target_id, decision)

    async def scaling_history(self, target_id: str, limit: int = 10) -> list[DecisionRow]:
        """Return the last decisions including blocked ones, oldest first."""
        return await self.log.history(target_id, limit)

    async def reset_cooldown(self, target_id: str) -> None:
        """End the cooldown, so that the next decision does not wait for earlier ones."""
        await self.log.forget(target_id)

    async def _decide(
        self, target_id: str, policy: AnyPolicy, metrics: Any, instances: int, spent: Spending = NO_SPENDING
    ) -> ScalingDecision:
        """Evaluate the policy. Only a cost policy uses `spent`."""
        standing, more = await self.log.read_standing(target_id), {}
        if isinstance(policy, CostAwareScalingPolicy):
            more = {"spent": spent}
        decision = policy.evaluate_scaling(metrics, instances, standing.state, now=self.clock.now(), **more)
        self._decided[target_id] = decision
        if decision.action == "hold":
            await self.log.record_block(target_id, standing, decision)
        return decision


class LLMScaler(_RecordingScaler):
    """A scaler with one pair of policies for many agents. If there is a cost policy, it decides, and delegates everything
    but cost to its base policy."""

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
        """Return the change to make now. It does not take effect, and no cooldown begins, until the caller has applied and
        recorded it."""
        self._agents.add(agent_id)
        policy = self.cost_policy or self.token_policy
        return await self._decide(agent_id, policy, llm_metrics, current_instances, spent)

    async def get_scaling_history(self, agent_id: str, limit: int = 10) -> list[DecisionRow]:
        return await self.scaling_history(agent_id, limit)

    async def get_statistics(self) -> dict[str, Any]:
        """Return statistics of the agents that this scaler evaluated. Events are the changes that are still in their
        histories."""
        histories = [await self.log.history(agent, 1000) for agent in sorted(self._agents)]
        return {
            "tracked_agents": len(self._agents),
            "total_scaling_events": sum(row.applied for rows in histories for row in rows),
            "token_policy": self.token_policy.model_dump(),
            "cost_policy": self.cost_policy.model_dump() if self.cost_policy else None,
        }


class Scaler(_RecordingScaler):
    """A scaler with a policy for each target. `llm` provides the token and cost policies for targets without their own."""

    def __init__(self, *, llm: LLMScaler | None = None, **where: Any) -> None:
        super().__init__(**where)
        self._llm = llm
        self._policies: dict[str, ScalingPolicy] = {}
        self._monitor: asyncio.Task[None] | None = None

    async def register_policy(self, target_id: str, policy: ScalingPolicy) -> None:
        """Set the policy of the target, replacing any earlier one."""
        self._policies[target_id] = policy

    async def unregister_policy(self, target_id: str) -> None:
        """Remove the policy. The target keeps its instances but loses its cooldowns. Idempotent."""
        if self._policies.pop(target_id, None) is not None:
            await self.log.forget(target_id)

    @property
    def policies(self) -> Mapping[str, ScalingPolicy]:
        return dict(self._policies)

    async def evaluate_scaling(
        self, target_id: str, metrics: ScalingMetrics, current_instances: int
    ) -> ScalingDecision:
        """Return the change to make now. It does not take effect, and no cooldown begins, until the caller has applied and
        recorded it."""
        policy = self._policies.get(target_id)
        if policy is None:
            return hold(current_instances, "no policy is registered", {})
        return await self._decide(target_id, policy, metrics, current_instances)

    async def evaluate_llm_scaling(
        self, target_id: str, llm_metrics: LLMMetrics, current_instances: int, spent: Spending = NO_SPENDING
    ) -> ScalingDecision:
        """Decide by tokens, queue, latency and cost. Bounds, steps and cooldowns come from the target's policy, if it has
        one."""
        policy, llm = self._policies.get(target_id), self._llm or get_llm_scaler()
        tokens, cost = llm.token_policy, llm.cost_policy
        if policy is not None:
            shared = {name: getattr(policy, name) for name in _PACE}
            tokens = tokens.model_copy(update=shared)
            bounds = {"min_instances": policy.min_instances, "max_instances": policy.max_instances}
            cost = cost and cost.model_copy(update={**bounds, "base_scaling_policy": tokens})
        return await self._decide(target_id, cost or tokens, llm_metrics, current_instances, spent)

    async def start_monitoring(self, scaled: Scaled, *, interval: float = MONITOR_S) -> None:
        """Evaluate every target with a policy each `interval` seconds, and apply the decisions. Idempotent. An error for
        one target is logged and does not affect the others."""
        if self._monitor is None:
            self._monitor = asyncio.create_task(self._watch(scaled, interval))

    async def stop_monitoring(self) -> None:
        """Stop monitoring, and return once no evaluation is in progress. Idempotent."""
        monitor, self._monitor = self._monitor, None
        if monitor is not None:
            await end_tasks(monitor)

    async def _watch(self, scaled: Scaled, interval: float) -> None:
        while True:
            await self.clock.sleep(interval)
            for target_id in list(self._policies):
                try:
                    await self._evaluate_target(scaled, target_id)
                except (HelixError, OSError) as error:
                    logger.warning("scaling of %r: %s", target_id, error)

    async def _evaluate_target(self, scaled: Scaled, target_id: str) -> None:
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
    """Create a scaler that decides by tokens and, with any `max_cost_per_...`, also by cost. `options` are fields of the
    two policies, and `store`, `clock`, `ids`. Raises `InvalidInputError` for an unknown option, and `ValueError` for one
    that is out of range."""
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
    """Return the process-wide scaler, with the default policies and an in-memory history."""
    return LLMScaler()
