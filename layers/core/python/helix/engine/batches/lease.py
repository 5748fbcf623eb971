"""The lease of a run that waits for a batch: no worker has it, until one continues the run."""

from __future__ import annotations

from helix.core.session_row import SessionRow
from helix.engine.engine import Engine
from helix.engine.history import session_key
from helix.engine.writing import at_version, commit, no_outcome_check
from helix.ports.state_store import Scalar, Update, When


async def acquire(engine: Engine, session: SessionRow, owner: str) -> SessionRow | None:
    """Take the lease of a run that waits for a batch. Return the session with it, or None if another worker has it."""
    now = engine.clock.now()
    if session.lease_owner is not None and session.lease_expires >= now:
        return None
    seen: dict[str, Scalar] = {"lease_owner": session.lease_owner}
    if session.lease_owner is not None:
        seen["lease_expires"] = session.lease_expires
    lease = {"lease_owner": owner, "lease_expires": now + engine.settings.claim_s}
    when = When(equal={**at_version(session).equal, **seen})
    taken = Update(session_key(session.session_id), set=lease, when=when)
    if not await commit(engine, "continue_batched", [taken], no_outcome_check):
        return None
    return session.model_copy(update=lease)


async def release(engine: Engine, session: SessionRow, owner: str) -> None:
    """Give up the lease of a run that waits for a batch, so that the worker that gets the answer continues it at once. The
    lease expires otherwise."""
    free = {"lease_owner": None, "lease_expires": 0}
    when = When(equal={**at_version(session).equal, "lease_owner": owner})
    await commit(
        engine, "leave_batched", [Update(session_key(session.session_id), set=free, when=when)], no_outcome_check
    )
