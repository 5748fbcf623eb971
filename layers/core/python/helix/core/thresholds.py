"""The thresholds of the fleet's alarms, for the whole stage and for each agent with its own resources.

Law: each alarm has one number, in a unit that people think in. `govern` decides by policies; an alarm only triggers it.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Thresholds(BaseModel):
    """The thresholds of the alarms. Counts are per five minutes for the stage, and per minute for an agent with
    resources."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alarm_cost_warning: float = Field(default=8.0, gt=0, allow_inf_nan=False)
    """The cost of the last hour in US dollars above which the warning alarm fires."""
    alarm_cost_critical: float = Field(default=9.5, gt=0, allow_inf_nan=False)
    """The cost of the last hour in US dollars above which the critical alarm fires."""
    alarm_tokens_per_second: float = Field(default=800.0, gt=0, allow_inf_nan=False)
    """The mean throughput per instance of the agent above which the alarm fires, in prompt and answer tokens per
    second."""
    alarm_queue_depth: int = Field(default=5, ge=1)
    """The number of waiting runs at which the alarm fires."""
    alarm_latency_p95_ms: float = Field(default=10_000.0, gt=0, allow_inf_nan=False)
    """The 95th percentile of model call latency above which the alarm fires, in milliseconds."""
    alarm_latency_p99_ms: float = Field(default=30_000.0, gt=0, allow_inf_nan=False)
    """The 99th percentile of model call latency above which the alarm fires, in milliseconds."""
    alarm_throttles: int = Field(default=5, ge=1)
    """The number of throttled calls at which the alarm fires."""
    alarm_model_errors: int = Field(default=5, ge=1)
    """The number of permanently failed calls at which the alarm fires."""
