"""The time of a stage's next sweep, and the activity that a process records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from helix import MemoryStateStore
from helix.core.errors import StoreError
from helix.ports.state_store import Operation, Put
from helix.services.activity import (
    LOOK_S,
    NOTE_S,
    REST_S,
    SWEEP,
    Activity,
    Beats,
    note_activity,
    note_sweep,
    read_beats,
)
from helix.testing.clocks import ShiftedClock

NOW = 1_000_000.0


class Failing(MemoryStateStore):
    fails = True

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if self.fails:
            raise StoreError("no table")
        await super().transact(name, operations)


@pytest.mark.parametrize(
    ("beats", "due_in"),
    [
        (Beats(), 0),
        (Beats(worked_at=NOW - 5, since=NOW - 900), -900),
        (Beats(NOW - 60), LOOK_S - 60),  # no function has worked yet
        (Beats(NOW - 60, found_at=NOW - 60), -60),  # a run is open
        (Beats(NOW - 60, found_at=NOW - REST_S + 1), -60),  # a run was open until recently
        (Beats(NOW - 60, found_at=NOW - REST_S - 1, worked_at=NOW - REST_S - 99), LOOK_S - 60),
        (Beats(NOW - 60, worked_at=NOW - REST_S + 1), -60),
        (Beats(NOW - REST_S - 9, worked_at=NOW - REST_S - 1), -REST_S - 9),  # it worked after the last sweep
        (Beats(NOW - LOOK_S, worked_at=NOW - 5, since=NOW - 5), -5),  # the stage wakes up: no sweep was due before
        (Beats(NOW - 90, worked_at=NOW - 5, since=NOW - 900), -90),
    ],
)
def test_a_sweep_is_due_at_once_unless_the_stage_rests(beats: Beats, due_in: float) -> None:
    assert beats.due_at(NOW) - NOW == due_in


def test_rows_of_an_older_version_rest_nothing() -> None:
    assert Beats.of(None, {"at": NOW - 60}).due_at(NOW) == NOW - 60
    assert Beats.of(None, {"at": NOW - REST_S - 60}).due_at(NOW) == NOW - REST_S - 60
    assert Beats.of(None, None) == Beats()


async def test_a_process_notes_its_work_once_a_minute() -> None:
    store, clock = MemoryStateStore(), ShiftedClock()
    activity = Activity(store, clock)
    await activity.note()
    first = await read_beats(store)
    assert first.worked_at == first.since == pytest.approx(clock.now(), abs=5)
    clock.ahead_s += NOTE_S / 2
    await activity.note()
    assert await read_beats(store) == first
    clock.ahead_s += NOTE_S
    await activity.note()
    noted = await read_beats(store)
    assert noted.worked_at > first.worked_at and noted.since == first.since


async def test_work_after_a_rest_says_since_when() -> None:
    store = MemoryStateStore()
    await note_activity(store, NOW)
    await asyncio.gather(*(note_activity(store, NOW + REST_S + 1 + n) for n in range(3)))
    beats = await read_beats(store)
    assert NOW + REST_S < beats.since <= beats.worked_at


async def test_a_sweep_says_when_one_last_found_anything() -> None:
    store = MemoryStateStore()
    for minute, found in enumerate([False, True, False]):
        await note_sweep(store, NOW + 60 * minute, found)
    assert await read_beats(store) == Beats(NOW + 120, found_at=NOW + 60)


async def test_a_slow_sweep_that_found_nothing_keeps_what_another_one_has_found() -> None:
    store = MemoryStateStore()
    await note_sweep(store, NOW, found=False)
    await asyncio.gather(note_sweep(store, NOW + 60, found=True), note_sweep(store, NOW + 61, found=False))
    assert (await read_beats(store)).found_at == NOW + 60


async def test_a_sweep_notes_itself_beside_the_row_of_an_older_version() -> None:
    store = MemoryStateStore()
    await store.transact("note_sweep", [Put(SWEEP, {"at": NOW})])
    await note_sweep(store, NOW + 60, found=False)
    assert await read_beats(store) == Beats(NOW + 60)


async def test_work_goes_on_where_nothing_can_be_noted_and_is_noted_at_the_next() -> None:
    store = Failing()
    activity = Activity(store, ShiftedClock())
    await activity.note()
    store.fails = False
    await activity.note()
    assert (await read_beats(store)).worked_at
