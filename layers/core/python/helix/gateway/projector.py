"""The projector: it puts records from Kinesis into the stream's log and posts them to subscribed sockets
(docs/protocol.md#stream).

Law: the records of one stream are processed in order, and streams do not wait for each other. A record that cannot be
read is set aside, and its stream fails. Only a fault that stops every stream (a store that does not respond) fails the
batch, from the first unfinished record on. A batch that is delivered again is posted again, unless its records are old.
An event source that starts over delivers everything that Kinesis retains, so records that are already in the log are
skipped unread.

All sockets are served at once, each within its own deadline. A socket that misses its deadline is marked as lagging. It
gets one notice and no more messages until it has subscribed again, and it never delays the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, assert_never

from helix._log import get_logger
from helix.core.errors import HelixError, ObjectGoneError, OperatorError, StoreError
from helix.core.frames import lagging_frame, message_frames
from helix.core.log_records import unpack
from helix.core.wire import StreamMessage, is_stream_end
from helix.gateway.connections import Connections, Subscriber
from helix.ports.clock import Clock
from helix.ports.sockets import Posted, Sockets
from helix.services.segments import Entry, SegmentStreams

logger = get_logger("helix.gateway")
REPOST_S = 600.0  # a client that misses a post requests it much sooner


class Patience(NamedTuple):
    """The time limits for one socket, in seconds."""

    post_s: float
    """The minimum time that a socket gets for all frames of a batch."""
    frame_s: float
    """The time for each frame of a large batch. A single large message must not make a reader count as slow."""
    notice_s: float
    """The time for the notice that the socket is lagging."""

    def deadline_for(self, frames: int) -> float:
        return max(self.post_s, self.frame_s * frames)


LANE = Patience(post_s=2.0, frame_s=0.25, notice_s=0.5)
"""The limits for a shard with several lanes, in which a slow socket delays only its own lane."""


async def post_messages(
    connections: Connections,
    sockets: Sockets,
    stream_id: str,
    messages: Sequence[StreamMessage],
    patience: Patience,
) -> None:
    """Post `messages`, at least one, to the stream's subscribers.

    Raises `StoreError` if the store does not respond, or if the gateway accepts nothing for any socket. The caller then
    posts all messages again.
    """
    # Read after the append: earlier subscribers are in this list, and later ones find the messages in the log.
    subscribers = await connections.subscribers(stream_id)
    if not subscribers:
        return
    frames = message_frames(stream_id, messages)
    notice = lagging_frame(stream_id, messages[0].sequence - 1)
    sent: set[str] = set()
    faults: dict[str, StoreError] = {}
    ending = any(is_stream_end(message) for message in messages)

    async def serve(subscriber: Subscriber) -> None:
        name = subscriber.connection_id
        if subscriber.lagging:
            if ending:  # it may have missed the notice, and nothing else will remind it
                await notify(name)
            return
        try:
            outcome = await _post(sockets, name, frames, patience.deadline_for(len(frames)))
        except StoreError as fault:
            faults[name] = fault
            return
        match outcome:
            case "sent":
                sent.add(name)
            case "gone":
                await connections.close(name)
            case "slow":
                await leave(name)
            case _:
                assert_never(outcome)

    async def leave(name: str) -> None:
        await connections.mark_lagging(stream_id, name)
        await notify(name)

    async def notify(name: str) -> None:
        with suppress(StoreError):  # a client that misses the notice asks again when its stream is quiet
            await _post(sockets, name, [notice], patience.notice_s)

    await _wait_for_all(serve(subscriber) for subscriber in subscribers)
    if faults and not sent:
        raise next(iter(faults.values()))
    for name, fault in faults.items():
        logger.warning("connection %r: %s", name, fault)
    await _wait_for_all(leave(name) for name in faults)


async def _wait_for_all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all to end, then raise the first error among them."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome


async def _post(sockets: Sockets, connection_id: str, frames: Sequence[bytes], deadline_s: float) -> Posted:
    """Return the first outcome that is not "sent", or else "sent". Raises `StoreError`."""
    try:
        async with asyncio.timeout(deadline_s):
            for frame in frames:
                if (posted := await sockets.post(connection_id, frame)) != "sent":
                    return posted
    except TimeoutError:
        return "slow"
    return "sent"


UNREADABLE = (
    "a record of this stream could not be read: the rest of this run is missing from the stream, but the run continues"
)


class LogRecord(NamedTuple):
    """A Kinesis record."""

    position: str
    """The record's Kinesis sequence number, which has up to 56 digits."""
    partition: str
    """The stream's id, which is the partition key."""
    data: bytes
    """The packed records (`core.log_records`)."""
    time: float
    """The time of arrival at Kinesis, in Unix seconds."""


class Aside(Protocol):
    async def put(self, stream_id: str, position: str, data: bytes) -> None:
        """Store a record that cannot be read. Raises `StoreError`."""
        ...


class _Item(NamedTuple):
    """A record after decoding."""

    record: LogRecord
    """The record as it arrived."""
    entry: Entry | None
    """The decoded record. None if it cannot be read, now or ever."""
    fault: StoreError | None = None
    """The temporary fault that prevents reading. A record with neither entry nor fault can never be read."""


class Projector:
    """The projector of a stage. `fetch` reads records that were too large for Kinesis; it may block. `aside` stores
    records that cannot be read; by default they are only logged."""

    def __init__(
        self,
        log: SegmentStreams,
        connections: Connections,
        sockets: Sockets,
        clock: Clock,
        *,
        fetch: Callable[[str], bytes] | None = None,
        aside: Aside | None = None,
    ) -> None:
        self._log, self._connections, self._sockets, self._clock = log, connections, sockets, clock
        self._fetch, self._aside = fetch, aside

    async def project(self, batch: Sequence[LogRecord]) -> str | None:
        """Project records of one shard, in order. Return the position of the first record that must be delivered again,
        or None. Never raises an error that a retry could fix."""
        batch = await self._drop_processed(batch)
        items = await asyncio.to_thread(lambda: [self._decode(record) for record in batch])
        streams: dict[str, list[_Item]] = {}
        for item in items:
            streams.setdefault(item.record.partition, []).append(item)
        failed = await asyncio.gather(*(self._stream(name, found) for name, found in streams.items()))
        return next((record.position for record in batch if record.position in failed), None)

    async def _drop_processed(self, batch: Sequence[LogRecord]) -> Sequence[LogRecord]:
        """Return the batch without old records that are already in the log."""
        before = self._clock.now() - REPOST_S
        streams = {record.partition for record in batch if record.time < before}
        if not streams:
            return batch
        known = dict(zip(streams, await asyncio.gather(*(self._read_position(name) for name in streams)), strict=True))
        return [r for r in batch if r.time >= before or int(r.position) > known[r.partition]]

    async def _read_position(self, stream_id: str) -> int:
        try:
            return int(await self._log.position(stream_id) or 0)
        except StoreError:
            return 0  # `_stream` fails with the same fault, and names the record

    def _decode(self, record: LogRecord) -> _Item:
        try:
            stream_id, records = unpack(record.data, self._fetch)
        except ObjectGoneError:
            return _Item(record, None)
        except StoreError as fault:
            return _Item(record, None, fault)
        except HelixError as error:
            logger.warning("record %s of stream %r: %s", record.position, record.partition, error)
            return _Item(record, None)
        return _Item(record, Entry(record.position, records) if stream_id == record.partition else None)

    async def _stream(self, stream_id: str, items: Sequence[_Item]) -> str | None:
        """Return the position from which the stream's records must be delivered again, or None."""
        messages: list[StreamMessage] = []
        rest = list(items)
        failed: str | None = None
        try:
            while rest:
                taken, said = await self._next(stream_id, rest)
                messages += said
                del rest[:taken]
        except StoreError as error:
            logger.error("stream %r cannot be projected: %s", stream_id, error)
            failed = rest[0].record.position
        try:
            if messages:
                await post_messages(self._connections, self._sockets, stream_id, messages, LANE)
        except StoreError as error:
            logger.error("stream %r cannot be posted: %s", stream_id, error)
            failed = items[0].record.position
        return failed

    async def _next(self, stream_id: str, items: Sequence[_Item]) -> tuple[int, list[StreamMessage]]:
        """Take the items before the next unreadable one, or that item itself. Return their number, and the messages
        that they produced."""
        if items[0].fault is not None:
            raise items[0].fault
        entries: list[Entry] = []
        for item in items:
            if item.entry is None:
                break
            entries.append(item.entry)
        if not entries:
            return 1, await self._set_aside(stream_id, items[0].record)
        try:
            return len(entries), await self._log.project(stream_id, entries)
        except OperatorError:
            raise
        except (HelixError, ValueError) as error:
            logger.warning("record %s of stream %r: %s", entries[0].position, stream_id, error)
        # One of them can never be stored. Find out which one.
        try:
            return 1, await self._log.project(stream_id, entries[:1])
        except OperatorError:
            raise
        except (HelixError, ValueError):
            return 1, await self._set_aside(stream_id, items[0].record)

    async def _set_aside(self, stream_id: str, record: LogRecord) -> list[StreamMessage]:
        """Store a record that cannot be read, and fail its stream, so that readers learn that messages are missing."""
        logger.error("record %s of stream %r is set aside", record.position, stream_id)
        if self._aside is not None:
            await self._aside.put(stream_id, record.position, record.data)
        return await self._log.fail(stream_id, UNREADABLE, record.position, now=self._clock.now())
