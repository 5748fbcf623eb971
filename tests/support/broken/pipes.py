"""Segment logs and sockets that break one law each. They form the pipe from a writer to the sockets of its readers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.support.memory_sockets import MemorySockets

from helix.adapters.memory import MemoryStateStore
from helix.core.errors import HelixError
from helix.core.sequencer import StreamRecord
from helix.core.wire import StreamInfo, StreamMessage
from helix.ports.sockets import Posted
from helix.ports.state_store import Operation, Put
from helix.services.segments import Entry, SegmentStreams

# --- segment logs -----------------------------------------------------------------------------------------------------


class ForgetsPositions(SegmentStreams):
    """Ignores a redelivered batch, and does not announce it."""

    async def project(self, stream_id: str, entries: Sequence[Entry]) -> list[StreamMessage]:
        return await super().project(stream_id, [Entry("", entry.records) for entry in entries])


class TellsOnlyTheNew(SegmentStreams):
    """Announces only the new part of a batch that is redelivered with additions."""

    async def project(self, stream_id: str, entries: Sequence[Entry]) -> list[StreamMessage]:
        before = (await self._read_place(stream_id)).head.sequence
        told = await super().project(stream_id, entries)
        new = [message for message in told if message.sequence > before]
        return new or told


class ComparesTexts(SegmentStreams):
    """Compares positions of different lengths as texts."""

    async def project(self, stream_id: str, entries: Sequence[Entry]) -> list[StreamMessage]:
        padded = [Entry(entry.position.ljust(56, "0"), entry.records) for entry in entries]
        return await super().project(stream_id, padded)


class RoundsPositions(SegmentStreams):
    """Reads positions as numbers of 38 digits."""

    async def project(self, stream_id: str, entries: Sequence[Entry]) -> list[StreamMessage]:
        return await super().project(
            stream_id, [Entry(entry.position[:38].ljust(56, "0"), entry.records) for entry in entries]
        )


class TellsRepeats(SegmentStreams):
    """Takes any batch that adds nothing for a redelivered one."""

    async def project(self, stream_id: str, entries: Sequence[Entry]) -> list[StreamMessage]:
        return await super().project(stream_id, entries) or (await self.read(stream_id))[-1:]


class TellsItsOwnOnly(SegmentStreams):
    """Does not announce a batch that another process appended first."""

    async def project(self, stream_id: str, entries: Sequence[Entry]) -> list[StreamMessage]:
        mine: list[StreamMessage] = []
        for entry in entries:
            before = (await self._read_place(stream_id)).head.sequence
            await super().project(stream_id, [entry])
            mine += await self.read(stream_id, before)
            await asyncio.sleep(0)
        return mine


class _KeepsNoEmptySegments(MemoryStateStore):
    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        kept = [o for o in operations if not (isinstance(o, Put) and "rev" in o.value)]
        if kept:
            await super().transact(name, kept)


class ForgetsBeginnings(SegmentStreams):
    """Leaves the log unchanged for a record without a chunk."""

    def __init__(self, store: MemoryStateStore | None = None) -> None:
        super().__init__(_KeepsNoEmptySegments())

    async def project(self, stream_id: str, entries: Sequence[Entry]) -> list[StreamMessage]:
        self._ends.forget(stream_id)
        return await super().project(stream_id, entries)


class RefusesLargeSegments(SegmentStreams):
    async def project(self, stream_id: str, entries: Sequence[Entry]) -> list[StreamMessage]:
        if sum(len(str(r.chunks)) for entry in entries for r in entry.records) > 400_000:
            raise HelixError("an item has at most 400 KB")
        return await super().project(stream_id, entries)


class FailsAnybody(SegmentStreams):
    """Gives a failure its own turn."""

    async def fail(self, stream_id: str, reason: str, position: str = "", *, now: float) -> list[StreamMessage]:
        turn = 1 + max((m.turn for m in await self.read(stream_id)), default=0)
        failed = StreamRecord(
            session_id=stream_id, run_id="", turn=turn, kind="run", mark="fail", status="failed", error=reason, time=now
        )
        return await self.project(stream_id, [Entry(position, [failed])])


class FailsWhatItKnows(SegmentStreams):
    async def fail(self, stream_id: str, reason: str, position: str = "", *, now: float) -> list[StreamMessage]:
        if await self.info(stream_id) is None:
            return []
        return await super().fail(stream_id, reason, position, now=now)


class BeganWithTheStream(SegmentStreams):
    async def info(self, stream_id: str) -> StreamInfo | None:
        info = await super().info(stream_id)
        return None if info is None else info.model_copy(update={"began": 0})


# --- sockets ----------------------------------------------------------------------------------------------------------


class PostsLater(MemorySockets):
    """Lets frames overtake each other."""

    async def post(self, connection_id: str, data: bytes) -> Posted:
        posted = await super().post(connection_id, data)
        if posted == "sent" and len(frames := self.frames[connection_id]) > 1:
            frames.insert(0, frames.pop())
        return posted


class KnowsEverybody(MemorySockets):
    """Reports a post to an unknown connection as sent."""

    async def post(self, connection_id: str, data: bytes) -> Posted:
        posted = await super().post(connection_id, data)
        return "sent" if posted == "gone" else posted


class DropsNobody(MemorySockets):
    async def drop(self, connection_id: str) -> None:
        return None


class WaitsForTheSlow(MemorySockets):
    """Posts to one connection at a time, and waits until each is done."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Lock()

    async def post(self, connection_id: str, data: bytes) -> Posted:
        async with self._turn:
            posted = await super().post(connection_id, data)
            if posted == "slow":
                await asyncio.sleep(3600)
            return posted


class CutsFrames(MemorySockets):
    """Sends as much of a frame as fits."""

    async def post(self, connection_id: str, data: bytes) -> Posted:
        return await super().post(connection_id, data[:32_768])
