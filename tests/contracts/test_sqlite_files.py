"""Contents of a SQLite store's file, and files of the version before."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.test_sqlite_limits import limited

from helix import SQLiteStateStore
from helix.adapters.sqlite_schema import INLINE, SCHEMA_VERSION, TABLES
from helix.core.errors import StoreError
from helix.core.json import dumps
from helix.ports.state_store import Damaged, Delete, Key, Put, Row

VALUES: dict[str, dict[str, Any]] = {
    "session": {"n": 1},
    "largest": {"text": "x" * (INLINE - len('{"text":""}'))},
    "larger": {"text": "x" * INLINE},
    "letters": {"text": "é" * (INLINE // 2)},
    "page": {"text": "x" * 100_000},
}
PARTITIONS = ("s", "t", "übung")

OPEN = """
import asyncio, os, signal, sqlite3, sys
from pathlib import Path
from helix import SQLiteStateStore
from helix.ports.state_store import Key, Put

path, me, last = sys.argv[1:]

class Mortal(sqlite3.Connection):
    def execute(self, sql, *values):
        if last in sql:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, *values)

async def main():
    store = SQLiteStateStore(path)
    if last:
        store._open = lambda timeout_s: sqlite3.connect(path, isolation_level=None, factory=Mortal)
    print(me, "is ready", flush=True)
    sys.stdin.readline()
    await store.transact("mine", [Put(Key("sessions", "s", f"of-{me}"), {"by": me})])
    print(len(await store.query("sessions", "s")))
    await store.close()

asyncio.run(main())
"""


def first_version(path: Path) -> None:
    """Create a file as version 1 did, including a damaged row."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode = WAL")
        for table in TABLES:
            db.execute(
                f"CREATE TABLE {table} (partition TEXT NOT NULL, sort TEXT NOT NULL, value TEXT NOT NULL,"
                " PRIMARY KEY (partition, sort))"
            )
            db.executemany(
                f"INSERT INTO {table} VALUES (?, ?, ?)",
                [(partition, sort, dumps(value)) for sort, value in VALUES.items() for partition in PARTITIONS],
            )
        db.execute("INSERT INTO sessions VALUES ('damaged', 'session', '{')")
        db.execute("PRAGMA user_version = 1")


@pytest.fixture
def path() -> Iterator[Path]:
    """A file of version 1 in a folder that other users may enter."""
    with tempfile.TemporaryDirectory() as folder:
        first_version(Path(folder) / "helix.db")
        yield Path(folder) / "helix.db"


def shown(path: Path) -> dict[str, list[tuple[str, str, str]]]:
    """Return the rows that `sqlite3 helix.db` shows, by table."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {table: db.execute(f"SELECT * FROM {table} ORDER BY partition, sort").fetchall() for table in TABLES}


def tables(path: Path) -> dict[str, int]:
    """Return the number of rows of each table."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        counted = set(names) - {"last_partition"}
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in counted}


async def test_a_file_of_version_1_is_moved_to_the_present_one(path: Path) -> None:
    before = shown(path)
    store = SQLiteStateStore(path)
    for table in TABLES:
        for partition in PARTITIONS:
            rows = [Row(Key(table, partition, sort), value) for sort, value in sorted(VALUES.items())]
            assert await store.query(table, partition) == rows
    assert isinstance((await store.get([Key("sessions", "damaged", "session")]))[0], Damaged)
    assert shown(path) == before
    assert tables(path) == {
        "partitions": len(PARTITIONS) + 1,
        "large": 3 * len(PARTITIONS) * len(TABLES),
        "sessions_rows": len(PARTITIONS) * len(VALUES) + 1,
        "streams_rows": len(PARTITIONS) * len(VALUES),
        "control_rows": len(PARTITIONS) * len(VALUES),
    }
    await store.transact("more", [Put(Key("sessions", "s", "session"), {"n": 2}), Delete(Key("control", "t", "page"))])
    assert len(await store.query("control", "t")) == len(VALUES) - 1
    await store.close()


@pytest.mark.parametrize("folder_too", [False, True])
def test_a_file_of_version_1_that_may_only_be_read_is_read_as_it_is(path: Path, folder_too: bool) -> None:
    user = 65534 if os.geteuid() == 0 else 0  # file modes do not restrict root
    path.chmod(0o444)
    path.parent.chmod(0o555 if folder_too else 0o777)
    try:
        first, refused, again = limited(path, user=user)
    finally:
        path.parent.chmod(0o755)
    assert first == again == "read {'n': 1}"
    assert "refused" in refused and "readonly" in refused


def test_processes_that_open_a_file_of_version_1_at_once_move_it_once(path: Path) -> None:
    before = shown(path)
    each = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, str(path), str(me), ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for me in range(4)
    ]
    for process in each:
        assert process.stdout is not None and "ready" in process.stdout.readline()
    for process in each:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in each:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0 and not err, err
        assert len(VALUES) < int(out) <= len(VALUES) + len(each)
    after = shown(path)
    added = [("s", f"of-{me}", json.dumps({"by": str(me)}, separators=(",", ":"))) for me in range(len(each))]
    assert after == {**before, "sessions": sorted(before["sessions"] + added)}


@pytest.mark.parametrize("last", ["CREATE TABLE large", "INSERT INTO streams_rows", "DROP TABLE control", "COMMIT"])
async def test_a_process_that_dies_while_it_moves_a_file_leaves_it_as_it_was(path: Path, last: str) -> None:
    before = shown(path)
    run = partial(subprocess.run, input="\n", capture_output=True, text=True, check=False)
    done = await asyncio.to_thread(run, [sys.executable, "-c", OPEN, str(path), "0", last])
    assert done.returncode == -signal.SIGKILL, done
    assert tables(path) == {table: len(rows) for table, rows in before.items()} and shown(path) == before
    store = SQLiteStateStore(path)
    assert await store.get([Key("sessions", "s", "page")]) == [VALUES["page"]]
    assert shown(path) == before and "partitions" in tables(path)
    await store.close()


async def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "helix.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    store = SQLiteStateStore(path)
    with pytest.raises(StoreError, match=f"schema version {SCHEMA_VERSION + 1}"):
        await store.get([Key("sessions", "s", "session")])
    await store.close()


async def test_nothing_is_left_of_rows_that_are_gone(tmp_path: Path) -> None:
    store = SQLiteStateStore(tmp_path / "helix.db")
    keys = [Key(table, partition, sort) for table in TABLES for partition in PARTITIONS for sort in VALUES]
    for number in (1, 2):  # the second copy replaces the first
        await store.transact("put", [Put(key, {**VALUES[key.sort], "ttl": number}) for key in keys])
        assert (tables(store.path)["partitions"], tables(store.path)["large"]) == (len(PARTITIONS), 4 * 3 * 3)
    await store.transact("smaller", [Put(key, {"ttl": 3}) for key in keys if key.table == "streams"])
    assert tables(store.path)["large"] == 4 * 3 * 2
    await store.transact("gone", [Delete(key) for key in keys if key.partition == "s" and key.table != "control"])
    assert tables(store.path)["partitions"] == 3
    await store.transact("back", [Put(Key("sessions", "s", "session"), VALUES["page"])])
    assert await store.get([Key("sessions", "s", "session")]) == [VALUES["page"]]
    await store.transact("gone", [Delete(key) for key in keys if key.partition == "s"])
    assert tables(store.path)["partitions"] == 2
    assert await store.purge(4.0) == 3 * 2 * len(VALUES)
    assert set(tables(store.path).values()) == {0}
    await store.close()


async def test_a_value_takes_no_page_of_its_own(tmp_path: Path) -> None:
    """If they were stored in their rows, 1,000 values of 1,100 bytes would take 4.6 MB."""
    store = SQLiteStateStore(tmp_path / "helix.db")
    for n in range(1000):
        await store.transact("put", [Put(Key("sessions", f"s{n}", "session"), {"text": "x" * 1100})])
    await store.close()
    assert store.path.stat().st_size < 1_600_000
