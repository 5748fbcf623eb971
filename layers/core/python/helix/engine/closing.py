"""Ending a run between steps, and the fold that comes with it (PROTOCOL 5, points 2 to 6).

Law: one transaction on AT(v): what is due is folded and the run ends, or nothing is written and the rows are read again.
"""

from __future__ import annotations

from helix.core.agents import AnyAgent
from helix.core.claiming import OpenRows
from helix.core.folding import Fold, Next
from helix.core.rows import AnyEntry, CheckpointRow, ErrorInfo, Pending, SessionRow, StopRow
from helix.core.usage_parts import with_calls
from helix.engine.announcing import announce_fold
from helix.engine.engine import Engine, Outcome, Over
from helix.engine.hooking import tell_history
from helix.engine.money import assume_dead
from helix.engine.run_stream import RunStream
from helix.engine.usage_rows import assumed_put
from helix.engine.writing import advance, at, checkpoint, commit, end, session_put
from helix.ports.state_store import Operation, Put

Folding = tuple[OpenRows, Fold]


def folded(session: SessionRow, folding: Folding | None, now: float) -> SessionRow:
    """The session one version on, with the fold's count, step and usage."""
    if folding is None:
        return advance(session, now)
    _, fold = folding
    return advance(
        session,
        now,
        count=fold.count,
        step=fold.step,
        open=None,
        forced=fold.next.forced,
        usage=session.usage + fold.usage,
        run_usage=session.run_usage + fold.usage,
        run_parts=with_calls(session.run_parts, fold.calls),
    )


async def after_fold(
    engine: Engine,
    agent: AnyAgent,
    before: SessionRow,
    new: SessionRow,
    folding: Folding | None,
    stream: RunStream,
    row: CheckpointRow,
) -> None:
    entries: list[AnyEntry] = []
    if folding is not None:
        rows, fold = folding
        entries = [rows.answer, *fold.calls]
        engine.history.remember(before, fold.count - len(entries), entries)
        if fold.state is not None:
            engine.history.remember_state(new.session_id, new.created_at, row.id, fold.state)
    announce_fold(stream, row)
    await tell_history(engine, agent, new, entries, row.patches, stream)


async def close_run(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    status: str,
    folding: Folding | None,
    stream: RunStream,
    *,
    next_: Next | None = None,
    error: ErrorInfo | None = None,
    reason: str | None = None,
    pending: list[Pending] | None = None,
    checks: list[Operation] | None = None,
    settle: bool = False,
) -> Outcome | None:
    """One transaction AT(v) that ends the run with `status`. None: refused, read again."""
    now = engine.clock.now()
    new = folded(session, folding, now)
    new.status = status
    new.pending = pending or []
    unheard = assumed_put(agent, session, new, "cancelled", now) if settle else []
    if settle:
        assume_dead(new)
    if error is not None and error.code == "aborted":
        new.aborted, new.abort_reason = True, reason
    ops: list[Operation] = []
    row: CheckpointRow | None = None
    if status != "failed" or folding is not None:  # not on failure: retry goes on from the last good one
        row, put = fold_checkpoint(new, folding, now)
        ops.append(put)
    ended = end(
        new,
        status,
        now,
        output=next_.output if next_ else None,
        error=error or (next_.error if next_ else None),
        reason=reason,
        completion_reason=next_.reason if next_ else reason if status == "paused" else None,
    )
    ops = [session_put(new, at(session)), ended, *ops, *unheard, *(checks or [])]
    if not await commit(engine, f"end_{status}", ops, lambda: _ended_by(engine, session, status)):
        return None
    if row is not None:
        await after_fold(engine, agent, session, new, folding, stream, row)
    return Over(status)


def fold_checkpoint(new: SessionRow, folding: Folding | None, now: float) -> tuple[CheckpointRow, Put]:
    if folding is None:
        return checkpoint(new, now, state=None)
    fold = folding[1]
    return checkpoint(new, now, state=fold.state, patches=fold.patches, warnings=fold.warnings)


async def _ended_by(engine: Engine, session: SessionRow, status: str) -> bool:
    run = await engine.history.run(session.session_id, session.run_id)
    return run.status == status


async def stop_run(
    engine: Engine, agent: AnyAgent, session: SessionRow, stop: StopRow, folding: Folding | None, stream: RunStream
) -> Outcome | None:
    """3: a stop comes before anything else that goes on."""
    if stop.stop == "abort":
        error = ErrorInfo(code="aborted", message=stop.reason or "aborted", recoverable=False)
        return await close_run(engine, agent, session, "failed", folding, stream, error=error, reason=stop.reason)
    return await close_run(engine, agent, session, "interrupted", folding, stream, reason=stop.reason, settle=True)
