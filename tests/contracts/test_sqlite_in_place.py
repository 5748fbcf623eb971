"""SQLite commits on the caller's thread and uses its own thread for waiting work."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from helix import SQLiteStateStore
from helix.adapters.sqlite_log import CHECKPOINT_ROWS
from helix.core.errors import ConditionFailedError, StoreError
from helix.ports.state_store import MAX_OPERATIONS, Key, Put, When

KEY = Key("sessions", "p", "row")


@pytest.fixture
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SQLiteStateStore]:
    made = SQLiteStateStore(tmp_path / "helix.db", synchronous=getattr(request, "param", "FULL"))
    yield made
    await made.close()


async def test_a_write_that_another_process_delays_leaves_the_loop_free(store: SQLiteStateStore) -> None:
    await store.transact("first", [Put(KEY, {"n": 1})])
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(store.transact("second", [Put(KEY, {"n": 2})]))
    for _ in range(20):
        await asyncio.sleep(0.005)  # returns only while the event loop is free
    assert not writing.done() and await store.get([KEY]) == [{"n": 1}]
    other.execute("COMMIT")
    await writing
    assert await store.get([KEY]) == [{"n": 2}]
    other.close()


async def test_a_commit_takes_no_thread(store: SQLiteStateStore) -> None:
    await store.transact("first", [Put(KEY, {"n": 1})])
    with patch.object(store, "_run", side_effect=AssertionError("the thread was asked")):
        await store.transact("second", [Put(KEY, {"n": 2})])
        with pytest.raises(ConditionFailedError):
            await store.transact("third", [Put(KEY, {"n": 3}, When(equal={"n": 1}))])
        assert await store.get([KEY]) == [{"n": 2}]
        await store.transact("many", [Put(Key("sessions", "p", f"{n}"), {"n": n}) for n in range(MAX_OPERATIONS)])
        assert len(await store.query("sessions", "p", start="0")) == MAX_OPERATIONS + 1


@pytest.mark.parametrize("store", ["NORMAL"], indirect=True)
async def test_the_log_is_moved_into_the_file_while_a_store_commits_in_place(store: SQLiteStateStore) -> None:
    """Without checkpoints the log would grow to 270 MB."""
    value = {"text": "x" * 3000}
    for n in range(8 * CHECKPOINT_ROWS):
        await store.transact("write", [Put(Key("sessions", "p", f"{n:05d}"), value)])
        if n % CHECKPOINT_ROWS == 0:
            await store.purge(0)  # the store's thread purges after the checkpoint that it already had to do
    log = store.path.with_name(f"{store.path.name}-wal")
    assert log.stat().st_size < 40_000_000


async def test_a_store_that_another_loop_closes_says_so_and_keeps_what_it_wrote(store: SQLiteStateStore) -> None:
    """The store's thread may end at any moment, even between a check and the next line."""
    await store.transact("first", [Put(Key("control", "p", "a"), {"n": 1})])
    store._unchecked = CHECKPOINT_ROWS
    store._thread.shutdown()
    await store.transact("last", [Put(Key("control", "p", "b"), {"n": 2})])
    assert [row.value for row in await store.query("control", "p")] == [{"n": 1}, {"n": 2}]
    with pytest.raises(StoreError, match="is closed"):
        await store.purge(0)
    store._thread = ThreadPoolExecutor(max_workers=1)  # for the store's own close


async def test_a_commit_that_waits_for_the_disk_of_a_store_that_is_closed_fails(store: SQLiteStateStore) -> None:
    """Another event loop closes the store between the commit and the sync."""
    await store.transact("first", [Put(KEY, {"n": 1})])
    assert store._log is not None
    await asyncio.to_thread(store._log.close)
    with pytest.raises(StoreError, match="closed before this transaction was on the disk"):
        await asyncio.wait_for(store.transact("second", [Put(KEY, {"n": 2})]), 5)


def test_a_store_keeps_no_event_loop_that_has_ended(tmp_path: Path) -> None:
    store = SQLiteStateStore(tmp_path / "helix.db")
    for number in range(3):
        asyncio.run(store.transact("write", [Put(KEY, {"n": number})]))
    assert len(store._lines) == 1
    asyncio.run(store.close())
