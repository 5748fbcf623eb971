"""The metric definitions: names, units and dimensions, in one table shared by code, alarms and dashboards.

Law: a metric that is not in the table cannot be recorded, and alarms and dashboards use only the names in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["Count", "Milliseconds", "None", "Percent"]

NAMESPACE = "Helix"
STAGE, AGENT = "stage", "agent"
"""The dimensions. Each metric is recorded twice: per agent (stage, agent), and for all agents (stage)."""

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
    # the provider's prompt cache
    "PromptCacheLosses": "Count",
    # gauges, recorded once a minute while the stage is active
    "QueueDepth": "Count",
    "RunsActive": "Count",
    "ConcurrencyLimit": "Count",
    "BudgetUtilization": "Percent",
    "UnhealthyChecks": "Count",
    # decisions of govern
    "ScalingDecisions": "Count",
    # thresholds that are passed, and failures, of the whole stage
    "Warnings": "Count",
    "Failures": "Count",
}

OF_PROCESS: Mapping[str, Unit] = {
    "LoopLag": "Milliseconds",
}
"""Metrics that only a `LocalExecutor` records, because its runs share an event loop. A deployed function executes one
run at a time."""


@dataclass(frozen=True, slots=True)
class Measures:
    """Metric values that belong together, such as those of one call or one run. Raises `KeyError` for a name that is
    not in the table."""

    values: Mapping[str, float]
    """The value of each metric, in the unit of the table."""
    agent: str | None = None
    """The name of the agent. None for values about all agents."""
    details: Mapping[str, str | int | float] = field(default_factory=dict)
    """Ids, the model and similar facts. They appear only in the log, because their cardinality is too high for
    dimensions."""

    def __post_init__(self) -> None:
        for name in self.values:
            if name not in OF_PROCESS:
                UNITS[name]
