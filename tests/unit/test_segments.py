"""Segments that expire, streams that are deleted while records are in transit, and heads that stay small."""

from __future__ import annotations

from typing import Any

import pytest

from helix import MemoryStateStore
from helix.core.errors import InvalidInputError, StaleStateError
from helix.core.json import size
from helix.core.sequencer import StreamRecord
from helix.ports.state_store import Delete, Key, Put
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
    """Return the records with the current time."""
    return [one.model_copy(update={"time": clock.now()}) for one in records]


async def values(store: MemoryStateStore) -> list[dict[str, Any]]:
    return [row.value for row in await store.query("streams", S)]


def test_what_expires_needs_a_clock(store: MemoryStateStore) -> None:
    with pytest.raises(InvalidInputError):
        SegmentStreams(store, ttl_s=1)


async def test_segments_expire_and_the_end_of_a_turn_stays(
    log: SegmentStreams, store: MemoryStateStore, clock: ShiftedClock
) -> None:
    """The next turn continues the sequences, however long the session was idle."""
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
    """This holds for a projector that knows the head and for one that does not. The remaining rows are empty and expire."""
    knows = SegmentStreams(store, clock=clock, ttl_s=7 * DAY_S)
    await knows.project(S, [Entry("1", at(clock, started(), text(0, "a")))])
    late = [Entry("2", at(clock, text(1, "late"), ended()))]
    await log.delete(S)
    await log.delete(S)
    for projector in (knows, SegmentStreams(store, clock=clock, ttl_s=1)):
        assert await projector.project(S, late) == [] == await projector.read(S)
        assert await projector.info(S) is None
    for grave in await values(store):
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
    assert ["buried_at" in value for value in await values(store)] == [False, False, True]


def session_put(created_at: float, status: str = "running") -> Put:
    """Return a put of the root's row. A row without `created_at` belongs to a session that is being deleted."""
    value = {"status": status, "version": 1} | ({"created_at": created_at} if created_at else {})
    return Put(Key("sessions", S, "session"), value)


def of(created_at: float, *records: StreamRecord) -> list[StreamRecord]:
    """Return the records of the session that was created at that time."""
    return [one.model_copy(update={"created_at": created_at}) for one in records]


@pytest.fixture(params=["conditions", "tombstones"])
def logs(request: pytest.FixtureRequest, store: MemoryStateStore, clock: ShiftedClock) -> list[SegmentStreams]:
    """The logs of two processes."""
    options: dict[str, Any] = {"clock": clock} if request.param == "tombstones" else {}
    return [SegmentStreams(store, **options) for _ in range(2)]


async def begin_anew(store: MemoryStateStore, log: SegmentStreams, created_at: float) -> None:
    await store.transact("hide", [session_put(0, "deleting")])
    await log.delete(S)
    await store.transact("claim", [session_put(created_at)])


async def test_a_deleted_session_appends_nothing(store: MemoryStateStore, logs: list[SegmentStreams]) -> None:
    """Appends are refused during the deletion, after it, from a process that remembers the end, and before its first
    message."""
    log, late = logs
    await store.transact("claim", [session_put(1.0)])
    await late.append(S, of(1.0, started(), text(0, "a")))
    await store.transact("hide", [session_put(0, "deleting")])
    await log.delete(S)
    for _ in range(2):
        for one in logs:
            await one.append(S, of(1.0, text(1, "late"), ended()))
            await one.append(S, of(1.0, started(2), text(0, "late", turn=2)))
            assert await one.has(S, of(1.0, text(1, "late"))) and await one.read(S) == []
        await store.transact("finish", [Delete(Key("sessions", S, "session"))])
    assert all("buried_at" in value for value in await values(store))


async def test_a_writer_that_remembers_an_earlier_end_is_refused(
    store: MemoryStateStore, logs: list[SegmentStreams]
) -> None:
    log, late = logs
    await store.transact("claim", [session_put(1.0)])
    await late.append(S, of(1.0, started(), text(0, "a")))
    for n in range(1, 5):
        await log.append(S, of(1.0, text(n, f"{n}")))
    await store.transact("hide", [session_put(0, "deleting")])
    await log.delete(S)
    await late.append(S, of(1.0, text(5, "late")))
    assert all("buried_at" in value for value in await values(store))


async def test_a_session_made_anew_has_its_stream_to_itself(
    store: MemoryStateStore, logs: list[SegmentStreams]
) -> None:
    """Late records of the previous session's runs are ignored, even with higher turns. The session is recreated three
    times."""
    log, late = logs
    await store.transact("claim", [session_put(1.0)])
    await late.append(S, of(1.0, started(4), *(text(n, f"{n}", turn=4) for n in range(5))))
    for made in (2.0, 3.0, 4.0):
        await begin_anew(store, log, made)
        old = of(made - 1, text(5, "late", turn=4), ended(4), started(5))
        await late.append(S, old)
        await log.append(S, of(made, started(), text(0, "a")))
        await late.append(S, old)
        for n in range(1, 8):
            await (late if n % 2 else log).append(S, of(made, text(n, f"{n}")))
            await late.append(S, old)
        await log.append(S, of(made, ended()))
        assert await texts(late) == ["a", *(f"{n}" for n in range(1, 8))]
        assert [m.sequence for m in await everything(log)] == list(range(1, 11))
        for after in range(9):
            assert (await late.read(S, after, 1))[0].sequence == after + 1


async def test_a_slow_deletion_leaves_the_stream_of_a_session_made_since(
    store: MemoryStateStore, logs: list[SegmentStreams]
) -> None:
    log, slow = logs
    await store.transact("claim", [session_put(1.0)])
    await log.append(S, of(1.0, started(), text(0, "a")))
    await begin_anew(store, log, 2.0)
    await log.append(S, of(2.0, started(), text(0, "b")))
    with pytest.raises(StaleStateError):
        await slow.delete(S)
    assert await texts(slow) == ["b"]


async def test_many_sessions_append_in_one_batch(store: MemoryStateStore, logs: list[SegmentStreams]) -> None:
    """The batch has more sessions than the conditions of one transaction can check."""
    puts = [session_put(1.0)]
    children = [f"ses_{n:03d}" for n in range(90)]
    puts += [Put(Key("sessions", child, "session"), {"created_at": 2.0}) for child in children]
    await store.transact("claim", puts)
    begun = [started(session=child).model_copy(update={"created_at": 2.0}) for child in children]
    said = [text(0, child, session=child).model_copy(update={"created_at": 2.0}) for child in children]
    await logs[0].append(S, [*of(1.0, started()), *begun, *said])
    assert await texts(logs[1]) == children


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


def _delete(key: Key) -> Delete:
    return Delete(key)
