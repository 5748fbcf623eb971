"""The state store in one SQLite file: durable, and safe for several processes at once.

WAL mode: a transaction that was answered survives the death of every process. Each store writes on one thread, because
a write waits for the disk and for other processes; it reads where it is called, because a read waits for nobody and
takes less time than handing it over. Rows are JSON text, so `sqlite3 helix.db` can look at everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from helix.adapters.watching import Watchers
from helix.core.errors import StoreError
from helix.core.json import dumps
from helix.ports.state_store import (
    Check,
    Key,
    Operation,
    Row,
    Table,
    Value,
    Watch,
    applied,
    check_operations,
    read_value,
)

T = TypeVar("T")
SCHEMA_VERSION = 1
TABLES: tuple[Table, ...] = ("sessions", "streams", "control")
PURGED_AT_ONCE = 500
UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
# `instr` spares the parsing of rows that name no expiry, all but a few; a damaged row does not stop the others
EXPIRED = """CASE WHEN instr(value, '"ttl":') AND json_valid(value) AND json_type(value, '$.ttl') IN ('integer', 'real')
    THEN json_extract(value, '$.ttl') < ? END"""


class SQLiteStateStore:
    """`path` is made if it does not exist. `busy_timeout_s` bounds the wait for another process's transaction.

    `synchronous="NORMAL"` loses nothing when processes die, and may lose the last transactions, whole, when the power
    fails; `"FULL"` waits for the disk at every commit and does not lose those either. Raises `StoreError` if the file
    is no Helix store or cannot be opened.
    """

    def __init__(
        self, path: str | Path, *, busy_timeout_s: float = 30, synchronous: Literal["FULL", "NORMAL"] = "NORMAL"
    ) -> None:
        self.path = Path(path)
        self._uri: str | None = None
        self._busy_timeout_s, self._synchronous = busy_timeout_s, synchronous
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="helix-sqlite")
        self._connection: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._reading = threading.Lock()
        self._foreign = 0
        self._closed = False
        self._watchers = Watchers(self._written_by_others)

    # --- verbs ----------------------------------------------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        return await self._read(lambda db: [_load(db, key) for key in keys])

    async def query(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        sql = f"SELECT sort, value FROM {table} WHERE partition = ? AND sort >= ?"
        values: list[str | int] = [partition, start]
        if end is not None:
            sql += " AND sort < ?"
            values.append(end)
        sql += f" ORDER BY sort {'DESC' if reverse else 'ASC'} LIMIT ?"
        values.append(-1 if limit is None else limit)
        rows = await self._read(lambda db: db.execute(sql, values).fetchall())
        return [Row(key := Key(table, partition, sort), read_value(key, text)) for sort, text in rows]

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        check_operations(name, operations)
        await self._run(lambda db: _transact(db, name, operations))
        self._watchers.wake((o.key.table, o.key.partition) for o in operations if not isinstance(o, Check))

    async def purge(self, now: float) -> int:
        """Other processes that write meanwhile wait for a page of deletions, not for the search."""
        gone = 0
        for table in TABLES:
            sql = f"SELECT partition, sort FROM {table} WHERE {EXPIRED}"
            found = await self._run(lambda db, sql=sql: db.execute(sql, (now,)).fetchall())  # type: ignore[misc]
            sql = f"DELETE FROM {table} WHERE partition = ? AND sort = ? AND {EXPIRED}"
            for first in range(0, len(found), PURGED_AT_ONCE):
                rows = [(*row, now) for row in found[first : first + PURGED_AT_ONCE]]
                gone += await self._run(partial(_together, sql=sql, rows=rows))
                self._watchers.wake((table, partition) for partition, *_ in rows)
        return gone

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self._watchers.watch((table, partition))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)
            with self._reading:
                if self._reader is not None:
                    self._reader.close()
                    self._reader = None

    # --- reading, in place ----------------------------------------------------------------------------------------

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreError(f"the store {str(self.path)!r} is closed")
        if self._reader is None:
            await self._run(lambda _: None)  # makes the file and its tables
            with self._reading:
                if self._reader is None:
                    self._reader = self._open(0.05)
        try:
            with self._reading:
                return work(self._reader)
        except sqlite3.Error:  # recovery or a checkpoint holds the file for a moment: wait for it off the event loop
            return await self._run(work)

    # --- the thread -----------------------------------------------------------------------------------------------

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreError(f"the store {str(self.path)!r} is closed")
        loop = asyncio.get_running_loop()
        # Shielded: a cancelled caller must not leave a transaction half known; the thread finishes it either way.
        done = loop.run_in_executor(self._thread, self._guarded, work)
        done.add_done_callback(lambda future: future.cancelled() or future.exception())  # nobody may be left to ask
        return await asyncio.shield(done)

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._connect()
            return work(self._connection)
        except (sqlite3.Error, OSError) as error:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise StoreError(f"SQLite store {str(self.path)!r}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        try:
            return self._open_for_writing()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in UNWRITABLE or not self.path.is_file():
                raise
            return self._open_for_reading(error)

    def _open_for_reading(self, why: sqlite3.OperationalError) -> sqlite3.Connection:
        """A file that may not be written, as it is. `immutable`: not even its folder may; then nobody writes it now."""
        log = self.path.with_name(f"{self.path.name}-wal")
        unread = log.is_file() and log.stat().st_size > 0
        for mode in ("mode=ro", *([] if unread else ["mode=ro&immutable=1"])):
            self._uri = f"{self.path.resolve().as_uri()}?{mode}"
            db = self._open(self._busy_timeout_s)
            with contextlib.suppress(sqlite3.OperationalError):  # then the next mode may do
                if db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
                    return db
            db.close()
        raise why

    def _open(self, timeout_s: float) -> sqlite3.Connection:
        file, uri = self._uri or self.path, self._uri is not None
        return sqlite3.connect(file, uri=uri, timeout=timeout_s, isolation_level=None, check_same_thread=False)

    def _open_for_writing(self) -> sqlite3.Connection:
        if self.path.parent and not self.path.parent.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
        db = self._open(self._busy_timeout_s)
        _patiently(db, "PRAGMA journal_mode = WAL", self._busy_timeout_s)
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            db.execute("BEGIN IMMEDIATE")
            for table in TABLES:
                db.execute(
                    f"CREATE TABLE IF NOT EXISTS {table}"
                    " (partition TEXT NOT NULL, sort TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (partition, sort))"
                )
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            db.execute("COMMIT")
        elif version != SCHEMA_VERSION:
            db.close()
            raise StoreError(
                f"{str(self.path)!r} has schema version {version}, this Helix reads {SCHEMA_VERSION}: use another file"
            )
        return db

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _written_by_others(self) -> int:
        """A number that changes when another connection commits. Asked on the store's thread, answered by the last ask:
        a change is seen one poll later, and the event loop never waits for the file."""
        if not self._closed:
            self._thread.submit(self._ask_version)
        return self._foreign

    def _ask_version(self) -> None:
        if self._connection is not None:
            self._foreign = self._connection.execute("PRAGMA data_version").fetchone()[0]


def _patiently(db: sqlite3.Connection, sql: str, timeout_s: float) -> None:
    """Changing the journal mode ignores the busy timeout when several processes open a new file at once."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            db.execute(sql)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _load(db: sqlite3.Connection, key: Key) -> Value | None:
    sql = f"SELECT value FROM {key.table} WHERE partition = ? AND sort = ?"
    row = db.execute(sql, (key.partition, key.sort)).fetchone()
    return None if row is None else read_value(key, row[0])


def _transact(db: sqlite3.Connection, name: str, operations: Sequence[Operation]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        for index, operation in enumerate(operations):
            _apply(db, name, index, operation)
    except BaseException:
        if db.in_transaction:  # a full disk has rolled it back already
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _together(db: sqlite3.Connection, sql: str, rows: Sequence[tuple[str, str, float]]) -> int:
    db.execute("BEGIN IMMEDIATE")
    changed = db.executemany(sql, rows).rowcount
    db.execute("COMMIT")
    return changed


def _apply(db: sqlite3.Connection, name: str, index: int, operation: Operation) -> None:
    key = operation.key
    value = applied(name, index, operation, partial(_load, db, key))
    if isinstance(operation, Check):
        return
    if value is None:
        db.execute(f"DELETE FROM {key.table} WHERE partition = ? AND sort = ?", (key.partition, key.sort))
        return
    sql = (
        f"INSERT INTO {key.table} (partition, sort, value) VALUES (?, ?, ?)"
        " ON CONFLICT (partition, sort) DO UPDATE SET value = excluded.value"
    )
    db.execute(sql, (key.partition, key.sort, dumps(value)))
