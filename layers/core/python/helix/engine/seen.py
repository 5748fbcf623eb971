"""Rows that are read together, as they were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from helix.core.rows import RunRow, SessionRow
from helix.ports.state_store import Value


class Newest(NamedTuple):
    """A session, None where there is none, and its newest runs, newest first."""

    session: SessionRow | None
    runs: Sequence[RunRow] = ()

    def run(self, run_id: str) -> RunRow | None:
        return next((run for run in self.runs if run.run_id == run_id), None)


class Seen(NamedTuple):
    """A session with the stop row of its run. `budgets`: how often a budget was defined anew."""

    session: SessionRow
    stop: Value | None
    budgets: int
