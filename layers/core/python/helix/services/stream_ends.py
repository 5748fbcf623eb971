"""The end of a stream as it was read, the operation that puts the next segment, and the ends that a process remembers
(`helix.services.segments`).

A deleted stream leaves tombstones for a day, at each of its keys and at the key after its end. No writer gets past
them, whichever end it remembers. A new stream under the same id overwrites the tombstones at its keys.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from helix.core.errors import ConditionFailedError
from helix.core.sequencer import Head, StreamRecord
from helix.ports.state_store import ABSENT, Damaged, Key, Put, Row, Value, When

Writer = tuple[str, float]
"""The id of a session and its creation time (Unix seconds)."""
MAX_ENTRIES = 50_000
"""The maximum number of sessions in all remembered ends, at about 500 bytes each. That is enough for every run at work
in a process."""


class StreamEnd(NamedTuple):
    """The end of a stream as it was read."""

    head: Head
    """The head after the last segment. Empty for a stream without segments."""
    rev: int = 0
    """The number of the empty segment at the next key. 0 if that key is free."""
    at: str = ""
    """The log position of the last records. "" if they came without one."""
    tombstones: tuple[tuple[str, float], ...] = ()
    """The tombstones behind the end: their sort keys, and the times when their streams were deleted (Unix seconds)."""
    unfinished: str = ""
    """The sort key of the last tombstone of a deletion in progress. "" if there is no such deletion."""

    @property
    def entries(self) -> int:
        """The memory that the end takes, counted in sessions."""
        return 1 + len(self.head.sessions)

    def next_put(self, stream_id: str, value: Value) -> Put:
        """Return the put at the next key, on condition that the end is unchanged since it was read."""
        sort = segment_sort(self.head.sequence + 1)
        when = When(equal={"rev": self.rev}) if self.rev else ABSENT
        if (deleted_at := dict(self.tombstones).get(sort)) is not None:
            when = When(equal={"buried_at": deleted_at})
        return Put(Key("streams", stream_id, sort), value, when)


class RememberedEnds:
    """The ends of streams that this process last read or wrote. Once they exceed `MAX_ENTRIES` in total, ends are
    forgotten in the order in which they were remembered."""

    def __init__(self) -> None:
        self._ends: OrderedDict[str, StreamEnd] = OrderedDict()
        self._entries = 0

    def get(self, stream_id: str) -> StreamEnd | None:
        return self._ends.get(stream_id)

    def remember(self, stream_id: str, end: StreamEnd) -> None:
        self.forget(stream_id)
        self._ends[stream_id] = end
        self._entries += end.entries
        while self._entries > MAX_ENTRIES and len(self._ends) > 1:
            self.forget(next(iter(self._ends)))

    def forget(self, stream_id: str) -> None:
        if (end := self._ends.pop(stream_id, None)) is not None:
            self._entries -= end.entries


class SessionGoneError(ConditionFailedError):
    """A session of the records does not exist, or has been deleted."""

    def __init__(self, error: ConditionFailedError, writer: Writer) -> None:
        super().__init__(error.name, error.index)
        self.writer = writer


def segment_sort(sequence: int) -> str:
    return f"s#{sequence:012d}"


def knows(head: Head, session_id: str, created_at: float) -> bool:
    session = head.sessions.get(session_id)
    return session is not None and session.created_at == created_at


def is_of_another(head: Head, record: StreamRecord) -> bool:
    """Return whether the record belongs to a different session from the one that the head knows under the same id."""
    session = head.sessions.get(record.session_id)
    return session is not None and bool(session.created_at) and record.created_at not in (0.0, session.created_at)


def tombstone_time(row: Row) -> float | None:
    """Return the time when the stream was deleted, if the row is a tombstone."""
    return None if isinstance(row.value, Damaged) else row.value.get("buried_at")
