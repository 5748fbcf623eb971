"""Rows that were read together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.ports.state_store import Value


class Newest(NamedTuple):
    """A session and its newest runs."""

    session: SessionRow | None
    """The session's row. None: there is no such session."""
    runs: Sequence[RunRow] = ()
    """The newest runs, newest first, up to the number that the reader asked for."""

    def run(self, run_id: str) -> RunRow | None:
        return next((run for run in self.runs if run.run_id == run_id), None)


class Seen(NamedTuple):
    """The rows that the start of a step needs: the session, the stop row of its run, and the count of budget
    changes."""

    session: SessionRow
    """The session's row."""
    stop: Value | None
    """The stored stop row of the run. None: no stop was requested."""
    budgets: int
    """The number of budget changes. When it changes, the session binds its budgets again."""
