"""When the fleet's alarms sound, of the whole stage and of each agent that has resources of its own.

Law: one number for one alarm, in the unit that people think in. `govern` decides by policies; an alarm says that it is time
to look.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Thresholds(BaseModel):
    """alarm_cost_warning, alarm_cost_critical: dollars in the last hour, more than which is too much.
    alarm_tokens_per_second: tokens of prompts and answers, on average.
    alarm_queue_depth: the number of runs that wait for a slot.
    alarm_latency_p95_ms, alarm_latency_p99_ms: of model calls.
    alarm_throttles, alarm_model_errors: the number of calls that the provider refused for their rate, and calls that
        failed for good.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    alarm_cost_warning: float = Field(default=8.0, gt=0, allow_inf_nan=False)
    alarm_cost_critical: float = Field(default=9.5, gt=0, allow_inf_nan=False)
    alarm_tokens_per_second: float = Field(default=800.0, gt=0, allow_inf_nan=False)
    alarm_queue_depth: int = Field(default=5, ge=1)
    alarm_latency_p95_ms: float = Field(default=10_000.0, gt=0, allow_inf_nan=False)
    alarm_latency_p99_ms: float = Field(default=30_000.0, gt=0, allow_inf_nan=False)
    alarm_throttles: int = Field(default=5, ge=1)
    alarm_model_errors: int = Field(default=5, ge=1)
