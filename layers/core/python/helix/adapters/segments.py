"""Streams as segments in a state store: memory, SQLite and DynamoDB alike.

A segment is one row: the messages of one append and the head after it. Putting it is conditional on its key being
free, and the key is the first sequence: so that one put is the compare-and-set of the whole stream.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

from helix.core.errors import ConditionFailedError
from helix.core.sequencer import Head, StreamRecord, admit
from helix.core.wire import StreamInfo, StreamMessage
from helix.ports.state_store import ABSENT, Delete, Key, Put, StateStore

CACHED_HEADS = 256


class SegmentStreams:
    """A `StreamManager` on any `StateStore`. The sequencer runs inside `append`."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._heads: OrderedDict[str, Head] = OrderedDict()

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        # A run's first record reads the head anew: the stream may have been deleted and begun again by another process.
        fresh = any(record.mark == "started" for record in records)
        known = None if fresh else self._heads.get(stream_id)
        head = known or await self._read_head(stream_id)
        while True:
            after, messages = admit(stream_id, head, records)
            if not messages:
                return
            key = Key("streams", stream_id, segment_sort(head.sequence + 1))
            body = [m.model_dump(mode="json", exclude_defaults=True, exclude={"stream_id"}) for m in messages]
            value = {"head": after.model_dump(mode="json", exclude_defaults=True), "messages": body}
            try:
                await self._store.transact("append_segment", [Put(key, value, ABSENT)])
            except ConditionFailedError:
                head = await self._read_head(stream_id)
                continue
            self._remember(stream_id, after)
            return

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        found: list[StreamMessage] = []
        start = segment_sort(after + 1)
        rows = await self._store.query("streams", stream_id, start=start, limit=_pages(limit))
        if not rows or rows[0].key.sort != start:
            first = await self._store.query("streams", stream_id, end=start, limit=1, reverse=True)
            rows = [*first, *rows]
        for row in rows:
            for message in row.value["messages"]:
                if message["sequence"] > after:
                    found.append(_message(stream_id, message))
            if len(found) >= limit:
                break
        return found

    async def wait(self, stream_id: str, after: int, timeout_s: float) -> None:
        with self._store.watch("streams", stream_id) as watch:
            head = await self._read_head(stream_id)
            if head.sequence <= after:
                await watch.changed(timeout_s)

    async def info(self, stream_id: str) -> StreamInfo | None:
        head = await self._read_head(stream_id)
        if head.sequence == 0:
            return None
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
        )

    async def delete(self, stream_id: str) -> None:
        self._heads.pop(stream_id, None)
        while rows := await self._store.query("streams", stream_id, limit=50):
            await self._store.transact("delete_stream", [Delete(row.key) for row in rows])

    async def _read_head(self, stream_id: str) -> Head:
        rows = await self._store.query("streams", stream_id, limit=1, reverse=True)
        head = Head.model_validate(rows[0].value["head"]) if rows else Head()
        self._remember(stream_id, head)
        return head

    def _remember(self, stream_id: str, head: Head) -> None:
        self._heads[stream_id] = head
        self._heads.move_to_end(stream_id)
        while len(self._heads) > CACHED_HEADS:
            self._heads.popitem(last=False)


def segment_sort(sequence: int) -> str:
    return f"s#{sequence:012d}"


def _pages(limit: int) -> int:
    """Segments to ask for: each has at least one message."""
    return max(1, min(limit, 200))


def _message(stream_id: str, body: dict[str, Any]) -> StreamMessage:
    return StreamMessage(stream_id=stream_id, **body)
