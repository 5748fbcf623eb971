"""What CloudWatch has heard of an agent's model calls, as the numbers that scaling decides by.

Law: sums are divided by the seconds that they were counted in; percentiles are CloudWatch's own, and where it cuts the
window in two the larger one counts: an upper bound, never an average. Asking for a thousand metrics costs a cent, so only
those are that policies judge or histories show; the rest of `LLMMetrics` stays 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any

from helix.adapters.aws.calls import call
from helix.core.llm_metrics import LLMMetrics
from helix.core.measures import AGENT, NAMESPACE, STAGE
from helix.ports.clock import Clock

MINUTE_S = 60
ASKED: Mapping[str, tuple[str, str]] = {
    "calls": ("ModelCalls", "Sum"),
    "errors": ("ModelErrors", "Sum"),
    "throttles": ("ModelThrottles", "Sum"),
    "input": ("InputTokens", "Sum"),
    "output": ("OutputTokens", "Sum"),
    "cost": ("CostUsd", "Sum"),
    "waited": ("QueueWait", "Sum"),
    "waits": ("QueueWait", "SampleCount"),
    "p50": ("ModelLatency", "p50"),
    "p95": ("ModelLatency", "p95"),
    "p99": ("ModelLatency", "p99"),
}


class CloudWatchMetrics:
    """`client`: botocore's of `cloudwatch`. `stage`: the dimension's value."""

    def __init__(self, client: Any, stage: str, clock: Clock) -> None:
        self._client, self._stage, self._clock = client, stage, clock

    async def read(self, agent: str, window_s: float) -> LLMMetrics:
        """The window begins at a full minute, as all that CloudWatch keeps does; so it is up to a minute longer."""
        now = self._clock.now()
        minutes = ceil(max(window_s, MINUTE_S) / MINUTE_S)
        end = (int(now) // MINUTE_S + 1) * MINUTE_S
        start = end - (minutes + 1) * MINUTE_S
        found = await self._ask(agent, start, end)
        seconds = max(now - start, MINUTE_S)
        answered = found["calls"] - found["errors"]
        return LLMMetrics(
            tokens_per_second=(found["input"] + found["output"]) / seconds,
            input_tokens_per_second=found["input"] / seconds,
            output_tokens_per_second=found["output"] / seconds,
            requests_per_minute=found["calls"] * 60 / seconds,
            avg_wait_time_ms=_mean(found["waited"], found["waits"]),
            p50_latency_ms=found["p50"],
            p95_latency_ms=found["p95"],
            p99_latency_ms=found["p99"],
            cost_per_hour=found["cost"] * 3600 / seconds,
            cost_per_request=_mean(found["cost"], found["calls"]),
            total_cost=found["cost"],
            avg_context_tokens=_mean(found["input"], answered),
            avg_response_tokens=_mean(found["output"], answered),
            requests=round(found["calls"]),
            errors=round(found["errors"]),
            throttles=round(found["throttles"]),
            window_s=seconds,
            timestamp=now,
        )

    async def _ask(self, agent: str, start: int, end: int) -> dict[str, float]:
        dimensions = [{"Name": STAGE, "Value": self._stage}, {"Name": AGENT, "Value": agent}]
        queries = [
            {
                "Id": name,
                "MetricStat": {
                    "Metric": {"Namespace": NAMESPACE, "MetricName": metric, "Dimensions": dimensions},
                    "Period": end - start,
                    "Stat": statistic,
                },
            }
            for name, (metric, statistic) in ASKED.items()
        ]
        request: dict[str, Any] = {
            "MetricDataQueries": queries,
            "StartTime": datetime.fromtimestamp(start, UTC),
            "EndTime": datetime.fromtimestamp(end, UTC),
        }
        values: dict[str, list[float]] = {name: [] for name in ASKED}
        while True:
            answer = await call(self._client, "get_metric_data", "reading metrics", **request)
            for result in answer["MetricDataResults"]:
                values[result["Id"]] += result["Values"]
            if not (token := answer.get("NextToken")):
                return {name: _together(ASKED[name][1], points) for name, points in values.items()}
            request["NextToken"] = token


def _together(statistic: str, points: list[float]) -> float:
    if statistic in ("Sum", "SampleCount"):
        return sum(points)
    return max(points, default=0.0)


def _mean(amount: float, count: float) -> float:
    return amount / count if count > 0 else 0.0
