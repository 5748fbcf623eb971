"""Reads a session's rows once and sorts them for the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from helix.core.entries import AssistantRow, CallRow, parse_entry
from helix.core.errors import InvalidInputError
from helix.core.json import size
from helix.core.rows import AttemptRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.ports.state_store import Row, StateStore


@dataclass(frozen=True, slots=True)
class Answered:
    """A staged answer with the rows of its calls."""

    lineage: int
    """The lineage in which the answer is stored."""
    index: int
    """The index of the answer in its lineage."""
    answer: AssistantRow
    """The row of the answer."""
    calls: tuple[CallRow | None, ...]
    """The rows of its calls, in order. None for a call that no worker claimed."""


@dataclass(frozen=True, slots=True)
class SessionRows:
    """The rows of one session."""

    session: SessionRow
    """The row `session`."""
    runs: tuple[RunRow, ...]
    """The runs in the order of their turns."""
    answers: tuple[Answered, ...]
    """The staged answers by lineage and index. In a copy, this includes the copied answers."""
    attempts: tuple[AttemptRow, ...]
    """The model calls that left no answer in history."""
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The size of each row in bytes, including its key, by kind of row (the part of the sort key before `#`)."""
    segments: tuple[int, ...] = ()
    """The sizes of its stream's rows in bytes. Empty if the session writes to another session's stream."""

    @property
    def children(self) -> list[str]:
        """The ids of its sub-agents' sessions, in call order."""
        own = {run.run_id for run in self.runs}
        found = [ref for one in self.answers if one.answer.run_id in own for ref in one.answer.children.values()]
        return list(dict.fromkeys(ref.session_id for ref in found))


async def bounded_rows(store: StateStore, session_id: str, most: int | None) -> Sequence[Row]:
    """Return all rows of the session. Raises `InvalidInputError` if there are more than `most`."""
    rows = await store.query("sessions", session_id, limit=None if most is None else most + 1)
    if most is not None and len(rows) > most:
        raise InvalidInputError(f"session {session_id!r} has more than {most} rows: read them in pages (`read_rows`)")
    return rows


async def read_rows(store: StateStore, session_id: str, most: int | None = None) -> SessionRows | None:
    """Return the session's rows, or None if the session does not exist. Raises `InvalidInputError` if it has more than
    `most` rows."""
    rows = await bounded_rows(store, session_id, most)
    values = {row.key.sort: row.value for row in rows}
    if "session" not in values:
        return None
    session = SessionRow.at(session_id, values["session"])
    entries = {
        (int(lineage), int(index)): parse_entry(session_id, sort, value)
        for sort, value in values.items()
        if sort.startswith("m#")
        for lineage, index in [sort.removeprefix("m#").split("#")]
    }
    answers = []
    for (lineage, index), entry in sorted(entries.items(), key=lambda pair: pair[0]):
        if isinstance(entry, AssistantRow):
            below = [entries.get((lineage, index + 1 + n)) for n in range(len(entry.tool_calls))]
            calls = tuple(
                row if isinstance(row, CallRow) and row.call_id == request.id else None
                for row, request in zip(below, entry.tool_calls, strict=True)
            )
            answers.append(Answered(lineage, index, entry, calls))
    sizes = defaultdict[str, list[int]](list)
    for sort, value in values.items():
        sizes[sort.partition("#")[0]].append(size(value) + len(sort) + len(session_id))
    stream = session.stream_id == session_id
    segments = await store.query("streams", session.stream_id, limit=most) if stream else []
    runs = (RunRow.at(session_id, sort, value) for sort, value in values.items() if sort.startswith("r#"))
    return SessionRows(
        session=session,
        runs=tuple(sorted(runs, key=lambda run: run.turn)),
        answers=tuple(answers),
        attempts=tuple(AttemptRow.read(session_id, s, v) for s, v in values.items() if s.startswith("u#")),
        sizes=sizes,
        segments=tuple(size(row.value) for row in segments),
    )
