"""Deletes sessions and expires unused ones, page by page, and can resume after a crash (docs/protocol.md#retention).

Law: a deletion hides the session in its first transaction. From then on, every write that is conditional on the
original session is refused. Each page of the deletion is conditional on the hidden row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from helix.core.claim_plan import lapsed
from helix.core.delivery import Delivery
from helix.core.entries import AssistantRow
from helix.core.errors import (
    AgentAlreadyRunningError,
    ConditionFailedError,
    DamagedRowError,
    RunNotFoundError,
    SessionExistsError,
    StaleStateError,
)
from helix.core.row_keys import SESSION
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.claims.liveness import clear_leftovers, marker_key
from helix.engine.engine import Engine, logger
from helix.engine.history import DELETING, session_key
from helix.engine.money.reservations import return_draws
from helix.engine.money.usage import close_effects
from helix.engine.runs.housekeeping import EXPIRY_PARTITIONS, expiry_partition, expiry_puts, skipping_damage
from helix.engine.writing import commit, no_outcome_check
from helix.ports.state_store import ABSENT, Check, Damaged, Delete, Operation, Put, Scalar, When
from helix.services.blob_releases import is_hold, release_blob
from helix.services.open_runs import open_deletion_key, open_deletion_put, open_run_key
from helix.services.session_index import facets_key, index_key

PAGE = 50


async def expire_sessions(engine: Engine, number: int, delivery: Delivery, *, limit: int = PAGE) -> tuple[int, int]:
    """Delete sessions that have not been written for `Settings.session_ttl_s`, as `delete_session` does. Each call
    processes at most `limit` sessions from one partition of the expiry index; `number` may be any integer.

    A session that is paused, or is running under a live worker, is checked again later. Return the number of processed
    index rows and of deleted sessions. After a crash, the next call completes the work.
    """
    ttl = engine.settings.session_ttl_s
    if ttl is None:
        return 0, 0
    done, deleted, now = 0, 0, engine.clock.now()
    for row in await engine.store.query("control", expiry_partition(number), end=f"{now:015.3f}", limit=limit):
        if not delivery.may_act(engine.clock.now() + 5):
            break
        session_id = row.key.sort.partition("#")[2]  # the value may be damaged
        after: list[Operation] = [Delete(row.key)]
        try:
            session = await engine.history.session(session_id)
            if session is not None and _in_use(session, now, ttl):
                after += expiry_puts(engine, session, max(session.updated_at, now - ttl))
            elif session is not None:
                deleted += await delete_session(engine, session_id, version=session.version)
        except DamagedRowError as error:
            logger.warning("session %s cannot be read, so it is not expired: %s", session_id, error)
        except (AgentAlreadyRunningError, StaleStateError):
            continue  # the session is in use: its row stays for the next check
        await engine.store.transact("expire_session", after)
        done += 1
    return done, deleted


async def expire_all(engine: Engine, delivery: Delivery) -> int:
    """Run `expire_sessions` on the whole index, then the store's `purge`. Return the number of deleted sessions."""
    gone = 0
    for number in range(EXPIRY_PARTITIONS):
        looked = 1
        while looked:
            looked, deleted = await expire_sessions(engine, number, delivery)
            gone += deleted
    await engine.store.purge(engine.clock.now())
    return gone


def _in_use(session: SessionRow, now: float, ttl: float) -> bool:
    if session.status == DELETING:
        return False
    at_work = session.status == "paused" or (session.status == "running" and not lapsed(session, now))
    return at_work or session.updated_at > now - ttl


async def delete_session(engine: Engine, session_id: str, *, version: int | None = None) -> bool:
    """Delete the session, its sub-agents' sessions and its stream. Return False if the session did not exist. A running
    session is refused. Raises `StaleStateError` if the session is no longer at the given `version`.

    After a crash, call it again: it continues where it stopped. Concurrent calls are safe; each deletes what remains.
    """
    while True:
        try:
            session = await engine.history.session(session_id)
        except DamagedRowError:
            await _hide_damaged(engine, session_id)
            continue
        if session is None:
            if session_id and session_id.isascii():
                await _delete_remains(engine, session_id)
            return False
        if session.status == "running" and not lapsed(session, engine.clock.now()):
            raise AgentAlreadyRunningError(session_id, session.run_id)
        if session.status != DELETING and version is not None and session.version != version:
            raise StaleStateError(f"session {session_id!r} changed since it was read")
        hidden = await _hide(engine, session)
        if hidden is not None:
            break
    try:
        await _delete_hidden(engine, hidden)
    except ConditionFailedError:
        logger.info("session %s was deleted by another caller first", session_id)
    return True


async def _hide(engine: Engine, session: SessionRow) -> SessionRow | None:
    """Hide the session, and return its new row. None if another writer was faster.

    A hidden session has no `created_at`, so every write that is conditional on the original session is refused. Its
    `lease_owner` names this deletion, so that a slow deleter does not continue with a session that was created later.
    """
    if session.status == DELETING and not session.created_at:
        return session
    now = engine.clock.now()
    changes = {"status": DELETING, "version": session.version + 1, "created_at": 0, "lease_expires": 0}
    hidden = session.model_copy(update={**changes, "lease_owner": engine.ids.new("del")})
    lease = {"lease_expires": session.lease_expires or None} if session.status == "running" else {}
    seen = When(equal={"version": session.version, "run_id": session.run_id, "status": session.status, **lease})
    begin: list[Operation] = [Put(session_key(session.session_id), hidden.dump(), seen)]
    if engine.launcher is not None and session.parent is None:  # a sweep completes what a crash leaves
        begin.append(open_deletion_put(session, now))

    async def won() -> bool:
        stored = await engine.history.session(session.session_id)
        return stored is not None and stored.lease_owner == hidden.lease_owner

    return hidden if await commit(engine, "begin_delete", begin, won) else None


async def _hide_damaged(engine: Engine, session_id: str) -> None:
    """Hide a session whose row cannot be read, conditional on its readable fields."""
    (value,) = await engine.store.get([session_key(session_id)])
    if value is None:
        return
    with suppress(DamagedRowError):
        SessionRow.at(session_id, value)
        return  # the row was repaired
    readable = {} if isinstance(value, Damaged) else value
    seen = {name: readable.get(name) for name in ("status", "version", "run_id")}
    hidden = SessionRow(
        session_id=session_id,
        agent_type="",
        stream_id=session_id,
        status=DELETING,
        version=1,
        run_id="",
        turn=0,
        lease_owner=engine.ids.new("del"),
    )
    if isinstance(readable.get("user_id"), str):
        hidden.user_id = readable["user_id"]
    scalars = {name: found for name, found in seen.items() if found is None or isinstance(found, Scalar)}
    when = When(equal=scalars) if readable else None
    await commit(engine, "begin_delete", [Put(session_key(session_id), hidden.dump(), when)], no_outcome_check)


def _is_hidden(hidden: SessionRow) -> Check:
    same: dict[str, Scalar] = {"status": DELETING, "version": hidden.version, "lease_owner": hidden.lease_owner}
    return Check(session_key(hidden.session_id), When(equal=same))


async def _delete_hidden(engine: Engine, hidden: SessionRow) -> None:
    """Delete the hidden session. Raises `ConditionFailedError` if another deletion has completed this one."""
    session_id, still = hidden.session_id, _is_hidden(hidden)
    await _close_runs(engine, hidden)
    await _delete_partition(engine, session_id, [still])
    last: list[Operation] = [Delete(still.key, still.when)]
    if hidden.parent is None:
        try:
            await engine.streams.delete(hidden.stream_id)
        except StaleStateError:  # a new session was created under the id
            raise ConditionFailedError("delete_stream", 0) from None
        if not await _row_matches(engine, still):
            raise ConditionFailedError("forget_budgets", 0)
        await engine.budgets.forget(f"session:{session_id}")
        last += [Delete(index_key(hidden)), Delete(facets_key(hidden))]
        if engine.launcher is not None:
            last.append(Delete(open_deletion_key(session_id)))
    await engine.store.transact("finish_delete", last)


async def _row_matches(engine: Engine, check: Check) -> bool:
    (value,) = await engine.store.get([check.key])
    return check.when.holds(value)


async def _close_runs(engine: Engine, hidden: SessionRow) -> None:
    """Return the budget draws of runs with open effects. Only the run rows contain the amounts, so this happens before
    they are deleted."""
    rows = await engine.store.query("sessions", hidden.session_id, start="r#", end=f"{SESSION}\x00", reverse=True)
    values = {row.key.sort: row.value for row in rows}
    found = values.pop(SESSION, None)
    if not _is_hidden(hidden).when.holds(found):  # these runs belong to a session that was created since
        raise ConditionFailedError("close_runs", 0)
    for sort, value in values.items():
        if not sort.startswith("r#"):
            continue
        with skipping_damage(f"deletion of session {hidden.session_id}"):
            run = RunRow.at(hidden.session_id, sort, value)
            if run.run_id == hidden.run_id and run.status == "running":
                reported = {"usage": hidden.run_usage, "parts": hidden.run_parts}
                run = run.model_copy(update={"blocks": hidden.blocks, "claim": hidden.claim, **reported})
            if run.effects == "open":
                await return_draws(engine, hidden, run)
                index = [Delete(open_run_key(run.run_id))] if engine.placement.indexes_open_runs else []
                with suppress(RunNotFoundError):  # another deleter was faster
                    # now, because its rows are deleted next
                    while isinstance(closed := await close_effects(engine, hidden, run, index), RunRow):
                        run = closed


async def _delete_partition(engine: Engine, session_id: str, guard: Sequence[Operation]) -> None:
    """Delete all rows except the session row, and release the blobs that the session holds. Sub-agents are deleted
    first, because only these rows contain their ids. `guard` is the condition for each page."""
    while True:
        rows = await engine.store.query("sessions", session_id, limit=PAGE + 1)
        rows = [row for row in rows if row.key != session_key(session_id)]
        if not rows:
            return
        for hold in [row.key for row in rows if is_hold(row.key)]:
            await release_blob(engine.store, engine.clock, hold, guard)
        rows = [row for row in rows if not is_hold(row.key)]
        for row in rows:
            with skipping_damage(f"sub-agents of session {session_id}"):
                if row.value.get("kind") == "assistant":
                    for child in AssistantRow.read(session_id, row.key.sort, row.value).children.values():
                        await _delete_child(engine, child.session_id)
        if rows:
            await engine.store.transact("delete_rows", [*guard, *(Delete(row.key) for row in rows)])


async def _delete_child(engine: Engine, child_id: str) -> None:
    """Delete a sub-agent's session even if it is running. It cannot start under a hidden parent, and once it is hidden,
    its worker can no longer write."""
    while True:
        child = None
        with skipping_damage(f"deletion of session {child_id}"):
            child = await engine.history.session(child_id)
        if child is None:
            await _delete_partition(engine, child_id, [])
            await engine.store.transact("finish_delete", [Delete(session_key(child_id))])
            return
        hidden = await _hide(engine, child)
        if hidden is not None:
            with suppress(ConditionFailedError):  # another deleter was faster
                await _delete_hidden(engine, hidden)
            return


async def _delete_remains(engine: Engine, session_id: str) -> None:
    """Delete the rows that an unfinished copy left behind under the id, or that earlier versions wrote after a
    deletion."""
    try:
        await clear_leftovers(engine, session_id)
        none = [Check(session_key(session_id), ABSENT), Check(marker_key(session_id), ABSENT)]
        await _delete_partition(engine, session_id, none)
        if await engine.streams.info(session_id) is not None:
            await engine.streams.delete(session_id)
    except (SessionExistsError, ConditionFailedError, StaleStateError):
        logger.info("session %s is being created", session_id)
