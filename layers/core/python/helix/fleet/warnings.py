"""What `govern` warns of each minute: a figure of all agents past its threshold, a health check that says no, a sweep that
is late.

Law: figures are those that `govern` has asked for anyway, of the last five minutes; only the cost of the last hour is one
question more. Nobody is asked about a stage at rest.
"""

from __future__ import annotations

from collections.abc import Iterable

from helix.core.llm_metrics import LLMMetrics
from helix.core.thresholds import Thresholds
from helix.ports.state_store import Value

LATE_S = 300.0
"""The schedule's beat is a minute: so long after the last sweep something is wrong."""
HOUR_S = 3_600.0


def passed(t: Thresholds, calls: Iterable[LLMMetrics], waiting: float, dollars: float) -> dict[str, str]:
    """The thresholds that are passed, by the names of their alarms, and how far. `calls`: of each agent that made any;
    `waiting`: runs without a slot; `dollars`: in the last hour."""
    figures = list(calls)
    tokens = sum(each.tokens_per_second for each in figures)
    throttles, errors = sum(each.throttles for each in figures), sum(each.errors for each in figures)
    p95 = max((each.p95_latency_ms for each in figures), default=0.0)
    p99 = max((each.p99_latency_ms for each in figures), default=0.0)
    known = {
        "cost-warning": (dollars > t.alarm_cost_warning, f"${dollars:.2f} in the last hour"),
        "cost-critical": (dollars > t.alarm_cost_critical, f"${dollars:.2f} in the last hour"),
        "tokens-per-second": (tokens > t.alarm_tokens_per_second, f"{tokens:.0f}"),
        "queue-depth": (waiting >= t.alarm_queue_depth, f"{waiting:.0f} runs wait"),
        "latency-p95": (p95 > t.alarm_latency_p95_ms, f"{p95:.0f} ms"),
        "latency-p99": (p99 > t.alarm_latency_p99_ms, f"{p99:.0f} ms"),
        "throttles": (throttles >= t.alarm_throttles, f"{throttles} in five minutes"),
        "model-errors": (errors >= t.alarm_model_errors, f"{errors} in five minutes"),
    }
    return {name: how for name, (is_passed, how) in known.items() if is_passed}


def unwell(unhealthy: int) -> dict[str, str]:
    """Of health checks that people have registered."""
    return {"health": f"{unhealthy} checks say no"} if unhealthy else {}


def late(sweep: Value | None, now: float) -> dict[str, str]:
    """`sweep`: the row of its last beat."""
    if sweep is None:
        return {"sweep": "it has not run yet"}
    age = now - float(sweep["at"])
    return {"sweep": f"the last one was {age:.0f} s ago"} if age > LATE_S else {}
