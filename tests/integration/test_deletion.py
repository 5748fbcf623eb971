"""Sessions that are deleted while something still works for them. Nothing is left, and a new session may use the id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from tests.support_crash import HELPER, LEAD, LONG, S, executor, fresh, lead, model, plain
from tests.support_run import World, agent, play

from helix import LocalExecutor, MemoryStateStore
from helix.core.errors import HelixError, RunNotFoundError
from helix.engine.history import row_key
from helix.ports.state_store import Operation, Put
from helix.ports.streams import StreamManager
from helix.services.segments import SegmentStreams
from helix.testing.clocks import ShiftedClock
from helix.testing.invariants import check_session

PATIENCE_S = 10.0


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    fresh()


class Process:
    """A process's view of the store. Its write number `held` waits until the test releases it."""

    def __init__(self, store: MemoryStateStore, held: int = -1) -> None:
        self._store, self._held, self.names = store, held, list[str]()
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        self.names.append(name)
        if len(self.names) - 1 == self._held:
            self.reached.set()
            await self.go.wait()
        await self._store.transact(name, operations)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)


def streams_of(store: Any, kind: str) -> StreamManager:
    return SegmentStreams(store, clock=ShiftedClock()) if kind == "tombstones" else SegmentStreams(store)


def left(store: MemoryStateStore) -> list[Any]:
    """Return all rows except usage counts, shared request heads and tombstones."""
    kept = ("usage", "head#")
    return [
        key for key, value in store._rows.items() if not key.partition.startswith(kept) and "buried_at" not in value
    ]


async def run_to_the_end(worker: LocalExecutor, who: Any) -> None:
    with suppress(HelixError):  # its session was deleted
        await (await worker.execute(who, "begin", session_id=S)).result()


async def held_run(kind: str, held: int) -> tuple[MemoryStateStore, Process, asyncio.Task[None]]:
    """Start a run that pauses before one of its writes."""
    store = MemoryStateStore()
    process = Process(store, held)
    worker = executor(process, streams_of(process, kind), model(helper=HELPER, lead=LEAD))
    run = asyncio.create_task(run_to_the_end(worker, lead))
    waits = asyncio.create_task(process.reached.wait())
    await asyncio.wait({run, waits}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()
    return store, process, run


async def writes_of_a_run() -> list[str]:
    _, process, run = await held_run("conditions", -1)
    await run
    return process.names


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["conditions", "tombstones"])
@pytest.mark.parametrize("when", ["before the new session", "within it", "after it"])
async def test_a_late_write_changes_nothing(kind: str, when: str) -> None:
    """The run has tools and a sub-agent. It is held at each of its writes, including those of its end and its effects."""
    names = await writes_of_a_run()
    assert {"append_segment", "effects_done", "report_to_parent", "stage"} <= set(names), names
    for held in range(1, len(names)):
        store, process, run = await held_run(kind, held)
        other = executor(store, streams_of(store, kind), model(plain=["one", "two"]), LONG)
        assert await other.delete(S), names[held]
        if when == "before the new session":
            process.go.set()
            await asyncio.wait_for(run, PATIENCE_S)
            assert not left(store), (names[held], left(store))
        first = await other.execute(plain, "hello", session_id=S)
        if when == "within it":
            process.go.set()
            await asyncio.wait_for(run, PATIENCE_S)
        await first.result()
        second = await other.execute(plain, "hello", session_id=S)
        await second.result()
        process.go.set()
        await asyncio.wait_for(run, PATIENCE_S)
        await check_session(store, other.streams, S, at_rest=True)
        messages = await other.streams.read(S)
        assert [message.sequence for message in messages] == list(range(1, len(messages) + 1)), names[held]
        assert {message.run_id for message in messages} == {first.run_id, second.run_id}, names[held]
        assert await other.delete(S) and not left(store), (names[held], left(store))


@pytest.mark.parametrize("kind", ["conditions", "tombstones"])
async def test_a_slow_deletion_leaves_a_session_that_was_made_since(kind: str) -> None:
    """At each write of the deletion, another deletion completes it and the id is used again."""
    store, _, run = await held_run(kind, -1)
    await run
    measured = Process(store)
    await executor(measured, streams_of(measured, kind), model(), LONG).delete(S)
    for held in range(len(measured.names)):
        store, _, run = await held_run(kind, -1)
        await run
        process = Process(store, held)
        slow = executor(process, streams_of(process, kind), model(), LONG)
        deletion = asyncio.create_task(slow.delete(S))
        await asyncio.wait_for(process.reached.wait(), PATIENCE_S)
        other = executor(store, streams_of(store, kind), model(plain=["one"]), LONG)
        assert await other.delete(S)
        handle = await other.execute(plain, "hello", session_id=S)
        await handle.result()
        kept = left(store)
        process.go.set()
        assert await asyncio.wait_for(deletion, PATIENCE_S)
        if held == 0:  # it had hidden nothing yet, so it deletes the session that it finds
            assert not left(store)
            continue
        assert left(store) == kept, process.names[held]
        await check_session(store, other.streams, S, at_rest=True)


async def test_two_delete_at_once(world: World) -> None:
    executors = [world.executor(["hi", "hello"]) for _ in range(2)]
    for _ in range(2):
        await play(executors[0], agent(), session_id=S)
        assert any(await asyncio.gather(*(one.delete(S) for one in executors)))
        assert not await executors[0].delete(S) and await executors[0].store.query("streams", S) == []


async def test_a_stream_that_is_read_ends_with_its_session(world: World) -> None:
    """The reader waited for the end of a run that no worker will write."""
    executor = world.executor([{"tool_calls": []} | {"content": "x", "delay_s": 30}])
    handle = await executor.execute(agent(), "go", session_id=S)
    messages = await handle.messages()
    await anext(messages)
    other = world.executor(clock=ShiftedClock(LONG))
    assert await other.delete(S)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(RunNotFoundError):
            async for _ in messages:
                pass


async def test_what_earlier_versions_left_is_deleted_with_the_id() -> None:
    store = MemoryStateStore()
    worker = executor(store, SegmentStreams(store), model(plain=["one"]))
    await (await worker.execute(plain, "hello", session_id=S)).result()
    segments = [Put(row.key, row.value) for row in await store.query("streams", S)]
    await worker.delete(S)
    await store.transact("late", [Put(row_key(S, "h#run_1_x#on_agent_complete"), {"at": 1.0}), *segments])
    assert not await worker.delete(S) and not left(store)
