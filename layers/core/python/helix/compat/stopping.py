"""Functions that decide, from one step result, whether a run ends and with which status. They exist for compatibility;
Helix itself uses `core.folding.decide_next`.
"""

from __future__ import annotations

from collections.abc import Callable

from helix.core.status import AgentStatus
from helix.core.steps import (
    AnyStepResult,
    ErrorStepResult,
    StructuredOutputStepResult,
    TextStepResult,
    is_error_stop_reason,
)


def should_stop_execution(
    step_result: AnyStepResult,
    step_count: int,
    *,
    max_steps: int | None = None,
    stop_when: Callable[[AnyStepResult], bool] | None = None,
) -> bool:
    """Return whether the run ends. An error or terminal result ends it; otherwise `stop_when` decides, then `max_steps`.
    `step_count` is the number of the run's steps, including this one."""
    if isinstance(step_result, (ErrorStepResult, TextStepResult)) and step_result.should_stop:
        return True
    if isinstance(step_result, StructuredOutputStepResult) or is_error_stop_reason(step_result.stop_reason):
        return True
    if stop_when is not None and stop_when(step_result):
        return True
    return max_steps is not None and step_count >= max_steps


def determine_final_status(step_result: AnyStepResult) -> AgentStatus:
    """Return `failed` for errors and error stop reasons, otherwise `completed`."""
    failed = isinstance(step_result, ErrorStepResult) or is_error_stop_reason(step_result.stop_reason)
    return "failed" if failed else "completed"
