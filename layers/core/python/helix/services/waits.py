"""The index of paused sessions whose calls wait for a limited time, or have reminders (docs/protocol.md#waits).

Law: the transaction of the pause writes the entry. Its key has the earliest deadline or reminder, so the entries that are
due are the first ones. An entry may name a run that another run has followed; it is then dropped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import floor

from helix.core.entries import CallRow
from helix.core.session_row import SessionRow
from helix.ports.state_store import Key, Put, Row, StateStore
from helix.services.paging import pages

UNSHOWN = "unshown"
"""The field of an entry with the reminders that were recorded but perhaps not shown: lists of call id, claim and the first
number."""
PARTITION = "waits"
"""One partition, which takes 1,000 pauses with a deadline per second."""


def wait_put(session: SessionRow, deadline: float) -> Put:
    """Put the entry of a session that pauses. `deadline`: the earliest deadline or reminder of its calls, in Unix
    seconds."""
    value = {"session_id": session.session_id, "run_id": session.run_id, "agent_type": session.agent_type}
    due = (floor(deadline * 1000) + 1) / 1000  # after the deadline: a sweep drops the entries that are due
    return Put(Key("control", PARTITION, f"{due:015.3f}#{session.session_id}"), value)


def due_at(row: CallRow) -> float | None:
    """Return the time (Unix seconds) of the next reminder of a call that waits, or of the end of its wait. None: there is
    neither."""
    return min((at for at in (row.deadline, *row.remind_at[:1]) if at is not None), default=None)


def deadline_of(row: Row) -> float:
    return float(row.key.sort.partition("#")[0])


def read_waits(store: StateStore, until: float | None = None) -> AsyncIterator[list[Row]]:
    """Return pages of the entries with a deadline before `until`, the earliest first. None: whatever the deadline. The
    caller may drop the entries that it has received."""
    return pages(store, PARTITION, end=None if until is None else f"{until:015.3f}")
