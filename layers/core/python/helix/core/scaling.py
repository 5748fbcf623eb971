"""Decides how many instances of an agent may run at once: what all policies share, and the policy for CPU and memory.

Law: pure. The same metrics, state and time give the same decision. The state records only changes that were applied,
not decisions. An instance is one unit of allowed concurrency. Times are in Unix seconds, cooldowns in seconds.

- A step up waits `scale_up_cooldown` after the last step up. A step down waits `scale_down_cooldown` after the last
  change of any kind, so that it is based on metrics from after that change.
- A turn is a change in the opposite direction of the previous one. After a turn, the next turn waits
  `oscillation_lock`; a change in the same direction does not. So no interval of that length contains up, down and up
  again, and the lock always expires. A policy may lock turns differently if it keeps this guarantee (`locked_until`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from helix.core.messages import Record

Direction = Literal["up", "down"]
Action = Literal["up", "down", "hold"]
Blocked = Literal["cooldown", "oscillation", "budget", "throttling", "operator", "unsettled"]
Rule = Literal[
    "none",  # nothing to do
    "bounds",  # outside the minimum or maximum
    "load",  # above a target
    "quiet",  # every signal is low
    "wake",  # at 0, and runs wait
    "budget critical",
    "budget stop",
    "budget reset",
    "operator",
    "health",  # a readiness check failed or recovered
]


FIXED = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
"""The pydantic settings of all policies: frozen, and unknown options are errors."""


class ScalingDecision(Record, frozen=True):
    """A decision about the instances of one agent."""

    before: int
    """The number of instances before the decision."""
    after: int
    """The number of instances that the decision sets. It equals `before` for a hold."""
    rule: Rule = "none"
    """The rule behind the decision. `none` if no rule asked for a change."""
    reason: str
    """A human-readable explanation."""
    signals: dict[str, float] = Field(default_factory=dict)
    """The metrics that the decision was based on, by signal name."""
    blocked_by: Blocked | None = None
    """The rule that blocked the change and turned it into a hold. None if it was not blocked."""
    wanted: int | None = None
    """The number of instances that the rule asked for, if it was blocked or reduced. Otherwise None."""
    trigger: str = ""
    """The event that triggered the evaluation, such as an alarm or the schedule. Set by the governor."""
    budget: str | None = None
    """The name of the budget that stops the agent. None if no budget does. Set by the governor."""

    @property
    def action(self) -> Action:
        if self.after == self.before:
            return "hold"
        return "up" if self.after > self.before else "down"

    def because_of(self, trigger: str) -> ScalingDecision:
        return self.model_copy(update={"trigger": trigger})


class ScalingState(Record, frozen=True):
    """The latest changes that were applied to one agent."""

    up_at: float | None = None
    """The time of the last step up. None if there was none."""
    down_at: float | None = None
    """The time of the last step down. None if there was none."""
    direction: Direction | None = None
    """The direction of the last change. None if there was none."""
    turned_at: float | None = None
    """The time of the last turn (a change in the opposite direction of the previous one). None if there was none."""
    instances: int | None = None
    """The number of instances after the last change. None if there was none, or if an operator or a health check made
    it."""
    stopped: bool = False
    """Whether the agent admits no runs because its budget is exhausted."""

    @property
    def changed_at(self) -> float | None:
        return max((at for at in (self.up_at, self.down_at) if at is not None), default=None)

    def applied(self, decision: ScalingDecision, now: float) -> ScalingState:
        """Return the state after the decision was applied. A hold changes nothing."""
        moved: dict[str, Any]
        match decision.action:
            case "hold":
                return self
            case "up":
                moved = {"up_at": now, "direction": "up", "stopped": False}
            case "down":
                moved = {"down_at": now, "direction": "down", "stopped": decision.rule == "budget stop"}
        turned = self.direction is not None and self.direction != moved["direction"]
        left = None if decision.rule in ("operator", "health") else decision.after
        changed = {**moved, "instances": left, "turned_at": now if turned else self.turned_at}
        return self.model_copy(update=changed)


class Bounds(BaseModel):
    """The minimum and maximum number of instances. Raises `ValueError` if they contradict each other."""

    model_config = FIXED

    min_instances: int = Field(default=1, ge=0)
    """The minimum number of instances. 0 lets an idle agent sleep."""
    max_instances: int = Field(default=10, ge=1)
    """The maximum number of instances."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_instances > self.max_instances:
            raise ValueError(
                f"min_instances {self.min_instances} is more than max_instances {self.max_instances}: raise the maximum"
            )
        return self


class Steps(BaseModel):
    """The size and frequency of changes. Times are in seconds."""

    model_config = FIXED

    scale_up_cooldown: float = Field(default=60, ge=10)
    """The minimum time between two steps up."""
    scale_down_cooldown: float = Field(default=300, ge=30)
    """The minimum time between the last change of any kind and a step down, so that it is based on metrics from after
    that change."""
    scale_up_step: int = Field(default=1, ge=1)
    """The number of instances that one step up adds."""
    scale_down_step: int = Field(default=1, ge=1)
    """The number of instances that one step down removes."""
    oscillation_lock: float = Field(default=600, ge=0)
    """The time after a turn during which the direction may not turn again. 0 disables the lock."""


class Pace(Bounds, Steps):
    """Applies bounds, steps and cooldowns to changes."""

    def return_to_bounds(self, current: int, signals: Mapping[str, float]) -> ScalingDecision | None:
        """Return a decision to return to the bounds immediately, or None if `current` is within them. No cooldown
        applies, because the user set the bounds and no metric is involved."""
        bounded = min(max(current, self.min_instances), self.max_instances)
        if bounded == current:
            return None
        bound = "min_instances" if bounded > current else "max_instances"
        reason = f"{current} is outside the bound {bound}={bounded}"
        return ScalingDecision(before=current, after=bounded, rule="bounds", reason=reason, signals=dict(signals))

    def step(
        self,
        current: int,
        wanted: int,
        rule: Rule,
        reason: str,
        signals: Mapping[str, float],
        state: ScalingState,
        now: float,
    ) -> ScalingDecision:
        """Return a change towards `wanted` within the bounds, or a hold if a cooldown or the oscillation lock blocks
        it."""
        after = min(max(wanted, self.min_instances), self.max_instances)
        if after == current:
            return hold(current, f"{reason}; the bounds keep it at {current}", signals, rule=rule)
        decision = ScalingDecision(before=current, after=after, rule=rule, reason=reason, signals=dict(signals))
        up = after > current
        since, cooldown = (state.up_at, self.scale_up_cooldown) if up else (state.changed_at, self.scale_down_cooldown)
        if since is not None and now < since + cooldown:
            return blocked(decision, "cooldown", f"cooldown for another {since + cooldown - now:.0f} s")
        until = self.locked_until(state, "up" if up else "down")
        if until is not None and now < until:
            return blocked(
                decision, "oscillation", f"that would be back and forth; locked for another {until - now:.0f} s"
            )
        return decision

    def locked_until(self, state: ScalingState, direction: Direction) -> float | None:
        """Return the time until which the oscillation lock blocks this direction. None if it does not."""
        if state.turned_at is None or state.direction in (None, direction):
            return None
        return state.turned_at + self.oscillation_lock


class ScalingMetrics(Record, frozen=True):
    """Averages over the instances of an agent. Where CPU usage says little about the load, as in Lambda, pass the used
    share of the concurrency limit instead."""

    cpu_percent: float = 0
    """The CPU usage in percent of the instances' limits."""
    memory_percent: float = 0
    """The memory usage in percent of the instances' limits."""
    request_rate: float = 0
    """Requests per second. A rate above 0 wakes a sleeping agent and keeps one instance."""
    timestamp: float = 0
    """The time of the measurement. No policy uses it."""


class ScalingPolicy(Pace):
    """A policy that scales up if CPU or memory usage is above its target, and down only if both are below half of their
    targets."""

    target_cpu_percent: float = Field(default=70, gt=0, le=100)
    """The CPU usage above which the policy scales up, in percent."""
    target_memory_percent: float = Field(default=80, gt=0, le=100)
    """The memory usage above which the policy scales up, in percent."""

    def evaluate_scaling(
        self,
        metrics: ScalingMetrics,
        current_instances: int,
        state: ScalingState = ScalingState(),  # noqa: B008  frozen
        *,
        now: float,
    ) -> ScalingDecision:
        current = current_instances
        signals = metrics.model_dump(exclude={"timestamp"})
        if (decision := self.return_to_bounds(current, signals)) is not None:
            return decision
        if current == 0:
            if metrics.request_rate <= 0:
                return hold(0, "no requests arrive", signals)
            return self.step(0, 1, "wake", "requests arrive, and no instance runs", signals, state, now)
        if metrics.cpu_percent > self.target_cpu_percent:
            reason = f"CPU {metrics.cpu_percent:.0f} % is above its target, {self.target_cpu_percent:.0f} %"
            return self.step(current, current + self.scale_up_step, "load", reason, signals, state, now)
        if metrics.memory_percent > self.target_memory_percent:
            reason = f"memory {metrics.memory_percent:.0f} % is above its target, {self.target_memory_percent:.0f} %"
            return self.step(current, current + self.scale_up_step, "load", reason, signals, state, now)
        if (
            metrics.cpu_percent < self.target_cpu_percent / 2
            and metrics.memory_percent < self.target_memory_percent / 2
        ):
            floor = 1 if metrics.request_rate > 0 else 0
            wanted = max(current - self.scale_down_step, floor)
            reason = "CPU and memory are below half of their targets"
            return self.step(current, wanted, "quiet", reason, signals, state, now)
        return hold(current, "within the targets", signals)


def hold(current: int, reason: str, signals: Mapping[str, float], *, rule: Rule = "none") -> ScalingDecision:
    return ScalingDecision(before=current, after=current, rule=rule, reason=reason, signals=dict(signals))


def blocked(decision: ScalingDecision, by: Blocked, why: str) -> ScalingDecision:
    """Turn the decision into a hold that records the wanted change and what blocked it."""
    reported = {
        "after": decision.before,
        "wanted": decision.after,
        "blocked_by": by,
        "reason": f"{decision.reason}; {why}",
    }
    return decision.model_copy(update=reported)
