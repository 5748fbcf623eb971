"""What is measured: every metric's name, unit and dimensions, in one table that code, alarms and dashboards share.

Law: a metric that is not in the table cannot be recorded, and an alarm or a dashboard names none but these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["Count", "Milliseconds", "None", "Percent"]

NAMESPACE = "Helix"
STAGE, AGENT = "stage", "agent"
"""Dimensions. Each metric is recorded twice: for its agent (stage, agent), and for all of them (stage)."""

UNITS: Mapping[str, Unit] = {
    # one model call
    "ModelCalls": "Count",
    "ModelErrors": "Count",
    "ModelThrottles": "Count",
    "InputTokens": "Count",
    "OutputTokens": "Count",
    "CachedTokens": "Count",
    "TotalTokens": "Count",
    "CostUsd": "None",
    "ModelLatency": "Milliseconds",
    "TimeToFirstToken": "Milliseconds",
    # one tool call
    "ToolCalls": "Count",
    "ToolErrors": "Count",
    "ToolLatency": "Milliseconds",
    # one run
    "RunsStarted": "Count",
    "RunsCompleted": "Count",
    "RunsFailed": "Count",
    "RunsStopped": "Count",
    "RunDuration": "Milliseconds",
    "QueueWait": "Milliseconds",
    "BudgetRefusals": "Count",
    # the response cache
    "CacheHits": "Count",
    "CacheMisses": "Count",
    "CacheSavedUsd": "None",
    # gauges, recorded once a minute while the stage is at work
    "QueueDepth": "Count",
    "RunsActive": "Count",
    "ConcurrencyLimit": "Count",
    "BudgetUtilization": "Percent",
    "UnhealthyChecks": "Count",
    # decisions of govern
    "ScalingDecisions": "Count",
    # thresholds that are passed, and what has failed: of the whole stage
    "Warnings": "Count",
    "Failures": "Count",
}

OF_PROCESS: Mapping[str, Unit] = {
    "LoopLag": "Milliseconds",
}
"""Recorded by a `LocalExecutor` alone: a deployed function has no runs beside each other."""


@dataclass(frozen=True, slots=True)
class Measures:
    """Values that belong together: of one call, one run, one moment. `values`: metric name -> value, in the unit of the
    table. `agent`: agent type; None where it is about all of them. `details` (ids, model, ...) go to the log only: they
    have too many values for dimensions. Raises `KeyError` for a name that is not in the table."""

    values: Mapping[str, float]
    agent: str | None = None
    details: Mapping[str, str | int | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.values:
            if name not in OF_PROCESS:
                UNITS[name]
