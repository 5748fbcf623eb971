"""Segments that expire, streams that were deleted while records were on their way, heads that stay small."""

from __future__ import annotations

from typing import Any

import pytest

from helix import MemoryStateStore
from helix.core.errors import InvalidInputError
from helix.core.json import size
from helix.core.sequencer import StreamRecord
from helix.services.segments import Entry, SegmentStreams
from helix.testing.clocks import ShiftedClock
from helix.testing.contracts.streams import S, committed, ended, everything, record, started, text, texts

DAY_S = 86_400


@pytest.fixture
def store() -> MemoryStateStore:
    return MemoryStateStore()


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
def log(store: MemoryStateStore, clock: ShiftedClock) -> SegmentStreams:
    return SegmentStreams(store, clock=clock, ttl_s=7 * DAY_S)


def at(clock: ShiftedClock, *records: StreamRecord) -> list[StreamRecord]:
    """The records, made now."""
    return [one.model_copy(update={"time": clock.now()}) for one in records]


async def values(store: MemoryStateStore) -> list[dict[str, Any]]:
    return [row.value for row in await store.query("streams", S)]


def test_what_expires_needs_a_clock(store: MemoryStateStore) -> None:
    with pytest.raises(InvalidInputError):
        SegmentStreams(store, ttl_s=1)


async def test_segments_expire_and_the_end_of_a_turn_stays(
    log: SegmentStreams, store: MemoryStateStore, clock: ShiftedClock
) -> None:
    """So that the next turn's sequences go on, however long the session slept."""
    await log.append(S, [started(), text(0, "a")])
    await log.append(S, [committed(1), ended()])
    begun, over = await values(store)
    assert abs(begun["ttl"] - clock.now() - 7 * DAY_S) < 60 and isinstance(begun["ttl"], int) and "ttl" not in over
    (first, *_) = await store.query("streams", S)
    await store.transact("expire", [_delete(first.key)])
    await SegmentStreams(store, clock=clock, ttl_s=1).append(S, [started(2), text(0, "b", turn=2)])
    assert [m.sequence for m in await log.read(S)] == [2, 3, 4]


async def test_nothing_expires_unless_asked(store: MemoryStateStore) -> None:
    await SegmentStreams(store).append(S, [started(), text(0, "a")])
    assert all("ttl" not in value for value in await values(store))


async def test_what_was_on_its_way_does_not_bring_a_deleted_stream_back(
    log: SegmentStreams, store: MemoryStateStore, clock: ShiftedClock
) -> None:
    """Neither by a projector that still knows the head, nor by one that does not; what is left expires, and is empty."""
    knows = SegmentStreams(store, clock=clock, ttl_s=7 * DAY_S)
    await knows.project(S, [Entry("1", at(clock, started(), text(0, "a")))])
    late = [Entry("2", at(clock, text(1, "late"), ended()))]
    await log.delete(S)
    await log.delete(S)
    for projector in (knows, SegmentStreams(store, clock=clock, ttl_s=1)):
        assert await projector.project(S, late) == [] == await projector.read(S)
        assert await projector.info(S) is None
    (grave,) = await values(store)
    assert grave["messages"] == [] and "head" not in grave and 0 < grave["ttl"] - clock.now() <= DAY_S


async def test_a_deleted_stream_may_begin_again(
    log: SegmentStreams, store: MemoryStateStore, clock: ShiftedClock
) -> None:
    await log.append(S, at(clock, started(), text(0, "a")))
    await log.append(S, at(clock, text(1, "b")))
    await log.delete(S)
    clock.ahead_s = 1
    other = SegmentStreams(store, clock=clock, ttl_s=7 * DAY_S)
    await other.append(S, at(clock, started(), text(0, "again")))
    await log.append(S, at(clock, text(1, "and on")))
    assert await texts(log) == ["again", "and on"] and [m.sequence for m in await everything(log)] == [1, 2]
    assert len(await values(store)) == 2


async def test_two_begin_a_deleted_stream_again(
    log: SegmentStreams, store: MemoryStateStore, clock: ShiftedClock
) -> None:
    await log.append(S, at(clock, started(), text(0, "a")))
    await log.delete(S)
    clock.ahead_s = 1
    others = [SegmentStreams(store, clock=clock, ttl_s=7 * DAY_S) for _ in range(2)]
    for other in others:
        assert await other.info(S) is None
    for other in others:
        await other.append(S, at(clock, started(), text(0, "again")))
    assert await texts(log) == ["again"]


async def test_a_head_does_not_grow_with_the_children_that_ended(store: MemoryStateStore) -> None:
    log = SegmentStreams(store)
    await log.append(S, [started()])
    for n in range(80):
        child = f"ses_{n:026d}"
        call = record("call", step=1, attempt=1, call_id=f"call_{n}", n=0, session=child)
        await log.append(S, [started(session=child), text(0, "x", session=child), call, ended(session=child)])
    await log.append(S, [text(0, "last")])
    assert size((await values(store))[-1]["head"]) < 3_000


def _delete(key: Any) -> Any:
    from helix.ports.state_store import Delete

    return Delete(key)
