"""What a dead worker still holds in a session is let go, so that the next one need not wait for its deadlines.

Law: said only by who knows that the worker acts no more (its process has ended, or its lease on the execution has
lapsed). A claim that is let go is a dead attempt like any other: its money stays assumed spent, its tool's outcome is
unknown. Each is one conditional write, so a worker that was not dead after all is refused, not joined.
"""

from __future__ import annotations

from helix.core.row_keys import message_sort
from helix.core.rows import CallRow, SessionRow
from helix.engine.engine import Engine, logger
from helix.engine.history import DELETING, row_key
from helix.engine.writing import advance, at, commit, session_put
from helix.ports.state_store import Update, When

DEAD = 0.0
"""The deadline of a claim that nobody can act on."""


def delivery_owner(worker: str, fresh: str) -> str:
    """The owner of one delivery by that worker. `worker` has no `/`."""
    return f"{worker}/{fresh}"


async def bury(engine: Engine, session_id: str, worker: str) -> int:
    """Let go of the step and the calls that the worker's deliveries claimed in the session. Returns how many; a repeat
    finds none."""
    mark, buried = delivery_owner(worker, ""), 0
    session = await engine.history.session(session_id)
    while session is not None and session.status != DELETING and _holds(session, mark):
        if await _bury_step(engine, session):
            logger.info("step %d of session %s: its worker %s is dead", session.step + 1, session_id, worker)
            buried += 1
        session = await engine.history.session(session_id)
    if session is None or session.status == DELETING or session.open is None:
        return buried
    rows = await engine.history.open_rows(session)
    for place, row in enumerate(rows.calls if rows is not None else ()):
        if row is None or row.state != "claimed" or row.leased or not (row.owner or "").startswith(mark):
            continue
        if row.deadline != DEAD and await _bury_call(engine, session, place, row):
            logger.info("call %s of session %s: its worker %s is dead", row.call_id, session_id, worker)
            buried += 1
    return buried


def _holds(session: SessionRow, mark: str) -> bool:
    held = session.claim
    return (
        session.status == "running"
        and held is not None
        and held.attempt_id.startswith(mark)
        and held.run_id == session.run_id
        and held.deadline != DEAD
    )


async def _bury_step(engine: Engine, session: SessionRow) -> bool:
    assert session.claim is not None
    let_go = session.claim.model_copy(update={"deadline": DEAD})
    new = advance(session, engine.clock.now(), claim=let_go)
    return await commit(engine, "bury_step", [session_put(new, at(session))], _no)


async def _bury_call(engine: Engine, session: SessionRow, place: int, row: CallRow) -> bool:
    assert session.open is not None
    key = row_key(session.session_id, message_sort(session.lineage, session.open.base + 1 + place))
    seen = When(equal={"state": "claimed", "owner": row.owner, "claim": row.claim})
    return await commit(engine, "bury_call", [Update(key, set={"deadline": DEAD}, when=seen)], _no)


async def _no() -> bool:
    return False
