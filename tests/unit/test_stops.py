"""One poll for stops serves all runs of an event loop. If it fails for one run, the others are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from helix import MemoryStateStore
from helix.core.row_keys import stop_sort
from helix.core.rows import StopRow
from helix.core.session_row import SessionRow
from helix.engine.stops import Stops, StopWatch
from helix.ports.state_store import Key, Put, Value

POLL_S = 0.01
RUN = "run_000001_x"


class Counting(MemoryStateStore):
    """A memory store that counts the keys of each read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        self.reads.append(len(keys))
        return await super().get(keys)


def session(name: str, parent: str | None = None) -> SessionRow:
    value = {"agent_type": "desk", "stream_id": name, "status": "running", "run_id": RUN, "version": 1}
    above = {"parent": {"session_id": parent, "run_id": RUN, "call_id": "c"}} if parent else {}
    return SessionRow.at(name, {**value, **above})


async def stop(store: MemoryStateStore, name: str, value: Value | None = None) -> None:
    row = StopRow(run_id=RUN, stop="interrupt", reason="enough").dump()
    await store.transact("stop", [Put(Key("sessions", name, stop_sort(RUN)), row if value is None else value)])


@asynccontextmanager
async def watched(stops: Stops, *sessions: SessionRow) -> AsyncIterator[list[StopWatch]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(stops.watch(each, RUN)) for each in sessions]


async def seen(watch: StopWatch) -> StopRow:
    async with asyncio.timeout(5):
        while watch.stop is None:
            await asyncio.sleep(POLL_S)
    return watch.stop


async def test_a_look_reads_the_records_of_all_runs_at_once() -> None:
    store = Counting()
    async with watched(Stops(store, POLL_S), *(session(f"s{n}") for n in range(250))) as watches:
        await stop(store, "s249")  # it is on the last page of a read
        assert (await seen(watches[249])).reason == "enough"
        store.reads.clear()
        async with asyncio.timeout(5):
            while len(store.reads) < 6:
                await asyncio.sleep(POLL_S)
        assert [watch.stop for n, watch in enumerate(watches) if n != 249] == [None] * 249
    assert set(store.reads) == {100, 49}, "the stopped run is not checked again"
    store.reads.clear()
    await asyncio.sleep(3 * POLL_S)
    assert store.reads == [], "no run is watched, and nothing is read"


async def test_a_call_is_cancelled_by_a_stop_that_was_seen_before_it_or_after() -> None:
    store = MemoryStateStore()
    async with watched(Stops(store, POLL_S), session("s")) as (watch,):
        before = asyncio.ensure_future(asyncio.sleep(60))
        watch.cancels(before)
        await stop(store, "s")
        await seen(watch)
        after = asyncio.ensure_future(asyncio.sleep(60))
        watch.cancels(after)
        await asyncio.wait({before, after})
        assert before.cancelled() and after.cancelled()


async def test_a_record_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStateStore()
    async with watched(Stops(store, POLL_S), session("damaged"), session("well")) as (damaged, well):
        await stop(store, "damaged", {"stop": 5})
        await asyncio.sleep(3 * POLL_S)
        await stop(store, "well")
        await seen(well)
        assert damaged.stop is None and f"could not check whether to stop run {RUN}" in caplog.text


async def test_a_sub_agent_sees_the_stop_of_its_parent() -> None:
    store = MemoryStateStore()
    parent = session("parent")
    await store.transact("make", [Put(Key("sessions", "parent", "session"), parent.dump())])
    async with watched(Stops(store, POLL_S), session("child", "parent")) as (watch,):
        await stop(store, "parent")
        assert (await seen(watch)).reason == "enough"
