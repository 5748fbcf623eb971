"""Streams as segments in a state store, whichever it is.

A segment is one row: messages, and the head after them. Putting it is conditional on its key being free, and the key
is the first sequence: so that one put is the compare-and-set of the whole stream.

Law: whatever changes the head is stored, also where it says nothing: then an *empty* segment takes the next key, and
gives way to its reader (`rev`). A log position, where records come with one, is stored with the segment that they
made: a second delivery gets what they said (`project`). Positions are compared, never calculated with.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from helix.core.errors import ConditionFailedError, InvalidInputError
from helix.core.json import size
from helix.core.row_keys import SESSION
from helix.core.sequencer import Head, StreamRecord, admit
from helix.core.wire import StreamInfo, StreamMessage
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Delete, Key, Operation, Put, Row, StateStore, When
from helix.services.committing import refused
from helix.services.segment_rows import segment_end, segment_head, segment_messages, segment_value

CACHED_HEADS = 256
SEGMENT_BYTES = (
    150_000  # of chunks; a record stays whole, and what still exceeds an item is the store's to put elsewhere
)
TOMBSTONE_S = 86_400.0  # as long as records may lie in the log before they are projected
PAGE = 10


class Entry(NamedTuple):
    """Records that share one place in a log before this one. `position`: decimal digits, growing within a stream; "" where
    there is no such log."""

    position: str
    records: Sequence[StreamRecord]


class StreamEnd(NamedTuple):
    """The end of a stream as it was read. `rev`: of the empty segment at the next key, 0 where that key is free. `at`: the
    log position of what came last. `tombstone`: what a deleted stream left, and `deleted_at` when (Unix seconds)."""

    head: Head
    rev: int = 0
    at: str = ""
    tombstone: Key | None = None
    deleted_at: float = 0.0


class SegmentStreams:
    """A `StreamManager` on any `StateStore`. The sequencer runs inside `append`.

    ttl_s: seconds after which a segment may expire (its row's `ttl`, Unix seconds); None: never. The segment in which
    the root's turn ends never expires by itself, so that sequences never begin again. With `ttl_s`, which needs a
    `clock`, a deleted stream leaves an empty row for a day: records made before the deletion stay out.
    """

    def __init__(self, store: StateStore, *, clock: Clock | None = None, ttl_s: float | None = None) -> None:
        if ttl_s is not None and clock is None:
            raise InvalidInputError("segments that expire need a clock")
        self._store, self._clock, self._ttl_s = store, clock, ttl_s
        self._heads: OrderedDict[str, StreamEnd] = OrderedDict()

    # --- writing --------------------------------------------------------------------------------------------------

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        await self.project(stream_id, [Entry("", records)])

    async def project(self, stream_id: str, entries: Sequence[Entry]) -> list[StreamMessage]:
        """Append all records, in order, and return what they say: also what they said before, where their positions
        show that they were appended already. Raises `StoreError`: some of it may be appended then; come again."""
        place = self._heads.get(stream_id)
        # A run's first record reads the head anew, unless its claim saw the one that is remembered: the stream may have
        # been deleted and begun again by another process.
        begun = [record.seen for entry in entries for record in entry.records if record.mark == "started"]
        if begun:
            known = place or StreamEnd(Head())
            place = known if all(seen == (known.head.sequence, known.head.updated_at) for seen in begun) else None
        conflicts = 0
        while True:
            place = place or await self._read_place(stream_id)
            said = await self._said(stream_id, place, entries)
            try:
                for position, records in _bounded(entries):
                    place, messages = await self._put(stream_id, place, position, records)
                    said.extend(messages)
                return said
            except ConditionFailedError:
                place, conflicts = None, conflicts + 1
                await self._conflicted(conflicts)

    async def _conflicted(self, times: int) -> None:
        """Called where other writers were first, with the number of times in a row."""

    async def fail(self, stream_id: str, reason: str, position: str = "", *, now: float) -> list[StreamMessage]:
        """End the root's turn on the stream as failed, in nobody's name; of a stream without records, the first turn.
        Returns what that says, as `project` does; a turn that is over stays as it is."""
        head = (await self._read_place(stream_id)).head
        root = head.sessions.get(head.root)
        record = StreamRecord(
            session_id=head.root or stream_id,
            run_id=root.run_id if root else "",
            turn=root.turn if root else 1,
            kind="run",
            mark="fail",
            status="failed",
            error=reason,
            time=now,
        )
        return await self.project(stream_id, [Entry(position, [record])])

    async def delete(self, stream_id: str) -> None:
        self._heads.pop(stream_id, None)
        tombstone = await self._end_for_good(stream_id) if self._ttl_s is not None else None
        end = None if tombstone is None else tombstone.sort
        while rows := await self._store.query("streams", stream_id, end=end, limit=50):
            await self._store.transact("delete_stream", [Delete(row.key, ahead=True) for row in rows])

    async def _put(
        self, stream_id: str, place: StreamEnd, position: str, records: Sequence[StreamRecord]
    ) -> tuple[StreamEnd, list[StreamMessage]]:
        """One segment. Raises `ConditionFailedError` where another writer was first."""
        after, messages = _admitted(stream_id, place, records)
        if not messages and after == place.head:
            return place, []
        rev = 0 if messages else place.rev + 1
        value = segment_value(stream_id, after, messages)
        value |= ({"at": position} if position else {}) | ({"rev": rev} if rev else {})
        root = after.sessions.get(after.root)
        if self._ttl_s is not None and self._clock is not None and (root is None or not root.over):
            value["ttl"] = int(self._clock.now() + self._ttl_s)
        key = Key("streams", stream_id, segment_sort(place.head.sequence + 1))
        operations: list[Operation] = [Put(key, value, When(equal={"rev": place.rev}) if place.rev else ABSENT)]
        if place.tombstone is not None:
            operations.append(Delete(place.tombstone, When(equal={"buried_at": place.deleted_at})))
        await self._store.transact("append_segment", operations)
        place = StreamEnd(after, rev, position or place.at)
        self._remember(stream_id, place)
        return place, messages

    async def _end_for_good(self, stream_id: str) -> Key | None:
        """Take the next key for good: no writer that still has the head in mind gets past it."""
        assert self._clock is not None
        while True:
            place = await self._read_place(stream_id)
            if place.tombstone is not None or place.head.sequence == 0:
                return place.tombstone
            key = Key("streams", stream_id, segment_sort(place.head.sequence + 1))
            now = self._clock.now()
            value = {"buried_at": now, "messages": [], "ttl": int(now + TOMBSTONE_S)}
            when = When(equal={"rev": place.rev}) if place.rev else ABSENT
            if await refused(self._store, "bury_stream", [Put(key, value, when)]) is None:
                self._heads.pop(stream_id, None)
                return key

    # --- reading --------------------------------------------------------------------------------------------------

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        found: list[StreamMessage] = []
        start = segment_sort(after + 1)
        rows = await self._store.query("streams", stream_id, start=start, limit=max(1, min(limit, 200)))
        if not rows or rows[0].key.sort != start:
            first = await self._store.query("streams", stream_id, end=start, limit=1, reverse=True)
            rows = [*first, *rows]
        for row in rows:
            found.extend(message for message in segment_messages(row) if message.sequence > after)
            if len(found) >= limit:
                break
        return found

    async def has(self, stream_id: str, records: Sequence[StreamRecord]) -> bool:
        """Whether the log has all that these records say: appending them would change nothing."""
        place = await self._read_place(stream_id)
        after, messages = _admitted(stream_id, place, records)
        return not messages and after == place.head

    async def position(self, stream_id: str) -> str:
        """A log position up to which everything is appended, "" where there is none. There may be a later one."""
        return (self._heads.get(stream_id) or await self._read_place(stream_id)).at

    async def wait(self, stream_id: str, after: int, timeout_s: float) -> None:
        with self._store.watch("streams", stream_id) as watch:
            place = await self._read_place(stream_id)
            if place.head.sequence <= after:
                await watch.changed(timeout_s)

    async def info(self, stream_id: str) -> StreamInfo | None:
        head = (await self._read_place(stream_id)).head
        if head.sequence == 0:
            return await self._awaited(stream_id)
        root = head.sessions.get(head.root)
        statuses: dict[str, Literal["active", "paused", "ended", "failed"]] = {"failed": "failed", "paused": "paused"}
        active = root is None or not root.over
        return StreamInfo(
            stream_id=stream_id,
            status="active" if active else statuses.get(root.status if root else "", "ended"),
            latest_sequence=head.sequence,
            total_chunks=head.sequence,
            created_at=head.created_at,
            updated_at=head.updated_at,
            turn=root.turn if root else 0,
            began=root.began if root else 0,
        )

    async def _awaited(self, stream_id: str) -> StreamInfo | None:
        """A stream without messages is there once its root session has a run: the run's first message is on its way."""
        (root,) = await self._store.get([Key("sessions", stream_id, SESSION)]) if stream_id.isascii() else (None,)
        if root is None or not root.get("run_id") or root["status"] == "deleting":
            return None
        created = float(root.get("created_at", 0))
        return StreamInfo(
            stream_id=stream_id,
            status="active",
            latest_sequence=0,
            total_chunks=0,
            created_at=created,
            updated_at=created,
        )

    async def _said(self, stream_id: str, place: StreamEnd, entries: Sequence[Entry]) -> list[StreamMessage]:
        """What the log has of these entries. Only of a log that has come as far can it have anything: the usual entries
        are newer than all of it, and nothing is read."""
        first = next((entry.position for entry in entries if entry.position), "")
        if not first or not place.at or int(first) > int(place.at):
            return []
        rows: list[Row] = []
        end: str | None = None
        while page := await self._store.query("streams", stream_id, end=end, limit=PAGE, reverse=True):
            for row in page:
                at = row.value.get("at", "")
                if at and int(at) < int(first):
                    return [message for row in reversed(rows) for message in segment_messages(row)]
                rows.append(row)
            end = page[-1].key.sort
        return [message for row in reversed(rows) for message in segment_messages(row)]

    async def _read_place(self, stream_id: str) -> StreamEnd:
        rows = await self._store.query("streams", stream_id, limit=1, reverse=True)
        place = StreamEnd(Head())
        if rows:
            key, value = rows[0]
            if "buried_at" in value:
                place = StreamEnd(Head(), tombstone=key, deleted_at=value["buried_at"])
            else:
                head = segment_head(rows[0])
                place = StreamEnd(head, *segment_end(rows[0], head))
        self._remember(stream_id, place)
        return place

    def _remember(self, stream_id: str, place: StreamEnd) -> None:
        self._heads[stream_id] = place
        self._heads.move_to_end(stream_id)
        while len(self._heads) > CACHED_HEADS:
            self._heads.popitem(last=False)


def _admitted(stream_id: str, place: StreamEnd, records: Sequence[StreamRecord]) -> tuple[Head, list[StreamMessage]]:
    """The head and messages that the records make of `place`; records from before a deletion make nothing."""
    if place.deleted_at:
        records = [record for record in records if record.time > place.deleted_at]
    return admit(stream_id, place.head, records)


def segment_sort(sequence: int) -> str:
    return f"s#{sequence:012d}"


def _bounded(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The same records, cut where a segment would become too large. No record is cut: its number is one."""
    records: list[StreamRecord] = []
    total, position = 0, ""
    for entry in entries:
        for record in entry.records:
            weight = size(record.chunks)
            if records and total + weight > SEGMENT_BYTES:
                yield Entry(position, records)
                records, total = [], 0
            records, total, position = [*records, record], total + weight, entry.position
    if records:
        yield Entry(position, records)
