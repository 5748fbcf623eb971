"""A stored session, as a consistent read of all rows in its partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from helix.core.entries import AnyEntry, parse_entry
from helix.core.lineage import ROOT, find_spans
from helix.core.row_keys import SESSION
from helix.core.rows import CheckpointRow, LineageRow, StopRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.view_row import ViewRow
from helix.ports.state_store import Row, StateStore

MOST_MESSAGES = 10**8
"""The maximum number of messages in a lineage: keys have 8 digits for a message's index."""


@dataclass(slots=True)
class SessionRows:
    """The rows of one session, parsed and sorted by kind."""

    session_id: str
    """The id of the session, which names the partition."""
    session: SessionRow | None = None
    """The row `session`. None if the session does not exist."""
    runs: dict[str, RunRow] = field(default_factory=dict)
    """The runs by run id."""
    checkpoints: dict[str, CheckpointRow] = field(default_factory=dict)
    """The checkpoints by checkpoint id."""
    lineages: dict[int, LineageRow] = field(default_factory=lambda: {0: ROOT})
    """The lineages by number. Lineage 0 has no row, but is always included."""
    entries: dict[tuple[int, int], AnyEntry] = field(default_factory=dict)
    """The messages and calls by (lineage, index), including those beyond the end of history."""
    views: dict[int, ViewRow] = field(default_factory=dict)
    """The views by the session version in their key."""
    stops: dict[str, StopRow] = field(default_factory=dict)
    """The stop requests, by run id."""
    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Every row as stored, by sort key."""
    _lengths: dict[int, int] = field(default_factory=dict)

    def length(self, lineage: int) -> int:
        """Return the number of messages of the lineage before the first missing one."""
        if lineage not in self._lengths:
            row = self.lineages.get(lineage)
            places = (
                (owner, index)
                for owner, first, end in ([] if row is None else find_spans(row, 0, MOST_MESSAGES))
                for index in range(first, end)
            )
            self._lengths[lineage] = sum(1 for _ in takewhile(self.entries.__contains__, places))
        return self._lengths[lineage]

    def history(self, lineage: int, count: int) -> list[AnyEntry | None]:
        """Return the first `count` messages of a lineage, with None for a missing row."""
        row = self.lineages.get(lineage)
        if row is None:
            return [None] * count
        places = [(owner, index) for owner, first, end in find_spans(row, 0, count) for index in range(first, end)]
        return [self.entries.get(place) for place in places]

    def runs_in_order(self) -> list[RunRow]:
        return sorted(self.runs.values(), key=lambda run: run.turn)

    def checkpoints_in_order(self) -> list[CheckpointRow]:
        return [
            CheckpointRow.at(self.session_id, sort, v) for sort, v in sorted(self.values.items()) if sort[:2] == "c#"
        ]


async def read_session_rows(store: StateStore, session_id: str) -> SessionRows:
    """Read the session's rows with one query, which returns a consistent snapshot on every adapter."""
    return session_rows(session_id, await store.query("sessions", session_id))


def session_rows(session_id: str, rows: Sequence[Row]) -> SessionRows:
    found = SessionRows(session_id)
    for row in rows:
        kind, _, rest = row.key.sort.partition("#")
        found.values[row.key.sort] = row.value
        match kind:
            case "r":
                found.runs[rest] = RunRow.at(row.key.partition, row.key.sort, row.value)
            case "c":
                checkpoint = CheckpointRow.at(row.key.partition, row.key.sort, row.value)
                found.checkpoints[checkpoint.id] = checkpoint
            case "l":
                found.lineages[int(rest)] = LineageRow.read(row.key.partition, row.key.sort, row.value)
            case "m":
                lineage, _, index = rest.partition("#")
                found.entries[int(lineage), int(index)] = parse_entry(row.key.partition, row.key.sort, row.value)
            case "k":
                found.views[int(rest)] = ViewRow.read(row.key.partition, row.key.sort, row.value)
            case "x":
                found.stops[rest] = StopRow.read(row.key.partition, row.key.sort, row.value)
            case _ if row.key.sort == SESSION:
                found.session = SessionRow.at(row.key.partition, row.value)
    return found
