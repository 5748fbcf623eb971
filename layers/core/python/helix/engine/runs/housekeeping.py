"""Housekeeping of stored sessions: ends runs with damaged rows, and deletes old checkpoints.

Law: a run whose rows cannot be read fails with the code `damaged_row`, and its session can be listed, aborted and
deleted. A session row that cannot be read is rebuilt from the newest readable checkpoint. A worker that holds the old
row is refused at its next write, because no condition on the old row holds.

A session keeps its newest `Settings.keep_checkpoints` checkpoints and all named ones. It also keeps checkpoints that
the session or the start of its current run refers to, and those that hold the custom state of another kept checkpoint.
A deletion is a transaction conditional on the session's version. A session that has advanced is read again, and a
rewind checks that its state still exists. Root sessions that may expire are listed in the control table by the time at
which to check them (docs/protocol.md#retention).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from helix.core.errors import (
    CheckpointNotFoundError,
    ConditionFailedError,
    DamagedRowError,
    RunNotFoundError,
    StoreError,
)
from helix.core.lineage import ROOT, fork
from helix.core.row_keys import checkpoint_sort, checkpoint_version, lineage_sort, run_sort
from helix.core.rows import CheckpointRow, ErrorInfo, LineageRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.status import ENDS
from helix.engine.engine import Engine, logger
from helix.engine.history import DELETING, row_key, session_key
from helix.engine.missing import RowMissingError
from helix.engine.writing import End, advance, at_version, commit, end
from helix.ports.state_store import ABSENT, Check, Damaged, Delete, Key, Operation, Put, Row, Update, When

PAGE = 20
RETAINED = (
    "user_id",
    "parent",
    "ancestors",
    "stream_id",
    "tags",
    "tools",
    "metadata",
    "title",
    "created_at",
    "priority",
    "usage",
    "blocks",
)


@contextmanager
def skipping_damage(what: str) -> Iterator[None]:
    """Leave the block at an unreadable or missing row, so that the work after the block is still done."""
    try:
        yield
    except (DamagedRowError, RowMissingError) as error:
        logger.warning("%s: left out: %s", what, error)


async def fail_damaged(
    engine: Engine, agent_type: str, session_id: str, problem: DamagedRowError, run_id: str | None = None
) -> str | None:
    """Fail the session's run and return its id. With `run_id`, only that run is failed. None if it is not running."""
    while True:
        now = engine.clock.now()
        more: list[Operation] = []
        when: When | None = None
        try:
            session = await engine.history.session(session_id)
            if session is None or session.status != "running" or run_id not in (None, session.run_id):
                return None
            when = at_version(session)
        except DamagedRowError:
            rebuilt = await _rebuilt(engine, agent_type, session_id, now)
            if rebuilt is None:
                continue
            session, lineage = rebuilt  # two rebuilds of a row create the same lineage, which must be absent
            more = [Put(row_key(session_id, lineage_sort(lineage.lineage)), lineage.dump(), ABSENT)]
        new = advance(session, now)
        # A retry would read the damaged rows again. The session can continue only with a new message or from an older
        # checkpoint.
        new.aborted, new.abort_reason = True, "a row of the session was damaged"
        error = ErrorInfo(code=problem.code, message=str(problem), recoverable=False)
        ops = await _end_run(engine, new, error, now)
        logger.error("run %s of session %s fails: %s", new.run_id, session_id, problem)
        if await commit(
            engine,
            "fail_run",
            [Put(session_key(session_id), new.dump(), when), *ops, *more],
            lambda: _failed(engine, session_id),
        ):
            return new.run_id


async def _end_run(engine: Engine, session: SessionRow, error: ErrorInfo, now: float) -> list[Operation]:
    """Return the operations that end the session's run. A run row that is missing or unreadable is written in full."""
    key = row_key(session.session_id, run_sort(session.run_id))
    ended = end(session, End("failed", error=error), now)
    if not session.run_id:
        return []
    try:
        run = await engine.history.run(session.session_id, session.run_id)
        return [ended] if run.status == "running" else []
    except (DamagedRowError, RunNotFoundError):
        fields = {"run_id": session.run_id, "session_id": session.session_id, "agent_type": session.agent_type}
        run = RunRow.model_validate({**fields, "turn": session.turn, "mode": "execute", "first_step": 1, **ended.set})
        return [Put(key, run.dump())]


async def _failed(engine: Engine, session_id: str) -> bool:
    session = await engine.history.session(session_id)
    return session is None or session.status != "running"


async def _rebuilt(
    engine: Engine, agent_type: str, session_id: str, now: float
) -> tuple[SessionRow, LineageRow] | None:
    """Return the session at its newest readable checkpoint, in a new lineage, without rows that were staged after it.
    None: the session's row is readable now."""
    lineages = await _newest(engine, session_id, "l#")  # read before the row, so that no other repair is missed
    (value,) = await engine.store.get([session_key(session_id)])
    if value is None:
        return None
    try:
        SessionRow.at(session_id, value)
        return None
    except DamagedRowError as error:
        logger.warning("session %s is created again because its row is damaged: %s", session_id, error)
    point, version = await _newest_checkpoint(engine, session_id)
    source = ROOT
    try:
        source = await engine.history.lineage(session_id, point.lineage) if point is not None else ROOT
    except DamagedRowError:
        point = None
    runs = await _newest(engine, session_id, "r#")
    run_id = runs.key.sort[2:] if runs is not None else ""
    number = 1 + (int(lineages.key.sort[2:]) if lineages is not None else 0)
    lineage = fork(source, point.count if point is not None else 0, number)
    rebuilt: dict[str, Any] = {
        "session_id": session_id,
        "agent_type": agent_type,
        "stream_id": session_id,
        "status": "running",
        "version": version,
        "run_id": run_id,
        "turn": int(run_id.split("_")[1]) if run_id else 0,
        "lineage": number,
        "lineages": number,
        "created_at": now,
    }
    if point is not None:
        rebuilt |= {"count": point.count, "step": point.step, "checkpoint": point.id, "state_at": point.state_at}
        rebuilt |= {"context": {"view": point.view}, "active_agent": point.active_agent}
    for name in () if isinstance(value, Damaged) else RETAINED:
        try:
            SessionRow.model_validate({**rebuilt, name: value[name]})
            rebuilt[name] = value[name]
        except (DamagedRowError, KeyError):
            logger.warning("session %s: its field %r was lost", session_id, name)
    return SessionRow.model_validate(rebuilt), lineage


async def _newest(engine: Engine, session_id: str, prefix: str) -> Row | None:
    end = prefix[0] + "$"
    rows = await engine.store.query("sessions", session_id, start=prefix, end=end, limit=1, reverse=True)
    return rows[0] if rows else None


async def _newest_checkpoint(engine: Engine, session_id: str) -> tuple[CheckpointRow | None, int]:
    """Return the newest checkpoint with a readable state, and the version of the newest checkpoint of all."""
    newest, last = 0, "c$"
    while rows := await engine.store.query("sessions", session_id, start="c#", end=last, limit=PAGE, reverse=True):
        newest = newest or int(rows[0].key.sort[2:])
        for row in rows:
            try:
                point = CheckpointRow.at(row.key.partition, row.key.sort, row.value)
                if point.state is None:
                    await engine.history.state_at(session_id, -1, point.state_at)
                return point, newest
            except DamagedRowError:
                logger.warning("session %s: checkpoint row %s cannot be read", session_id, row.key.sort)
        last = rows[-1].key.sort
    return None, newest


EXPIRY_PARTITIONS = 8
DELETED_AT_ONCE = 90
TRIES = 5


async def unfinished(engine: Engine, session_id: str) -> SessionRow | None:
    """Return the session if its run has ended and the worker that should apply the effects is silent. Otherwise return
    None."""
    session = await engine.history.session(session_id)
    if session is None or session.status not in ENDS:
        return None
    run = await engine.history.run(session_id, session.run_id) if session.run_id else None
    silent_since = engine.clock.now() - engine.settings.claim_s
    if run is None or run.effects == "done" or (run.ended_at or 0) > silent_since:
        return None
    return session


async def name_checkpoint(engine: Engine, session_id: str, checkpoint_id: str, name: str | None) -> None:
    """Give the checkpoint a name, which keeps it. None removes the name. Raises `CheckpointNotFoundError`."""
    gone = CheckpointNotFoundError(f"session {session_id!r} has no checkpoint {checkpoint_id!r}")
    row = await engine.history.checkpoint(session_id, checkpoint_id)
    if row is None:
        raise gone
    try:
        same = When(equal={"created_at": row.created_at})
        await engine.store.transact(
            "name_checkpoint", [Update(_key(session_id, checkpoint_id), set={"name": name}, when=same)]
        )
    except ConditionFailedError:
        raise gone from None


async def prune_checkpoints(engine: Engine, session_id: str) -> None:
    """Delete the session's old checkpoints, if `Settings.keep_checkpoints` is set. Checkpoints that remain after a
    crash, or because of concurrent writes to the session, are deleted at the end of its next run."""
    if engine.settings.keep_checkpoints is None:
        return
    try:
        for _ in range(TRIES):
            if await _prune(engine, session_id, engine.settings.keep_checkpoints):
                return
    except StoreError as error:
        logger.warning("old checkpoints of session %s are deleted after its next run: %s", session_id, error)


async def _prune(engine: Engine, session_id: str, keep: int) -> bool:
    """Try once to delete the old checkpoints. False: the session or a checkpoint changed in the meantime."""
    session = await engine.history.session(session_id)
    if session is None or session.status == DELETING:
        return True
    old = await _old_checkpoints(engine, session, keep)
    unchanged = Check(session_key(session_id), When(equal={"version": session.version}))
    for first in range(0, len(old), DELETED_AT_ONCE):
        page = [
            Delete(_key(session_id, ident), When(equal={"name": None}))
            for ident in old[first : first + DELETED_AT_ONCE]
        ]
        operations: list[Operation] = [unchanged, *page]
        try:
            await engine.store.transact("prune_checkpoints", operations)
        except ConditionFailedError:
            return False
    return True


async def _old_checkpoints(engine: Engine, session: SessionRow, keep: int) -> list[str]:
    """Return the checkpoints to delete, oldest first. None of them holds the state of a checkpoint that is kept."""
    rows = await engine.store.query("sessions", session.session_id, start="c#", end="c$", reverse=True)
    if len(rows) <= keep:
        return []
    points = [CheckpointRow.at(row.key.partition, row.key.sort, row.value) for row in rows]
    needed = {session.checkpoint, session.state_at}
    if session.run_id:
        needed.add((await engine.history.run(session.session_id, session.run_id)).start_state_at)
    needed |= {point.id for point in points[:keep]} | {point.id for point in points if point.name is not None}
    needed |= {point.state_at for point in points if point.id in needed}
    return [point.id for point in reversed(points) if point.id not in needed]


def expiry_partition(number: int) -> str:
    return f"expiring#{number % EXPIRY_PARTITIONS}"


def expiry_puts(engine: Engine, session: SessionRow, now: float) -> list[Operation]:
    """Return the operations that record when to check whether the session has expired, for a transaction that uses the
    session."""
    ttl = engine.settings.session_ttl_s
    if ttl is None or session.parent is not None:
        return []
    grain = ttl / 8
    due = (now + ttl) // grain * grain + grain
    partition = expiry_partition(crc32(session.session_id.encode()))
    return [Put(Key("control", partition, f"{due:015.3f}#{session.session_id}"), {"session_id": session.session_id})]


def _key(session_id: str, checkpoint_id: str) -> Key:
    return row_key(session_id, checkpoint_sort(checkpoint_version(session_id, checkpoint_id)))
