"""What the stream is told of claims, folds and ends: the same chunks in every runtime."""

from __future__ import annotations

from typing import Any

from helix.core.chunks import (
    AnyChunk,
    CheckpointCreatedChunk,
    ErrorChunk,
    OutputChunk,
    RunInterruptedChunk,
    RunPausedChunk,
    RunResumedChunk,
    RunSupersededChunk,
    StatePatchChunk,
    StepCommittedChunk,
    StreamResyncChunk,
    SubAgentEndChunk,
    ToolEndChunk,
)
from helix.core.planning import call_error, call_value
from helix.core.row_keys import checkpoint_version
from helix.core.rows import AssistantRow, CallRow, CheckpointRow, RunRow
from helix.core.sequencer import Mark
from helix.engine.claims import Claimed
from helix.engine.run_stream import RunStream
from helix.engine.untold import Untold


def announce_claim(stream: RunStream, claimed: Claimed) -> None:
    """The first record of a run, and what its claim changed."""
    run, plan, first = claimed.run, claimed.plan, claimed.checkpoint
    chunks: list[AnyChunk] = []
    if run.previous_run_id is not None and run.mode not in ("execute", "with_message"):
        chunks.append(RunResumedChunk(previous_run_id=run.previous_run_id, mode=run.mode, checkpoint_id=first.id))
    elif run.mode == "with_message" and run.previous_run_id is not None:
        chunks.append(RunResumedChunk(previous_run_id=run.previous_run_id, mode=run.mode, checkpoint_id=first.id))
        chunks.append(RunSupersededChunk(superseded_run_id=run.previous_run_id, by_run_id=run.run_id))
    if plan.new_lineage:
        chunks.append(StreamResyncChunk(reason=run.mode, checkpoint_id=first.id, from_sequence=run.start_sequence))
    stream.put("run", chunks, mark="started", last=claimed.session.last)
    if claimed.missed is not None:
        announce_untold(stream, claimed.missed)
    # Not only what was closed here: a slow tool, or a person, may have given a result while no turn was open to tell it.
    for entry in plan.added:
        if isinstance(entry, CallRow) and entry.by != "plan":
            announce_result(stream, entry)
    announce_fold(stream, first)


def announce_fold(stream: RunStream, row: CheckpointRow) -> None:
    """What a commit made of the session. Admitted once, by the version in the checkpoint's id."""
    chunks: list[AnyChunk] = []
    if row.patches:
        chunks.append(StatePatchChunk(patches=row.patches, warnings=row.warnings))
    chunks.append(CheckpointCreatedChunk(checkpoint_id=row.id, step_count=row.step, message_count=row.count))
    stream.put("fold", chunks, step=row.step, version=checkpoint_version(stream.session_id, row.id))


def announce_commit(stream: RunStream, row: AssistantRow) -> None:
    """The step's text is final. Kept once per attempt, whoever tells it again."""
    chunk = StepCommittedChunk(model=row.model, usage=row.usage, stop_reason=row.stop_reason)
    stream.put("attempt", [chunk], step=row.step, attempt=row.attempt, mark="committed")


def announce_untold(stream: RunStream, untold: Untold) -> None:
    """What the worker before may not have told: the stream keeps what it does not know."""
    first = untold.checkpoints[0]
    if untold.answer is not None:
        announce_commit(stream, untold.answer)
    for row in untold.results:
        if row.by != "plan":
            announce_result(stream, row, version=checkpoint_version(stream.session_id, first.id))
    for point in untold.checkpoints:
        announce_fold(stream, point)


def announce_result(stream: RunStream, row: CallRow, *, version: int = 0) -> None:
    """The `tool_end` of a call that is done, behind a `subagent_end` where a sub-agent gave it. Kept once per call, whoever
    tells it again."""
    result, error = call_value(row), None if row.success else call_error(row)
    chunk = ToolEndChunk(
        tool_call_id=row.call_id, tool_name=row.tool_name, result=result, success=bool(row.success), error=error
    )
    chunks: list[AnyChunk] = [chunk]
    if row.child is not None and row.claim > 0 and row.by != "plan":
        ended = SubAgentEndChunk(
            parent_tool_call_id=row.call_id,
            sub_agent_id=row.child.session_id,
            sub_agent_type=row.child.agent_type,
            status="completed" if row.success else "failed" if row.by == "child" else "interrupted",
            result=result if row.success else None,
            error=error,
        )
        chunks.insert(0, ended)
    writer: dict[str, Any] = {"step": row.step, "attempt": row.claim, "call_id": row.call_id}
    stream.put("call", chunks, **writer, version=version, mark="committed")


def announce_end(stream: RunStream, run: RunRow) -> None:
    """The last record of a run, from its row: told again by whoever completes its effects."""
    chunks: list[AnyChunk] = []
    mark: Mark = "end"
    message = run.error.message if run.error is not None else None
    match run.status:
        case "completed":
            if run.output is not None:
                chunks.append(OutputChunk(output=run.output))
        case "paused":
            pending = [p.model_dump(mode="json") for p in run.pending]
            chunks.append(RunPausedChunk(reason=run.reason or "pending", pending=pending, checkpoint_id=run.checkpoint))
            mark = "paused"
        case "interrupted" | "superseded":
            chunks.append(RunInterruptedChunk(reason=run.reason, checkpoint_id=run.checkpoint))
        case "failed":
            code = run.error.code if run.error is not None else "error"
            chunks.append(ErrorChunk(error=message or "the run failed", code=code, recoverable=False))
            mark = "fail"
    status = "interrupted" if run.status == "superseded" else run.status
    stream.put("run", chunks, mark=mark, last=run.last, status=status, error=message)
