"""How many instances of an agent may run at once: what all policies share, and the policy for processors and memory.

Law: pure. The same numbers, state and moment give the same decision, and the state holds what was applied, never what was
only decided. An instance is one unit of allowed concurrency; times are Unix seconds, cooldowns seconds.

- An up waits `scale_up_cooldown` after the last up; a down waits `scale_down_cooldown` after the last change of any kind,
  because it must be judged by what came after that change.
- A turn is a change against the direction of the one before. After a turn, the next one waits `oscillation_lock`; going on
  in the same direction does not. So no interval of that length has up, down and up again, and the lock always ends.
  A policy may hold turns otherwise, if it keeps that (`locked_until`).
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
    "bounds",  # outside of minimum and maximum
    "load",  # above a target
    "quiet",  # every signal is low
    "wake",  # at 0, and somebody waits
    "budget critical",
    "budget stop",
    "budget reset",
    "operator",
    "health",  # a readiness check
]


FIXED = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
"""Of policies."""


class ScalingDecision(Record, frozen=True):
    """`before` and `after`: instances. `reason` is for people. `signals`: the numbers that were judged. `wanted`: what the
    rules asked for, where `blocked_by` stood in the way. `trigger`: what made somebody look (an alarm, the schedule).
    `budget`: the name of the one that stops the agent."""

    before: int
    after: int
    rule: Rule = "none"
    reason: str
    signals: dict[str, float] = Field(default_factory=dict)
    blocked_by: Blocked | None = None
    wanted: int | None = None
    trigger: str = ""
    budget: str | None = None

    @property
    def action(self) -> Action:
        if self.after == self.before:
            return "hold"
        return "up" if self.after > self.before else "down"

    def because_of(self, trigger: str) -> ScalingDecision:
        return self.model_copy(update={"trigger": trigger})


class ScalingState(Record, frozen=True):
    """What was applied to one agent so far: its last up and down, its last direction, when that turned, and how many
    `instances` that left (None: nothing was, or not the rules did it). `stopped`: its intake is closed because its money is
    spent."""

    up_at: float | None = None
    down_at: float | None = None
    direction: Direction | None = None
    turned_at: float | None = None
    instances: int | None = None
    stopped: bool = False

    @property
    def changed_at(self) -> float | None:
        return max((at for at in (self.up_at, self.down_at) if at is not None), default=None)

    def applied(self, decision: ScalingDecision, now: float) -> ScalingState:
        """The state once that decision is in force. A hold changes nothing."""
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
    """Raises `ValueError` where minimum and maximum contradict each other."""

    model_config = FIXED

    min_instances: int = Field(default=1, ge=0)
    max_instances: int = Field(default=10, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_instances > self.max_instances:
            raise ValueError(
                f"min_instances {self.min_instances} is more than max_instances {self.max_instances}: raise the maximum"
            )
        return self


class Steps(BaseModel):
    """How far and how fast."""

    model_config = FIXED

    scale_up_cooldown: float = Field(default=60, ge=10)
    scale_down_cooldown: float = Field(default=300, ge=30)
    scale_up_step: int = Field(default=1, ge=1)
    scale_down_step: int = Field(default=1, ge=1)
    oscillation_lock: float = Field(default=600, ge=0)


class Pace(Bounds, Steps):
    """The moves that these allow."""

    def outside(self, current: int, signals: Mapping[str, float]) -> ScalingDecision | None:
        """Back between minimum and maximum at once: these are the user's word, not a judgement."""
        bounded = min(max(current, self.min_instances), self.max_instances)
        if bounded == current:
            return None
        bound = "min_instances" if bounded > current else "max_instances"
        reason = f"{current} is outside of {bound} {bounded}"
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
        """Towards `wanted`, within the bounds, unless a cooldown or the lock stands in the way."""
        after = min(max(wanted, self.min_instances), self.max_instances)
        if after == current:
            return hold(current, f"{reason}; {current} is all that is allowed", signals, rule=rule)
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
        """When the oscillation lock lets the next change go this way; None: now."""
        if state.turned_at is None or state.direction in (None, direction):
            return None
        return state.turned_at + self.oscillation_lock


class ScalingMetrics(Record, frozen=True):
    """Averages over the instances, in percent of what they may use; `request_rate` in requests per second; `timestamp` in
    Unix seconds. Where a processor means little, as in Lambda, give the share of the concurrency limit in use."""

    cpu_percent: float = 0
    memory_percent: float = 0
    request_rate: float = 0
    timestamp: float = 0


class ScalingPolicy(Pace):
    """Up if processor or memory is above its target; down only if both are below half of theirs."""

    target_cpu_percent: float = Field(default=70, gt=0, le=100)
    target_memory_percent: float = Field(default=80, gt=0, le=100)

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
        if (decision := self.outside(current, signals)) is not None:
            return decision
        if current == 0:
            if metrics.request_rate <= 0:
                return hold(0, "nobody asks", signals)
            return self.step(0, 1, "wake", "requests come, and nothing runs", signals, state, now)
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
    """The same wish, not granted."""
    reported = {
        "after": decision.before,
        "wanted": decision.after,
        "blocked_by": by,
        "reason": f"{decision.reason}; {why}",
    }
    return decision.model_copy(update=reported)
