"""Health: what a check is, what becomes of its answers, and what a target and all of them together are.

Law: one failure is no outage and one success no recovery: the thresholds of the check decide. What is unhealthy stays
so until it has recovered; a failure in between never makes it look better. Pure: who probes, and when, is elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from helix.core.llm_metrics import LLMMetrics
from helix.core.messages import Record


class HealthStatus(StrEnum):
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEGRADED = "degraded"
    UNKNOWN = "unknown"


class CheckType(StrEnum):
    """READINESS: no new work while it fails. LIVENESS: it needs a restart. CUSTOM: to be looked at."""

    READINESS = "readiness"
    LIVENESS = "liveness"
    CUSTOM = "custom"


Verdict = bool | tuple[bool, str]
CheckFunction = Callable[[], Verdict | Awaitable[Verdict]]


class HealthCheck(BaseModel):
    """One named check. Times in seconds. `check_fn` answers a bool or (bool, message); what it raises, and taking longer
    than `timeout`, is a failure; without one the check is always healthy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=200)
    check_type: CheckType = CheckType.READINESS
    check_fn: CheckFunction | None = None
    interval: float = Field(default=30, ge=5)
    timeout: float = Field(default=10, gt=0)
    failure_threshold: int = Field(default=3, ge=1)
    success_threshold: int = Field(default=1, ge=1)
    initial_delay: float = Field(default=0, ge=0)


class HealthResult(Record):
    """Of one check, or of a target: then `check` is empty and the numbers are the worst of its checks'.
    `checked_at` is in Unix seconds, None before the first look."""

    model_config = ConfigDict(extra="ignore")  # it is stored: an older reader leaves out what a newer one added

    status: HealthStatus = HealthStatus.UNKNOWN
    message: str = ""
    check: str = ""
    check_type: CheckType = CheckType.CUSTOM
    checked_at: float | None = None
    response_time_ms: float = 0
    consecutive_failures: int = 0
    consecutive_successes: int = 0


class OverallHealth(Record):
    """`counts`: how many targets are in each status."""

    status: HealthStatus
    counts: dict[HealthStatus, int]
    targets: dict[str, HealthResult] = Field(default_factory=dict)


def verdict_of(answer: Any) -> tuple[bool, str]:
    """What a check function answered: a bool, or (bool, message); of a longer or shorter tuple the same places count.
    Anything else is taken by its truth."""
    if isinstance(answer, tuple) and answer:
        return bool(answer[0]), str(answer[1] or "") if len(answer) > 1 else ""
    return bool(answer), ""


def judge(
    check: HealthCheck, before: HealthResult | None, verdict: tuple[bool, str], at: float, took_ms: float
) -> HealthResult:
    """The check's next result: `failure_threshold` failures in a row make it unhealthy, fewer degraded;
    `success_threshold` successes in a row make it healthy, fewer change nothing."""
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


def worst(statuses: Iterable[HealthStatus]) -> HealthStatus:
    """Any unhealthy: unhealthy. Else any degraded: degraded. Else any healthy: healthy. Else unknown."""
    found = set(statuses)
    order = (HealthStatus.UNHEALTHY, HealthStatus.DEGRADED, HealthStatus.HEALTHY)
    return next((status for status in order if status in found), HealthStatus.UNKNOWN)


def of_target(results: Iterable[HealthResult]) -> HealthResult:
    """A target's health from its checks'. Its message names the checks that are not healthy."""
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
        status=worst(result.status for result in looked),
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
        status=worst(result.status for result in targets.values()), counts=counts, targets=dict(targets)
    )


class LLMHealthRule(BaseModel):
    """From which figures on an agent's model calls are unhealthy or degraded. Times in milliseconds; utilisation from 0
    to 1. A cost above its budget is degraded, not unhealthy: stopping is the budget's own business."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    unhealthy_queue: int = 50
    unhealthy_p95_ms: float = 30_000
    unhealthy_wait_ms: float = 10_000
    degraded_queue: int = 20
    degraded_p95_ms: float = 10_000
    degraded_wait_ms: float = 5_000
    degraded_utilization: float = 0.95

    def judge(self, metrics: LLMMetrics, cost_budget: float | None = None) -> tuple[HealthStatus, list[str]]:
        """The status and its reasons, the worst first. `cost_budget`: US dollars an hour."""
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
