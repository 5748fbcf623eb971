"""Scaling policies for model calls: by tokens, queue and latency, and by hourly, daily and monthly budgets.

Law: pure, like `helix.core.scaling`. An agent never scales up while the provider throttles, because more concurrency
would only cause more throttling. It never scales down for low load while runs wait. Budgets take precedence over load,
and only spent money stops an agent.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from helix.core.cost_status import CostStatus, CostThresholds, Spending, hours_left
from helix.core.llm_metrics import LLMMetrics
from helix.core.scaling import FIXED, Bounds, Direction, Pace, Rule, ScalingDecision, ScalingState, blocked, hold

QUIET = 0.5
"""The fraction of the scale-up limit below which throughput counts as low."""
ROOM = 0.6
"""The maximum fraction of instances in use after scaling down."""

NOTHING_COUNTED = Spending()


class Targets(BaseModel):
    """The targets for load. Throughput is per instance; latencies are in milliseconds."""

    model_config = FIXED

    target_tokens_per_second: float = Field(default=1000, gt=0)
    """The target throughput per instance, prompt and answer tokens together."""
    tokens_per_second_buffer: float = Field(default=0.2, ge=0, lt=1)
    """The fraction of the target kept as headroom. An agent scales up above the remainder, by default at 800 of
    1,000."""
    max_queue_depth: int = Field(default=10, ge=1)
    """The queue depth at which an agent scales up by two steps at once."""
    queue_depth_threshold: int = Field(default=5, ge=1)
    """The queue depth at which an agent scales up."""
    target_p95_latency_ms: float = Field(default=2000, gt=0)
    """The 95th percentile of latency above which an agent scales up."""
    target_p99_latency_ms: float = Field(default=5000, gt=0)
    """The 99th percentile of latency above which an agent scales up."""


class TokenAwareScalingPolicy(Pace, Targets):
    """A policy that scales by throughput, queue and latency.

    It scales up if tokens per second exceed the target minus its buffer, if the queue reaches `queue_depth_threshold`
    (two steps at `max_queue_depth`), or if latency exceeds its targets. It scales down if throughput is below half of
    that limit, no run waits, latency is within its targets, and enough instances stay free afterwards.

    If the metrics cover exactly these instances (their limit is `current_instances`), latency does not scale up while
    some instances are idle: another idle instance would not make calls faster.
    """

    def evaluate_scaling(
        self,
        llm_metrics: LLMMetrics,
        current_instances: int,
        state: ScalingState = ScalingState(),  # noqa: B008  frozen
        *,
        now: float,
    ) -> ScalingDecision:
        metrics, current = llm_metrics, current_instances
        each = metrics.tokens_per_second / current if current > 0 else 0.0
        signals = _signals(metrics) | {"tokens_per_second_per_instance": each}
        decision = self.return_to_bounds(current, signals)
        if decision is None and current == 0:
            if metrics.queue_depth == 0:
                return hold(0, "no run waits", signals)
            decision = _move(0, 1, "wake", f"{metrics.queue_depth} runs wait, and the limit is 0", signals)
        if decision is not None:
            return _not_into_throttling(decision, metrics)
        limit = self.target_tokens_per_second * (1 - self.tokens_per_second_buffer)
        if (reason := self._load(metrics, current, each, limit)) is not None:
            steps = 2 if metrics.queue_depth >= self.max_queue_depth else 1
            wanted = current + steps * self.scale_up_step
            wish = self.step(current, wanted, "load", reason, signals, state, now)
            return _not_into_throttling(wish, metrics)
        if each < limit * QUIET and metrics.queue_depth == 0:
            wanted = max(current - self.scale_down_step, self.min_instances)
            if metrics.concurrent_llm_calls > ROOM * wanted:
                return hold(current, f"{metrics.concurrent_llm_calls} of {current} are in use", signals)
            reason = f"{each:.0f} tokens/s per instance is below half of {limit:.0f}, and no run waits"
            return self.step(current, wanted, "quiet", reason, signals, state, now)
        return hold(current, "within the targets", signals)

    def locked_until(self, state: ScalingState, direction: Direction) -> float | None:
        """Return the time until which this direction is locked, or None. Only the first step down after a step up is
        locked; scaling up is never locked, because users are waiting. Locking one direction is enough to prevent
        oscillation."""
        if direction == "up" or state.direction != "up" or state.up_at is None:
            return None
        return state.up_at + self.oscillation_lock

    def _load(self, metrics: LLMMetrics, current: int, each: float, limit: float) -> str | None:
        """Return a description of the first signal above its target, or None."""
        if metrics.queue_depth >= self.queue_depth_threshold:
            return f"{metrics.queue_depth} runs wait, and the threshold is {self.queue_depth_threshold}"
        if each > limit:
            return f"{each:.0f} tokens/s per instance is above {limit:.0f}"
        if metrics.max_concurrent_calls == current and metrics.concurrent_llm_calls < current:
            return None
        if metrics.p95_latency_ms > self.target_p95_latency_ms:
            return f"p95 latency {metrics.p95_latency_ms:.0f} ms is above {self.target_p95_latency_ms:.0f} ms"
        if metrics.p99_latency_ms > self.target_p99_latency_ms:
            return f"p99 latency {metrics.p99_latency_ms:.0f} ms is above {self.target_p99_latency_ms:.0f} ms"
        return None


class CostAwareScalingPolicy(Bounds, CostThresholds):
    """A policy that keeps an agent within its budgets in US dollars. The most used budget counts.

    - At `cost_warning_threshold`, spent or projected for the end of the hour, the agent no longer scales up.
    - At `cost_critical_threshold`, spent, each evaluation removes one instance, down to `min_instances`, regardless of
      cooldowns.
    - At 1, no runs are admitted until a window ends or a budget is raised.

    Below these levels `base_scaling_policy` decides. Its steps up are limited to what the hourly budget affords at the
    current cost per instance.
    """

    max_cost_per_hour: float | None = Field(default=None, gt=0)
    """The hourly budget in US dollars. None sets no limit."""
    max_cost_per_day: float | None = Field(default=None, gt=0)
    """The daily budget in US dollars. None sets no limit."""
    max_cost_per_month: float | None = Field(default=None, gt=0)
    """The monthly budget in US dollars. None sets no limit."""
    base_scaling_policy: TokenAwareScalingPolicy | None = None
    """The policy for load. None holds the number of instances unless a budget reduces it."""

    def get_budget_status(
        self, llm_metrics: LLMMetrics, spent: Spending = NOTHING_COUNTED, *, now: float | None = None
    ) -> CostStatus:
        """Return the usage of the budgets at `now`, by default the timestamp of the metrics."""
        limits = {
            "hourly": self.max_cost_per_hour,
            "daily": self.max_cost_per_day,
            "monthly": self.max_cost_per_month,
        }
        moment = llm_metrics.timestamp if now is None else now
        return self.status(limits, llm_metrics.cost_per_hour, spent, moment)

    def evaluate_scaling(
        self,
        llm_metrics: LLMMetrics,
        current_instances: int,
        state: ScalingState = ScalingState(),  # noqa: B008  frozen
        *,
        now: float,
        spent: Spending = NOTHING_COUNTED,
    ) -> ScalingDecision:
        current, status = current_instances, self.get_budget_status(llm_metrics, spent, now=now)
        signals = _signals(llm_metrics) | {"budget_spent": status.spent, "budget_expected": status.expected}
        why = "; ".join(status.warnings)
        if status.level == "over" and current > 0:
            return _move(current, 0, "budget stop", f"{why}: no more runs are admitted", signals)
        if current == 0 and (status.level == "over" or (state.stopped and status.level == "critical")):
            return _closed(why, signals)
        if current == 0 and state.stopped:
            least = max(self.min_instances, 1)
            return _not_into_throttling(
                _move(0, least, "budget reset", "the budget has room again", signals), llm_metrics
            )
        if status.level == "critical" and current > self.min_instances:
            return _move(current, current - 1, "budget critical", why, signals)
        base = self._base(llm_metrics, current, state, now, signals)
        if base.action != "up" or base.rule == "wake":
            return base  # a sleeping agent is woken, because only spent money closes one
        if status.level in ("warning", "critical"):
            return blocked(base, "budget", why)
        return self._afforded(base, llm_metrics.cost_per_hour, spent, now)

    def _base(
        self, metrics: LLMMetrics, current: int, state: ScalingState, now: float, signals: dict[str, float]
    ) -> ScalingDecision:
        if self.base_scaling_policy is None:
            return hold(current, "within the budgets, and no policy for load is set", signals)
        decided = self.base_scaling_policy.evaluate_scaling(metrics, current, state, now=now)
        return decided.model_copy(update={"signals": decided.signals | signals})

    def _afforded(self, decision: ScalingDecision, rate: float, spent: Spending, now: float) -> ScalingDecision:
        """Limit a step up whose projected cost would exceed the hourly budget."""
        limit, current = self.max_cost_per_hour, decision.before
        if limit is None or rate <= 0 or current == 0:
            return decision
        left, hours = (limit, 1.0) if spent.hour is None else (limit - spent.hour, hours_left(now))
        affordable = max(int(left * current / (rate * hours)), current)
        if decision.after <= affordable:
            return decision
        why = f"${left:.2f} for {hours * 60:.0f} minutes affords {affordable} at ${rate / current:.2f} an hour each"
        if affordable == current:
            return blocked(decision, "budget", why)
        update = {"after": affordable, "wanted": decision.after, "reason": f"{decision.reason}; {why}"}
        return decision.model_copy(update=update)


def _signals(metrics: LLMMetrics) -> dict[str, float]:
    return {
        "tokens_per_second": metrics.tokens_per_second,
        "queue_depth": metrics.queue_depth,
        "p95_latency_ms": metrics.p95_latency_ms,
        "p99_latency_ms": metrics.p99_latency_ms,
        "throttles": metrics.throttles,
        "cost_per_hour": metrics.cost_per_hour,
    }


def _move(current: int, after: int, rule: Rule, reason: str, signals: dict[str, float]) -> ScalingDecision:
    """Return a decision that takes effect immediately, regardless of earlier changes."""
    return ScalingDecision(before=current, after=after, rule=rule, reason=reason, signals=signals)


def _closed(why: str, signals: dict[str, float]) -> ScalingDecision:
    """Return the decision to keep a stopped agent stopped, because its budget is still exhausted."""
    return ScalingDecision(before=0, after=0, rule="budget stop", reason=why, signals=signals, blocked_by="budget")


def _not_into_throttling(decision: ScalingDecision, metrics: LLMMetrics) -> ScalingDecision:
    if metrics.throttles <= 0 or decision.action != "up":
        return decision
    return blocked(decision, "throttling", f"the provider throttled {metrics.throttles} calls")
