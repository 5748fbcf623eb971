"""SQLite with several real processes that are forked, start together and use one fresh file."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.slots_races import at_rest
from tests.support_processes import Worker

from helix import SQLiteStateStore
from helix.ports.state_store import Key
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.testing.stream_invariants import read_all

PROCESSES = 6


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker("race_worker")
    yield made
    made.close()


async def test_increments_and_first_puts(worker: Worker, tmp_path: Path) -> None:
    """No increment is lost, and only one of the processes that put an absent row succeeds."""
    won = worker.race("increment", tmp_path / "h.db", PROCESSES)
    store = SQLiteStateStore(tmp_path / "h.db")
    assert await store.get([Key("sessions", "p", "n")]) == [{"n": 20 * PROCESSES}]
    rows = await store.query("sessions", "q")
    assert sum(won) == len(rows) == 20
    assert [sum(row.value["by"] == me for row in rows) for me in range(PROCESSES)] == won
    await store.close()


async def test_writers_of_one_stream(worker: Worker, tmp_path: Path) -> None:
    """Sequences are dense, each chunk appears once, and each writer's chunks stay in order."""
    worker.race("append", tmp_path / "h.db", PROCESSES)
    store = SQLiteStateStore(tmp_path / "h.db")
    messages = await read_all(SegmentStreams(store), "ses")
    assert [message.sequence for message in messages] == list(range(1, 15 * PROCESSES + 1))
    for me in range(PROCESSES):
        mine = [m.chunk["delta"] for m in messages if m.session_id == f"child{me}" and m.chunk]
        assert mine == [f"{me}.{n}" for n in range(15)]
    await store.close()


async def test_draws_on_one_budget(worker: Worker, tmp_path: Path) -> None:
    """Draws never exceed the budget, and limit = remaining + drawn."""
    drawn = worker.race("draw", tmp_path / "h.db", PROCESSES)
    store = SQLiteStateStore(tmp_path / "h.db")
    (state,) = await RowBudgets(store).get(["global/total/micros/total"])
    assert state is not None and 0 <= state.remaining < 7 and state.remaining + sum(drawn) == state.limit == 500
    await store.close()


async def test_slots(worker: Worker, tmp_path: Path) -> None:
    """At most two processes hold a slot, every process gets one, and all slots are returned."""
    assert worker.race("slots", tmp_path / "h.db", PROCESSES) == [0] * PROCESSES
    store = SQLiteStateStore(tmp_path / "h.db")
    assert await at_rest(RowSlots(store))
    await store.close()
