"""`RowSlots.change_limit` compares and sets, so a scaling step cannot undo a change that was made meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix.adapters.memory import MemoryStateStore
from helix.adapters.sqlite import SQLiteStateStore
from helix.core.errors import InvalidInputError
from helix.ports.state_store import Check, Delete, Key, Put, StateStore, When
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate

A = "agent"
OPEN = Key("control", "somewhere", "open")
ALIVE = Check(OPEN, When(equal={"n": 1}))


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StateStore]:
    made: StateStore = MemoryStateStore() if request.param == "memory" else SQLiteStateStore(tmp_path / "rows.db")
    yield made
    await made.close()


@pytest.fixture
def slots(store: StateStore) -> RowSlots:
    return RowSlots(store)


async def bound(slots: RowSlots) -> int | None:
    return (await slots.counters())[A].bound


async def test_it_changes_the_limit_that_was_read_and_no_other(slots: RowSlots) -> None:
    await slots.set_limit(A, 2)
    assert await slots.change_limit(A, 2, 3)
    assert await bound(slots) == 3
    assert not await slots.change_limit(A, 2, 4)
    assert await bound(slots) == 3


async def test_a_repeat_answers_the_same(slots: RowSlots) -> None:
    await slots.set_limit(A, 2)
    assert await slots.change_limit(A, 2, 3) and await slots.change_limit(A, 2, 3)
    assert await bound(slots) == 3


async def test_the_default_is_a_limit_too(slots: RowSlots) -> None:
    await slots.admit(Candidate(A, "r1", "s1", 1.0), default=5)
    assert not await slots.change_limit(A, 4, 3)
    assert await slots.change_limit(A, 5, 3)
    assert await bound(slots) == 3


async def test_what_was_never_limited_is_left_alone(slots: RowSlots) -> None:
    assert not await slots.change_limit(A, 1, 2)
    await slots.set_limit(A, None)
    assert not await slots.change_limit(A, 1, 2)
    assert await bound(slots) is None


async def test_it_happens_only_while_its_reason_stands(store: StateStore, slots: RowSlots) -> None:
    await slots.set_limit(A, 2)
    assert not await slots.change_limit(A, 2, 3, alive=ALIVE)
    await store.transact("open", [Put(OPEN, {"n": 1})])
    assert await slots.change_limit(A, 2, 3, alive=ALIVE)
    await slots.set_limit(A, 2)
    await store.transact("close", [Delete(OPEN)])
    assert not await slots.change_limit(A, 2, 3, alive=ALIVE)
    assert await bound(slots) == 2


async def test_of_many_at_once_each_step_is_made_once(slots: RowSlots) -> None:
    await slots.set_limit(A, 0)

    async def climb() -> int:
        won = 0
        for limit in range(20):
            won += await slots.change_limit(A, limit, limit + 1)
        return won

    await asyncio.gather(*(climb() for _ in range(8)))
    assert await bound(slots) == 20


async def test_a_limit_is_a_whole_number(slots: RowSlots) -> None:
    with pytest.raises(InvalidInputError):
        await slots.change_limit(A, 1, -1)
