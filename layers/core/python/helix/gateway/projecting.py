"""The projector: what writers put on Kinesis becomes the stream's log, and goes to those who watch it (PROTOCOL 11).

Law: the records of one stream are taken in their order, and streams do not wait for each other. A record that cannot be
read is set aside and fails its stream; only what stands in everybody's way (a store that does not answer) fails the
batch, from the first record on that is not done. A batch that comes again is posted again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from helix.adapters.aws.log_records import unpack
from helix.adapters.aws.overflow import ObjectGoneError
from helix.adapters.segments import Entry, SegmentStreams
from helix.core.errors import HelixError, OperatorError, StoreError
from helix.core.wire import StreamMessage
from helix.gateway.connections import Connections
from helix.gateway.posting import post_messages
from helix.ports.clock import Clock
from helix.ports.sockets import Sockets

logger = logging.getLogger("helix.gateway")
UNREADABLE = "a record of this stream could not be read: what follows in this run is missing, the run itself goes on"


class LogRecord(NamedTuple):
    """`position` is Kinesis' sequence number: digits, up to 56 of them. `partition` is the stream's id."""

    position: str
    partition: str
    data: bytes


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
        """Records of one shard, in its order. Raises nothing that a repeat could mend: see `Projected.failed`."""
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
                told = await post_messages(self._connections, self._sockets, stream_id, messages)
                done.messages += len(messages)
                done.posted += told.sent
                done.lagging += told.lagging
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
        # One of them cannot be stored, whoever comes again: find out which.
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
