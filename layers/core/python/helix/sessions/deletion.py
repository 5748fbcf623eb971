"""Delete sessions, and expire those that nobody uses: page by page, resumable after a crash (docs/protocol.md#retention).

Law: a deletion hides the session in its first transaction.
"""

from __future__ import annotations

from helix.core.claim_plan import lapsed
from helix.core.delivery import Delivery
from helix.core.entries import AssistantRow
from helix.core.errors import (
    AgentAlreadyRunningError,
    DamagedRowError,
    StaleStateError,
)
from helix.core.rows import RunRow, SessionRow
from helix.engine.claims.claim_rows import index_key
from helix.engine.engine import Engine, logger
from helix.engine.history import DELETING, session_key
from helix.engine.money.reservations import return_draws
from helix.engine.money.usage import close_effects
from helix.engine.runs.housekeeping import EXPIRY_PARTITIONS, expiry_partition, expiry_puts, skipping_damage
from helix.engine.writing import commit
from helix.ports.state_store import Delete, Operation, Put, When
from helix.services.open_runs import open_deletion_key, open_deletion_put

PAGE = 50


async def expire_sessions(engine: Engine, number: int, delivery: Delivery, *, limit: int = PAGE) -> tuple[int, int]:
    """Delete sessions that were not written for `Settings.session_ttl_s`, as `delete_session` does: of one part of the
    index (any number), at most `limit`. A session that is paused, or running under a worker that lives, is looked at again
    later. Returns how many index rows are done, and how many sessions were deleted. The next call completes what a crash
    left."""
    ttl = engine.settings.session_ttl_s
    if ttl is None:
        return 0, 0
    done, deleted, now = 0, 0, engine.clock.now()
    for row in await engine.store.query("control", expiry_partition(number), end=f"{now:015.3f}", limit=limit):
        if not delivery.may_act(engine.clock.now() + 5):
            break
        session_id = row.key.sort.partition("#")[2]  # its value may be damaged
        after: list[Operation] = [Delete(row.key)]
        try:
            session = await engine.history.session(session_id)
            if session is not None and _in_use(session, now, ttl):
                after += expiry_puts(engine, session, max(session.updated_at, now - ttl))
            elif session is not None:
                deleted += await delete_session(engine, session_id, version=session.version)
        except DamagedRowError as error:
            logger.warning("session %s does not expire: %s", session_id, error)
        except (AgentAlreadyRunningError, StaleStateError):
            continue  # somebody uses it: its row stays for the next look
        await engine.store.transact("expire_session", after)
        done += 1
    return done, deleted


async def expire_all(engine: Engine, delivery: Delivery) -> int:
    """`expire_sessions` of the whole index, and the store's `purge`. Returns how many sessions were deleted."""
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
    """Delete the session, its sub-agents' sessions and its stream. False if there was none. Refused while it runs.
    version: raise `StaleStateError` if the session is no longer at it.

    Repeat it after a crash: it goes on where it stopped.
    """
    while True:
        try:
            session = await engine.history.session(session_id)
        except DamagedRowError:  # nobody can go on with it, so nothing has to be hidden
            await _delete_child(engine, session_id)
            await engine.streams.delete(session_id)
            await engine.budgets.forget(f"session:{session_id}")
            return True
        if session is None:
            return False
        now = engine.clock.now()
        if session.status == "running" and not lapsed(session, now):
            raise AgentAlreadyRunningError(session_id, session.run_id)
        if session.status == DELETING:
            break
        if version is not None and session.version != version:
            raise StaleStateError(f"session {session_id!r} changed since it was read")
        hidden = session.model_copy(update={"status": DELETING, "version": session.version + 1})
        lease = {"lease_expires": session.lease_expires} if session.status == "running" else {}
        seen = When(equal={"version": session.version, "run_id": session.run_id, "status": session.status, **lease})
        begin: list[Operation] = [Put(session_key(session_id), hidden.dump(), seen)]
        if engine.launcher is not None:  # a sweep completes what a crash leaves
            begin.append(open_deletion_put(session, now))
        if await commit(engine, "begin_delete", begin, lambda: _hidden(engine, session_id)):
            break
    await _return_draws(engine, session)
    await _delete_rows(engine, session_id)
    if session.parent is None:
        await engine.streams.delete(session.stream_id)
        await engine.budgets.forget(f"session:{session_id}")
    last: list[Operation] = [Delete(session_key(session_id)), Delete(index_key(session))]
    if engine.launcher is not None:
        last.append(Delete(open_deletion_key(session_id)))
    await engine.store.transact("finish_delete", last)
    return True


async def _hidden(engine: Engine, session_id: str) -> bool:
    session = await engine.history.session(session_id)
    return session is None or session.status == DELETING


async def _return_draws(engine: Engine, session: SessionRow) -> None:
    """What runs without their effects hold of a budget is known from their rows only: return it before these go."""
    rows = await engine.store.query("sessions", session.session_id, start="r#", end="r$")
    runs = []
    for row in rows:
        with skipping_damage(f"deletion of session {session.session_id}"):
            runs.append(RunRow.at(session.session_id, row.key.sort, row.value))
    for run in runs:
        if run.run_id == session.run_id and run.status == "running":
            reported = {"usage": session.run_usage, "parts": session.run_parts}
            run = run.model_copy(update={"blocks": session.blocks, "claim": session.claim, **reported})
        if run.effects == "open":
            await return_draws(engine, session, run)
            await close_effects(engine, session, run, [])  # the rows that it would be counted from are going


async def _delete_rows(engine: Engine, session_id: str) -> None:
    """Everything but the session row, sub-agents first: their ids are only here."""
    while True:
        rows = await engine.store.query("sessions", session_id, limit=PAGE + 1)
        rows = [row for row in rows if row.key != session_key(session_id)]
        if not rows:
            return
        for row in rows:
            with skipping_damage(f"sub-agents of session {session_id}"):
                if row.value.get("kind") == "assistant":
                    for child in AssistantRow.read(session_id, row.key.sort, row.value).children.values():
                        await _delete_child(engine, child.session_id)
        await engine.store.transact("delete_rows", [Delete(row.key, ahead=True) for row in rows])


async def _delete_child(engine: Engine, child_id: str) -> None:
    with skipping_damage(f"deletion of session {child_id}"):
        child = await engine.history.session(child_id)
        if child is not None:
            await _return_draws(engine, child)
    await _delete_rows(engine, child_id)
    await engine.store.transact("finish_delete", [Delete(session_key(child_id))])
