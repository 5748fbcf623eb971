"""Claiming a session for a new run: execute, resume, retry, takeover (docs/protocol.md#claims).

Law: one transaction on (status, version, run id) as read; the loser writes nothing, but calls of a wide step that it
closed (docs/protocol.md#wide).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from helix.core.agents import AnyAgent
from helix.core.claim_plan import ClaimPlan, OpenRows, Request, check_status, lapsed, plan_claim
from helix.core.delivery import Delivery
from helix.core.entries import AnyEntry, CallRow, UserRow
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
from helix.core.row_keys import checkpoint_sort, checkpoint_version, lineage_sort, make_run_id, run_sort
from helix.core.rows import CheckpointRow, LineageRow, RunRow, SessionRow
from helix.core.states import merged_state
from helix.core.usage import Usage
from helix.core.usage_parts import static_model
from helix.engine.claims.liveness import Missed, clear_leftovers, marker_key, read_missed
from helix.engine.context import make_context
from helix.engine.engine import Engine
from helix.engine.facts import RunStarted
from helix.engine.history import row_key, session_key
from helix.engine.observers import show
from helix.engine.runs.housekeeping import expiry_puts
from helix.engine.writing import (
    CRASHED,
    End,
    advance,
    as_read,
    checkpoint,
    commit,
    end,
    entry_put,
    message_put,
    never,
    session_put,
)
from helix.ports.state_store import ABSENT, Check, Key, Operation, Put, Update, When
from helix.services.claim_input import ClaimInput, check_input
from helix.services.open_runs import open_run_put
from helix.services.request_keys import key_put, keyed_run, request_key


@dataclass(frozen=True, slots=True)
class Claimed:
    """A won claim. `missed` is what a dead worker may not have written to the stream; `ended` the run
    before, if its effects are due; `superseded` the run before, if it was interrupted or paused."""

    session: SessionRow
    run: RunRow
    checkpoint: CheckpointRow
    plan: ClaimPlan
    patches: list[JsonObject]
    missed: Missed | None = None
    ended: str | None = None
    superseded: str | None = None


async def claim(engine: Engine, agent: AnyAgent, session_id: str, ask: ClaimInput, delivery: Delivery) -> Claimed:
    """Claim, or raise: `AgentAlreadyRunningError` for the loser, `CannotResumeError` where the status does not fit."""
    check_input(session_id, ask)
    while True:
        session = None if ask.made else await engine.history.session(session_id)
        if session is None and ask.mode != "execute":
            raise SessionNotFoundError(session_id)
        if session is not None and ask.run_id is not None and session.run_id == ask.run_id:
            raise AgentAlreadyRunningError(session_id, session.run_id)
        if ask.version is not None and (session is None or session.version != ask.version):
            raise StaleStateError(f"session {session_id!r} changed since it was read")
        claimed = await _try(engine, agent, session_id, session, ask, delivery)
        if claimed is not None:
            show(make_context(engine, agent, claimed.session, claimed.run), RunStarted(claimed.run))
            return claimed
        again = await engine.history.session(session_id)
        if again is not None and again.status == "running":
            raise AgentAlreadyRunningError(session_id, again.run_id)
        if again is None and session is None:
            await clear_leftovers(engine, session_id)
        keyed = ask.key is not None and await keyed_run(engine.store, ask.key) is not None
        if ask.extra or keyed:  # what was asked for besides may be what was refused: the caller reads it again
            raise StaleStateError(f"session {session_id!r} changed since it was read")


@dataclass(slots=True)
class _Attempt:
    """One attempt to claim the session as read. `old` is None for a session that is to be made."""

    engine: Engine
    agent: AnyAgent
    session_id: str
    old: SessionRow | None
    ask: ClaimInput
    owner: str
    now: float
    run_id: str
    turn: int
    request: Request
    open_rows: OpenRows | None
    plan: ClaimPlan


async def _try(
    engine: Engine, agent: AnyAgent, session_id: str, session: SessionRow | None, ask: ClaimInput, delivery: Delivery
) -> Claimed | None:
    """One attempt on the session as read; None if somebody wrote it meanwhile, or calls were closed."""
    now = engine.clock.now()
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
    attempt = _Attempt(
        engine, agent, session_id, session, ask, delivery.owner, now, run_id, turn, request, open_rows, plan
    )
    state, patches = await _state(attempt)
    if session is not None and sum(isinstance(row, CallRow) for _, row in plan.writes) > engine.settings.calls_at_once:
        await _close_some(attempt, session)
        return None
    new = _session(attempt)
    row, checkpoint_put = checkpoint(new, now, state=state, patches=patches)
    info = await engine.streams.info(new.stream_id)
    run = _run(attempt, new, info.latest_sequence if info else 0)
    ops = [*_operations(attempt, new, run), checkpoint_put, *expiry_puts(engine, new, now)]
    if not engine.in_process:
        ops.append(open_run_put(run))
    won = await commit(engine, f"claim_{ask.mode}", ops, lambda: _is_mine(engine, session_id, run_id))
    if not won:
        return None
    if state is not None:
        engine.history.remember_state(session_id, new.created_at, row.id, state)
    missed, ended = await _left_behind(engine, session, ask, plan)
    superseded = session.run_id if session is not None and session.status in ("interrupted", "paused") else None
    return Claimed(new, run, row, plan, patches, missed, ended, superseded)


async def _close_some(attempt: _Attempt, old: SessionRow) -> None:
    """The claim closes more calls than its transaction holds: some of them now, before the session is read again."""
    engine, plan, rows = attempt.engine, attempt.plan, attempt.open_rows
    assert rows is not None
    calls = [(index, row) for index, row in plan.writes if isinstance(row, CallRow)][: engine.settings.calls_at_once]
    closed = {row.call_id for _, row in calls}
    new = advance(old, attempt.now, pending=[waits for waits in old.pending if waits.call_id not in closed])
    ops: list[Operation] = [session_put(new, _as_claimed(old))]
    if attempt.ask.key is not None:  # a repeat of a request closes nothing
        ops.append(Check(request_key(attempt.ask.key), ABSENT))
    for index, row in calls:
        when = as_read(rows.calls[index - old.count - 1])
        ops.append(entry_put(old.session_id, plan.lineage.lineage, index, row, when))
    await commit(engine, "close_calls", ops, never)


def _as_claimed(old: SessionRow) -> When:
    """CLAIM(s)."""
    return When(equal={"status": old.status, "version": old.version, "run_id": old.run_id})


async def _check_claimable(engine: Engine, agent: AnyAgent, session: SessionRow, ask: ClaimInput, now: float) -> None:
    """Raise what a caller should read if the session does not admit the claim."""
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
    """The request with the rows it goes back to, and their lineage."""
    row, failed, source = None, None, ROOT
    if session is not None and ask.mode == "from_checkpoint":
        if ask.checkpoint_id is None:
            raise InvalidInputError("from_checkpoint needs a checkpoint_id")
        row = await engine.history.checkpoint(session.session_id, ask.checkpoint_id)
        if row is None:
            raise CheckpointNotFoundError(f"session {session.session_id!r} has no checkpoint {ask.checkpoint_id!r}")
        source = await engine.history.lineage(session.session_id, row.lineage)
    elif session is not None and ask.mode == "from_start":
        failed = await engine.history.run(session.session_id, session.run_id)
        source = await engine.history.lineage(session.session_id, failed.start_lineage)
    return Request(ask.mode, ask.message, ask.state, ask.metadata, row, failed), source


async def _state(attempt: _Attempt) -> tuple[JsonObject | None, list[JsonObject]]:
    """(new state or None, patches): what a closed step's tools did and what the input asks is merged in. A call whose
    changes the merge refuses joins the plan's writes."""
    engine, agent, session, plan = attempt.engine, attempt.agent, attempt.old, attempt.plan
    ask, open_rows = attempt.ask, attempt.open_rows
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


def _session(attempt: _Attempt) -> SessionRow:
    agent, old, ask, plan, now = attempt.agent, attempt.old, attempt.ask, attempt.plan, attempt.now
    opening, held = ask.opening, attempt.engine.in_process
    if old is None:
        old = SessionRow(
            session_id=attempt.session_id,
            agent_type=agent.name,
            stream_id=opening.stream_id or attempt.session_id,
            status="running",
            version=0,
            run_id=attempt.run_id,
            turn=0,
            parent=opening.parent,
            ancestors=opening.ancestors,
            user_id=opening.user_id,
            tags=opening.tags,
            metadata=opening.metadata,
            created_at=now,
        )
    return advance(
        old,
        now,
        status="running",
        run_id=attempt.run_id,
        turn=attempt.turn,
        lineage=plan.lineage.lineage,
        lineages=max(old.lineages, plan.lineage.lineage),
        priority=old.priority if ask.priority is None else ask.priority,
        count=plan.count,
        step=plan.step,
        state_at=plan.state_at,
        open=old.open if plan.keeps_open else None,
        claim=None,
        last=None if plan.new_lineage else old.last,
        pending=[],
        lease_owner=attempt.owner if held else None,
        lease_expires=now + attempt.engine.settings.claim_s if held else 0,
        run_steps=0,
        misses=0,
        forced=False,
        run_usage=Usage(),
        run_parts={},
        trace=ask.trace or old.trace,
        blocks=[],
        output=None,
        error=None,
        aborted=False,
        abort_reason=None,
    )


def _run(attempt: _Attempt, new: SessionRow, sequence: int) -> RunRow:
    """`start_*` is the boundary before this run's own message, with the state it started from: where `from_start` of this
    run goes back to."""
    agent, old, ask, plan, now = attempt.agent, attempt.old, attempt.ask, attempt.plan, attempt.now
    start = plan.count - len([1 for _, row in plan.writes if row.kind == "user"])
    closing = not plan.new_lineage and not plan.keeps_open
    given = {"message": plan.input_message} | ({"state": ask.state} if ask.state else {})
    return RunRow(
        run_id=new.run_id,
        session_id=new.session_id,
        turn=new.turn,
        status="running",
        mode=ask.mode,
        agent_type=agent.name,
        first_step=new.step + 1,
        model=static_model(agent),
        fingerprint=agent.fingerprint(),
        previous_run_id=old.run_id if old is not None else None,
        input=given if plan.input_message is not None else None,
        start_lineage=new.lineage,
        start_count=start,
        start_state_at=new.state_at if closing or old is None else plan.state_at,
        start_step=plan.step,
        start_sequence=sequence,
        deadline=ask.deadline,
        trace=new.trace,
        priority=new.priority,
        started_at=now,
    )


def _operations(attempt: _Attempt, new: SessionRow, run: RunRow) -> list[Operation]:
    old, ask, plan, now = attempt.old, attempt.ask, attempt.plan, attempt.now
    key = session_key(new.session_id)
    if old is None:
        ops: list[Operation] = [Put(key, new.dump(), ABSENT)]
        if not ask.made:
            ops.append(Check(marker_key(new.session_id), ABSENT))  # no copy is at work there, nor died there
        if new.parent is None:
            # Of an id that others may claim, a refused claim must leave no entry.
            ops.append(Put(index_key(new), {"agent_type": new.agent_type}, ahead=ask.made))
    else:
        seen = _as_claimed(old)
        if ask.mode == "takeover":
            seen = When(equal={**seen.equal, "lease_expires": old.lease_expires})
        ops = [Put(key, new.dump(), seen)]
        if ask.mode == "takeover":
            ended = old.model_copy(deep=True)
            ops.append(end(ended, End("failed", error=CRASHED), now))
        elif old.status in ("interrupted", "paused"):
            ops.append(Update(row_key(new.session_id, run_sort(old.run_id)), set={"status": "superseded"}))
    # An id that the caller chose may be that of an older run.
    fresh = ask.run_id is None or old is None
    ops.append(Put(row_key(new.session_id, run_sort(run.run_id)), run.dump(), ABSENT, fresh))
    if plan.new_lineage:
        ops.append(Put(row_key(new.session_id, lineage_sort(plan.lineage.lineage)), plan.lineage.dump(), ABSENT))
        if plan.state_at:  # retention may have deleted it since it was read
            version = checkpoint_version(new.session_id, plan.state_at)
            ops.append(Check(row_key(new.session_id, checkpoint_sort(version)), When()))
    ops.extend(_message_puts(attempt, new))
    if ask.key is not None:
        ops.append(key_put(ask.key, run, now))
    return [*ops, *ask.extra]


def _message_puts(attempt: _Attempt, new: SessionRow) -> Iterator[Operation]:
    old, open_rows = attempt.old, attempt.open_rows
    for index, entry in attempt.plan.writes:
        if isinstance(entry, UserRow):
            yield message_put(new, index, entry)
            continue
        when = None
        if isinstance(entry, CallRow) and open_rows is not None and old is not None:
            when = as_read(open_rows.calls[index - old.count - 1])
        yield entry_put(new.session_id, new.lineage, index, entry, when)


def index_key(session: SessionRow) -> Key:
    """Where root sessions are listed, by user. A claim that was lost may leave one without a session."""
    return Key("sessions", f"index#{session.user_id or ''}", session.session_id)


async def _is_mine(engine: Engine, session_id: str, run_id: str) -> bool:
    session = await engine.history.session(session_id)
    return session is not None and session.run_id == run_id


async def _left_behind(
    engine: Engine, old: SessionRow | None, ask: ClaimInput, plan: ClaimPlan
) -> tuple[Missed | None, str | None]:
    """What the run before may not have written to the stream, and its id, if its worker died before its effects."""
    if old is None or not old.run_id:
        return None, None
    if ask.mode != "takeover" and (await engine.history.run(old.session_id, old.run_id)).effects == "done":
        return None, None
    missed_commits = None if plan.new_lineage else await read_missed(engine, old.session_id, old.checkpoint)
    return missed_commits, old.run_id
