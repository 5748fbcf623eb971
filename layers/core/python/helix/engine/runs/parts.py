"""Parts: the consecutive executions of a run (docs/protocol.md#roll-over).

Law: the run's row names the current part, so the end of an older part never fails the run. A part begins with one
transaction. The start of its execution may be lost; a delivery of an older part or the sweep then repeats it.
"""

from __future__ import annotations

from functools import partial

from helix.core.agents import AnyAgent
from helix.core.delivery import Position
from helix.core.entries import CallRow
from helix.core.errors import ConditionFailedError
from helix.core.row_keys import run_sort
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.claims.liveness import DEAD
from helix.engine.engine import Engine, logger
from helix.engine.history import call_key, row_key, session_key
from helix.engine.runs.admission import launcher_of, part_of
from helix.engine.writing import advance, as_read, at_version, commit, held_by_run, session_put
from helix.ports.state_store import Check, Operation, Update, When


async def roll_over(engine: Engine, row: RunRow, position: Position, agent: str | None = None) -> bool:
    """Hand the run to its next part, between steps. `agent`: the name of the agent whose functions execute that part.
    None: the same as this one. False: the run has ended."""
    running = Check(session_key(row.session_id), held_by_run(row.run_id))
    try:
        await engine.store.transact("roll_over", [running, _next_part(row, position.step, agent)])
    except ConditionFailedError:
        return (await engine.history.run(row.session_id, row.run_id)).part > position.part
    logger.info("run %s goes on as part %d at step %d", row.run_id, row.part + 1, position.step)
    return True


async def roll_over_silent(engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow) -> bool:
    """Start the next part of a run whose execution waits for a silent worker, which neither renewed nor released its
    claim. False: no claim has lapsed.

    The transaction expires the claims on which it is based. So a claim starts at most one part, even while the new
    execution waits for Lambda capacity. A silent worker that comes back finds another version of the session.
    """
    while session.status == "running" and session.run_id == run.run_id:
        expiries = await _expire_silent(engine, session)
        if not expiries:
            return False
        step = (session.step if session.open is None else session.open.step) + 1
        following = run.model_copy(update={"part": run.part + 1, "part_step": step})
        operations = [*expiries, _next_part(run, step)]
        if await commit(engine, "roll_over_silent", operations, partial(_has_begun, engine, following)):
            logger.warning("run %s: its worker is silent; it goes on as part %d", run.run_id, following.part)
            await launcher_of(engine).start(part_of(engine, agent, following))
            return True
        now, run = await engine.history.with_run(run.session_id, run.run_id)
        if now is None:
            return False
        session = now
    return False


# --- inside -----------------------------------------------------------------------------------------------------------


async def _has_begun(engine: Engine, following: RunRow) -> bool:
    return (await engine.history.run(following.session_id, following.run_id)).part >= following.part


def _next_part(run: RunRow, step: int, agent: str | None = None) -> Update:
    moved = {} if agent is None else {"part_agent": agent}
    return Update(
        row_key(run.session_id, run_sort(run.run_id)),
        set={"part": run.part + 1, "part_step": step, **moved},
        when=When(equal={"part": run.part if run.part > 1 else None}),
    )


async def _expire_silent(engine: Engine, session: SessionRow) -> list[Operation]:
    """Return the operations that expire the claims of silent workers on the step or on its calls, if the claims are
    still unchanged. Empty: no worker is silent."""
    before = engine.clock.now() - engine.settings.skew_s
    claim = session.claim
    if session.open is None:
        buying = claim is not None and claim.run_id == session.run_id and claim.step == session.step + 1
        if claim is None or not buying or not _has_lapsed(claim.deadline, before):
            return []
        expired = claim.model_copy(update={"deadline": DEAD, "late": claim.late + 1})
        return [session_put(advance(session, engine.clock.now(), claim=expired), at_version(session))]
    rows = await engine.history.open_rows(session)
    expiries: list[Operation] = []
    for place, row in enumerate(rows.calls if rows is not None else ()):
        if row is not None and row.run_id == session.run_id and _is_silent(row, before):
            seen = When(equal={**as_read(row).equal, "deadline": row.deadline})
            expiries.append(Update(call_key(session, place), set={"deadline": DEAD}, when=seen))
    if not expiries:
        return []
    running = Check(session_key(session.session_id), held_by_run(session.run_id))
    return [running, *expiries[: engine.settings.calls_at_once]]


def _is_silent(row: CallRow, before: float) -> bool:
    lapsed = row.deadline is not None and _has_lapsed(row.deadline, before)
    return lapsed and row.state == "claimed" and row.child is None and not row.released


def _has_lapsed(deadline: float, before: float) -> bool:
    """Return whether a claim's holder let its deadline pass. A claim that was released or expired has the deadline
    `DEAD`."""
    return DEAD < deadline < before
