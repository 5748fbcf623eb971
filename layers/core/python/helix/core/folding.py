"""Folds a step: makes a staged step part of history once all its calls are done, and decides the run's next move.

Law: pure. The result depends on the order of the calls, never on the order in which they completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from helix.core.agents import AnyAgent
from helix.core.call_results import call_error, call_value, result_content
from helix.core.entries import AnyEntry, AssistantRow, CallRow, message_of
from helix.core.errors import InvalidInputError
from helix.core.json import MAX_STATE_BYTES, JsonObject, JsonValue, check_json, text_of
from helix.core.merge import Merged, merge_patches
from helix.core.messages import AnyMessage
from helix.core.planning import step_result_of
from helix.core.rows import ErrorInfo
from helix.core.session_row import SessionRow
from helix.core.tools import FINISH_TOOL_NAME
from helix.core.tracker import load_state
from helix.core.usage import Usage
from helix.core.verdicts import BLOCKED, describe_change, refusal


@dataclass(frozen=True, slots=True)
class Next:
    """The move that follows a step."""

    move: Literal["continue", "completed", "failed"]
    """`continue`: take another step. `completed` or `failed`: end the run."""
    output: JsonValue = None
    """The output of a run that completes, if any."""
    error: ErrorInfo | None = None
    """The reason why the run fails. None if it does not."""
    reason: str | None = None
    """The run's `completion_reason`, such as `output` or `stop_when`. None if the run continues, or if only `error`
    explains the end."""
    forced: bool = False
    """Whether the next answer must be the output."""
    reminded: bool = False
    """Whether the next request asks for the output, without forcing it."""


@dataclass(frozen=True, slots=True)
class Fold:
    """The outcome of folding a step."""

    count: int
    """The number of messages in history after the fold."""
    step: int
    """The step that was folded."""
    state: JsonObject | None
    """The custom state after the step. None if the step did not change it."""
    patches: list[JsonObject]
    """The RFC 6902 operations that turn the previous state into `state`."""
    warnings: list[str]
    """Human-readable descriptions of conflicts between the step's calls, and of rejected changes."""
    usage: Usage
    """The usage that the step's tools and sub-agents reported, without that of the answer."""
    next: Next
    """The move that follows the step."""
    messages: list[AnyMessage]
    """The messages that the step adds to history: the answer, then the results."""
    calls: list[CallRow] = field(default_factory=list)
    """The call rows as stored in history."""
    refused: list[tuple[int, CallRow]] = field(default_factory=list)
    """The (index, row) of each call whose result the merge changed. The fold must write these rows."""


def fold_step(
    agent: AnyAgent,
    session: SessionRow,
    answer: AssistantRow,
    calls: Sequence[CallRow],
    state: JsonObject,
    *,
    max_steps: int | None,
) -> Fold:
    """Fold the open step's `answer` and its done `calls` onto `state`. `max_steps`: the limit of the run."""
    assert session.open is not None
    base, merged = session.open.base, merge_calls(agent, state, calls)
    usage = sum((row.usage for row in merged.calls if row.usage is not None), Usage())
    entries: list[AnyEntry] = [answer, *merged.calls]
    return Fold(
        count=base + len(entries),
        step=answer.step,
        state=merged.state if merged.patches else None,
        patches=merged.patches,
        warnings=merged.warnings,
        usage=usage,
        next=decide_next(
            agent,
            answer,
            merged.calls,
            run_steps=session.run_steps,
            misses=session.misses,
            max_steps=max_steps,
            reminded=session.reminded,
        ),
        messages=[message_of(entry, session.lineage, base + n) for n, entry in enumerate(entries)],
        calls=merged.calls,
        refused=merged.refused,
    )


class MergedCalls(NamedTuple):
    """The outcome of merging the changes that a step's calls made to the state."""

    state: JsonObject
    """The custom state after the calls."""
    patches: list[JsonObject]
    """The RFC 6902 operations that turn the previous state into `state`."""
    warnings: list[str]
    """Human-readable descriptions of conflicts between the calls, and of rejected changes."""
    calls: list[CallRow]
    """The call rows as stored in history."""
    refused: list[tuple[int, CallRow]]
    """The (index, row) of each call whose result the merge changed."""


def merge_calls(agent: AnyAgent, state: JsonObject, calls: Sequence[CallRow]) -> MergedCalls:
    """Merge the changes of the calls into `state`, in call order (docs/protocol.md#fold). A call fails if its changes,
    applied after those of earlier calls, violate the agent's schema or a limit. Its changes are then dropped, and its
    result says so."""
    retained, refused = list(calls), []
    try:
        merged = _merge(agent, state, retained)
    except InvalidInputError:
        retained = []
        merged = _merge(agent, state, retained)
        for place, row in enumerate(calls):
            try:
                merged = _merge(agent, state, [*retained, row])
            except InvalidInputError as error:
                row = _refused(row, error)
                refused.append((place, row))
            retained.append(row)
    notes = [
        f"call {place} failed, its changes were dropped: {call_error(row)}"
        for place, row in enumerate(retained)
        if row.by == "merge"
    ]
    return MergedCalls(merged.state, merged.patches, merged.warnings + notes, retained, refused)


def _merge(agent: AnyAgent, state: JsonObject, calls: Sequence[CallRow]) -> Merged:
    changes = [row.patches for row in calls]
    if not any(changes):
        return Merged(state, [], [])
    merged = merge_patches(state, changes, array_delta_mode=agent.array_delta_mode)
    check_json(merged.state, "the state", MAX_STATE_BYTES)
    if agent.state_schema is not None:
        load_state(agent.state_schema, merged.state)
    return merged


def _refused(row: CallRow, error: InvalidInputError) -> CallRow:
    text = f"the tool ran, but its changes of the state were dropped: with those of the calls before it, {error}"
    changes = {"content": result_content(text, False), "success": False, "plain": False, "patches": [], "by": "merge"}
    return row.model_copy(update=changes)


def decide_next(
    agent: AnyAgent,
    answer: AssistantRow,
    calls: Sequence[CallRow],
    *,
    run_steps: int,
    misses: int,
    max_steps: int | None,
    reminded: bool = False,
) -> Next:
    """Decide the next move. Checks, in this order: fatal tools, outputs, missed outputs, `stop_when` and `max_steps`.
    After a handoff, no output is missing, and none is forced. `reminded`: the request of this answer asked for the
    output."""
    for row in calls:
        if row.fatal:
            message = f"tool {row.tool_name!r}: {call_error(row)}"
            if (blocked := next((verdict for verdict in row.verdicts if verdict.ends_run), None)) is not None:
                return Next("failed", error=ErrorInfo(code=BLOCKED, message=describe_change(blocked)))
            return Next("failed", error=ErrorInfo(code="fatal_tool_error", message=message))
    if answer.finish is not None:
        return Next("completed", output=answer.finish.get("output"), reason="output")
    for row in calls:
        tool = agent.find_tool(row.tool_name)
        if tool is not None and tool.finish_with and row.success and row.by in ("tool", "answer"):
            return Next("completed", output=call_value(row), reason="finish_with")
    if not answer.handoff and missed(agent, answer):
        failed = [row for row in calls if row.tool_name == FINISH_TOOL_NAME and not row.success]
        reason = f": {call_error(failed[0])}" if failed else ""
        code, message = why_refused(answer) or ("invalid_output", f"the model gave no valid output{reason}")
        return missing(agent, misses, code, message, last=reminded or is_out(run_steps, max_steps))
    stopped = _stop_when(agent, answer)
    if stopped is not None:
        return stopped
    forces = agent.output_schema is not None and not answer.handoff
    return limit(run_steps, misses, max_steps, forces=forces, reminded=reminded)


def missed(agent: AnyAgent, answer: AssistantRow) -> bool:
    """Return whether the model called `__finish__` for an expected output, but none of its calls was valid."""
    if agent.finish_tool is None:
        return False
    return answer.finish is None and any(call.name == FINISH_TOOL_NAME for call in answer.tool_calls)


def missing(agent: AnyAgent, misses: int, code: str, message: str, *, last: bool) -> Next:
    """Return the move after a missed output: ask again, or fail if no retries are left. The output is forced in the
    last retry, and if `last`: the model was reminded already, or its steps have run out."""
    if misses > agent.max_completion_retries:
        return Next("failed", error=ErrorInfo(code=code, message=f"after {misses} tries: {message}"))
    if agent.finish_tool is None:
        return Next("continue")
    forced = last or misses == agent.max_completion_retries
    return Next("continue", forced=forced, reminded=not forced)


def is_out(run_steps: int, max_steps: int | None) -> bool:
    """Return whether the run has taken all of its regular steps."""
    return max_steps is not None and run_steps >= max_steps


def why_refused(answer: AssistantRow) -> tuple[str, str] | None:
    """Return the code and the message of the guard that refused this answer's text or output, or None."""
    refused = refusal(answer.verdicts, "output")
    return None if refused is None else (BLOCKED, describe_change(refused))


def limit(run_steps: int, misses: int, max_steps: int | None, *, forces: bool, reminded: bool = False) -> Next:
    """Apply `max_steps`. `forces`: the agent has an output schema. It is reminded to finish in the last step, and gets one
    forced attempt at the output after it; any other run fails. `reminded`: it was reminded, and did not finish."""
    if not is_out(run_steps, max_steps):
        is_last = max_steps is not None and run_steps + 1 == max_steps
        return Next("continue", forced=forces and reminded, reminded=forces and not reminded and is_last)
    assert max_steps is not None
    if forces and run_steps <= max_steps + misses:
        return Next("continue", forced=True)
    error = ErrorInfo(
        code="max_steps", message=f"the run reached max_steps ({max_steps}) without an end: retry goes on"
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
            error=ErrorInfo(
                code="stop_when_failed", message=f"stop_when raised {type(error).__name__}: {text_of(error)}"
            ),
        )
    return Next("completed", reason="stop_when") if stop else None
