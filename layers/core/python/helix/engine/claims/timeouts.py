"""The end of waits: calls that no one has answered in time (docs/protocol.md#waits).

Law: the end of a wait is an answer like any other. One transaction writes it and claims the run that goes on. An answer
that came first wins.
"""

from __future__ import annotations

from helix.core.delivery import Delivery
from helix.core.errors import CallNotPendingError
from helix.engine.claims.claim import Claimed
from helix.engine.claims.confirm import Expired, answer, wake_parents
from helix.engine.claims.reminders import remind
from helix.engine.engine import Engine, logger
from helix.engine.writing import commit, no_outcome_check
from helix.ports.state_store import Damaged, Delete, Row


async def end_wait(engine: Engine, row: Row, delivery: Delivery) -> list[Claimed]:
    """End the waits of the entry's session whose deadlines have passed, and drop the entry. If all calls still wait, record
    the reminders that are due. Return the claimed runs, which the caller must start. A crash leads to another call for the
    same entry, which finds what is left."""
    claims: list[Claimed] = []
    value = row.value
    session = None if isinstance(value, Damaged) else await engine.history.session(str(value.get("session_id")))
    if session is not None and session.status == "paused" and session.run_id == value.get("run_id"):
        agent, now = engine.agents(session.agent_type), engine.clock.now()
        for call in await engine.history.open_calls(session):
            if call.state != "asked" or call.deadline is None or call.deadline > now:
                continue
            try:
                expired = Expired(call.call_id, call.deadline)
                answered = await answer(engine, agent, session.session_id, expired, delivery)
            except CallNotPendingError:
                continue  # an answer came first
            logger.info("call %s of session %s had no answer in time", call.call_id, session.session_id)
            if answered.claimed is not None:
                claims.append(answered.claimed)
                claims += await wake_parents(engine, answered.claimed.session, delivery)
        if not claims:
            await remind(engine, agent, session, row)
            return claims
    await commit(engine, "end_wait", [Delete(row.key)], no_outcome_check)
    return claims
