"""The end of waits: calls that no one has answered in time (docs/protocol.md#waits).

Law: the end of a wait is an answer like any other. One transaction writes it and claims the run that goes on. An answer
that came first wins.
"""

from __future__ import annotations

from helix.core.delivery import Delivery
from helix.core.errors import CallNotPendingError
from helix.engine.claims.claim import Claimed
from helix.engine.claims.confirm import Expired, answer, wake_parents
from helix.engine.engine import Engine, logger
from helix.engine.writing import commit, no_outcome_check
from helix.ports.state_store import Damaged, Delete, Operation, Row
from helix.services.waits import wait_put


async def end_wait(engine: Engine, row: Row, delivery: Delivery) -> list[Claimed]:
    """End the waits of the entry's session whose deadlines have passed, and drop the entry. Return the claimed runs, which
    the caller must start. A crash leads to another call for the same entry, which finds what is left."""
    claims: list[Claimed] = []
    again: list[Operation] = [Delete(row.key)]
    value = row.value
    session = None if isinstance(value, Damaged) else await engine.history.session(str(value.get("session_id")))
    if session is not None and session.status == "paused" and session.run_id == value.get("run_id"):
        agent, now, later = engine.agents(session.agent_type), engine.clock.now(), list[float]()
        for call in await engine.history.open_calls(session):
            if call.state != "asked" or call.deadline is None:
                continue
            if call.deadline > now:
                later.append(call.deadline)  # a heartbeat moved it, or the earliest call has its answer
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
        if later and not claims:
            again.append(wait_put(session, min(later)))
    await commit(engine, "end_wait", again, no_outcome_check)
    return claims
