"""Plans the writes of a claim: execute, resume, retry or takeover (docs/protocol.md#claims).

Law: pure. Given the rows as read, the plan lists the messages to write, the calls to close with their results, and the
session's position afterwards. The engine turns it into one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from pydantic import TypeAdapter

from helix.core.entries import AnyEntry, AssistantRow, CallRow, UserRow
from helix.core.errors import (
    AgentAlreadyRunningError,
    CallerError,
    CannotResumeError,
    SessionNotFoundError,
    damaged_row,
)
from helix.core.files import FilePart
from helix.core.json import JsonObject, dumps
from helix.core.lineage import ROOT, fork
from helix.core.prompt import NOT_ANSWERED, NOT_EXECUTED, UNKNOWN
from helix.core.row_keys import SESSION
from helix.core.rows import CheckpointRow, LineageRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.status import ClaimMode, may_claim

if TYPE_CHECKING:
    from helix.core.handles import ResumeMode, SessionState


@dataclass(frozen=True, slots=True)
class OpenRows:
    """The open step as stored."""

    answer: AssistantRow
    """The staged answer."""
    calls: Sequence[CallRow | None]
    """The row of each call, in the answer's order. None if no worker has claimed the call yet."""


@dataclass(frozen=True, slots=True)
class Request:
    """A claim as the caller requested it."""

    mode: ClaimMode
    """The kind of claim."""
    message: str | None = None
    """The user's new message. None for a claim that continues without one."""
    state: JsonObject | None = None
    """Top-level fields to merge into the custom state. None leaves the state unchanged."""
    metadata: JsonObject = field(default_factory=dict)
    """A JSON object to store with the message."""
    files: Sequence[FilePart] = ()
    """The files of the message."""
    queued: str = ""
    """The id under which the message waited in the inbox. Empty if it did not wait."""
    checkpoint: CheckpointRow | None = None
    """The checkpoint that `from_checkpoint` goes back to. None for other modes."""
    failed_run: RunRow | None = None
    """The failed run that `from_start` repeats from its beginning. None for other modes."""


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """The writes of a claim, and the position of the session after it."""

    lineage: LineageRow
    """The lineage of the session after the claim."""
    new_lineage: bool
    """Whether the claim creates this lineage and must write its row."""
    count: int
    """The number of messages in history after the claim."""
    step: int
    """The number of the last step in history after the claim."""
    state_at: str
    """The id of the checkpoint with the state to start from. Empty for the agent's initial state."""
    view: int
    """The session version in the key of the view to start from. 0: the whole history is shown."""
    active_agent: str
    """The agent that makes the next step. Empty before the first handoff: the session's own agent."""
    writes: list[tuple[int, AnyEntry]]
    """The (index, row) pairs to write in `lineage`."""
    closed: list[CallRow]
    """The call rows that the claim closed with a result."""
    keeps_open: bool
    """Whether the open step stays open and the new run continues it."""
    input_message: str | None
    """The input message of the new run. None if it continues without one."""
    added: list[AnyEntry] = field(default_factory=list)
    """All rows that become history with the claim, in order, including rows that were already stored."""


CLOCK_SKEW_S = 60
"""The tolerated clock skew between two workers, in seconds. A row dated further in the future means that a clock was
set back."""


def lapsed(session: SessionRow | SessionState, now: float) -> bool:
    """Return whether a running session's lease has expired or is implausible. It is implausible if its last renewal
    lies in the future because a clock was set back. A session without a lease never lapses: deliveries with their own
    deadlines execute it. Neither does one that waits for a batch, because any worker continues the same run."""
    if session.status != "running" or session.lease_expires <= 0 or session.in_batch:
        return False
    return session.lease_expires < now or now + CLOCK_SKEW_S < session.updated_at <= session.lease_expires


def mode_after_lapse(mode: ResumeMode) -> ClaimMode:
    """Return the kind of claim that resumes a session whose lease has lapsed. `takeover` continues its run. The other
    kinds need the run to be failed first."""
    match mode:
        case "continue":
            return "takeover"
        case "with_message" | "with_confirmation":
            return "execute"
        case "from_checkpoint":
            return mode
        case _:
            assert_never(mode)


def check_status(session: SessionRow, mode: ClaimMode, message: str | None) -> None:
    """Raise an error for the caller if the session's status does not allow `mode`."""
    status = session.status
    if may_claim(mode, status):
        if mode in ("retry", "from_start") and session.aborted:
            raise CannotResumeError(
                f"session {session.session_id!r} was aborted: execute it with a new message instead", "aborted"
            )
        return
    match status:
        case "running":
            raise AgentAlreadyRunningError(session.session_id, session.run_id)
        case "deleting":
            raise SessionNotFoundError(session.session_id)
        case "failed":
            reason, hint = "failed_use_retry", "retry it, or execute it with a new message"
        case "completed":
            reason, hint = status, "execute it with a new message, or resume from one of its checkpoints"
        case "interrupted":
            reason, hint = status, "resume it, or execute it with a new message"
        case "paused":
            reason, hint = status, "answer what it waits for, or resume it with a message"
        case _:  # written by another version, or damaged
            raise damaged_row(
                "sessions", session.session_id, SESSION, f"status: {status!r} is not a status of a session"
            )
    raise CannotResumeError(
        f"session {session.session_id!r} is {status}, so mode {mode!r} cannot be used: {hint}", reason
    )


def plan_claim(
    session: SessionRow | None,
    request: Request,
    *,
    lineage: LineageRow = ROOT,
    source: LineageRow = ROOT,
    open_rows: OpenRows | None = None,
    trailing: AnyEntry | None = None,
    run_id: str,
    now: float,
) -> ClaimPlan:
    """Plan the claim for `request`. `lineage` is the session's current lineage, and `source` the lineage of the
    checkpoint or run to go back to. `trailing` is the last message of history."""
    message = request.message
    if session is None:
        if message is None:
            raise CallerError("a new session needs a message")
        return _append(ROOT, 0, 0, "", 0, "", message, request, run_id, now)
    match request.mode:
        case "continue" | "with_confirmation" | "takeover":
            return _keep(session, lineage)
        case "retry" if message is None:
            return _keep(session, lineage)
        case "retry" if open_rows is None and isinstance(trailing, UserRow):
            row = fork(lineage, session.count - 1, session.lineages + 1)
            return _append(
                row,
                session.count - 1,
                session.step,
                session.state_at,
                session.context.view,
                session.active_agent,
                message,
                request,
                run_id,
                now,
                new=True,
            )
        case "from_start":
            run = request.failed_run
            assert run is not None
            row = fork(source, run.start_count, session.lineages + 1)
            if message is None:
                message = (run.input or {}).get("message")  # type: ignore[assignment]
                request = replace(request, files=files_of(run.input))
            return _append(
                row,
                run.start_count,
                run.start_step,
                run.start_state_at,
                run.start_view,
                run.start_agent,
                message,
                request,
                run_id,
                now,
                new=True,
            )
        case "from_checkpoint":
            checkpoint = request.checkpoint
            assert checkpoint is not None
            row = fork(source, checkpoint.count, session.lineages + 1)
            return _append(
                row,
                checkpoint.count,
                checkpoint.step,
                checkpoint.state_at,
                checkpoint.view,
                checkpoint.active_agent,
                message,
                request,
                run_id,
                now,
                new=True,
            )
    closing = close(open_rows, now) if open_rows is not None else []
    writes: list[tuple[int, AnyEntry]] = []
    added: list[AnyEntry] = []
    count, step, active = session.count, session.step, session.active_agent
    if open_rows is not None:
        active = open_rows.answer.handoff or active
        closed = dict(closing)
        added = [open_rows.answer, *(closed.get(i) or row for i, row in enumerate(open_rows.calls))]  # type: ignore[list-item]
        writes = [(count + 1 + place, row) for place, row in closing]
        count, step = count + 1 + len(open_rows.calls), step + 1
    user = _user(message, request, run_id, now)
    if user is not None:
        writes.append((count, user))
        added.append(user)
        count += 1
    closed_rows = [row for _, row in closing]
    at = (count, step, session.state_at, session.context.view, active)
    return ClaimPlan(lineage, False, *at, writes, closed_rows, False, message, added)


def close(rows: OpenRows, now: float) -> list[tuple[int, CallRow]]:
    """Return (index, closed row) for each call without a result. A result that came with the answer, or from elsewhere, is
    used if there is one, unless guards have not judged it. Otherwise the result is `unknown` if the call was claimed, waits
    for another system, has an unjudged result or its outcome awaits a decision, `not_answered` if its tool asked a
    question, and `not_executed` if not."""
    closed = []
    for place, (request, row) in enumerate(zip(rows.answer.tool_calls, rows.calls, strict=True)):
        if row is not None and row.state == "done":
            continue
        begun = row is not None and (row.state == "claimed" or row.ask in ("unknown", "elsewhere") or row.is_unjudged)
        if row is not None and row.content is not None and not row.is_unjudged:  # from elsewhere, while the tool ran
            closed.append(
                (place, row.ended(row.content, bool(row.success), "answer", row.ended_at or now, deadline=None))
            )
            continue
        known = rows.answer.resolved.get(request.id)
        asks = row is not None and not begun and bool(row.questions)
        content, success = known or (dumps(UNKNOWN if begun else NOT_ANSWERED if asks else NOT_EXECUTED), False)
        done = CallRow(
            call_id=request.id,
            tool_name=request.name,
            step=rows.answer.step,
            state="done",
            claim=row.claim if row is not None else 0,
            run_id=rows.answer.run_id,
            questions=row.questions if row is not None else [],
            later=row.later if row is not None else None,
            child=row.child if row is not None else rows.answer.children.get(request.id),
            content=content,
            success=success,
            by="close" if known is None else "plan",
            usage=row.usage if row is not None else None,
            ended_at=now,
        )
        closed.append((place, done))
    return closed


def _keep(session: SessionRow, lineage: LineageRow) -> ClaimPlan:
    at = (session.count, session.step, session.state_at, session.context.view, session.active_agent)
    return ClaimPlan(lineage, False, *at, [], [], True, None)


def _append(
    row: LineageRow,
    count: int,
    step: int,
    state_at: str,
    view: int,
    active_agent: str,
    message: str | None,
    request: Request,
    run_id: str,
    now: float,
    *,
    new: bool = False,
) -> ClaimPlan:
    user = _user(message, request, run_id, now)
    writes: list[tuple[int, AnyEntry]] = [] if user is None else [(count, user)]
    added = [entry for _, entry in writes]
    at = (count + len(writes), step, state_at, view, active_agent)
    return ClaimPlan(row, new, *at, writes, [], False, message, added)


def _user(message: str | None, request: Request, run_id: str, now: float) -> UserRow | None:
    if message is None:
        return None
    return UserRow(
        content=message,
        files=[*request.files],
        run_id=run_id,
        created_at=now,
        metadata=request.metadata,
        queued=request.queued,
    )


def files_of(run_input: JsonObject | None) -> list[FilePart]:
    """Return the files in the input of a run."""
    return TypeAdapter(list[FilePart]).validate_python((run_input or {}).get("files", []))
