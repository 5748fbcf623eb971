"""The warnings that `govern` reports each minute, about metrics that exceed their thresholds and failing health checks. A
late sweep counts as a failure.

Law: the metrics are those of the last five minutes, which `govern` reads anyway. Only the cost of the last hour takes
another request. No metrics are read for an idle stage. A per-instance threshold is compared with each agent's own metric
and instances, never with the sum for all agents.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.core.llm_metrics import LLMMetrics
from helix.core.thresholds import Thresholds
from helix.services.activity import Beats

LATE_S = 300.0
"""The time by which a sweep must be overdue to be considered late. The schedule runs every minute."""
HOUR_S = 3_600.0


def find_exceeded(
    t: Thresholds, calls: Mapping[str, LLMMetrics], gauges: Mapping[str | None, Mapping[str, float]], dollars: float
) -> dict[str, str]:
    """Return a description of each exceeded threshold, by the name of its alarm. `calls`: the metrics of each agent that
    made calls. `gauges`: by agent, and under None for all agents, as returned by `admission.gauges`. `dollars`: the cost of
    the last hour."""
    figures, waiting = list(calls.values()), gauges.get(None, {}).get("QueueDepth", 0)
    allowed = {agent: t.alarm_tokens_per_second * _instances(gauges.get(agent, {})) for agent in calls}
    over = [agent for agent, each in sorted(calls.items()) if each.tokens_per_second > allowed[agent]]
    tokens = ", ".join(f"{agent}: {calls[agent].tokens_per_second:.0f} of {allowed[agent]:.0f}" for agent in over)
    throttles, errors = sum(each.throttles for each in figures), sum(each.errors for each in figures)
    p95 = max((each.p95_latency_ms for each in figures), default=0.0)
    p99 = max((each.p99_latency_ms for each in figures), default=0.0)
    known = {
        "cost-warning": (dollars > t.alarm_cost_warning, f"${dollars:.2f} in the last hour"),
        "cost-critical": (dollars > t.alarm_cost_critical, f"${dollars:.2f} in the last hour"),
        "tokens-per-second": (bool(over), tokens),
        "queue-depth": (waiting >= t.alarm_queue_depth, f"{waiting:.0f} runs wait"),
        "latency-p95": (p95 > t.alarm_latency_p95_ms, f"{p95:.0f} ms"),
        "latency-p99": (p99 > t.alarm_latency_p99_ms, f"{p99:.0f} ms"),
        "throttles": (throttles >= t.alarm_throttles, f"{throttles} in five minutes"),
        "model-errors": (errors >= t.alarm_model_errors, f"{errors} in five minutes"),
    }
    return {name: how for name, (is_passed, how) in known.items() if is_passed}


def _instances(gauges: Mapping[str, float]) -> float:
    """Return the number of an agent's runs that may be active, or that are active if it has no limit. At least 1."""
    return max(1.0, gauges.get("ConcurrencyLimit", gauges.get("RunsActive", 0)))


def warn_of_failing_checks(unhealthy: int) -> dict[str, str]:
    """Return the warning about custom health checks that fail."""
    return {"health": f"{unhealthy} health checks fail"} if unhealthy else {}


def warn_of_late_sweep(beats: Beats, now: float) -> dict[str, str]:
    if now <= beats.due_at(now) + LATE_S:
        return {}
    return {"sweep": "none has run" if beats.swept_at is None else f"the last one was {now - beats.swept_at:.0f} s ago"}
