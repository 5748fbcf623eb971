"""The projector on the memory store and memory sockets: order, faults, unreadable records, slow and closed sockets,
redelivery."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from tests.support.memory_sockets import MemorySockets

from helix import MemoryStateStore
from helix.adapters.system import SystemClock
from helix.core.errors import InvalidInputError, StoreError
from helix.core.frames import MAX_FRAME_BYTES, Joiner
from helix.core.log_records import pack, unpack
from helix.core.sequencer import StreamRecord
from helix.gateway.connections import Connections
from helix.gateway.projector import LogRecord, Patience, Projector
from helix.ports.sockets import Posted
from helix.ports.state_store import Operation
from helix.services.segments import Entry, SegmentStreams
from helix.testing.clocks import ShiftedClock
from helix.testing.contracts.streams import committed, ended, started, text

CLOCK = SystemClock()
FAR = CLOCK.now() + 3600


class Shard:
    """The records of a shard, each at its position."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.age_s = 0.0

    def put(self, stream_id: str, *records: StreamRecord) -> LogRecord:
        (data,) = pack(stream_id, [self.of(stream_id, record) for record in records])
        return self.raw(stream_id, data)

    def raw(self, stream_id: str, data: bytes) -> LogRecord:
        self.records.append(LogRecord(str(10**55 + 7 * len(self.records)), stream_id, data, CLOCK.now() - self.age_s))
        return self.records[-1]

    @staticmethod
    def of(stream_id: str, record: StreamRecord) -> StreamRecord:
        return record.model_copy(update={"session_id": stream_id})


class Faulty(MemoryStateStore):
    """A store that refuses to append to the streams in `broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if name == "append_segment" and operations[0].key.partition in self.broken:
            raise StoreError("no answer")
        await super().transact(name, operations)


class Shelf:
    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def put(self, stream_id: str, position: str, data: bytes) -> None:
        self.kept[f"{stream_id}/{position}"] = data


class Pipe:
    def __init__(self, sockets: MemorySockets | None = None, clock: SystemClock = CLOCK) -> None:
        self.store, self.sockets, self.shelf = Faulty(), sockets or MemorySockets(), Shelf()
        self.clock = clock
        self.connections = Connections(self.store, CLOCK)
        self.shard = Shard()

    def projector(self) -> Projector:
        """Return a new projector, because a process keeps nothing that the next one may need."""
        connections = Connections(self.store, self.clock)
        return Projector(SegmentStreams(self.store), connections, self.sockets, self.clock, aside=self.shelf)

    async def project(self, records: Sequence[LogRecord] | None = None) -> str | None:
        return await self.projector().project(self.shard.records if records is None else records)

    async def watch(self, name: str, *streams: str, expires_at: float = FAR) -> None:
        self.sockets.open(name)
        await self.connections.open(name, "ada", expires_at)
        for stream in streams:
            await self.connections.subscribe(name, stream)

    def got(self, name: str) -> list[str]:
        """Return what a client reads from its frames: texts, kinds, and notices."""
        joiner, found = Joiner(), []
        for frame in self.sockets.frames[name]:
            assert len(frame) <= MAX_FRAME_BYTES
            body: Any = json.loads(frame)
            if body["type"] == "part":
                whole = joiner.add(body)
                if whole is None:
                    continue
                body = json.loads(whole)
            if body["type"] == "lagging":
                found.append(f"lagging after {body['after']}")
            for message in body.get("messages", []):
                chunk = message.get("chunk", {})
                found.append(chunk.get("delta") or chunk.get("type") or message["kind"])
        return found

    async def lagging(self, stream_id: str) -> list[str]:
        return [one.connection_id for one in await self.connections.subscribers(stream_id) if one.lagging]

    async def log(self, stream_id: str) -> list[str]:
        messages = await SegmentStreams(self.store).read(stream_id)
        return [str(m.chunk.get("delta", m.chunk["type"])) if m.chunk else m.kind for m in messages]


async def test_each_stream_goes_to_those_who_watch_it() -> None:
    pipe = Pipe()
    await pipe.watch("one", "a")
    await pipe.watch("both", "a", "b")
    await pipe.watch("none")
    for n in range(3):
        pipe.shard.put("a", started(), text(n, f"a{n}"))
        pipe.shard.put("b", started(), text(n, f"b{n}"))
    assert await pipe.project() is None
    assert pipe.got("one") == ["a0", "a1", "a2"] and pipe.got("none") == []
    assert sorted(pipe.got("both")) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert await pipe.log("a") == ["a0", "a1", "a2"]


async def test_one_frame_for_a_flush_and_parts_for_what_is_large() -> None:
    pipe = Pipe()
    await pipe.watch("one", "a")
    pipe.shard.put("a", started(), *(text(n, f"{n}") for n in range(20)))
    await pipe.project()
    assert len(pipe.sockets.frames["one"]) == 1
    large = "é\U0001f600" * 30_000
    await pipe.project([pipe.shard.put("a", text(20, large))])
    assert pipe.got("one")[-1] == large


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no JSON",
        b"{}",
        b'{"v":2,"stream_id":"a","records":[]}',
        b'{"v":1,"stream_id":"another","records":[]}',
        b'{"v":1,"stream_id":"a","records":[{"kind":"run"}]}',
        b'{"v":1,"stream_id":"a","records":7}',
        b'{"v":1,"stream_id":"a","object":"somewhere"}',
        b"\x78\x9c cut off",
    ],
)
async def test_what_cannot_be_read_fails_its_stream_and_not_the_lane(data: bytes) -> None:
    pipe = Pipe()
    await pipe.watch("one", "a", "b")
    pipe.shard.put("a", started(), text(0, "a0"))
    poison = pipe.shard.raw("a", data)
    pipe.shard.put("b", started(), text(0, "b0"))
    pipe.shard.put("a", text(1, "late"), ended())
    assert await pipe.project() is None
    assert pipe.shelf.kept == {f"a/{poison.position}": data}
    assert await pipe.log("a") == ["a0", "step_discarded", "fail"] and await pipe.log("b") == ["b0"]
    assert sorted(pipe.got("one")) == ["a0", "b0", "fail", "step_discarded"]
    await pipe.project([pipe.shard.put("a", started(2), text(0, "next", turn=2))])
    assert (await pipe.log("a"))[-1] == "next"


async def test_a_first_record_that_cannot_be_read_is_told() -> None:
    pipe = Pipe()
    await pipe.watch("one", "a")
    pipe.shard.raw("a", b"?")
    await pipe.project()
    assert pipe.got("one") == ["fail"]


async def test_a_record_that_cannot_be_stored_is_set_aside_alone() -> None:
    """The record is readable, but no store accepts it. The other records of its batch are kept."""
    pipe = Pipe()
    pipe.shard.put("a", started(), text(0, "a0"))
    broken = text(1, "a1").model_dump(mode="json") | {"session_id": "a"}
    broken["chunks"][0]["delta"] = "lone \ud800"
    pipe.shard.raw("a", json.dumps({"v": 1, "stream_id": "a", "records": [broken]}).encode())
    pipe.shard.put("a", text(2, "late"))
    assert await pipe.project() is None
    assert len(pipe.shelf.kept) == 1
    assert await pipe.log("a") == ["a0", "step_discarded", "fail"]


async def test_a_fault_fails_the_batch_from_its_first_record_on() -> None:
    """Records of a stream after its fault are not projected, and other streams continue. The redelivery adds the missing
    ones."""
    pipe = Pipe()
    await pipe.watch("one", "a", "b")
    pipe.shard.put("a", started(), text(0, "a0"))
    second = pipe.shard.put("b", started(), text(0, "b0"))
    pipe.shard.put("a", text(1, "a1"))
    pipe.shard.put("b", text(1, "b1"))
    pipe.store.broken = {"b"}
    assert await pipe.project() == second.position
    assert pipe.got("one") == ["a0", "a1"] and await pipe.log("b") == []
    pipe.store.broken = set()
    assert await pipe.project(pipe.shard.records[1:]) is None
    assert await pipe.log("a") == ["a0", "a1"] and await pipe.log("b") == ["b0", "b1"]
    assert sorted(set(pipe.got("one"))) == ["a0", "a1", "b0", "b1"]


async def test_what_was_appended_and_not_posted_is_posted_when_it_comes_again() -> None:
    """The process died between the append and the post, and another process receives the batch."""
    pipe = Pipe()
    await pipe.watch("one", "a")
    pipe.shard.put("a", started(), text(0, "a0"))
    await pipe.project()
    batch = [pipe.shard.put("a", text(1, "a1")), pipe.shard.put("a", text(2, "a2"))]
    await SegmentStreams(pipe.store).project("a", [_entry(record) for record in batch])
    assert pipe.got("one") == ["a0"]
    batch.append(pipe.shard.put("a", text(3, "a3")))
    await pipe.project(batch)
    assert pipe.got("one") == ["a0", "a1", "a2", "a3"] == await pipe.log("a")
    await pipe.project(batch)
    assert pipe.got("one")[4:] == ["a1", "a2", "a3"] and len(await pipe.log("a")) == 4


def _entry(record: LogRecord) -> Entry:
    return Entry(record.position, unpack(record.data)[1])


async def test_a_slow_socket_is_told_once_and_left_alone() -> None:
    pipe = Pipe()
    await pipe.watch("slow", "a")
    await pipe.watch("quick", "a")
    await pipe.project([pipe.shard.put("a", started(), text(0, "a0"))])
    pipe.sockets.slow.add("slow")
    assert await pipe.project([pipe.shard.put("a", text(1, "a1"))]) is None
    assert await pipe.lagging("a") == ["slow"]
    pipe.sockets.slow.clear()
    await pipe.project([pipe.shard.put("a", text(2, "a2"))])
    assert pipe.got("slow") == ["a0"] and pipe.got("quick") == ["a0", "a1", "a2"]
    await pipe.project([pipe.shard.put("a", committed(3), ended())])
    assert pipe.got("slow") == ["a0", "lagging after 3"]  # it had missed the notice too
    await pipe.connections.subscribe("slow", "a")
    await pipe.project([pipe.shard.put("a", started(2), text(0, "b", turn=2))])
    assert pipe.got("slow")[-1] == "b"


async def test_a_socket_that_is_slow_for_a_moment_gets_its_notice() -> None:
    class Moody(MemorySockets):
        async def post(self, connection_id: str, data: bytes) -> Posted:
            return "slow" if b"messages" in data else await super().post(connection_id, data)

    pipe = Pipe(Moody())
    await pipe.watch("moody", "a")
    await pipe.project([pipe.shard.put("a", started(), text(0, "a0"), text(1, "a1"))])
    assert pipe.got("moody") == ["lagging after 0"]


async def test_a_socket_that_never_answers_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(MemorySockets):
        async def post(self, connection_id: str, data: bytes) -> Posted:
            if connection_id == "stuck":
                await asyncio.sleep(3600)
            return await super().post(connection_id, data)

    monkeypatch.setattr("helix.gateway.projector.LANE", Patience(0.05, 0.05, 0.05))
    pipe = Pipe(Stuck())
    await pipe.watch("stuck", "a")
    await pipe.watch("quick", "a")
    async with asyncio.timeout(2):
        await pipe.project([pipe.shard.put("a", started(), text(0, "a0"))])
    assert await pipe.lagging("a") == ["stuck"] and pipe.got("quick") == ["a0"]


async def test_a_gone_socket_is_removed() -> None:
    pipe = Pipe()
    await pipe.watch("gone", "a", "b")
    await pipe.watch("here", "a")
    await pipe.sockets.drop("gone")
    await pipe.project([pipe.shard.put("a", started(), text(0, "a0"))])
    assert await pipe.connections.get("gone") is None
    assert [s.connection_id for s in await pipe.connections.subscribers("a")] == ["here"]
    assert await pipe.connections.subscribers("b") == [] and pipe.got("here") == ["a0"]


async def test_an_expired_connection_is_not_posted_to() -> None:
    pipe = Pipe(clock=ShiftedClock(1800))
    await pipe.watch("expired", "a", expires_at=CLOCK.now() + 900)
    await pipe.watch("here", "a")
    await pipe.project([pipe.shard.put("a", started(), text(0, "a0"))])
    assert pipe.got("expired") == [] and pipe.got("here") == ["a0"]


async def test_a_gateway_that_takes_nothing_fails_the_batch() -> None:
    class Down(MemorySockets):
        down = True

        async def post(self, connection_id: str, data: bytes) -> Posted:
            if self.down or connection_id == "odd":
                raise StoreError("AccessDenied")
            return await super().post(connection_id, data)

    sockets = Down()
    pipe = Pipe(sockets)
    await pipe.watch("one", "a")
    first = pipe.shard.put("a", started(), text(0, "a0"))
    assert await pipe.project() == first.position
    sockets.down = False
    assert await pipe.project() is None
    assert pipe.got("one") == ["a0"]
    await pipe.watch("odd", "a")
    assert await pipe.project([pipe.shard.put("a", text(1, "a1"))]) is None
    assert await pipe.lagging("a") == ["odd"] and pipe.got("one") == ["a0", "a1"]


# --- the records themselves ---------------------------------------------------------------------------------------------


def test_records_come_back_from_what_is_packed() -> None:
    given = [started(), text(0, "é" * 5_000, "\U0001f600"), ended(status="failed", mark="fail", error="why")]
    (data,) = pack("s", given)
    assert unpack(data) == ("s", given) and len(data) < 1_000


def test_a_large_flush_is_several_records_in_order() -> None:
    given = [text(n, f"{n:04d}" * 25_000) for n in range(40)]
    pieces = list(pack("s", given))
    assert 1 < len(pieces) < 10 and all(len(piece) < 1_000_000 for piece in pieces)
    assert [record for piece in pieces for record in unpack(piece)[1]] == given


def test_a_record_larger_than_kinesis_takes_travels_through_s3() -> None:
    objects: dict[str, bytes] = {}

    def offload(body: bytes) -> str:
        objects["name"] = body
        return "name"

    given = [text(0, Random(1).randbytes(2_000_000).hex())]
    (data,) = pack("s", given, offload)
    assert len(data) < 200 and unpack(data, objects.__getitem__) == ("s", given)
    with pytest.raises(InvalidInputError, match="no bucket"):
        list(pack("s", given))
