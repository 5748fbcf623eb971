"""Thresholds of the fleet's alarms, for the whole stage and for each agent that has resources of its own.

Law: one number for one alarm, in the unit that people think in. `govern` decides by policies; an alarm says that it is
time to look.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Thresholds(BaseModel):
    """The thresholds of the alarms. Counts are of five minutes for the stage, and of one minute for an agent with
    resources."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alarm_cost_warning: float = Field(default=8.0, gt=0, allow_inf_nan=False)
    """US dollars in the last hour. The first alarm sounds above it."""
    alarm_cost_critical: float = Field(default=9.5, gt=0, allow_inf_nan=False)
    """US dollars in the last hour. The second alarm sounds above it."""
    alarm_tokens_per_second: float = Field(default=800.0, gt=0, allow_inf_nan=False)
    """Tokens of prompts and answers a second, on average. The alarm sounds above this number for each instance of the
    agent."""
    alarm_queue_depth: int = Field(default=5, ge=1)
    """The number of runs that wait for a slot. The alarm sounds from this number on."""
    alarm_latency_p95_ms: float = Field(default=10_000.0, gt=0, allow_inf_nan=False)
    """The 95th percentile of the latency of model calls, in milliseconds. The alarm sounds above it."""
    alarm_latency_p99_ms: float = Field(default=30_000.0, gt=0, allow_inf_nan=False)
    """The 99th percentile of the latency of model calls, in milliseconds. The alarm sounds above it."""
    alarm_throttles: int = Field(default=5, ge=1)
    """The number of calls that the provider refused for their rate. The alarm sounds from this number on."""
    alarm_model_errors: int = Field(default=5, ge=1)
    """The number of calls that failed for good. The alarm sounds from this number on."""
