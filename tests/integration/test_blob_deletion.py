"""A deleted session releases its files, wherever its deletion stops."""

from __future__ import annotations

import pytest
from tests.properties.blob_walk import Numbers
from tests.support.sample_files import png
from tests.support_crash import LONG, S, executor, fresh, model, plain
from tests.support_run import Gate, gated, result_of

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.memory_blobs import MemoryBlobs
from helix.adapters.system import SystemClock
from helix.core.errors import AgentAlreadyRunningError
from helix.core.file_checks import describe
from helix.ports.state_store import Key, Put, StateStore, Value
from helix.ports.streams import StreamManager
from helix.services.blob_holders import BlobHolders
from helix.services.blob_rows import blob_owner
from helix.services.blob_uploads import BlobUploads
from helix.services.file_inputs import ReadFile
from helix.services.segments import SegmentStreams
from helix.testing.crash import CrashPoints, Point, crash_everywhere, writes

OWNER = blob_owner("ada", S)
OTHER = "another"


def holders(store: StateStore) -> BlobHolders:
    clock, ids = SystemClock(), Numbers()
    return BlobHolders(store, BlobUploads(store, MemoryBlobs(), clock, ids), clock, ids)


async def send(store: StateStore, session: str, *datas: bytes) -> None:
    await holders(store).store(OWNER, session, [ReadFile(describe(data), data) for data in datas])


async def blobs(store: StateStore) -> list[tuple[Value, int]]:
    """Return each blob, with the number of sessions that hold it."""
    assert isinstance(store, MemoryStateStore)
    partitions = {key.partition for key in store._rows if key.partition.startswith("blob#")}
    found = [await store.query("control", partition) for partition in sorted(partitions)]
    return [(rows[0].value, len(rows) - 1) for rows in found]


async def test_a_crash_anywhere_leaves_no_hold_of_a_deleted_session() -> None:
    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        fresh()
        worker = executor(store, streams, model(plain=["one"]))
        await (await worker.execute(plain, "hello", session_id=S)).result()
        await send(store, S, png(), png(note=b"only this session's"))
        await send(store, OTHER, png())
        await worker.delete(S)

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        worker = executor(store, streams, model(), LONG)
        await worker.delete(S)
        assert await store.query("sessions", S) == []
        for blob, count in await blobs(store):
            assert blob.get("holders", 0) == count and (blob["state"] == "live") == (count > 0)
        assert sum(count for _, count in await blobs(store)) == len(await store.query("sessions", OTHER))

    covered = await crash_everywhere(MemoryStateStore, act, recover, choose=writes)
    assert {name for name, _ in covered} >= {"transact:release_blob:before", "transact:release_blob:after"}


async def test_the_files_of_a_refused_message_are_held_for_its_repetition_and_go_with_the_session() -> None:
    fresh()
    store, gate, bytes_ = MemoryStateStore(), Gate(), MemoryBlobs()
    script = ScriptedModel([gated(gate, "one"), "two"])
    async with LocalExecutor(store, model=script, blobs=bytes_) as worker:
        first = await worker.execute(plain, "hello", session_id=S)
        with pytest.raises(AgentAlreadyRunningError):
            await worker.execute(plain, ["look", png()], session_id=S)
        assert [count for _, count in await blobs(store)] == [1]
        gate.open()
        await result_of(first)
        stored = await bytes_.list("")
        await result_of(await worker.execute(plain, ["look", png()], session_id=S))
        assert await bytes_.list("") == stored and [count for _, count in await blobs(store)] == [1]
        await worker.delete(S)
        ((blob, count),) = await blobs(store)
        assert (blob["state"], count) == ("marked", 0)


async def test_a_hold_that_comes_while_a_session_is_deleted_is_released_too() -> None:
    """Rows that a late hold left under the id of a deleted session go with the next deletion."""
    store = MemoryStateStore()
    await send(store, S, png())
    await store.transact("late", [Put(Key("sessions", S, "m#000000#00000000"), {"kind": "user"})])
    assert not await executor(store, SegmentStreams(store), model()).delete(S)
    assert await store.query("sessions", S) == []
    ((blob, count),) = await blobs(store)
    assert (blob["state"], count) == ("marked", 0)
