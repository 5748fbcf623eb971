"""Ending a run between steps, and the fold that comes with it (docs/protocol.md#fold).

Law: one transaction on AT(v) folds the previous step, if it is complete, and ends the run. If it is refused, nothing is
written and the rows are read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from helix.core.claim_plan import OpenRows
from helix.core.entries import AnyEntry, AssistantRow, message_of
from helix.core.errors import AgentNotFoundError
from helix.core.folding import Fold, Next
from helix.core.rows import CheckpointRow, ErrorInfo, Pending, StopRow
from helix.core.session_row import SessionRow
from helix.core.status import EndStatus
from helix.core.usage_parts import with_calls
from helix.engine.context import RunContext
from helix.engine.engine import Engine, Over
from helix.engine.facts import StepFolded, StepStaged
from helix.engine.inbox import Arrived
from helix.engine.money.reservations import assume_dead
from helix.engine.money.usage import assumed_put
from helix.engine.observers import record, show
from helix.engine.writing import End, at_version, checkpoint, end, entry_put, message_put, session_put
from helix.ports.state_store import Operation

Folding = tuple[OpenRows, Fold]


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a run between steps."""

    status: EndStatus
    """The status of both the session and the run."""
    next_: Next | None = None
    """The fold's decision, with the output or the error. None: the run ends for another reason."""
    error: ErrorInfo | None = None
    """The error of a failed run. It takes precedence over that of `next_`."""
    reason: str | None = None
    """The reason for a pause, an interrupt or an abort. None: none was given."""
    pending: list[Pending] = field(default_factory=list)
    """The calls that a paused run waits for."""
    checks: list[Operation] = field(default_factory=list)
    """Further operations of the transaction. For a pause they check that its calls still wait."""
    assume: bool = False
    """Whether the open attempt's reservation counts as spent, because the attempt is cancelled."""
    cut: AssistantRow | None = None
    """The part of the cancelled attempt's answer that becomes history. None: nothing is kept."""


def folded(run: RunContext, session: SessionRow, folding: Folding | None) -> SessionRow:
    """Return the session at its next version, with the fold's count, step and usage."""
    if folding is None:
        return run.next_version(session)
    rows, fold = folding
    handed = {"active_agent": rows.answer.handoff, "misses": 0} if rows.answer.handoff else {}
    return run.next_version(
        session,
        **handed,
        count=fold.count,
        step=fold.step,
        open=None,
        forced=fold.next.forced,
        reminded=fold.next.reminded,
        usage=session.usage + fold.usage,
        run_usage=session.run_usage + fold.usage,
        run_parts=with_calls(session.run_parts, fold.calls),
    )


async def after_fold(
    run: RunContext, before: SessionRow, folding: Folding | None, row: CheckpointRow, arrived: Arrived | None = None
) -> None:
    """Cache and record the messages that this checkpoint's commit added to history."""
    entries: list[AnyEntry] = []
    history, new, steering = run.engine.history, run.session, arrived or Arrived()
    if folding is not None:
        rows, fold = folding
        entries = [rows.answer, *fold.calls]
        history.remember(before, fold.count - len(fold.messages), fold.messages)
        if fold.state is not None:
            history.cache.put_state(new.session_id, new.created_at, row.id, fold.state)
    history.remember(before, new.count - len(steering.messages), steering.messages)
    acting = run.agent
    with suppress(AgentNotFoundError):  # the hooks of the agent that made the step observe it
        run.agent = run.engine.find_agent(run.own, before.active_agent)
    try:
        await record(run, StepFolded([*entries, *steering.entries], row))
    finally:
        run.agent = acting


async def close_run(
    run: RunContext, session: SessionRow, ending: Ending, folding: Folding | None = None
) -> Over | None:
    """Fold the previous step, if it is complete, and end the run, in one transaction AT(v). None: the transaction was
    refused, so read the rows again."""
    now, status, next_, error = run.now(), ending.status, ending.next_, ending.error
    new, cut = folded(run, session, folding), ending.cut
    new.status, new.pending = status, ending.pending
    if cut is not None:
        new.count, new.step, new.last = session.count + 1, cut.step, (cut.step, cut.attempt)
        new.run_steps = session.run_steps + 1
    unheard = assumed_put(run.own, session, new, "cancelled", now) if ending.assume else []
    if ending.assume:
        assume_dead(new)
    if error is not None and error.code == "aborted":
        new.aborted, new.abort_reason = True, ending.reason
    ops: list[Operation] = [] if cut is None else [message_put(session, session.count, cut)]
    row: CheckpointRow | None = None
    if status != "failed" or folding is not None:  # a retry after a failure continues from the last good checkpoint
        row, puts = fold_checkpoint(new, folding, now)
        ops.extend(puts)
    completion = next_.reason if next_ else ending.reason if status == "paused" else None
    output, error = (next_.output, error or next_.error) if next_ else (None, error)
    ended = end(new, End(status, output, error, ending.reason, completion), now)
    ops = [session_put(new, at_version(session)), ended, *ops, *unheard, *ending.checks]
    if not await run.commit(f"end_{status}", ops, lambda: ended_so(run, session, status), new):
        return None
    run.ended(ended, folding[0].answer if folding is not None else None)
    if cut is not None and row is not None:
        run.engine.history.remember(session, session.count, [message_of(cut, session.lineage, session.count)])
        show(run, StepStaged(cut))
        await record(run, StepFolded([cut], row))
    elif row is not None:
        await after_fold(run, session, folding, row)
    return Over(status)


def fold_checkpoint(new: SessionRow, folding: Folding | None, now: float) -> tuple[CheckpointRow, list[Operation]]:
    """Return the checkpoint and the fold's writes: the checkpoint itself, and the calls whose results changed when the
    state was merged."""
    if folding is None:
        row, put = checkpoint(new, now, state=None)
        return row, [put]
    fold = folding[1]
    row, put = checkpoint(new, now, state=fold.state, patches=fold.patches, warnings=fold.warnings)
    first = fold.count - len(fold.calls)
    return row, [put, *(entry_put(new.session_id, new.lineage, first + place, call) for place, call in fold.refused)]


async def ended_with(engine: Engine, session: SessionRow, status: EndStatus) -> bool:
    return (await engine.history.run(session.session_id, session.run_id)).status == status


async def ended_so(run: RunContext, session: SessionRow, status: EndStatus) -> bool:
    """Return whether the run has ended with this status, for use after the store's response was lost. Another worker
    may have ended it."""
    run.row = None
    return await ended_with(run.engine, session, status)


async def stop_run(
    run: RunContext,
    session: SessionRow,
    stop: StopRow,
    folding: Folding | None = None,
    cut: AssistantRow | None = None,
    checks: Sequence[Operation] = (),
) -> Over | None:
    """End the run because of a stop, which takes precedence over continuing. An interrupt adds `cut`, the beginning of an
    answer, to history. `checks`: further operations of the transaction."""
    if stop.stop == "abort":
        error = ErrorInfo(code="aborted", message=stop.reason or "aborted", recoverable=False)
        ending = Ending("failed", error=error, reason=stop.reason, checks=[*checks])
    else:
        ending = Ending("interrupted", reason=stop.reason, assume=True, cut=cut, checks=[*checks])
    return await close_run(run, session, ending, folding)
