"""Reminders of calls that wait (docs/protocol.md#waits).

Law: one transaction records the reminders that are due and moves the entry of the wait, so two sweeps record each once.
Then they are shown. The moved entry names them until that is done, so a sweep after a crash shows them again. The stream
keeps each once.
"""

from __future__ import annotations

from dataclasses import replace

from helix.core.agents import AnyAgent
from helix.core.entries import CallRow
from helix.core.session_row import SessionRow
from helix.engine.context import make_context
from helix.engine.engine import Engine
from helix.engine.facts import CallReminded
from helix.engine.history import call_key
from helix.engine.observers import record
from helix.engine.writing import as_read, call_put, commit, no_outcome_check
from helix.ports.state_store import Delete, Operation, Row, When
from helix.services.waits import UNSHOWN, due_at, wait_put

AGAIN_S = 30.0
"""The time in seconds after which another sweep shows recorded reminders, if the first one died."""
AT_ONCE = 60
"""The number of calls whose reminders one transaction records. Those of others follow in the next one."""
GIVEN = When()
"""The condition that a row exists."""


async def remind(engine: Engine, agent: AnyAgent, session: SessionRow, entry: Row) -> None:
    """Record and show the reminders of the paused session that are due, then move `entry` to the next reminder or
    deadline, or drop it if there is none. Does nothing if another sweep was first, or an answer came."""
    rows = await engine.history.open_rows(session)
    calls = [] if rows is None else rows.calls
    asked = [(place, row) for place, row in enumerate(calls) if row is not None and row.state == "asked"]
    now, waits, puts = engine.clock.now(), list[CallRow](), list[Operation]()
    unshown = {(str(call_id), int(claim)): int(first) for call_id, claim, first in entry.value.get(UNSHOWN, ())}
    for place, row in asked:
        due = sum(at <= now for at in row.remind_at)
        if due and len(puts) < AT_ONCE:
            unshown.setdefault((row.call_id, row.claim), row.reminded + 1)
            changes = {"remind_at": row.remind_at[due:], "reminded": row.reminded + due, "reminded_at": now}
            new = row.model_copy(update=changes)
            puts.append(call_put(call_key(session, place), new, as_read(row)))
            row = new
        waits.append(row)
    due_rows = [(row, unshown[row.call_id, row.claim]) for row in waits if (row.call_id, row.claim) in unshown]
    if due_rows:
        names = [[row.call_id, row.claim, first] for row, first in due_rows]
        moved = wait_put(session, now + AGAIN_S)
        moved = replace(moved, value={**moved.value, UNSHOWN: names})
        if not await commit(engine, "remind", [*puts, Delete(entry.key, GIVEN), moved], no_outcome_check):
            return
        entry = Row(moved.key, moved.value)
        assert rows is not None
        context = make_context(engine, agent, session)
        for row, first in due_rows:
            for number in range(first, row.reminded + 1):
                await record(context, CallReminded(row, rows.answer, number))
        await context.stream.close()
    times = [at for row in waits if (at := due_at(row)) is not None]
    following: list[Operation] = [wait_put(session, min(times))] if times else []
    await commit(engine, "end_wait", [Delete(entry.key), *following], no_outcome_check)
