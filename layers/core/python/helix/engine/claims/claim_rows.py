"""The rows that a claim writes, on condition that the session is unchanged since it was read
(docs/protocol.md#claims)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from helix.core.agents import AnyAgent
from helix.core.claim_plan import ClaimPlan, OpenRows, Request
from helix.core.entries import CallRow, UserRow
from helix.core.json import JsonObject
from helix.core.row_keys import checkpoint_sort, checkpoint_version, lineage_sort, run_sort
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.usage import Usage
from helix.core.usage_parts import static_model, with_calls
from helix.core.view_row import ContextMark
from helix.engine.claims.liveness import marker_key
from helix.engine.engine import Engine
from helix.engine.history import row_key, session_key
from helix.engine.writing import (
    CRASHED,
    End,
    advance,
    as_claimed,
    as_read,
    end,
    entry_put,
    message_put,
)
from helix.ports.state_store import ABSENT, Check, Key, Operation, Put, Update, When
from helix.services.claim_input import ClaimInput
from helix.services.request_heads import head_put
from helix.services.request_keys import key_put
from helix.services.session_index import listed_put, moved_put


@dataclass(slots=True)
class Attempt:
    """One attempt to claim the session, based on its rows as read."""

    engine: Engine
    """The ports and settings."""
    agent: AnyAgent
    """The agent that is to run."""
    session_id: str
    """The session to claim."""
    old: SessionRow | None
    """The session's row as read. None: the claim creates the session."""
    ask: ClaimInput
    """The claim as the caller requested it."""
    owner: str
    """The delivery that makes the claim. It becomes the owner of the run, if runs are claimed."""
    now: float
    """The timestamp (Unix seconds) of all rows of the attempt."""
    run_id: str
    """The id of the new run, generated here or chosen by the caller."""
    turn: int
    """The number of the new run in its session, from 1."""
    request: Request
    """The claim with the rows that it rewinds to."""
    open_rows: OpenRows | None
    """The open step as read. None: the session has no open step, or is new."""
    plan: ClaimPlan
    """The plan for the claim's messages and for the session's position after it. Merging the state may add writes."""


def session_of(attempt: Attempt) -> SessionRow:
    """Return the session's row. The usage of the calls that the claim adds to history counts for the new run, as that of
    a folded step does."""
    agent, old, ask, plan, now = attempt.agent, attempt.old, attempt.ask, attempt.plan, attempt.now
    opening, held = ask.opening, attempt.engine.placement.claims_runs
    calls = [row for row in plan.added if isinstance(row, CallRow)]
    used = sum((row.usage for row in calls if row.usage is not None), Usage())
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
        context=ContextMark(view=plan.view, asked=old.context.asked) if plan.new_lineage else old.context,
        active_agent=plan.active_agent,
        open=old.open if plan.keeps_open else None,
        frontend_tools=_frontend_tools(attempt, old),
        inbox=old.inbox or ask.inbox,
        claim=None,
        last=None if plan.new_lineage else old.last,
        pending=[],
        lease_owner=attempt.owner if held else None,
        lease_expires=now + attempt.engine.settings.claim_s if held else 0,
        run_steps=0,
        misses=0,
        forced=False,
        reminded=False,
        usage=old.usage + used,
        run_usage=used,
        run_parts=with_calls({}, calls),
        trace=ask.trace or old.trace,
        blocks=[],
        output=None,
        error=None,
        aborted=False,
        abort_reason=None,
    )


def _frontend_tools(attempt: Attempt, old: SessionRow) -> str:
    """Return the id of the tools that the run declares. A run without a message of its own continues another one."""
    ask, point = attempt.ask, attempt.request.checkpoint
    if ask.tools is not None:
        return ask.tools.id
    if ask.message is not None:
        return ""
    return old.frontend_tools if point is None else point.frontend_tools


def run_of(attempt: Attempt, new: SessionRow, sequence: int) -> RunRow:
    """Create the row of the new run. Its `start_*` fields are the boundary before the run's own message, with the state
    at that point. The mode `from_start` rewinds to it."""
    agent, old, ask, plan, now = attempt.agent, attempt.old, attempt.ask, attempt.plan, attempt.now
    start = plan.count - len([1 for _, row in plan.writes if row.kind == "user"])
    closing = not plan.new_lineage and not plan.keeps_open
    given: JsonObject = {"message": plan.input_message}
    if ask.state:
        given["state"] = ask.state
    files = next((row.files for _, row in plan.writes if isinstance(row, UserRow)), [])
    if files:
        given["files"] = [file.model_dump(mode="json", exclude_defaults=True) for file in files]
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
        start_view=plan.view,
        start_agent=plan.active_agent,
        part_agent=plan.active_agent,
        start_step=plan.step,
        start_sequence=sequence,
        arrived=1 if new.inbox else 0,
        deadline=ask.deadline,
        trace=new.trace,
        priority=new.priority,
        started_at=now,
    )


def operations_of(attempt: Attempt, new: SessionRow, run: RunRow) -> list[Operation]:
    old, ask, plan, now = attempt.old, attempt.ask, attempt.plan, attempt.now
    key = session_key(new.session_id)
    if old is None:
        ops: list[Operation] = [Put(key, new.dump(), ABSENT)]
        if not ask.made:
            ops.append(Check(marker_key(new.session_id), ABSENT))  # no copy is in progress under this id, or died there
    else:
        seen = as_claimed(old)
        if ask.mode == "takeover":
            seen = When(equal={**seen.equal, "lease_expires": old.lease_expires})
        ops = [Put(key, new.dump(), seen)]
        if ask.mode == "takeover":
            ended = old.model_copy(deep=True)
            ops.append(end(ended, End("failed", error=CRASHED), now))
        elif old.status in ("interrupted", "paused"):
            ops.append(Update(row_key(new.session_id, run_sort(old.run_id)), set={"status": "superseded"}))
    if new.parent is None:
        ops += _index_puts(attempt, new)
    # An id that the caller chose may belong to an older run.
    unused = ask.run_id is None or old is None
    ops.append(Put(row_key(new.session_id, run_sort(run.run_id)), run.dump(), ABSENT, new=unused))
    if plan.new_lineage:
        ops.append(Put(row_key(new.session_id, lineage_sort(plan.lineage.lineage)), plan.lineage.dump(), ABSENT))
        if plan.state_at:  # retention may have deleted it in the meantime
            version = checkpoint_version(new.session_id, plan.state_at)
            ops.append(Check(row_key(new.session_id, checkpoint_sort(version)), When()))
    ops.extend(_message_puts(attempt, new))
    if ask.tools is not None and (old is None or old.frontend_tools != ask.tools.id):
        ops.append(head_put(new.session_id, ask.tools))
    ops.extend(ask.holds)
    if ask.key is not None:
        ops.append(key_put(ask.key, run, now))
    return [*ops, *ask.extra]


def _index_puts(attempt: Attempt, new: SessionRow) -> Iterator[Operation]:
    """Return the rows that list the root session."""
    first = next((row.content for place, row in attempt.plan.writes if place == 0 and isinstance(row, UserRow)), None)
    if attempt.old is not None:
        yield moved_put(new)
        if first is not None:  # the claim rewound to the beginning
            yield listed_put(new, first)
        return
    # If the id was not generated for this claim, other callers may claim it too, so a refused claim must not leave an
    # index entry.
    yield listed_put(new, first or "", may_precede=attempt.ask.made)
    if new.user_id and not attempt.engine.placement.indexes_open_runs:  # else the run's entry lists the user
        yield Put(user_key(new.user_id), {}, may_precede=True)


def _message_puts(attempt: Attempt, new: SessionRow) -> Iterator[Operation]:
    old, open_rows = attempt.old, attempt.open_rows
    for index, entry in attempt.plan.writes:
        if isinstance(entry, UserRow):
            yield message_put(new, index, entry)
            continue
        when = None
        if isinstance(entry, CallRow) and open_rows is not None and old is not None:
            when = as_read(open_rows.calls[index - old.count - 1])
        yield entry_put(new.session_id, new.lineage, index, entry, when)


USERS = "users#"
"""The partition of the rows that list users. No session can have this id."""


def user_key(user_id: str) -> Key:
    """Return the key of the row that records that this user has sessions (`helix.sessions.users`)."""
    return Key("sessions", USERS, user_id)
