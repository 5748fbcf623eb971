"""Builders of the writes that several verbs share, and the function that commits them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helix.core.compact import shorten_checkpoint_id
from helix.core.entries import AnyEntry, AssistantRow, CallRow, UserRow, entry_value
from helix.core.errors import AccessDeniedError, ConditionFailedError, DamagedRowError, StoreError
from helix.core.json import JsonObject
from helix.core.row_keys import checkpoint_id, checkpoint_sort, message_sort, run_sort, view_sort
from helix.core.rows import CheckpointRow, ErrorInfo
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.status import EndStatus, check_move
from helix.core.view_row import ViewRow
from helix.engine.engine import Engine
from helix.engine.history import row_key, session_key
from helix.ports.state_store import ABSENT, Check, Key, Operation, Put, Update, When
from helix.services.request_heads import CallHead, shared_put

TRIES = 5
CRASHED = ErrorInfo(code="runtime_crash", message="the process that ran it died, or was silent for too long")

DENIED = ErrorInfo(
    code=AccessDeniedError.code,
    message="AWS denied an operation to the stage: the log of its functions names the action and the resource",
)


async def commit(
    engine: Engine, name: str, operations: Sequence[Operation], won: Callable[[], Awaitable[bool]]
) -> bool:
    """Commit the transaction. False: a condition refused it. If the store's response was lost, `won` looks up whether
    the transaction was applied."""
    unsure = False
    for attempt in range(TRIES):
        try:
            await engine.store.transact(name, operations)
            return True
        except ConditionFailedError:
            return unsure and await won()
        except (DamagedRowError, AccessDeniedError):
            raise
        except StoreError:
            if attempt + 1 == TRIES:
                raise
            unsure = True
            await engine.clock.sleep(0.05 * 2**attempt)
    raise AssertionError("unreachable")


async def no_outcome_check() -> bool:
    """Return False. Used with `commit` for a transaction that may be repeated, so a lost response does not matter."""
    return False


async def share_head(engine: Engine, head: CallHead) -> None:
    """Store the shared row of the head, unless this process knows that it is stored. Two callers may do this at once. The
    row is read first, because a read costs less than a refused write, and most processes find it."""
    row = head.shared
    if row is None or engine.heads.is_stored(row.id):
        return
    put = shared_put(row)
    (found,) = await engine.store.get([put.key])
    if found is None:  # a refusal means that another process has stored it: its content is its name
        await commit(engine, "put_head", [put], no_outcome_check)
    engine.heads.note_stored(row.id)


async def are_written(engine: Engine, puts: Sequence[Put]) -> bool:
    """Return whether the store contains exactly these rows."""
    stored = await engine.store.get([put.key for put in puts])
    return all(value == put.value for value, put in zip(stored, puts, strict=True))


def at_version(session: SessionRow) -> When:
    """Return the condition AT(v): the session still belongs to this run, and is unchanged since it was read."""
    return When(equal={"version": session.version, "run_id": session.run_id, "status": "running"})


def as_claimed(old: SessionRow) -> When:
    """Return the condition CLAIM(s): the status, version and run id are unchanged since they were read."""
    return When(equal={"status": old.status, "version": old.version, "run_id": old.run_id})


def held_by_run(run_id: str) -> When:
    """Return the condition MINE: the session is running this run."""
    return When(equal={"run_id": run_id, "status": "running"})


def as_read(row: CallRow | None) -> When:
    """Return the condition that a call's row is unchanged since it was read. A tool or a person's answer can write a
    result while the session is not running, so a writer that closes the call must not overwrite a result that it did
    not see."""
    if row is None:
        return ABSENT
    read = {"state": row.state, "owner": row.owner, "claim": row.claim or None, "reminded": row.reminded or None}
    return When(equal=read)


def exists(session: SessionRow) -> Check:
    """Return the check that the session still exists, and was not deleted and created again under the same id."""
    return Check(session_key(session.session_id), When(equal={"created_at": session.created_at or None}))


def beside(session: SessionRow) -> Operation:
    """Return the operation that accompanies a result for the open step from outside the run's worker. It checks that
    the session is unchanged since it was read. A pause lists the calls that wait. A wide step has too many of them, so
    each of its results bumps the version instead."""
    key = session_key(session.session_id)
    if session.open is not None and session.open.wide:
        same_run = When(equal={"run_id": session.run_id, "status": session.status})
        return Update(key, add={"version": 1}, when=same_run)
    return Check(key, When(equal={"version": session.version, "status": session.status}))


def session_put(session: SessionRow, when: When) -> Put:
    return Put(session_key(session.session_id), session.dump(), when)


def entry_put(session_id: str, lineage: int, index: int, entry: AnyEntry, when: When | None = None) -> Put:
    return Put(row_key(session_id, message_sort(lineage, index)), entry_value(entry), when)


def call_put(key: Key, row: CallRow, when: When) -> Put:
    return Put(key, entry_value(row), when)


def message_put(session: SessionRow, index: int, entry: UserRow | AssistantRow) -> Put:
    """Put a message that the same transaction adds to `session`. No row exists at its position yet."""
    return replace(entry_put(session.session_id, session.lineage, index, entry), new=True)


def checkpoint(
    session: SessionRow,
    now: float,
    *,
    state: JsonObject | None,
    patches: Sequence[JsonObject] = (),
    warnings: Sequence[str] = (),
) -> tuple[CheckpointRow, Put]:
    """Create the checkpoint for `session` as it is about to be written. Sets the session's `checkpoint`, and `state_at`
    if there is a new state."""
    ident = checkpoint_id(session.session_id, session.step, now, session.version)
    session.checkpoint = ident
    if state is not None:
        session.state_at = ident
    row = CheckpointRow(
        id=ident,
        run_id=session.run_id,
        turn=session.turn,
        lineage=session.lineage,
        count=session.count,
        step=session.step,
        status=session.status,
        state_at=session.state_at,
        view=session.context.view,
        frontend_tools=session.frontend_tools,
        active_agent=session.active_agent,
        state=state,
        patches=list(patches),
        warnings=list(warnings),
        pending=session.pending,
        usage=session.usage,
        created_at=now,
    )
    return row, Put(row_key(session.session_id, checkpoint_sort(session.version)), row.dump(), new=True)


def view_put(session: SessionRow, view: ViewRow) -> Put:
    """Put the view that the same transaction makes the current view of `session`."""
    return Put(row_key(session.session_id, view_sort(session.context.view)), view.dump(), new=True)


def advance(session: SessionRow, now: float, **changes: Any) -> SessionRow:
    """Return a copy with `changes` and the next version. It has its own copy of the blocks, because settling changes
    them in place."""
    blocks = [block.model_copy() for block in session.blocks]
    return session.model_copy(update={"blocks": blocks, **changes, "version": session.version + 1, "updated_at": now})


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run, as recorded in the rows of the run and the session."""

    status: EndStatus
    """The final or resting status of the run and the session."""
    output: Any = None
    """The run's output. None: the run did not complete, or has no output."""
    error: ErrorInfo | None = None
    """The error of a failed run. None: it did not fail."""
    reason: str | None = None
    """The human-readable reason for a pause, an interrupt or an abort. None: none was given."""
    completion_reason: str | None = None
    """The rule that ended the run: `text`, `output`, `finish_with`, `stop_when` or `max_steps`; or the reason for a
    pause. None: none applies."""


def end(session: SessionRow, ended: End, now: float) -> Update:
    """End the run of `session`: set the session's fields (on the already advanced copy) and return the update of the
    run's row.

    The money of the run (`blocks`, an open `claim`) moves to the run row, where its effects settle it.
    """
    check_move("running", ended.status)
    session.status = ended.status
    session.output, session.error = ended.output, ended.error
    session.lease_owner, session.lease_expires = None, 0
    row = RunRow(
        run_id=session.run_id,
        session_id=session.session_id,
        turn=session.turn,
        status=ended.status,
        mode="execute",  # of this row, only the fields below are written
        agent_type="",
        first_step=0,
        steps=session.run_steps,
        usage=session.run_usage,
        parts=session.run_parts,
        blocks=session.blocks,
        claim=session.claim,
        head=session.head if session.claim is not None else "",
        output_limit=session.output_limit if session.claim is not None else None,
        last=session.last,
        active_agent=session.active_agent,
        output=ended.output,
        error=ended.error,
        reason=ended.reason,
        completion_reason=ended.completion_reason,
        pending=session.pending,
        checkpoint=session.checkpoint or None,
        ended_at=now,
    )
    fields = [
        "status",
        "steps",
        "usage",
        "blocks",
        "claim",
        "head",
        "output_limit",
        "last",
        "active_agent",
        "output",
        "error",
        "reason",
        "completion_reason",
        "pending",
        "checkpoint",
        "ended_at",
    ]
    if session.run_parts:
        fields.append("parts")
    session.blocks, session.claim = [], None
    changes = row.model_dump(mode="json", include=set(fields), exclude_defaults=True)
    if "checkpoint" in changes:
        changes["checkpoint"] = shorten_checkpoint_id(session.session_id, session.checkpoint)
    return Update(row_key(session.session_id, run_sort(session.run_id)), set=changes)
