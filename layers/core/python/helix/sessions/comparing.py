"""Reads the two sides of a comparison (`core.comparison`): runs or whole sessions.

Law: this module is read-only, and reads a bounded number of messages.
"""

from __future__ import annotations

from typing import Final

from helix.core.comparison import Side
from helix.core.errors import InvalidInputError, RunNotFoundError
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.history import History

MOST_MESSAGES: Final = 2_000
MOST_RUNS: Final = 100


async def read_side(history: History, session: SessionRow, run_id: str | None) -> Side:
    """Read a run with the runs that it continues, or the whole session (`run_id` None). The messages of an open step are
    not part of history yet. Raises `RunNotFoundError`, `CheckpointNotFoundError` if the checkpoint at the run's end was
    deleted, and `InvalidInputError` if there are too many messages."""
    start, lineage, count, state_at = 0, session.lineage, session.count, session.state_at
    status: str = session.status
    if run_id is not None:
        run = await history.run(session.session_id, run_id)
        start, status = (await _first_of(history, run)).start_count, run.status
        if run.checkpoint is not None:
            point, _ = await history.point(session, run.checkpoint)
            lineage, count, state_at = point.lineage, point.count, point.state_at
    if count - start > MOST_MESSAGES:
        what = f"session {session.session_id!r}" if run_id is None else f"run {run_id!r}"
        hint = ": name one of its runs" if run_id is None else ""
        raise InvalidInputError(f"{what} has {count - start:,} messages; at most {MOST_MESSAGES:,} are compared{hint}")
    rows = await history.lineage(session.session_id, lineage)
    return Side(
        session_id=session.session_id,
        run_id=run_id,
        agent=session.agent_type,
        status=status,
        entries=await history.entries(session.session_id, rows, min(start, count), count),
        state=await history.state_at(session.session_id, session.created_at, state_at),
    )


async def _first_of(history: History, run: RunRow) -> RunRow:
    """Return the run whose message this run answers: itself, or one that it continues."""
    for _ in range(MOST_RUNS):
        if run.input is not None or run.previous_run_id is None:
            return run
        try:
            run = await history.run(run.session_id, run.previous_run_id)
        except RunNotFoundError:
            return run
    return run
