"""The projector: records from Kinesis go into the stream's log and to the subscribed sockets (docs/protocol.md#stream).

Law: the records of one stream are taken in their order, and streams do not wait for each other. A record that cannot be
read is set aside and fails its stream; only a fault that stops every stream (a store that does not answer) fails the
batch, from the first record on that is not done. A batch that comes again is posted again, unless its records are old:
an event source that begins anew delivers all that Kinesis retains, and what is on the log is skipped unread.

All sockets are served at once, each within a deadline of its own. A socket that misses its deadline is marked, gets one
notice, and is left alone until it has subscribed again. It holds up no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
REPOST_S = 600.0  # a client that misses a post asks for it long before


class Patience(NamedTuple):
    """How many seconds one socket may take: for what a batch posts to it, and for the notice that it lags. `frame_s`: for
    each of many frames, because a large message does not make a slow reader."""

    post_s: float
    frame_s: float
    notice_s: float

    def of(self, frames: int) -> float:
        return max(self.post_s, self.frame_s * frames)


LANE = Patience(post_s=2.0, frame_s=0.25, notice_s=0.5)
"""Where a shard has several lanes, a slow socket holds up its own only."""


@dataclass(slots=True)
class Posting:
    """To how many sockets messages were posted, and how many were too slow for them."""

    sent: int = 0
    lagging: int = 0


async def post_messages(
    connections: Connections,
    sockets: Sockets,
    stream_id: str,
    messages: Sequence[StreamMessage],
    patience: Patience,
) -> Posting:
    """Post `messages`, at least one, to the stream's subscribers.

    Raises `StoreError` where the store does not answer, or the gateway takes nothing for anybody: post it all again.
    """
    tally = Posting()
    # Read behind the append: who subscribed before it is here, who subscribes after it finds the messages in the log.
    subscribers = await connections.subscribers(stream_id)
    if not subscribers:
        return tally
    frames = message_frames(stream_id, messages)
    notice = lagging_frame(stream_id, messages[0].sequence - 1)
    faults: dict[str, StoreError] = {}
    ending = any(is_stream_end(message) for message in messages)

    async def serve(subscriber: Subscriber) -> None:
        name = subscriber.connection_id
        if subscriber.lagging:
            if ending:  # it may have missed the notice too, and nothing more will come to remind it
                await notify(name)
            return
        try:
            outcome = await _post(sockets, name, frames, patience.of(len(frames)))
        except StoreError as fault:
            faults[name] = fault
            return
        match outcome:
            case "sent":
                tally.sent += 1
            case "gone":
                await connections.close(name)
            case "slow":
                await leave(name)
            case _:
                assert_never(outcome)

    async def leave(name: str) -> None:
        tally.lagging += 1
        await connections.mark_lagging(stream_id, name)
        await notify(name)

    async def notify(name: str) -> None:
        with suppress(StoreError):  # who misses the notice asks again when its stream is quiet
            await _post(sockets, name, [notice], patience.notice_s)

    await _all(serve(subscriber) for subscriber in subscribers)
    if faults and not tally.sent:
        raise next(iter(faults.values()))
    for name, fault in faults.items():
        logger.warning("connection %r: %s", name, fault)
    await _all(leave(name) for name in faults)
    return tally


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Let all end, then raise what the first of them raised."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome


async def _post(sockets: Sockets, connection_id: str, frames: Sequence[bytes], deadline_s: float) -> Posted:
    """The first outcome that is not "sent", or "sent". Raises `StoreError`."""
    try:
        async with asyncio.timeout(deadline_s):
            for frame in frames:
                if (posted := await sockets.post(connection_id, frame)) != "sent":
                    return posted
    except TimeoutError:
        return "slow"
    return "sent"


UNREADABLE = "a record of this stream could not be read: what follows in this run is missing, the run itself goes on"


class LogRecord(NamedTuple):
    """`position` is Kinesis' sequence number: digits, up to 56 of them. `partition` is the stream's id. `time`: its
    arrival at Kinesis (Unix seconds)."""

    position: str
    partition: str
    data: bytes
    time: float


class Aside(Protocol):
    async def put(self, stream_id: str, position: str, data: bytes) -> None:
        """Keep a record that cannot be read. Raises `StoreError`."""
        ...


@dataclass(slots=True)
class Projected:
    """What became of a batch. `failed`: the position of the first record that is to come again, None if all are done.
    `messages` were posted to `posted` sockets; `lagging` of them were too slow; `aside` records cannot be read."""

    failed: str | None = None
    messages: int = 0
    posted: int = 0
    lagging: int = 0
    aside: int = 0


class _Item(NamedTuple):
    """A record, decoded: its entry, or None where it cannot be read, or the fault that kept it from being read now."""

    record: LogRecord
    entry: Entry | None
    fault: StoreError | None = None


class Projector:
    """`fetch` reads what did not fit Kinesis; it may block. `aside` keeps what cannot be read; default: only the log."""

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

    async def project(self, batch: Sequence[LogRecord]) -> Projected:
        """Records of one shard, in its order. Raises nothing that a repeat could fix: see `Projected.failed`."""
        batch = await self._unknown(batch)
        items = await asyncio.to_thread(lambda: [self._decode(record) for record in batch])
        streams: dict[str, list[_Item]] = {}
        for item in items:
            streams.setdefault(item.record.partition, []).append(item)
        done = Projected()
        failed = await asyncio.gather(*(self._stream(name, found, done) for name, found in streams.items()))
        places = {record.position: place for place, record in enumerate(batch)}
        first = min((places[position] for position in failed if position is not None), default=None)
        done.failed = None if first is None else batch[first].position
        return done

    async def _unknown(self, batch: Sequence[LogRecord]) -> Sequence[LogRecord]:
        """Without old records that are on the log already."""
        before = self._clock.now() - REPOST_S
        streams = {record.partition for record in batch if record.time < before}
        if not streams:
            return batch
        known = dict(zip(streams, await asyncio.gather(*(self._reached(name) for name in streams)), strict=True))
        return [r for r in batch if r.time >= before or int(r.position) > known[r.partition]]

    async def _reached(self, stream_id: str) -> int:
        try:
            return int(await self._log.position(stream_id) or 0)
        except StoreError:
            return 0  # `_stream` fails by the same fault, and names the record

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

    async def _stream(self, stream_id: str, items: Sequence[_Item], done: Projected) -> str | None:
        """The position from which on the stream's records are to come again, or None."""
        messages: list[StreamMessage] = []
        rest = list(items)
        failed: str | None = None
        try:
            while rest:
                taken, said = await self._next(stream_id, rest, done)
                messages += said
                del rest[:taken]
        except StoreError as error:
            logger.error("stream %r cannot be projected: %s", stream_id, error)
            failed = rest[0].record.position
        try:
            if messages:
                tally = await post_messages(self._connections, self._sockets, stream_id, messages, LANE)
                done.messages += len(messages)
                done.posted += tally.sent
                done.lagging += tally.lagging
        except StoreError as error:
            logger.error("stream %r cannot be posted: %s", stream_id, error)
            failed = items[0].record.position
        return failed

    async def _next(self, stream_id: str, items: Sequence[_Item], done: Projected) -> tuple[int, list[StreamMessage]]:
        """Take the items up to the next one that cannot be read, or that one: how many, and what they say."""
        if items[0].fault is not None:
            raise items[0].fault
        entries: list[Entry] = []
        for item in items:
            if item.entry is None:
                break
            entries.append(item.entry)
        if not entries:
            return 1, await self._set_aside(stream_id, items[0].record, done)
        try:
            return len(entries), await self._log.project(stream_id, entries)
        except OperatorError:
            raise
        except (HelixError, ValueError) as error:
            logger.warning("record %s of stream %r: %s", entries[0].position, stream_id, error)
        # One of them cannot be stored, however often it is repeated: find out which.
        try:
            return 1, await self._log.project(stream_id, entries[:1])
        except OperatorError:
            raise
        except (HelixError, ValueError):
            return 1, await self._set_aside(stream_id, items[0].record, done)

    async def _set_aside(self, stream_id: str, record: LogRecord, done: Projected) -> list[StreamMessage]:
        """Keep what cannot be read, and fail its stream: readers learn that something is missing."""
        logger.error("record %s of stream %r is set aside", record.position, stream_id)
        if self._aside is not None:
            await self._aside.put(stream_id, record.position, record.data)
        done.aside += 1
        return await self._log.fail(stream_id, UNREADABLE, record.position, now=self._clock.now())
