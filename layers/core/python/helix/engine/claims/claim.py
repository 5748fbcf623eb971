"""Claiming a session for a new run: execute, resume, retry, takeover (docs/protocol.md#claims).

Law: a claim is one transaction, on condition that (status, version, run id) are unchanged since they were read. The
loser writes nothing, except that it may have closed calls that do not fit in its transaction (docs/protocol.md#wide).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from helix.core.agents import AnyAgent
from helix.core.claim_plan import ClaimPlan, Request, check_status, lapsed, plan_claim
from helix.core.delivery import Delivery
from helix.core.entries import AnyEntry, CallRow
from helix.core.errors import (
    AgentAlreadyRunningError,
    CannotResumeError,
    CheckpointNotFoundError,
    InvalidInputError,
    SessionNotFoundError,
    StaleStateError,
)
from helix.core.folding import merge_calls
from helix.core.json import JsonObject
from helix.core.lineage import ROOT
from helix.core.patches import diff
from helix.core.row_keys import make_run_id
from helix.core.rows import CheckpointRow, LineageRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.states import merged_state
from helix.engine.claims.claim_rows import Attempt, operations_of, run_of, session_of
from helix.engine.claims.liveness import clear_leftovers
from helix.engine.claims.missed import Missed, read_missed
from helix.engine.context import make_context
from helix.engine.engine import Engine
from helix.engine.facts import RunStarted
from helix.engine.observers import show
from helix.engine.runs.housekeeping import expiry_puts
from helix.engine.seen import Newest
from helix.engine.writing import (
    advance,
    as_claimed,
    as_read,
    checkpoint,
    commit,
    entry_put,
    no_outcome_check,
    session_put,
)
from helix.ports.state_store import ABSENT, Check, Operation
from helix.services.claim_input import ClaimInput, check_input
from helix.services.open_runs import open_run_put
from helix.services.request_keys import keyed_run, request_key

ROOM = 80
"""The maximum number of closed calls and of checked files in the transaction of a claim. It leaves room for the claim's
other operations. A message has at most 50 files, so at least 30 calls fit."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A successful claim: the rows that it wrote, and its findings about the previous run."""

    session: SessionRow
    """The session's row, with the new run."""
    run: RunRow
    """The new run's row."""
    checkpoint: CheckpointRow
    """The checkpoint that the claim wrote."""
    plan: ClaimPlan
    """The plan that the claim carried out."""
    patches: list[JsonObject]
    """The JSON Patch operations that the claim applied to the custom state."""
    missed: Missed | None = None
    """Commits that a dead worker may have failed to write to the stream. None: nothing can be missing."""
    ended: str | None = None
    """The id of the previous run, if its effects may not have been applied yet."""
    superseded: str | None = None
    """The id of the previous run, if it was interrupted or paused."""
    stream_end: tuple[int, float] | None = None
    """The last sequence of the session's own stream and its time, as read before the claim. The stream cannot have been
    deleted between that read and the claim. None: it is unknown, the worker that claimed the run does not execute it,
    or the session is a sub-agent's."""


async def claim(
    engine: Engine, agent: AnyAgent, session_id: str, ask: ClaimInput, delivery: Delivery, seen: Newest | None = None
) -> Claimed:
    """Claim the session for a new run. Raises `AgentAlreadyRunningError` for the loser, and `CannotResumeError` if the
    status does not allow the claim. `seen`: the rows that the caller has just read."""
    check_input(session_id, ask)
    while True:
        found = seen or Newest(None if ask.made else await engine.history.session(session_id))
        session, seen = found.session, None
        if session is None and ask.mode != "execute":
            raise SessionNotFoundError(session_id)
        if session is not None and ask.run_id is not None and session.run_id == ask.run_id:
            raise AgentAlreadyRunningError(session_id, session.run_id)
        if ask.version not in (None, 0 if session is None else session.version):
            raise StaleStateError(f"session {session_id!r} changed since it was read")
        claimed = await _try(engine, agent, session_id, found, ask, delivery)
        if isinstance(claimed, Claimed):
            show(make_context(engine, agent, claimed.session, claimed.run), RunStarted(claimed.run))
            return claimed
        again = await engine.history.session(session_id)
        if again is not None and again.status == "running":
            raise AgentAlreadyRunningError(session_id, again.run_id)
        if again is None and session is None:
            await clear_leftovers(engine, session_id)
        keyed = ask.key is not None and await keyed_run(engine.store, ask.key) is not None
        if ask.extra or keyed or (ask.holds and claimed == "refused"):  # a check of these may have failed
            raise StaleStateError(f"session {session_id!r} changed since it was read")


async def _try(
    engine: Engine, agent: AnyAgent, session_id: str, found: Newest, ask: ClaimInput, delivery: Delivery
) -> Claimed | Literal["closed", "refused"]:
    """Try once to claim the session as it was read. `closed`: calls had to be closed first. `refused`: another writer was
    first, or another condition of the claim was not met."""
    now, session = engine.clock.now(), found.session
    if session is not None:
        await _check_claimable(engine, agent, session, ask, now)
    turn = 1 if session is None else session.turn + 1
    run_id = ask.run_id or make_run_id(turn, engine.ids.new("run"))
    request, source = await _request(engine, session, ask)
    lineage = ROOT if session is None else await engine.history.lineage(session_id, session.lineage)
    open_rows = None if session is None else await engine.history.open_rows(session)
    trailing: AnyEntry | None = None
    if session is not None and ask.mode == "retry" and ask.message is not None and session.count:
        (trailing,) = await engine.history.entries(session_id, lineage, session.count - 1, session.count)
    plan = plan_claim(
        session,
        request,
        lineage=lineage,
        source=source,
        open_rows=open_rows,
        trailing=trailing,
        run_id=run_id,
        now=now,
    )
    if not ask.extra:  # a run that follows from another transaction begins, and fails with the error
        engine.find_agent(agent, plan.active_agent)
    attempt = Attempt(
        engine, agent, session_id, session, ask, delivery.owner, now, run_id, turn, request, open_rows, plan
    )
    state, patches = await _state(attempt)
    if session is not None and (excess := _excess_calls(attempt)):
        await _close_some(attempt, session, excess)
        return "closed"
    new = session_of(attempt)
    row, checkpoint_put = checkpoint(new, now, state=state, patches=patches)
    info = None if ask.made else await engine.streams.info(new.stream_id)
    run = run_of(attempt, new, info.latest_sequence if info else 0)
    ops = [*operations_of(attempt, new, run), checkpoint_put, *expiry_puts(engine, new, now)]
    if engine.placement.indexes_open_runs:
        ops.append(open_run_put(run))
    won = await commit(engine, f"claim_{ask.mode}", ops, lambda: _is_mine(engine, session_id, run_id))
    if not won:
        return "refused"
    if state is not None:
        engine.history.cache.put_state(session_id, new.created_at, row.id, state)
    missed, ended = await _left_behind(engine, found, ask, plan)
    superseded = session.run_id if session is not None and session.status in ("interrupted", "paused") else None
    stream_end = (0, 0.0) if ask.made else (info.latest_sequence, info.updated_at) if info and session else None
    stream_end = stream_end if engine.placement.executes_whole_runs and new.parent is None else None
    return Claimed(new, run, row, plan, patches, missed, ended, superseded, stream_end)


def _excess_calls(attempt: Attempt) -> int:
    """Return the number of calls that the claim has to close, but that do not fit in its transaction."""
    calls = sum(isinstance(row, CallRow) for _, row in attempt.plan.writes)
    return max(0, calls - min(attempt.engine.settings.calls_at_once, ROOM - len(attempt.ask.holds)))


async def _close_some(attempt: Attempt, old: SessionRow, excess: int) -> None:
    """Close `excess` calls of the open step, or as many as fit in one transaction. The session is then read again."""
    engine, plan, rows = attempt.engine, attempt.plan, attempt.open_rows
    assert rows is not None
    at_once = min(excess, engine.settings.calls_at_once)
    calls = [(index, row) for index, row in plan.writes if isinstance(row, CallRow)][:at_once]
    closed = {row.call_id for _, row in calls}
    new = advance(old, attempt.now, pending=[waits for waits in old.pending if waits.call_id not in closed])
    ops: list[Operation] = [session_put(new, as_claimed(old))]
    if attempt.ask.key is not None:  # a repeated request must close nothing
        ops.append(Check(request_key(attempt.ask.key), ABSENT))
    for index, row in calls:
        when = as_read(rows.calls[index - old.count - 1])
        ops.append(entry_put(old.session_id, plan.lineage.lineage, index, row, when))
    await commit(engine, "close_calls", ops, no_outcome_check)


async def _check_claimable(engine: Engine, agent: AnyAgent, session: SessionRow, ask: ClaimInput, now: float) -> None:
    """Raise an error for the caller if the session does not allow the claim."""
    session_id = session.session_id
    if session.status == "deleting":
        raise SessionNotFoundError(session_id)
    if ask.opening.user_id is not None and not await engine.history.belongs(session, ask.opening.user_id):
        raise SessionNotFoundError(session_id)
    if ask.mode == "takeover":
        if not lapsed(session, now):
            raise AgentAlreadyRunningError(session_id, session.run_id)
    else:
        check_status(session, ask.mode, ask.message)
        if ask.mode == "continue" and session.status == "paused" and await engine.history.unanswered(session):
            raise CannotResumeError(
                f"session {session_id!r} waits for an answer to {', '.join(p.call_id for p in session.pending)}: "
                "answer it, or resume with a message",
                "pending_confirmation",
            )
    if session.agent_type != agent.name:
        raise InvalidInputError(f"session {session_id!r} belongs to agent {session.agent_type!r}, not {agent.name!r}")


async def _request(engine: Engine, session: SessionRow | None, ask: ClaimInput) -> tuple[Request, LineageRow]:
    """Return the request with the rows that it rewinds to, and their lineage."""
    row, failed, source = None, None, ROOT
    if session is not None and ask.mode == "from_checkpoint":
        row = ask.point
        if row is None and ask.checkpoint_id is None:
            raise InvalidInputError("from_checkpoint needs a checkpoint_id")
        if row is None:
            row = await engine.history.checkpoint(session.session_id, str(ask.checkpoint_id))
        if row is None:
            raise CheckpointNotFoundError(f"session {session.session_id!r} has no checkpoint {ask.checkpoint_id!r}")
        source = await engine.history.lineage(session.session_id, row.lineage)
    elif session is not None and ask.mode == "from_start":
        failed = await engine.history.run(session.session_id, session.run_id)
        source = await engine.history.lineage(session.session_id, failed.start_lineage)
    return Request(ask.mode, ask.message, ask.state, ask.metadata, ask.files, ask.queued, row, failed), source


async def _state(attempt: Attempt) -> tuple[JsonObject | None, list[JsonObject]]:
    """Return (new state or None, patches). The state changes of a closed step's tools and the input's state are merged
    in. If the merge refuses a call's changes, that call's row is added to the plan's writes."""
    engine, agent, session, plan = attempt.engine, attempt.agent, attempt.old, attempt.plan
    ask, open_rows = attempt.ask, attempt.open_rows
    if session is not None and plan.state_at and not plan.new_lineage and open_rows is None and not ask.state:
        return None, []  # the state does not change
    if session is None or not plan.state_at:
        before: JsonObject = {}
        after = agent.initial_state()
    else:
        before = await engine.history.state_at(session.session_id, session.created_at, plan.state_at)
        after = before
    if session is not None and open_rows is not None and not plan.keeps_open and not plan.new_lineage:
        done = [(place, row) for place, row in enumerate(open_rows.calls) if row is not None and row.state == "done"]
        merged = merge_calls(agent, after, [row for _, row in done])
        after = merged.state
        for index, row in merged.refused:
            place = done[index][0]
            plan.writes.append((session.count + 1 + place, row))
            plan.added[1 + place] = row
    if ask.state:
        after = merged_state(agent, after, ask.state)
    if session is None:
        return after, diff({}, after, agent.array_delta_mode) if after else []
    if after == before:
        return None, []
    return after, diff(before, after, agent.array_delta_mode)


async def _is_mine(engine: Engine, session_id: str, run_id: str) -> bool:
    session = await engine.history.session(session_id)
    return session is not None and session.run_id == run_id


async def _left_behind(
    engine: Engine, found: Newest, ask: ClaimInput, plan: ClaimPlan
) -> tuple[Missed | None, str | None]:
    """Return the commits of the previous run that may be missing from the stream, and the id of that run, if its worker
    died before its effects were applied."""
    old = found.session
    if old is None or not old.run_id:
        return None, None
    if ask.mode != "takeover":
        run = found.run(old.run_id)
        if run is None or run.effects != "done":  # once effects are done, they stay done
            run = await engine.history.run(old.session_id, old.run_id)
        if run.effects == "done":
            return None, None
    missed_commits = None if plan.new_lineage else await read_missed(engine, old.session_id, old.checkpoint)
    return missed_commits, old.run_id
