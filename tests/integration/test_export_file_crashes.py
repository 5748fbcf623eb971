"""An import of files survives a crash at each write, and another import of the same session at the same time."""

from __future__ import annotations

import asyncio

import pytest
from tests.integration.test_export_files import (  # noqa: F401
    BOSS,
    DOOR,
    PHOTO,
    Looks,
    S,
    exported,
    helix,
    place,
)

from helix import LocalExecutor, MemoryStateStore
from helix.adapters.memory_blobs import MemoryBlobs
from helix.adapters.system import SystemClock, SystemIds
from helix.core.errors import SessionExistsError
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.services.blob_rows import UPLOADED_S, blob_owner
from helix.sessions.exports import read_export
from helix.sessions.imports import DEADLINE_S, import_session
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import CrashPoints, Point, crash_everywhere, writes


async def test_a_crash_anywhere_is_repaired_by_a_repeat_or_by_the_collector(exported: list[str]) -> None:  # noqa: F811
    places: dict[str, MemoryBlobs] = {}

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        places["now"] = MemoryBlobs()
        files = place(store, places["now"])
        await import_session(store, read_export(exported), SystemClock(), SystemIds(), files=files)

    async def repeat(store: StateStore, streams: StreamManager, point: Point) -> None:
        later, blobs = ShiftedClock(DEADLINE_S + 1), places["now"]
        files, owner = place(store, blobs, later), blob_owner("bob", S)
        try:
            await import_session(store, read_export(exported), later, SystemIds(), user_id="bob", files=files)
        except SessionExistsError:
            assert point[0] == "transact:finish_import:after"
            owner = blob_owner(None, S)
        held = await store.query("sessions", S, start="b#", end="b$")
        assert [row.key.sort.split("#")[2] for row in held] == [owner] * 2, "those of the dead import are released"
        model = Looks({"boss": ["Yes."]})
        async with LocalExecutor(store, blobs=blobs, clock=later, model=model) as executor:
            await (await executor.execute(BOSS, "And now?", session_id=S)).result()
            assert model.seen == [[PHOTO, DOOR, PHOTO]]
            await executor.delete(S)
            await everything_is_collected(store, blobs)

    async def give_up(store: StateStore, streams: StreamManager, point: Point) -> None:
        if point[0] != "transact:finish_import:after":
            await everything_is_collected(store, places["now"])

    covered = await crash_everywhere(MemoryStateStore, act, repeat, choose=writes)
    names = {name.split(":")[1] for name, _ in covered}
    assert names >= {"begin_import", "import_file", "import_rows", "hold_blobs", "finish_import"}, names
    await crash_everywhere(MemoryStateStore, act, give_up, choose=writes)


async def everything_is_collected(store: StateStore, blobs: MemoryBlobs) -> None:
    clock = ShiftedClock(UPLOADED_S + 100)
    await place(store, blobs, clock).collector.collect()
    clock.ahead_s += UPLOADED_S  # blobs that lost their last holder in the first round
    await place(store, blobs, clock).collector.collect()
    assert await blobs.list("blobs/") == []
    assert isinstance(store, MemoryStateStore)
    assert [key for key in store._rows if key.partition.startswith("blob")] == []


async def test_a_slower_import_of_the_same_session_is_refused(exported: list[str]) -> None:  # noqa: F811
    """It pauses in the middle of the files, and another import takes its place."""
    store, blobs, clock = MemoryStateStore(), MemoryBlobs(), ShiftedClock()

    class Paused(MemoryBlobs):
        async def put(self, key: str, data: bytes, media_type: str) -> None:
            await blobs.put(key, data, media_type)
            if not paused.is_set():
                paused.set()
                await goes.wait()

        async def head(self, key: str, length: int) -> tuple[int, bytes] | None:
            return await blobs.head(key, length)

    paused, goes = asyncio.Event(), asyncio.Event()
    files = place(store, Paused(), clock)
    slow = asyncio.ensure_future(import_session(store, read_export(exported), clock, SystemIds(), files=files))
    await paused.wait()
    clock.ahead_s += DEADLINE_S + 1
    await import_session(store, read_export(exported), clock, SystemIds(), files=place(store, blobs, clock))
    goes.set()
    with pytest.raises(SessionExistsError):
        await slow
    model = Looks({"boss": ["Yes."]})
    async with LocalExecutor(store, blobs=blobs, clock=clock, model=model) as executor:
        await (await executor.execute(BOSS, "And now?", session_id=S)).result()
        assert model.seen == [[PHOTO, DOOR, PHOTO]]
