"""The ends of runs: effects, abort, interrupt, and runs whose process died (docs/protocol.md#ends).

Law: `finish_run` depends on the run row, not on its writer. Repeating any part of it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from helix.core.agents import AnyAgent
from helix.core.claim_plan import lapsed
from helix.core.delivery import Delivery, Position
from helix.core.entries import ChildRef
from helix.core.errors import (
    AccessDeniedError,
    DamagedRowError,
    RunNotFoundError,
    SessionNotFoundError,
    StoreError,
)
from helix.core.row_keys import make_run_id, run_sort, stop_sort
from helix.core.rows import ErrorInfo, StopRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.status import AT_REST, ENDS
from helix.core.usage import Usage
from helix.engine.calls.children import report_to_parent, wake_waiting
from helix.engine.claims.claim import Claimed
from helix.engine.claims.missed import read_missed
from helix.engine.context import RunContext, make_context
from helix.engine.engine import Engine, logger
from helix.engine.facts import CommitsMissed, RunCounted, RunEnded, RunFinished, RunStarted
from helix.engine.history import DELETING, SWEPT_RUNS, row_key, session_key
from helix.engine.inbox import start_waiting
from helix.engine.money.reservations import return_draws
from helix.engine.money.usage import close_effects
from helix.engine.observers import record, show
from helix.engine.runs.admission import begin_granted, launcher_of, part_of, release_run
from helix.engine.runs.housekeeping import fail_damaged, prune_checkpoints, skipping_damage
from helix.engine.seen import Newest
from helix.engine.steps.close import ended_with
from helix.engine.writing import (
    CRASHED,
    DENIED,
    End,
    advance,
    as_claimed,
    at_version,
    commit,
    end,
    held_by_run,
    session_put,
)
from helix.ports.state_store import ABSENT, Check, Delete, Operation, Put, Update, When
from helix.services.claim_input import ClaimInput, check_reason
from helix.services.open_runs import open_run_key, open_run_put
from helix.services.session_index import facets_put

JUST_S = 1.0
KEEPING = ("continue", "with_confirmation", "takeover")


async def finish_run(
    engine: Engine,
    agent: AnyAgent,
    session_id: str,
    run_id: str,
    delivery: Delivery,
    context: RunContext | None = None,
) -> list[Claimed]:
    """Apply the effects of an ended run, each at most once. `context`: the context of the worker that ended it. Returns
    the runs that were claimed by reporting to a parent. Raises `RunNotFoundError` if the session is deleted in the
    meantime; the deletion then applies the remaining effects."""
    try:
        return await _finish_run(engine, agent, session_id, run_id, delivery, context)
    except (StoreError, SessionNotFoundError):
        session = await engine.history.session(session_id)
        if session is None or session.status == DELETING:
            raise RunNotFoundError(f"session {session_id!r} has no run {run_id!r}: it was deleted") from None
        raise


async def _finish_run(
    engine: Engine, agent: AnyAgent, session_id: str, run_id: str, delivery: Delivery, context: RunContext | None
) -> list[Claimed]:
    known = _just_ended(context) if context is not None else None
    session, row = known or await engine.history.with_run(session_id, run_id)
    if row.status == "running" or row.effects == "done" or session is None:
        return []
    if row.error is not None and row.error.code == "aborted" and session.run_id == run_id:
        with skipping_damage(f"sub-agents of run {run_id}"):
            await _abort_children(engine, agent, await _open_children(engine, session), row.reason, delivery)
    await return_draws(engine, session, row)
    claimed = await report_to_parent(engine, agent, session, row, delivery)
    run = context or make_context(engine, agent, session, row)
    run.session = session
    if context is None and session.run_id == run_id:  # the run's worker may have died after its last commit
        missed = None
        with skipping_damage(f"the last commit of run {run_id}"):
            missed = await read_missed(engine, session_id, row.checkpoint or "")
        if missed is not None:
            show(run, CommitsMissed(missed, begins=True, last=row.last))
    pending = {"pending": await engine.history.run_pending(row)} if row.pending else {}
    show(run, RunEnded(row.model_copy(update=pending)))
    await run.stream.close()
    await begin_granted(engine, await release_run(engine, row))  # before hooks: one may send the next message
    with skipping_damage(f"the last hook of run {run_id}"):
        await record(run, RunFinished(row))
    if session.run_id == run_id:
        await wake_waiting(engine, session_id)
    next_ = await _close(engine, agent, run, row, delivery)
    return [one for one in (claimed, next_) if one is not None]


async def _close(engine: Engine, agent: AnyAgent, run: RunContext, row: RunRow, delivery: Delivery) -> Claimed | None:
    """Start what waits for the end of the run, then mark its effects as done. A message may have been left without the
    knowledge of the worker that ended the run, which the mark is conditional on."""
    done: list[Operation] = [Delete(open_run_key(row.run_id))] if engine.placement.indexes_open_runs else []
    facets: list[Operation] = []
    if run.session.parent is None and run.session.run_id == row.run_id:
        facets = [facets_put(run.session, first_run=row.previous_run_id is None)]
    claimed: Claimed | None = None
    while True:
        if row.arrived and claimed is None:
            claimed = await start_waiting(engine, agent, row.session_id, delivery)
        closed = await close_effects(engine, run.session, row, [*done, *(facets if claimed is None else ())])
        if isinstance(closed, RunRow):
            row = closed
            continue
        if closed:
            show(run, RunCounted(row))
            await prune_checkpoints(engine, row.session_id)
        return claimed


def _just_ended(run: RunContext) -> tuple[SessionRow, RunRow] | None:
    """Return the session and the run as this worker wrote them when it ended the run a moment ago, which saves a read.
    None after `JUST_S`, because the session may have been deleted, leaving nothing to finish."""
    row = run.row
    ended = row is not None and row.ended_at is not None and run.now() - row.ended_at <= JUST_S
    return (run.session, row) if row is not None and ended else None


async def interrupt(engine: Engine, session_id: str, run_id: str | None, reason: str | None) -> bool:
    """Ask the run (by default the current one) to stop at the next possible point. False if it is not running. The
    request never stops a later run."""
    check_reason(reason)
    session = await engine.history.existing(session_id)
    target = run_id or session.run_id
    return await put_stop(
        engine, session_id, StopRow(run_id=target, stop="interrupt", reason=reason, created_at=engine.clock.now())
    )


async def put_stop(engine: Engine, session_id: str, stop: StopRow) -> bool:
    """Record the stop, if its run is running. False: the run is not running."""
    key = row_key(session_id, stop_sort(stop.run_id))
    running = Check(session_key(session_id), held_by_run(stop.run_id))
    value = {"kind": "stop", **stop.dump()}
    write: Operation = Put(key, value, ABSENT if stop.stop == "interrupt" else None)

    async def written() -> bool:
        (row,) = await engine.store.get([key])
        return row is not None and row.get("stop") is not None

    while not await commit(engine, f"stop_{stop.stop}", [running, write], written):
        session = await engine.history.existing(session_id)
        if session.run_id != stop.run_id or session.status != "running":
            return False
        if await written():
            return True
        # messages steer the run: the row exists
        write = Update(key, set=value, when=When(equal={"stop": None}))
    return True


async def abort(
    engine: Engine,
    agent: AnyAgent,
    session_id: str,
    reason: str | None,
    delivery: Delivery,
    *,
    run_id: str | None = None,
) -> list[Claimed]:
    """Fail the running, paused or interrupted session permanently, along with its sub-agents. Idempotent. A session
    that has ended, or whose run is not `run_id`, is left unchanged. A session with a damaged row fails as
    `damaged_row`."""
    check_reason(reason)
    try:
        return await _abort(engine, agent, session_id, reason, delivery, run_id)
    except DamagedRowError as problem:
        failed = await fail_damaged(engine, agent.name, session_id, problem, run_id)
        return await finish_run(engine, agent, session_id, failed, delivery) if failed else []


async def _abort(
    engine: Engine, agent: AnyAgent, session_id: str, reason: str | None, delivery: Delivery, run_id: str | None
) -> list[Claimed]:
    while True:
        session = await engine.history.existing(session_id)
        if session.status not in ("running", *AT_REST) or (run_id is not None and session.run_id != run_id):
            return []
        now = engine.clock.now()
        if session.status != "running":
            if (ended_by := await _abort_at_rest(engine, agent, session, reason)) is None:
                continue
            return await finish_run(engine, agent, session_id, ended_by, delivery)
        stop = StopRow(run_id=session.run_id, stop="abort", reason=reason, created_at=now)
        if not await put_stop(engine, session_id, stop):
            continue
        new = advance(session, now, aborted=True, abort_reason=reason)
        ended = end(new, End("failed", error=_abort_error(reason), reason=reason), now)
        aborted: list[Operation] = [session_put(new, at_version(session)), ended]
        if await commit(engine, "abort", aborted, lambda: _aborted(engine, session_id)):
            break
    if engine.launcher is not None and session.parent is None:  # a sub-agent's execution ends at its next delivery
        run = await engine.history.run(session_id, session.run_id)
        await engine.launcher.stop(part_of(engine, agent, run), reason or "aborted")
    return await finish_run(engine, agent, session_id, session.run_id, delivery)


async def _abort_at_rest(engine: Engine, agent: AnyAgent, session: SessionRow, reason: str | None) -> str | None:
    """Claim the session for a run that fails in the same transaction, and return the run's id. None: another writer was
    first. The paused run's effects were already applied; this run has its own, so each happens once."""
    now = engine.clock.now()
    run_id = make_run_id(session.turn + 1, engine.ids.new("run"))
    changes = {"run_id": run_id, "turn": session.turn + 1, "pending": [], "run_steps": 0, "run_usage": Usage()}
    new = advance(session, now, **changes, run_parts={}, aborted=True, abort_reason=reason)
    info = await engine.streams.info(session.stream_id)
    run = RunRow(
        run_id=run_id,
        session_id=session.session_id,
        turn=new.turn,
        status="failed",
        mode="abort",
        agent_type=session.agent_type,
        first_step=session.step + 1,
        previous_run_id=session.run_id,
        start_lineage=session.lineage,
        start_count=session.count,
        start_state_at=session.state_at,
        start_view=session.context.view,
        start_agent=session.active_agent,
        start_step=session.step,
        start_sequence=info.latest_sequence if info else 0,
        trace=session.trace,
        priority=session.priority,
        started_at=now,
    )
    ended = end(new, End("failed", error=_abort_error(reason), reason=reason), now)
    operations: list[Operation] = [
        session_put(new, as_claimed(session)),
        Update(row_key(session.session_id, run_sort(session.run_id)), set={"status": "superseded"}),
        Put(ended.key, {**run.dump(), **ended.set}, ABSENT),
    ]
    if engine.placement.indexes_open_runs:
        operations.append(open_run_put(run))

    async def won() -> bool:
        current = await engine.history.session(session.session_id)
        return current is not None and current.run_id == run_id

    if not await commit(engine, "claim_abort", operations, won):
        return None
    show(make_context(engine, agent, new, run), RunStarted(run))
    return run_id


def _abort_error(reason: str | None) -> ErrorInfo:
    return ErrorInfo(code="aborted", message=reason or "aborted", recoverable=False)


async def _open_children(engine: Engine, session: SessionRow) -> list[ChildRef]:
    """Return the sub-agents of the open step that have no result, and those that a claim closed without completing
    their end."""
    calls = await engine.history.open_calls(session)
    return [row.child for row in calls if row.child is not None and (row.state == "claimed" or row.by == "close")]


async def _abort_children(
    engine: Engine, agent: AnyAgent, children: Sequence[ChildRef], reason: str | None, delivery: Delivery
) -> None:
    """Abort these sub-agents. No more of them can start, because their claims require the parent to be running in their
    step."""
    for ref in children:
        child_agent = agent.find_agent(ref.agent_type) or engine.agents(ref.agent_type)
        if await engine.history.session(ref.session_id) is not None:
            await abort(engine, child_agent, ref.session_id, reason, delivery)
            # the sub-agent may have ended earlier, and its worker died before applying the effects
            await sweep_session(engine, child_agent, ref.session_id, delivery)


async def _aborted(engine: Engine, session_id: str) -> bool:
    session = await engine.history.session(session_id)
    return session is not None and session.aborted


async def fail_lapsed(engine: Engine, agent: AnyAgent, session_id: str, delivery: Delivery) -> list[Claimed]:
    """Fail a run whose worker's lease has lapsed, so that the session can be claimed in any mode. Does nothing if the
    worker is alive. Returns the runs that were claimed by the end of the run."""
    session = await engine.history.existing(session_id)
    now = engine.clock.now()
    if not lapsed(session, now):
        return []
    new = advance(session, now)
    ended = end(new, End("failed", error=CRASHED), now)
    seen = When(equal={**at_version(session).equal, "lease_expires": session.lease_expires})
    failed: list[Operation] = [session_put(new, seen), ended]
    if not await commit(engine, "fail_run", failed, lambda: ended_with(engine, session, "failed")):
        return []
    return await finish_run(engine, agent, session_id, session.run_id, delivery)


async def fail_run(
    engine: Engine, agent: AnyAgent, position: Position, delivery: Delivery, *, cause: str = ""
) -> list[Claimed]:
    """Fail a run whose execution has ended, unless the run itself has ended. The end of an old part never fails a run
    that has a next part. The next part is started instead, which is harmless if it was started before. Returns the runs
    that were claimed by reporting to a parent."""
    session_id, run_id = position.session_id, position.run_id
    while True:
        run = await engine.history.run(session_id, run_id)
        if run.part > position.part and run.status == "running":
            await launcher_of(engine).start(part_of(engine, agent, run))
            return []
        session = await engine.history.session(session_id)
        if session is None or session.run_id != run_id or session.status != "running":
            return await finish_run(engine, agent, session_id, run_id, delivery)
        now = engine.clock.now()
        new = advance(session, now)
        ended = end(new, End("failed", error=_error_by(cause)), now)
        ended = replace(ended, when=When(equal={"part": run.part if run.part > 1 else None}))
        failed: list[Operation] = [session_put(new, at_version(session)), ended]
        if await commit(engine, "fail_run", failed, partial(ended_with, engine, session, "failed")):
            return await finish_run(engine, agent, session_id, run_id, delivery)


def _error_by(cause: str) -> ErrorInfo:
    """Return the error of a run. `cause` is the name of the error that ended the execution, or the execution's
    status."""
    if cause == AccessDeniedError.__name__:
        return DENIED
    return CRASHED.model_copy(update={"message": f"{CRASHED.message}: {cause}"}) if cause else CRASHED


async def sweep_session(
    engine: Engine,
    agent: AnyAgent,
    session_id: str,
    delivery: Delivery,
    *,
    limit: int | None = SWEPT_RUNS,
    seen: Newest | None = None,
) -> list[Claimed]:
    """Complete the effects of ended runs whose finisher died (docs/protocol.md#sweep). `limit` is the number of newest
    runs to check. None checks all of them, which also finds runs that several dead processes left behind. `seen`: the
    session and these runs, if the caller has just read them."""
    claimed: list[Claimed] = []
    session, runs = seen or await engine.history.newest(session_id, limit)
    if session is not None and session.run_id and all(run.run_id != session.run_id for run in runs):
        with suppress(RunNotFoundError):  # the id of a message that waited for long sorts before those of other runs
            runs = [*runs, await engine.history.run(session_id, session.run_id)]
    finished = False
    for run in runs:
        if run.status != "running" and run.effects == "open":
            logger.info("completing the effects of run %s", run.run_id)
            claimed.extend(await finish_run(engine, agent, session_id, run.run_id, delivery))
            finished = True
        elif run.status != "running" and session is not None:
            await return_draws(engine, session, run)  # a zombie may have drawn after the effects
    if finished:
        session = await engine.history.session(session_id)
    for call in await engine.history.open_calls(session) if session is not None and session.status != DELETING else ():
        if call.child is not None and call.by == "child":  # it reported, but other effects may be missing
            child_agent = agent.find_agent(call.child.agent_type) or engine.agents(call.child.agent_type)
            claimed.extend(await sweep_session(engine, child_agent, call.child.session_id, delivery))
    return claimed


async def children_left(engine: Engine, session: SessionRow | None, ask: ClaimInput) -> list[ChildRef]:
    """Return the sub-agents that the claim would leave behind with the open step. The session itself must not be
    running."""
    retained = ask.mode in KEEPING or (ask.mode == "retry" and not ask.message)
    return [] if session is None or session.status not in ENDS or retained else await _open_children(engine, session)


async def leave_children(engine: Engine, agent: AnyAgent, children: Sequence[ChildRef], delivery: Delivery) -> None:
    """Abort the sub-agents that a claim left behind, since their results are no longer needed. Call this after the
    claim; before it, the end of a sub-agent would claim a paused parent."""
    try:
        await _abort_children(engine, agent, children, "its parent went on without it", delivery)
    except StoreError as error:  # the claimed run continues regardless
        logger.warning("not all sub-agents that were left behind could be aborted: %s", error)
