"""Turns facts into chunks, identically in every runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from helix._log import describe
from helix.core.agents import AnyAgent
from helix.core.call_results import call_error, call_value, has_end, parsed_content
from helix.core.chunks import (
    AgentChangedChunk,
    AnyChunk,
    CallReminderChunk,
    CheckpointCreatedChunk,
    CitationChunk,
    ContextChangedChunk,
    CustomEventChunk,
    ErrorChunk,
    MessageQueuedChunk,
    OutputChunk,
    OutputDeltaChunk,
    RunInterruptedChunk,
    RunPausedChunk,
    RunQueuedChunk,
    RunResumedChunk,
    RunSupersededChunk,
    ServerToolChunk,
    StatePatchChunk,
    StepCommittedChunk,
    StepDiscardedChunk,
    StreamResyncChunk,
    SubAgentEndChunk,
    SubAgentStartChunk,
    TextDeltaChunk,
    ThinkingChunk,
    ToolApprovalRequestChunk,
    ToolEndChunk,
    ToolStartChunk,
)
from helix.core.entries import AnyEntry, AssistantRow, CallRow, UserRow
from helix.core.errors import HelixError
from helix.core.handles import with_parameters
from helix.core.inbox import InboxRow
from helix.core.inbox_chunks import WaitMode
from helix.core.json import JsonObject, clean_text, text_of
from helix.core.messages import Edit
from helix.core.questions import open_questions
from helix.core.row_keys import checkpoint_version
from helix.core.rows import CheckpointRow
from helix.core.run_row import RunRow
from helix.core.sequencer import REMINDER, Mark
from helix.core.session_row import StepClaim
from helix.core.verdicts import BLOCKED, GUARD_EVENT, describe_change
from helix.engine import facts
from helix.engine.context import RunContext
from helix.services.run_stream import RUN, Boundary, RunStream, Writer

if TYPE_CHECKING:
    from helix.engine.claims.claim import Claimed
    from helix.engine.claims.missed import Missed


COMMITTED = Boundary("committed")


def put_chunks(run: RunContext, fact: facts.Fact) -> None:
    """Put the fact's chunks on the stream."""
    stream = run.stream
    match fact:
        case (
            facts.TextReceived()
            | facts.OutputReceived()
            | facts.ThinkingReceived()
            | facts.ServerCalled()
            | facts.TextCited()
        ):
            _answering(stream, fact.claim, [_piece(fact)])
        case facts.TryFailed() | facts.AnswerWithheld():
            _answering(stream, fact.claim, _taken_back(fact))
        case facts.StepStaged(row):
            _commit(stream, row)
        case facts.StepFolded(entries, point):
            _fold(stream, point, [*_delivered(entries, "steer"), *_handed_over(entries)])
        case facts.CallDone(row, arguments):
            _result(stream, row, arguments=arguments)
        case facts.RunClaimed(claimed):
            _claim(stream, claimed)
        case facts.RunEnded(ended):
            _end(stream, ended, run.agent)
        case facts.CommitsMissed(missed, begins, last):
            if begins:
                stream.put(RUN, boundary=Boundary("started", last))
            if missed is not None:
                _missed(stream, missed)
        case _:
            _put_call_chunks(run, fact)


def _put_call_chunks(run: RunContext, fact: facts.Fact) -> None:
    match fact:
        case facts.ToolStarted():
            _calling(run.stream, fact.row, [_tool_start(fact.row, fact.request.arguments)])
        case facts.ChildAttached(row, request, ref):
            child = SubAgentStartChunk(
                parent_tool_call_id=row.call_id, sub_agent_id=ref.session_id, sub_agent_type=ref.agent_type
            )
            _calling(run.stream, row, [_tool_start(row, request.arguments), child])
        case facts.CallReminded(row, _, number):
            reminder = CallReminderChunk(
                tool_call_id=row.call_id,
                tool_name=row.tool_name,
                kind=row.ask or "approval",
                number=number,
                expires_at=row.deadline,
            )
            run.stream.put(Writer("call", row.step, number, REMINDER + row.call_id), [reminder])
        case facts.CallWaits(row, answer):
            _calling(run.stream, row, [_approval(run, row, answer)])
        case facts.CallsRefused():
            _refusals(run.stream, fact)
        case facts.ContextChanged(view, version):
            shown = ContextChangedChunk(
                hidden=view.hidden,
                cleared=view.cleared,
                summary=view.summary if view.attempt else "",
                cause=view.cause,
                tokens=view.tokens,
            )
            writer = Writer("call", view.step, call_id=f"view:{version}")  # `committed`: the log drops a second record
            run.stream.put(writer, [shown], boundary=Boundary("committed"))
        case facts.MessageWaits(queued_id, message):
            gone = MessageQueuedChunk(queued_id=queued_id, state="withdrawn")
            waits = gone if message is None else _message(message.id, "waiting", message, message.mode)
            run.stream.put(Writer("inbox"), [waits])
        case facts.RunQueued(queued, expires_at, reason):
            session = run.session  # under the current step, so that the stream keeps it once
            step = session.open.step if session.open is not None else session.step
            chunk = RunQueuedChunk(queued=queued, expires_at=expires_at, reason=reason)
            run.stream.put(Writer("call", step, call_id="queue"), [chunk])


def _answering(stream: RunStream, claim: StepClaim, chunks: Sequence[AnyChunk]) -> None:
    stream.put(Writer("attempt", claim.step, claim.attempt), chunks)


def _piece(fact: facts.AnswerPart) -> AnyChunk:
    match fact:
        case facts.TextReceived(_, delta):
            return TextDeltaChunk(delta=clean_text(delta))
        case facts.OutputReceived(_, delta):
            return OutputDeltaChunk(delta=clean_text(delta))
        case facts.ThinkingReceived(_, content, is_complete):
            return ThinkingChunk(content=clean_text(content), is_complete=is_complete)
        case facts.ServerCalled(_, call):
            return ServerToolChunk(
                tool_call_id=call.id,
                tool_name=call.name,
                arguments=call.arguments,
                done=call.done,
                result=call.result,
                error=call.error,
            )
        case facts.TextCited(_, cited):
            return CitationChunk.model_validate(cited.model_dump(exclude={"raw"}))


def _calling(stream: RunStream, row: CallRow, chunks: Sequence[AnyChunk]) -> None:
    stream.put(Writer("call", row.step, row.claim, row.call_id), chunks)


def _tool_start(row: CallRow, arguments: Any) -> ToolStartChunk:
    edited = None if row.edited is None else Edit(by=row.edited.by, at=row.edited.at)
    return ToolStartChunk(
        tool_call_id=row.call_id,
        tool_name=row.tool_name,
        arguments=arguments,
        edited=edited,
        questions=row.questions,
        responses=row.responses,
    )


def _taken_back(fact: facts.TryFailed | facts.AnswerWithheld) -> list[AnyChunk]:
    """Return the chunks that take back the text of an attempt."""
    if isinstance(fact, facts.AnswerWithheld):
        return [StepDiscardedChunk(reason=fact.reason)]
    code = getattr(fact.error, "code", "model_error")
    text = text_of(fact.error) if isinstance(fact.error, HelixError) else describe(fact.error)
    chunks: list[AnyChunk] = [ErrorChunk(error=clean_text(text), code=code, recoverable=True)]
    if fact.shown:
        chunks.append(StepDiscardedChunk(reason="the model call failed and is repeated"))
    return chunks


def _approval(run: RunContext, row: CallRow, answer: AssistantRow) -> ToolApprovalRequestChunk:
    tool = run.find_tool(row.tool_name)
    asked = next((c.arguments for c in answer.tool_calls if c.id == row.call_id), {})
    return ToolApprovalRequestChunk(
        tool_call_id=row.call_id,
        tool_name=row.tool_name,
        input=asked if row.edited is None else row.edited.arguments,
        parameters=tool.parameters if tool is not None else {},
        reason=row.reason,
        kind=row.ask or "approval",
        questions=open_questions(row.questions) if row.ask == "question" else [],
        round=row.claim if row.ask == "question" else 0,
        declared=row.ask == "client" and tool is not None and tool is run.declared.get(row.tool_name),
    )


def _refusals(stream: RunStream, fact: facts.CallsRefused) -> None:
    """Put an error for calls that are not executed. They have no `tool_start`, and their `tool_end` follows the commit.
    The run continues."""
    plan, row = fact.plan, fact.row
    counts = Counter(s.content for s in plan.resolved.values() if not s.success)
    contents = [(parsed_content(content), calls) for content, calls in counts.items()]
    chunks = [
        ErrorChunk(
            error=f"{content['error']}{f' ({calls} calls)' if calls > 1 else ''}",
            code=str(content.get("code", "invalid_tool_call")),
        )
        for content, calls in contents
        if isinstance(content, dict) and "error" in content
    ]
    if chunks:
        stream.put(Writer("attempt", row.step, row.attempt), chunks)


def _claim(stream: RunStream, claimed: Claimed) -> None:
    """Put the first record of a run, and the changes that its claim made."""
    run, plan, first = claimed.run, claimed.plan, claimed.checkpoint
    chunks: list[AnyChunk] = []
    if run.previous_run_id is not None and run.mode != "execute":
        chunks.append(RunResumedChunk(previous_run_id=run.previous_run_id, mode=run.mode, checkpoint_id=first.id))
    if claimed.superseded is not None and run.mode in ("execute", "with_message"):
        chunks.append(RunSupersededChunk(superseded_run_id=claimed.superseded, by_run_id=run.run_id))
    if plan.new_lineage:
        chunks.append(StreamResyncChunk(reason=run.mode, checkpoint_id=first.id, from_sequence=run.start_sequence))
    stream.put(RUN, chunks, boundary=Boundary("started", claimed.session.last, seen=claimed.stream_end))
    if claimed.missed is not None:
        _missed(stream, claimed.missed)
    # This includes results that the claim did not write: a slow tool or a person may have provided one while no turn
    # was open.
    for entry in plan.added:
        if isinstance(entry, CallRow):
            _result(stream, entry)
    _fold(stream, first, [*_delivered(plan.added, None), *_handed_over(plan.added)])


def _message(
    queued_id: str, state: Literal["waiting", "delivered"], message: InboxRow | UserRow, mode: WaitMode | None
) -> MessageQueuedChunk:
    given = message.metadata.get("id")
    return MessageQueuedChunk(
        queued_id=queued_id,
        state=state,
        mode=mode,
        content=message.content,
        files=message.files,
        message_id=given if isinstance(given, str) else None,
    )


def _delivered(entries: Iterable[AnyEntry], mode: WaitMode | None) -> list[AnyChunk]:
    users = [entry for entry in entries if isinstance(entry, UserRow) and entry.queued]
    return [_message(entry.queued, "delivered", entry, mode) for entry in users]


def _handed_over(entries: Iterable[AnyEntry]) -> list[AnyChunk]:
    """Return the notices of the handoffs in the messages that a commit added to history."""
    answers = (entry.handoff for entry in entries if isinstance(entry, AssistantRow))
    return [AgentChangedChunk(agent=agent) for agent in answers if agent]


def _fold(stream: RunStream, row: CheckpointRow, delivered: Sequence[AnyChunk] = ()) -> None:
    """Put the changes that a commit made to the session, and the messages that waited for it. The log accepts them once,
    by the version in the checkpoint's id."""
    chunks: list[AnyChunk] = [*delivered]
    if row.patches or row.warnings:
        chunks.append(StatePatchChunk(patches=row.patches, warnings=row.warnings))
    chunks.append(CheckpointCreatedChunk(checkpoint_id=row.id, step_count=row.step, message_count=row.count))
    stream.put(Writer("fold", row.step), chunks, version=checkpoint_version(stream.session_id, row.id))


def _commit(stream: RunStream, row: AssistantRow) -> None:
    """Mark the step's text as final. The log keeps the mark once per attempt."""
    chunk = StepCommittedChunk(model=row.model, usage=row.usage, stop_reason=row.stop_reason, lost_cache=row.lost_cache)
    stream.put(Writer("attempt", row.step, row.attempt), [*_verdicts(row), chunk], boundary=COMMITTED)


def _verdicts(row: AssistantRow | CallRow) -> list[AnyChunk]:
    """Return a `custom` chunk for each verdict stored in the row, except for those that allowed a value. An error is added
    for a refused message or output; a refused call or result has its own."""
    chunks: list[AnyChunk] = []
    for verdict in row.verdicts:
        if verdict.verdict != "allow":
            chunks.append(CustomEventChunk(event_name=GUARD_EVENT, data=verdict.shown()))
        if verdict.withholds:
            chunks.append(ErrorChunk(error=describe_change(verdict), code=BLOCKED, recoverable=True))
    return chunks


def _missed(stream: RunStream, missed: Missed) -> None:
    """Put the commits that the previous worker may not have written. The log drops those that it already has."""
    first = missed.checkpoints[0]
    if missed.answer is not None:
        _commit(stream, missed.answer)
    for row in missed.results:
        _result(stream, row, checkpoint_version(stream.session_id, first.id))
    begin = 0
    for point in missed.checkpoints:
        shown = [
            chunk
            for index, row, steered in missed.arrived
            if begin <= index < point.count
            for chunk in _delivered([row], "steer" if steered else None)
        ]
        if point is first and missed.answer is not None:
            shown += _handed_over([missed.answer])
        _fold(stream, point, shown)
        begin = point.count


def _result(stream: RunStream, row: CallRow, version: int = 0, arguments: JsonObject | None = None) -> None:
    """Put the `tool_end` of a call that is done, after a `subagent_end` if a sub-agent produced the result. The log
    keeps it once per call."""
    if not has_end(row):
        return
    result, error = call_value(row), None if row.success else call_error(row)
    chunk = ToolEndChunk(
        tool_call_id=row.call_id,
        tool_name=row.tool_name,
        result=result,
        success=bool(row.success),
        error=error,
        arguments=arguments,
        files=row.files,
        questions=row.questions,
        responses=row.responses,
    )
    chunks: list[AnyChunk] = [*_verdicts(row), chunk]
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
    stream.put(Writer("call", row.step, row.claim, row.call_id), chunks, version=version, boundary=COMMITTED)


def _end(stream: RunStream, run: RunRow, agent: AnyAgent) -> None:
    """Put the last record of a run, built from its row. A worker that completes the run's effects writes it again."""
    chunks: list[AnyChunk] = []
    mark: Mark = "end"
    message = run.error.message if run.error is not None else None
    match run.status:
        case "completed":
            if run.output is not None:
                chunks.append(OutputChunk(output=run.output))
        case "paused":
            pending = [p.model_dump(mode="json") for p in with_parameters(agent, run.pending)]
            chunks.append(RunPausedChunk(reason=run.reason or "pending", pending=pending, checkpoint_id=run.checkpoint))
            mark = "paused"
        case "interrupted" | "superseded":
            chunks.append(RunInterruptedChunk(reason=run.reason, checkpoint_id=run.checkpoint))
        case "failed":
            code = run.error.code if run.error is not None else "error"
            chunks.append(ErrorChunk(error=message or "the run failed", code=code, recoverable=False))
            mark = "fail"
    status = "interrupted" if run.status == "superseded" else run.status
    stream.put(RUN, chunks, boundary=Boundary(mark, run.last, status, message))
