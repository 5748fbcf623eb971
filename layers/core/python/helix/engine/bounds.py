"""Which budgets bound a session: their definitions ride in its row.

Law: what bounds a call is what was defined when its step began: one number, read with the session, says whether anything
was defined anew. No block is drawn before the session's row says that it is bounded, so whoever ends the run knows that
there may be draws to return.
"""

from __future__ import annotations

from helix.core.budget import BudgetDefinition, packed, scopes_of, unpacked
from helix.core.rows import Bounds, SessionRow
from helix.engine.delivery import Delivery
from helix.engine.engine import Engine
from helix.engine.writing import advance, at, commit, session_put


async def bind(engine: Engine, session: SessionRow, new: SessionRow, count: int, delivery: Delivery) -> bool:
    """Set `new.bounds` for its next call. `count`: how often a budget was defined anew, as read with `session`. False: the
    session became a bounded one just now, or moved: read it again."""
    known = session.bounds
    if count == (known.version if known is not None else 0):
        return True
    definitions = await engine.budgets.definitions(scopes_of(session))
    level = known.level if known is not None else ""
    new.bounds = Bounds(version=count, level=level, budgets=[packed(definition) for definition in definitions])
    if known is not None or not definitions:
        return True  # it is written with the claim of the step
    now = engine.clock.now()
    first = advance(session, now, bounds=new.bounds)
    if delivery.leased:  # heartbeats moved the lease since the session was read
        first.lease_owner, first.lease_expires = delivery.owner, now + engine.settings.lease_s
    await commit(engine, "bind_budgets", [session_put(first, at(session))], _no)
    return False


def definitions_of(session: SessionRow) -> list[BudgetDefinition]:
    """What bounds the session."""
    return [unpacked(short, session) for short in session.bounds.budgets] if session.bounds is not None else []


async def _no() -> bool:
    return False
