"""Streams as segments in any state store.

A segment is one row: messages, and the head after them. Its key is the first sequence, and it is put on condition that
the key is free. This one put is therefore the compare-and-set of the whole stream.

Law: every change of the head is stored, even without messages. An *empty* segment then takes the next key, and the next
segment replaces it (`rev`). If records come with a log position, it is stored in their segment, so a second delivery
gets the same messages (`project`). Positions are only compared, never used in arithmetic.

Law: no records of a deleted session are appended. A segment is put on condition that the sessions of its records exist,
with the creation time `created_at` from the records. If conditions are billed (with a `clock`), only a session that is
new to a stream's head needs one. A stream that begins without tombstones needs none. A deletion leaves tombstones at
the keys of the stream and at the key after its end. They stop every writer that remembers an end of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from helix.core.errors import ConditionFailedError, DamagedRowError, InvalidInputError, StaleStateError
from helix.core.json import size
from helix.core.row_keys import SESSION
from helix.core.sequencer import Head, StreamRecord, admit
from helix.core.wire import StreamInfo, StreamMessage
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Check, Damaged, Delete, Key, Operation, Put, Row, StateStore, Value, When
from helix.services.committing import refused
from helix.services.segment_rows import segment_end, segment_head, segment_messages, segment_value
from helix.services.stream_ends import (
    RememberedEnds,
    SessionGoneError,
    StreamEnd,
    Writer,
    is_of_another,
    knows,
    segment_sort,
    tombstone_time,
)

SEGMENT_BYTES = 150_000  # of chunks; a record is never split, and the store moves it elsewhere if it is too large
TOMBSTONE_S = 86_400.0  # as long as records may stay in the log before they are projected
PAGE = 10
SESSIONS_AT_ONCE = 40
"""The maximum number of sessions whose records share a segment, because each may need a condition."""
TOMBSTONES_AT_ONCE = 100


class Entry(NamedTuple):
    """Records at one position in a log that feeds this one."""

    position: str
    """The position in that log: decimal digits that increase within a stream. "" if there is no such log."""
    records: Sequence[StreamRecord]
    """The records at that position, in order."""


class SegmentStreams:
    """A `StreamManager` on any `StateStore`. The sequencer runs inside `append`.

    `ttl_s` is the number of seconds after which a segment may expire (its row's `ttl`, Unix seconds), or None for
    never. It requires a `clock`. The segment in which the root's turn ends never expires on its own, so that sequences
    never start over.

    Pass a `clock` if other processes append records that have been in a log for a while. A deleted stream then leaves
    tombstones, which are empty rows, for a day.
    """

    coalesces: bool = False
    """False, because an append costs no more than any other transaction of the store."""

    def __init__(self, store: StateStore, *, clock: Clock | None = None, ttl_s: float | None = None) -> None:
        if ttl_s is not None and clock is None:
            raise InvalidInputError("segments that expire need a clock")
        self._store, self._clock, self._ttl_s = store, clock, ttl_s
        self._ends = RememberedEnds()

    # --- writing --------------------------------------------------------------------------------------------------

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        await self.project(stream_id, [Entry("", records)])

    async def project(self, stream_id: str, entries: Sequence[Entry]) -> list[StreamMessage]:
        """Append all records in order, and return the resulting messages. For records that were already appended,
        according to their positions, the earlier messages are returned. Raises `StoreError`; some records may have been
        appended by then, so call it again."""
        place = self._ends.get(stream_id)
        # A run's first record reads the head again, unless its claim saw the one that is remembered, because another
        # process may have deleted the stream and begun it again.
        begun = [record.seen for entry in entries for record in entry.records if record.mark == "started"]
        if begun:
            known = place or StreamEnd(Head())
            place = known if all(seen == (known.head.sequence, known.head.updated_at) for seen in begun) else None
        elif place is not None and any(is_of_another(place.head, r) for entry in entries for r in entry.records):
            place = None
        conflicts, gone = 0, set[Writer]()
        while True:
            place = place or await self._read_place(stream_id)
            said = await self._said(stream_id, place, entries)
            try:
                for position, records in _bounded(entries):
                    of_living = [record for record in records if (record.session_id, record.created_at) not in gone]
                    place, messages = await self._put(stream_id, place, position, of_living)
                    said.extend(messages)
                return said
            except SessionGoneError as error:
                place = None
                gone.add(error.writer)
            except ConditionFailedError:
                place, conflicts = None, conflicts + 1
                await self._conflicted(conflicts)

    async def _conflicted(self, times: int) -> None:
        """Handle a conflict, after other writers were first `times` times in a row. Subclasses may wait here."""

    async def fail(self, stream_id: str, reason: str, position: str = "", *, now: float) -> list[StreamMessage]:
        """End the root's turn on the stream as failed, without a run. A stream without records gets its first turn.
        Return the messages, as `project` does. A turn that is already over is left unchanged."""
        place = await self._read_place(stream_id)
        head = place.head
        root = head.sessions.get(head.root)
        created_at = root.created_at if root else 0.0
        if root is None and place.tombstones:
            (created_at,) = await self._created_at([stream_id])
            if not created_at:
                return []
        record = StreamRecord(
            session_id=head.root or stream_id,
            created_at=created_at,
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
        """Remove the stream of a session that is being deleted or is gone. Raises `StaleStateError` if the session
        exists, because a new one was created under the id."""
        self._ends.forget(stream_id)
        guard = await self._deletion_guard(stream_id)
        try:
            await (
                self._leave_tombstones(stream_id, guard) if self._clock is not None else self._remove(stream_id, guard)
            )
        except ConditionFailedError:
            await self._deletion_guard(stream_id)  # another deletion completed this one

    async def _deletion_guard(self, stream_id: str) -> list[Operation]:
        """Return the condition that the session is still being deleted, or still gone. A slow deletion must not remove
        the stream of a session that was created in the meantime. The list is empty if the session's row cannot be
        read."""
        if not stream_id.isascii():  # no session has such an id
            return []
        key = Key("sessions", stream_id, SESSION)
        (row,) = await self._store.get([key])
        if row is None:
            return [Check(key, ABSENT)]
        if isinstance(row, Damaged):
            return []
        if row.get("status") != "deleting":
            raise StaleStateError(
                f"the stream of session {stream_id!r} cannot be deleted, because the session exists: delete the session"
            )
        same = {name: row.get(name) for name in ("status", "version", "lease_owner")}
        return [Check(key, When(equal=same))]

    async def _put(
        self, stream_id: str, place: StreamEnd, position: str, records: Sequence[StreamRecord]
    ) -> tuple[StreamEnd, list[StreamMessage]]:
        """Put one segment. Raises `ConditionFailedError` if another writer was first, and `SessionGoneError` if a
        session of the records was deleted."""
        after, messages = self._admitted(stream_id, place, records)
        if not messages and after == place.head:
            return place, []
        rev = 0 if messages else place.rev + 1
        value = segment_value(stream_id, after, messages)
        value |= ({"at": position} if position else {}) | ({"rev": rev} if rev else {})
        root = after.sessions.get(after.root)
        if self._ttl_s is not None and self._clock is not None and (root is None or not root.over):
            value["ttl"] = int(self._clock.now() + self._ttl_s)
        put, writers = place.next_put(stream_id, value), self._unproven(place, records)
        exist = [Check(Key("sessions", name, SESSION), When(equal={"created_at": made})) for name, made in writers]
        try:
            await self._store.transact("append_segment", [put, *exist])
        except DamagedRowError:  # it cannot be determined whether the session exists
            await self._store.transact("append_segment", [put])
        except ConditionFailedError as error:
            if error.index:
                raise SessionGoneError(error, writers[error.index - 1]) from None
            raise
        left = tuple(one for one in place.tombstones if one[0] != put.key.sort)
        place = StreamEnd(after, rev, position or place.at, left)
        self._ends.remember(stream_id, place)
        return place, messages

    def _admitted(
        self, stream_id: str, place: StreamEnd, records: Sequence[StreamRecord]
    ) -> tuple[Head, list[StreamMessage]]:
        """Return the head and the messages after the records were added at `place`. Records of earlier versions do not
        contain the creation time of their session; those from before a deletion are dropped."""
        if self._ttl_s is not None and place.tombstones and not place.head.sessions:
            deleted_at = max(deleted_at for _, deleted_at in place.tombstones)
            records = [record for record in records if record.created_at or record.time > deleted_at]
        return admit(stream_id, place.head, records)

    def _unproven(self, place: StreamEnd, records: Sequence[StreamRecord]) -> list[Writer]:
        """Return the sessions of the records whose existence must be checked. With a clock, there are none if the
        stream is just beginning and has no tombstones, since nothing was deleted under its id."""
        found = dict.fromkeys((record.session_id, record.created_at) for record in records if record.created_at)
        if self._clock is None:
            return list(found)
        if not place.head.sessions and not place.tombstones:
            return []
        return [(name, made) for name, made in found if not knows(place.head, name, made)]

    async def _created_at(self, session_ids: Sequence[str]) -> list[float]:
        """Return the creation times of the sessions. 0 for one that is gone or is being deleted."""
        rows = await self._store.get([Key("sessions", name, SESSION) for name in session_ids])
        return [0.0 if row is None or isinstance(row, Damaged) else row.get("created_at", 0.0) for row in rows]

    async def _remove(self, stream_id: str, guard: Sequence[Operation]) -> None:
        while rows := await self._store.query("streams", stream_id, limit=50):
            await self._store.transact("delete_stream", [*guard, *(Delete(row.key) for row in rows)])

    async def _leave_tombstones(self, stream_id: str, guard: Sequence[Operation]) -> None:
        """Leave a tombstone at the next key and in place of each segment, so that every writer encounters one,
        whichever end it remembers."""
        assert self._clock is not None
        now = self._clock.now()
        while True:
            place = await self._read_place(stream_id)
            if place.unfinished or (place.tombstones and not place.head.sessions):
                last = place.unfinished
                break
            tombstone = place.next_put(stream_id, _tombstone(now, done=False))
            index = await refused(self._store, "bury_stream", [tombstone, *guard])
            self._ends.forget(stream_id)
            if index is None:
                last = tombstone.key.sort
                break
            if index:
                raise ConditionFailedError("bury_stream", index)
        start = ""
        while rows := await self._store.query("streams", stream_id, start=start, limit=50):
            start = f"{rows[-1].key.sort}\x00"
            old = [Put(row.key, _tombstone(now, done=True)) for row in rows if tombstone_time(row) is None]
            if old:
                await self._store.transact("delete_stream", [*guard, *old])
        if last:
            done = Put(Key("streams", stream_id, last), _tombstone(now, done=True))
            await self._store.transact("bury_stream", [done, *guard])
        self._ends.forget(stream_id)

    # --- reading --------------------------------------------------------------------------------------------------

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        found: list[StreamMessage] = []
        start = segment_sort(after + 1)
        rows = await self._store.query("streams", stream_id, start=start, limit=max(1, min(limit, 200)))
        if not rows or rows[0].key.sort != start or tombstone_time(rows[0]) is not None:
            rows = [*await self._segment_before(stream_id, start), *rows]
        for row in rows:
            found.extend(message for message in segment_messages(row) if message.sequence > after)
            if len(found) >= limit:
                break
        return found

    async def _segment_before(self, stream_id: str, end: str) -> list[Row]:
        while rows := await self._store.query("streams", stream_id, end=end, limit=1, reverse=True):
            if tombstone_time(rows[0]) is None:
                break
            end = rows[0].key.sort
        return rows

    async def has(self, stream_id: str, records: Sequence[StreamRecord]) -> bool:
        """Return whether the log already has the content of these records, so that appending them would change
        nothing."""
        place = await self._read_place(stream_id)
        after, messages = self._admitted(stream_id, place, records)
        if (messages or after != place.head) and (writers := self._unproven(place, records)):
            made = await self._created_at([name for name, _ in writers])
            gone = {writer for writer, exists in zip(writers, made, strict=True) if writer[1] != exists}
            of_living = [record for record in records if (record.session_id, record.created_at) not in gone]
            after, messages = self._admitted(stream_id, place, of_living)
        return not messages and after == place.head

    async def position(self, stream_id: str) -> str:
        """Return a log position up to which everything is appended, or "" if none is known. There may be a later
        position."""
        return (self._ends.get(stream_id) or await self._read_place(stream_id)).at

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
        """Return the info for a stream without messages. Such a stream exists once its root session has a run, even if
        the run's first message has not arrived yet."""
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
        """Return the messages that the log already has from these entries. Usually the entries are newer than the log,
        and nothing is read."""
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
        tombstones: list[tuple[str, float]] = []
        place, end, unfinished, limit = StreamEnd(Head()), None, "", 1
        while rows := await self._store.query("streams", stream_id, end=end, limit=limit, reverse=True):
            end, limit = rows[-1].key.sort, TOMBSTONES_AT_ONCE
            segment: Row | None = None
            for row in rows:
                deleted_at = tombstone_time(row)
                if deleted_at is None:
                    segment = row
                    break
                tombstones.append((row.key.sort, deleted_at))
                if not row.value.get("done", True):
                    unfinished = row.key.sort
            if segment is not None:
                if not unfinished:  # its deletion has not reached this segment yet
                    head = segment_head(segment)
                    place = StreamEnd(head, *segment_end(segment, head))
                break
        place = place._replace(tombstones=tuple(tombstones), unfinished=unfinished)
        self._ends.remember(stream_id, place)
        return place


def _tombstone(now: float, *, done: bool) -> Value:
    """Create a tombstone. `done`: the deletion has removed all segments below it."""
    return {"buried_at": now, "done": done, "messages": [], "ttl": int(now + TOMBSTONE_S)}


def _bounded(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the same records, split where a segment would become too large. A single record is never split, because it
    has one number."""
    records: list[StreamRecord] = []
    total, position, sessions = 0, "", set[str]()
    for entry in entries:
        for record in entry.records:
            weight = size(record.chunks)
            if records and (total + weight > SEGMENT_BYTES or len(sessions) == SESSIONS_AT_ONCE):
                yield Entry(position, records)
                records, total, sessions = [], 0, set()
            records, total, position = [*records, record], total + weight, entry.position
            sessions.add(record.session_id)
    if records:
        yield Entry(position, records)
