"""Health checks: how consecutive results decide a check's status, and how checks combine into the health of targets.

Law: the check's thresholds decide; one failure is not an outage, and one success is not a recovery. An unhealthy check
stays unhealthy until it has recovered. Pure: other modules run the checks and decide when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from helix.core.llm_metrics import LLMMetrics
from helix.core.messages import Record


class HealthStatus(StrEnum):
    """The health of a check or a target. DEGRADED: it works, but with problems. UNKNOWN: not checked yet."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEGRADED = "degraded"
    UNKNOWN = "unknown"


class CheckType(StrEnum):
    """The consequence of a failing check. READINESS: the target gets no new work. LIVENESS: the target needs a restart.
    CUSTOM: a person should investigate."""

    READINESS = "readiness"
    LIVENESS = "liveness"
    CUSTOM = "custom"


Verdict = bool | tuple[bool, str]
CheckFunction = Callable[[], Verdict | Awaitable[Verdict]]


class HealthCheck(BaseModel):
    """A named check of a target. Times are in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=200)
    """The name of the check, unique for its target."""
    check_type: CheckType = CheckType.READINESS
    """The consequence of a failure."""
    check_fn: CheckFunction | None = None
    """The function that returns a bool, or (bool, message), sync or async. An exception is a failure. None makes the
    check always healthy."""
    interval: float = Field(default=30, ge=5)
    """The interval between two checks."""
    timeout: float = Field(default=10, gt=0)
    """The timeout of `check_fn`. A timeout counts as a failure."""
    failure_threshold: int = Field(default=3, ge=1)
    """The number of consecutive failures that make the check unhealthy. Fewer make it degraded."""
    success_threshold: int = Field(default=1, ge=1)
    """The number of consecutive successes that make the check healthy. Fewer leave its status unchanged."""
    initial_delay: float = Field(default=0, ge=0)
    """The delay before the first check, for a target that needs time to start."""


class HealthResult(Record):
    """The latest result of one check, or the health of a target. A target reports the worst values of its checks."""

    model_config = ConfigDict(extra="ignore")  # stored: an older version ignores the fields of a newer one

    status: HealthStatus = HealthStatus.UNKNOWN
    """The status according to the check's thresholds. For a target, the worst status of its checks."""
    message: str = ""
    """The check's message. For a target, the messages of its unhealthy and degraded checks."""
    check: str = ""
    """The name of the check. Empty for a target."""
    check_type: CheckType = CheckType.CUSTOM
    """The type of the check. `custom` for a target."""
    checked_at: float | None = None
    """The time of the check in Unix seconds. For a target, the time of its oldest result. None before the first
    check."""
    response_time_ms: float = 0
    """The time that the check took, in milliseconds. For a target, the longest."""
    consecutive_failures: int = 0
    """The current number of consecutive failures. For a target, the largest of its checks."""
    consecutive_successes: int = 0
    """The current number of consecutive successes. For a target, the smallest of its checks."""


class OverallHealth(Record):
    """The health of all targets."""

    status: HealthStatus
    """The worst status of any target."""
    counts: dict[HealthStatus, int]
    """The number of targets in each status."""
    targets: dict[str, HealthResult] = Field(default_factory=dict)
    """The health of each target, by its id."""


def verdict_of(answer: Any) -> tuple[bool, str]:
    """Convert the return value of a check function to (success, message). The value is a bool or a (bool, message)
    tuple. A missing message becomes "", and extra items are ignored. Any other value is judged by its truthiness."""
    if isinstance(answer, tuple) and answer:
        return bool(answer[0]), str(answer[1] or "") if len(answer) > 1 else ""
    return bool(answer), ""


def judge(
    check: HealthCheck, before: HealthResult | None, verdict: tuple[bool, str], at: float, took_ms: float
) -> HealthResult:
    """Return the check's next result. `failure_threshold` consecutive failures make it unhealthy, and fewer make it
    degraded. `success_threshold` consecutive successes make it healthy, and fewer leave its status unchanged."""
    ok, message = verdict
    before = before or HealthResult()
    failures = 0 if ok else before.consecutive_failures + 1
    successes = before.consecutive_successes + 1 if ok else 0
    status = before.status
    if ok and successes >= check.success_threshold:
        status = HealthStatus.HEALTHY
    elif failures >= check.failure_threshold:
        status = HealthStatus.UNHEALTHY
    elif not ok and status is not HealthStatus.UNHEALTHY:
        status = HealthStatus.DEGRADED
    return HealthResult(
        status=status,
        message=message,
        check=check.name,
        check_type=check.check_type,
        checked_at=at,
        response_time_ms=took_ms,
        consecutive_failures=failures,
        consecutive_successes=successes,
    )


def worst_status(statuses: Iterable[HealthStatus]) -> HealthStatus:
    """Return the worst status, in the order unhealthy, degraded, healthy. Unknown if none of them occurs."""
    found = set(statuses)
    order = (HealthStatus.UNHEALTHY, HealthStatus.DEGRADED, HealthStatus.HEALTHY)
    return next((status for status in order if status in found), HealthStatus.UNKNOWN)


def combine_results(results: Iterable[HealthResult]) -> HealthResult:
    """Combine the results of a target's checks into its health. The message names unhealthy and degraded checks."""
    looked = list(results)
    if not looked:
        return HealthResult(message="no checks")
    times = [result.checked_at for result in looked if result.checked_at is not None]
    reported = [
        f"{result.check}: {result.message or result.status}"
        for result in looked
        if result.status in (HealthStatus.UNHEALTHY, HealthStatus.DEGRADED)
    ]
    return HealthResult(
        status=worst_status(result.status for result in looked),
        message="; ".join(reported),
        checked_at=min(times) if times else None,
        response_time_ms=max(result.response_time_ms for result in looked),
        consecutive_failures=max(result.consecutive_failures for result in looked),
        consecutive_successes=min(result.consecutive_successes for result in looked),
    )


def overall(targets: Mapping[str, HealthResult]) -> OverallHealth:
    counts = dict.fromkeys(HealthStatus, 0)
    for result in targets.values():
        counts[result.status] += 1
    return OverallHealth(
        status=worst_status(result.status for result in targets.values()), counts=counts, targets=dict(targets)
    )


class LLMHealthRule(BaseModel):
    """The limits above which the model calls of an agent make it unhealthy or degraded. A cost above its budget only
    degrades it, because stopping the agent is the budget's job. Requests without any tokens make it unhealthy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unhealthy_queue: int = 50
    """The number of waiting runs above which the agent is unhealthy."""
    unhealthy_p95_ms: float = 30_000
    """The 95th percentile of latency above which the agent is unhealthy, in milliseconds."""
    unhealthy_wait_ms: float = 10_000
    """The mean wait for a slot above which the agent is unhealthy, in milliseconds."""
    degraded_queue: int = 20
    """The number of waiting runs above which the agent is degraded."""
    degraded_p95_ms: float = 10_000
    """The 95th percentile of latency above which the agent is degraded, in milliseconds."""
    degraded_wait_ms: float = 5_000
    """The mean wait for a slot above which the agent is degraded, in milliseconds."""
    degraded_utilization: float = 0.95
    """The utilization of the concurrency limit, from 0 to 1, above which the agent is degraded."""

    def judge(self, metrics: LLMMetrics, cost_budget: float | None = None) -> tuple[HealthStatus, list[str]]:
        """Return the status and its reasons, the worst first. `cost_budget` is in US dollars per hour; None skips the
        cost check."""
        m = metrics
        bad = [
            (m.requests > 0 and m.tokens_per_second == 0, f"{m.requests} requests and no tokens"),
            *_load(m, self.unhealthy_queue, self.unhealthy_p95_ms, self.unhealthy_wait_ms),
        ]
        poor = [
            *_load(m, self.degraded_queue, self.degraded_p95_ms, self.degraded_wait_ms),
            (
                cost_budget is not None and m.cost_per_hour > cost_budget,
                f"${m.cost_per_hour:.2f} an hour, more than ${cost_budget or 0:.2f}",
            ),
            (
                m.get_utilization() > self.degraded_utilization,
                f"utilisation {m.get_utilization():.0%}, more than {self.degraded_utilization:.0%}",
            ),
        ]
        if reasons := [text for holds, text in bad if holds]:
            return HealthStatus.UNHEALTHY, reasons
        if reasons := [text for holds, text in poor if holds]:
            return HealthStatus.DEGRADED, reasons
        return HealthStatus.HEALTHY, []


def _load(m: LLMMetrics, queue: int, p95_ms: float, wait_ms: float) -> list[tuple[bool, str]]:
    return [
        (m.queue_depth > queue, f"{m.queue_depth} wait, more than {queue}"),
        (m.p95_latency_ms > p95_ms, _slow("p95 latency", m.p95_latency_ms, p95_ms)),
        (m.avg_wait_time_ms > wait_ms, _slow("wait", m.avg_wait_time_ms, wait_ms)),
    ]


def _slow(what: str, found_ms: float, limit_ms: float) -> str:
    return f"{what} {found_ms / 1000:.1f} s, more than {limit_ms / 1000:g} s"
