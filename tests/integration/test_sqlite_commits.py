"""Commits of a SQLite store: one sync for all transactions that wait for the disk, and one queue for all that wait for
another process."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from helix import LocalExecutor, SQLiteStateStore
from helix.adapters import sqlite, sqlite_commits, sqlite_log
from helix.core.errors import ConditionFailedError, InvalidInputError, StoreError
from helix.ports.state_store import ABSENT, Key, Operation, Put, Update

Syncs = list[float]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SQLiteStateStore]:
    made = SQLiteStateStore(tmp_path / "helix.db")
    await made.get([key("0")])
    yield made
    await made.close()


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """The times at which the log was synced. A sync takes 50 ms."""
    found, to_disk = Syncs(), sqlite_log._flush_to_disk

    def slow(number: int) -> None:
        time.sleep(0.05)
        to_disk(number)
        found.append(time.monotonic())

    monkeypatch.setattr(sqlite_log, "_flush_to_disk", slow)
    return found


def key(sort: str) -> Key:
    return Key("sessions", "p", sort)


def put(sort: str, number: int = 1) -> Put:
    return Put(key(sort), {"n": number}, when=ABSENT)


@contextmanager
def written_by_another(store: SQLiteStateStore) -> Iterator[None]:
    """Let another connection hold the file."""
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


# --- the disk ------------------------------------------------------------------------------------------------------------


async def test_all_that_wait_share_a_sync(store: SQLiteStateStore, syncs: Syncs) -> None:
    await asyncio.gather(*(store.transact("step", [put(str(number))]) for number in range(100)))
    assert 1 <= len(syncs) <= 2, "one sync was running when the others arrived"


async def test_an_answer_comes_after_a_sync_that_began_after_its_commit(store: SQLiteStateStore, syncs: Syncs) -> None:
    first = asyncio.create_task(store.transact("step", [put("first")]))
    await asyncio.sleep(0.02)
    await store.transact("step", [put("second")])
    assert first.done() and len(syncs) == 2


@pytest.mark.parametrize("name", ["append_segment", "heartbeat"])
async def test_text_and_heartbeats_wait_for_no_disk(store: SQLiteStateStore, syncs: Syncs, name: str) -> None:
    await store.transact(name, [put("1")])
    assert not syncs


async def test_normal_waits_for_no_disk(tmp_path: Path, syncs: Syncs) -> None:
    store = SQLiteStateStore(tmp_path / "helix.db", synchronous="NORMAL")
    await store.transact("step", [put("1")])
    await store.close()
    assert not syncs


async def test_after_a_sync_that_failed_nothing_is_written(
    store: SQLiteStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have dropped what it could not write, and may report the next sync as successful."""

    def broken(number: int) -> None:
        monkeypatch.undo()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(sqlite_log, "_flush_to_disk", broken)
    with pytest.raises(StoreError, match="Input/output error"):
        await store.transact("step", [put("1")])
    with pytest.raises(StoreError, match="Input/output error"):
        await store.transact("step", [put("2")])
    assert await store.get([key("2")]) == [None]


async def test_own_commits_wake_no_other_watch(store: SQLiteStateStore) -> None:
    with store.watch("control", "elsewhere") as watch:
        await asyncio.sleep(0.02)
        for number in range(20):
            await store.transact("step", [put(str(number))])
        begun = time.monotonic()
        await watch.changed(0.3)
        assert time.monotonic() - begun > 0.25


# --- the queue -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the transactions of each commit."""
    found: list[list[str]] = []

    def commit(db: sqlite3.Connection, group: list[tuple[str, list[Operation]]]) -> list[Exception | None]:
        refusals = sqlite_commits.commit(db, group)
        found.append([name for name, _ in group])
        return refusals

    monkeypatch.setattr(sqlite, "commit", commit)
    return found


async def begun(store: SQLiteStateStore, *given: tuple[str, Sequence[Operation]]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(store.transact(name, operations)) for name, operations in given]
    await asyncio.sleep(0.02)
    return tasks


async def test_what_waits_is_written_in_order_and_at_once(store: SQLiteStateStore, groups: list[list[str]]) -> None:
    with written_by_another(store):
        waiting = await begun(store, *((f"t{n}", [Put(key("row"), {"n": n})]) for n in range(5)))
        beating = await begun(store, ("heartbeat", [put("alive")]))
        assert not any(task.done() for task in waiting + beating)
    later = store.transact("later", [Update(key("row"), set={"later": True})])
    await asyncio.gather(*waiting, *beating, later)
    assert groups[0] == ["heartbeat", "t0", "t1", "t2", "t3", "t4", "later"]
    assert await store.get([key("row")]) == [{"n": 4, "later": True}]


async def test_those_of_a_turn_share_a_commit_after_the_first(store: SQLiteStateStore, groups: list[list[str]]) -> None:
    given = [(f"t{n}", [put(str(n))]) for n in range(5)]
    await asyncio.gather(*(store.transact(*one) for one in [*given, ("heartbeat", [put("alive")])]))
    assert groups == [["t0"], ["heartbeat", "t1", "t2", "t3", "t4"]]
    groups.clear()
    for n in range(5, 8):
        await store.transact(f"t{n}", [put(str(n))])
    assert groups == [["t5"], ["t6"], ["t7"]], "a single transaction does not wait"


async def test_a_commit_has_a_bound(store: SQLiteStateStore, groups: list[list[str]]) -> None:
    sizes = [1, 100, 100, sqlite_commits.GROUP - 200, 1, 100]
    rows = iter(range(10_000))
    given = [(f"t{n}", [put(str(next(rows))) for _ in range(size)]) for n, size in enumerate(sizes)]
    await asyncio.gather(*(store.transact(*one) for one in given))
    assert groups == [["t0"], ["t1", "t2", "t3"], ["t4", "t5"]]


async def test_each_is_judged_on_what_those_before_it_wrote(store: SQLiteStateStore, groups: list[list[str]]) -> None:
    with written_by_another(store):
        waiting = await begun(
            store,
            ("made", [put("row")]),
            ("refused", [put("beside"), put("row", 2)]),
            ("added", [Update(key("row"), add={"n": 5})]),
        )
    made, refused, added = await asyncio.gather(*waiting, return_exceptions=True)
    assert (made, added) == (None, None) and len(groups) == 1
    assert isinstance(refused, ConditionFailedError) and (refused.name, refused.index) == ("refused", 1)
    assert await store.get([key("row"), key("beside")]) == [{"n": 6}, None]


async def test_one_that_cannot_be_written_does_not_take_others_along(
    store: SQLiteStateStore, groups: list[list[str]]
) -> None:
    with sqlite3.connect(store.path) as other:
        when = "BEFORE INSERT ON sessions_rows WHEN NEW.sort = 'bad'"
        other.execute(f"CREATE TRIGGER bad {when} BEGIN SELECT RAISE(ROLLBACK, 'no'); END")
    other.close()
    with written_by_another(store):
        waiting = await begun(store, ("one", [put("1")]), ("bad", [put("bad")]), ("two", [put("2")]))
    one, bad, two = await asyncio.gather(*waiting, return_exceptions=True)
    assert (one, two) == (None, None) and isinstance(bad, StoreError)
    assert await store.get([key("1"), key("bad"), key("2")]) == [{"n": 1}, None, {"n": 1}]


async def test_who_waits_too_long_is_told(tmp_path: Path) -> None:
    store = SQLiteStateStore(tmp_path / "helix.db", busy_timeout_s=0.1)
    await store.get([key("0")])
    with written_by_another(store), pytest.raises(StoreError, match="database is locked"):
        await store.transact("step", [put("1")])
    await store.transact("step", [put("2")])
    assert await store.get([key("1"), key("2")]) == [None, {"n": 1}]
    await store.close()


async def test_who_is_cancelled_in_line_writes_nothing(store: SQLiteStateStore) -> None:
    with written_by_another(store):
        one, two = await begun(store, ("one", [put("1")]), ("two", [put("2")]))
        one.cancel()
        await asyncio.sleep(0)
    await two
    assert one.cancelled() and await store.get([key("1"), key("2")]) == [None, {"n": 1}]


# --- the URL -------------------------------------------------------------------------------------------------------------


async def test_a_url_names_the_file_and_the_setting(tmp_path: Path, syncs: Syncs) -> None:
    for query, synced in (("?synchronous=normal", 0), ("?synchronous=FULL", 1), ("", 2)):
        async with LocalExecutor(f"sqlite:///{tmp_path}/a%20b.db{query}") as executor:
            await executor.store.transact("step", [put(f"row{query}")])
        assert len(syncs) == synced
    assert (tmp_path / "a b.db").is_file()


@pytest.mark.parametrize("rest", ["", "?synchronous=off", "?mode=ro", "?synchronous=full&cache=shared"])
def test_a_url_that_says_something_else_is_refused(rest: str) -> None:
    with pytest.raises(InvalidInputError, match="write sqlite:///FILE"):
        LocalExecutor(f"sqlite:///{'x.db' if rest else ''}{rest}")
