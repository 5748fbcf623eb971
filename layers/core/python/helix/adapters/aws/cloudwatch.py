"""CloudWatch metrics for an agent's model calls, converted to the numbers that scaling decisions use.

Law: each sum is divided by the number of seconds over which it was counted. CloudWatch computes the percentiles and
averages. If it splits the window in two, the larger value serves as an upper bound. Reading a thousand metrics costs a
cent, so only those that policies evaluate are read. The other fields of `LLMMetrics` stay 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any

from helix.adapters.aws.calls import call
from helix.core.llm_metrics import LLMMetrics, Tally, metrics_of
from helix.core.measures import AGENT, NAMESPACE, STAGE
from helix.ports.clock import Clock

MINUTE_S = 60
SUMS: Mapping[str, tuple[str, str]] = {
    "requests": ("ModelCalls", "Sum"),
    "errors": ("ModelErrors", "Sum"),
    "throttles": ("ModelThrottles", "Sum"),
    "cost": ("CostUsd", "Sum"),
}
"""The metrics that are summed, by the field of a `Tally`."""
TOKENS = {"tokens": ("TotalTokens", "Sum")}
LARGEST = {
    "avg_wait_time_ms": ("QueueWait", "Average"),
    "p95_latency_ms": ("ModelLatency", "p95"),
    "p99_latency_ms": ("ModelLatency", "p99"),
}
"""The metrics whose largest value is used, by the field of `LLMMetrics`."""
ASKED = {**SUMS, **TOKENS, **LARGEST}


class CloudWatchMetrics:
    """A `MetricsSource` on CloudWatch. `client`: a botocore `cloudwatch` client. `stage`: the value of the
    dimension."""

    def __init__(self, client: Any, stage: str, clock: Clock) -> None:
        self._client, self._stage, self._clock = client, stage, clock

    async def read(self, agent: str, window_s: float) -> LLMMetrics:
        """Read an agent's metrics. The window starts on a full minute, like CloudWatch's data, so it is up to a minute
        longer."""
        now = self._clock.now()
        minutes = ceil(max(window_s, MINUTE_S) / MINUTE_S)
        end = (int(now) // MINUTE_S + 1) * MINUTE_S
        start = end - (minutes + 1) * MINUTE_S
        found = await self._read_metrics(agent, start, end)
        tally = Tally(**{name: found[name] for name in SUMS})  # type: ignore[arg-type]  # whole numbers, as floats
        metrics = metrics_of(tally, now - start, now)
        rate = {"tokens_per_second": found["tokens"] / metrics.window_s}
        return metrics.model_copy(update={**rate, **{name: found[name] for name in LARGEST}})

    async def spent(self, window_s: float) -> float:
        """Return the US dollars that all agents spent on model calls in the last `window_s` seconds."""
        end = (int(self._clock.now()) // MINUTE_S + 1) * MINUTE_S
        found = await self._read_metrics(None, end - ceil(window_s / MINUTE_S) * MINUTE_S, end, {"cost": SUMS["cost"]})
        return found["cost"]

    async def _read_metrics(
        self, agent: str | None, start: int, end: int, asked: Mapping[str, tuple[str, str]] = ASKED
    ) -> dict[str, float]:
        """Read the metrics of the named agent. Without `agent`, read those of all agents together."""
        dimensions = [{"Name": STAGE, "Value": self._stage}]
        dimensions += [{"Name": AGENT, "Value": agent}] if agent is not None else []
        queries = [
            {
                "Id": name,
                "MetricStat": {
                    "Metric": {"Namespace": NAMESPACE, "MetricName": metric, "Dimensions": dimensions},
                    "Period": end - start,
                    "Stat": statistic,
                },
            }
            for name, (metric, statistic) in asked.items()
        ]
        request: dict[str, Any] = {
            "MetricDataQueries": queries,
            "StartTime": datetime.fromtimestamp(start, UTC),
            "EndTime": datetime.fromtimestamp(end, UTC),
        }
        values: dict[str, list[float]] = {name: [] for name in asked}
        while True:
            answer = await call(self._client, "get_metric_data", "reading metrics", **request)
            for result in answer["MetricDataResults"]:
                values[result["Id"]] += result["Values"]
            if not (token := answer.get("NextToken")):
                return {name: _combine_points(asked[name][1], points) for name, points in values.items()}
            request["NextToken"] = token


def _combine_points(statistic: str, points: list[float]) -> float:
    if statistic == "Sum":
        return sum(points)
    return max(points, default=0.0)
