"""Folding: a staged step whose calls are all done becomes history, and the run's next move is decided.

Law: pure and deterministic in the call order, never in the order of completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from helix.core.agents import AnyAgent
from helix.core.json import JsonObject, JsonValue
from helix.core.merge import merge_patches
from helix.core.planning import call_error, call_value, step_result_of
from helix.core.rows import AssistantRow, CallRow, ErrorInfo
from helix.core.usage import Usage


@dataclass(frozen=True, slots=True)
class Next:
    """What follows a step: `continue` (with `forced` if the next answer must be the output), or the run's end."""

    move: Literal["continue", "completed", "failed"]
    output: JsonValue = None
    error: ErrorInfo | None = None
    reason: str | None = None
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Fold:
    """`count` is history's length after the fold; `state` is None where the step did not change it."""

    count: int
    step: int
    state: JsonObject | None
    patches: list[JsonObject]
    warnings: list[str]
    usage: Usage
    next: Next
    calls: list[CallRow] = field(default_factory=list)


def fold_step(
    agent: AnyAgent,
    base: int,
    answer: AssistantRow,
    calls: Sequence[CallRow],
    state: JsonObject,
    *,
    run_steps: int,
    misses: int,
) -> Fold:
    """Fold `answer` and its done `calls`, which stand at `base`, onto `state`."""
    changes = [row.patches for row in calls]
    patches: list[JsonObject] = []
    warnings: list[str] = []
    merged: JsonObject | None = None
    if any(changes):
        result = merge_patches(state, changes, array_delta_mode=agent.array_delta_mode)
        patches, warnings = result.patches, result.warnings
        merged = result.state if patches else None
    usage = Usage()
    for row in calls:
        if row.usage is not None:
            usage = usage + row.usage
    return Fold(
        count=base + 1 + len(calls),
        step=answer.step,
        state=merged,
        patches=patches,
        warnings=warnings,
        usage=usage,
        next=decide_next(agent, answer, calls, run_steps=run_steps, misses=misses),
        calls=list(calls),
    )


def decide_next(
    agent: AnyAgent, answer: AssistantRow, calls: Sequence[CallRow], *, run_steps: int, misses: int
) -> Next:
    """Fatal tools first, then outputs, then missed outputs, then `stop_when`, then `max_steps`."""
    for row in calls:
        if row.fatal:
            message = f"tool {row.tool_name!r}: {call_error(row)}"
            return Next("failed", error=ErrorInfo(code="fatal_tool_error", message=message))
    if answer.finish is not None:
        return Next("completed", output=answer.finish.get("output"), reason="output")
    for row in calls:
        tool = agent.find_tool(row.tool_name)
        if tool is not None and tool.finish_with and row.success and row.by in ("tool", "answer"):
            return Next("completed", output=call_value(row), reason="finish_with")
    if missed(agent, answer):
        return missing(agent, misses, "invalid_output", "the model's output did not fit the schema")
    stopped = _stop_when(agent, answer)
    if stopped is not None:
        return stopped
    return limit(agent, run_steps, misses)


def missed(agent: AnyAgent, answer: AssistantRow) -> bool:
    """True where an output was due, the model called `__finish__`, and none of the calls was valid."""
    if agent.finish_tool is None:
        return False
    return answer.finish is None and any(call.name == "__finish__" for call in answer.tool_calls)


def missing(agent: AnyAgent, misses: int, code: str, message: str) -> Next:
    """After a missed output: ask again, or fail once the retries are used up."""
    if misses > agent.max_completion_retries:
        return Next("failed", error=ErrorInfo(code=code, message=f"{message}, after {misses} tries"))
    return Next("continue", forced=True)


def limit(agent: AnyAgent, run_steps: int, misses: int) -> Next:
    """`max_steps`: an agent with an output gets one forced try at it, others fail."""
    if agent.max_steps is None or run_steps < agent.max_steps:
        return Next("continue")
    if agent.output_schema is not None and run_steps <= agent.max_steps + misses:
        return Next("continue", forced=True)
    error = ErrorInfo(
        code="max_steps", message=f"the run reached max_steps ({agent.max_steps}) without an end: retry goes on"
    )
    return Next("failed", error=error, reason="max_steps")


def _stop_when(agent: AnyAgent, answer: AssistantRow) -> Next | None:
    if agent.stop_when is None:
        return None
    result = step_result_of(
        answer.content, answer.tool_calls, answer.stop_reason, usage=answer.usage, model=answer.model
    )
    try:
        stop = agent.stop_when(result)
    except Exception as error:
        return Next(
            "failed",
            error=ErrorInfo(code="stop_when_failed", message=f"stop_when raised {type(error).__name__}: {error}"),
        )
    return Next("completed", reason="stop_when") if stop else None
