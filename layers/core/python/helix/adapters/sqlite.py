"""The state store in one SQLite file: durable, and safe for several processes at once.

WAL mode: a transaction that was answered survives the death of every process. A store reads and commits where it is
called, because a read or a small commit takes less time than a thread needs to take it over. What may wait goes to the
store's thread: a commit while another process writes, a large one, one that waits for the disk, and every checkpoint of
the log. Rows are JSON text, so `sqlite3 helix.db` can look at everything in the views of `sqlite_schema`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from helix._log import get_logger
from helix.adapters.private import make_file, make_folder
from helix.adapters.sqlite_schema import TABLES, delete_row, prepare, put_row, readable
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
    check_keys,
    check_operations,
    check_range,
    read_value,
)

T = TypeVar("T")
logger = get_logger("helix.sqlite")
PURGED_AT_ONCE = 500
IN_PLACE = 32
"""Operations of a transaction that is committed in place."""
CHECKPOINT_ROWS = 500
"""Rows committed in place between two checkpoints of the log: some 4 MB."""
CHECKPOINT_WAIT_MS = 50
"""How long a checkpoint keeps writers waiting for readers of the log. The next one tries again."""
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
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
        self._here: sqlite3.Connection | None = None
        self._using = threading.Lock()
        self._unchecked = 0
        self._foreign = 0
        self._closed = False
        self._watchers = Watchers(self._written_by_others)

    # --- verbs ----------------------------------------------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        check_keys(keys)
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
        beside_session: bool = False,
    ) -> list[Row]:
        check_range(partition, start, end)
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
        if not await self._commit_in_place(name, operations):
            await self._run(lambda db: _transact(db, name, operations))
        self._watchers.wake((o.key.table, o.key.partition) for o in operations if not isinstance(o, Check))

    async def purge(self, now: float) -> int:
        """Other processes that write meanwhile wait for a page of deletions, not for the search."""
        gone = 0
        for table in TABLES:
            sql = f"SELECT partition, sort FROM {table} WHERE {EXPIRED}"
            found = await self._run(lambda db, sql=sql: db.execute(sql, (now,)).fetchall())  # type: ignore[misc]
            for first in range(0, len(found), PURGED_AT_ONCE):
                rows = found[first : first + PURGED_AT_ONCE]
                gone += await self._run(partial(_purge, table=table, rows=rows, now=now))
                self._watchers.wake((table, partition) for partition, _ in rows)
        return gone

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self._watchers.watch((table, partition))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
            self._thread.shutdown(wait=False)
            with self._using:
                if self._here is not None:
                    self._here.close()
                    self._here = None

    # --- in place -------------------------------------------------------------------------------------------------

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        db = await self._in_place()
        try:
            with self._using:
                return work(db)
        except sqlite3.Error:  # recovery or a checkpoint holds the file for a moment: wait for it off the event loop
            return await self._run(work)

    async def _commit_in_place(self, name: str, operations: Sequence[Operation]) -> bool:
        """False: nothing is written, and the thread is to do it."""
        db = await self._in_place()
        if self._uri is not None:
            raise self._store_error("the file is readonly")
        if self._synchronous != "NORMAL" or len(operations) > IN_PLACE:
            return False
        try:
            with self._using:
                _transact(db, name, operations)
        except sqlite3.Error as error:
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in BUSY:
                return False
            raise self._store_error(error) from error
        self._unchecked += len(operations)
        if self._unchecked >= CHECKPOINT_ROWS:
            self._unchecked = 0
            with contextlib.suppress(RuntimeError):  # closed by another event loop, which moves the log itself
                self._thread.submit(self._guarded, _checkpoint).add_done_callback(_log_failure)
        return True

    async def _in_place(self) -> sqlite3.Connection:
        """The connection that never waits."""
        if self._closed:
            raise self._closed_error()
        if self._here is None:
            await self._run(lambda _: None)  # makes the file and its tables
            with self._using:
                if self._here is None:
                    self._here = self._open(0)
                    self._here.execute("PRAGMA wal_autocheckpoint = 0")
                    self._here.execute(f"PRAGMA synchronous = {self._synchronous}")
        return self._here

    # --- the thread -----------------------------------------------------------------------------------------------

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise self._closed_error()
        loop = asyncio.get_running_loop()
        # Shielded: a cancelled caller must not leave a transaction half known; the thread finishes it either way.
        try:
            done = loop.run_in_executor(self._thread, self._guarded, work)
        except RuntimeError as error:  # another event loop has closed it since
            raise self._closed_error() from error
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
            raise self._store_error(error) from error

    def _closed_error(self) -> StoreError:
        return StoreError(f"the store {str(self.path)!r} is closed")

    def _store_error(self, error: object) -> StoreError:
        return StoreError(f"SQLite store {str(self.path)!r}: {error}")

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
                if readable(db):
                    return db
            db.close()
        raise why

    def _open(self, timeout_s: float) -> sqlite3.Connection:
        file, uri = self._uri or self.path, self._uri is not None
        return sqlite3.connect(file, uri=uri, timeout=timeout_s, isolation_level=None, check_same_thread=False)

    def _open_for_writing(self) -> sqlite3.Connection:
        make_folder(self.path.parent)
        make_file(self.path)
        db = self._open(self._busy_timeout_s)
        _patiently(db, "PRAGMA journal_mode = WAL", self._busy_timeout_s)
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        try:
            prepare(db, str(self.path))
        except BaseException:
            db.close()
            raise
        return db

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _written_by_others(self) -> int:
        """A number that changes when another connection commits."""
        with self._using:
            if self._here is not None:
                with contextlib.suppress(sqlite3.Error):  # busy: the next poll answers; broken: the next read says so
                    self._foreign = self._here.execute("PRAGMA data_version").fetchone()[0]
        return self._foreign


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
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled it back already
            db.execute("ROLLBACK")
        raise


def _checkpoint(db: sqlite3.Connection) -> None:
    """Move the log into the file: most of it beside the writers, the rest while they wait, or the log would grow for ever.
    The first commit to the log after that waits for the disk, so it is made here: it writes a number that nobody reads."""
    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    (patience,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout = {CHECKPOINT_WAIT_MS}")
    try:
        db.execute("PRAGMA wal_checkpoint(RESTART)")
    finally:
        db.execute(f"PRAGMA busy_timeout = {patience}")
    db.execute("PRAGMA application_id = 0")


def _log_failure(done: Future[None]) -> None:
    if (error := done.exception()) is not None:
        logger.warning("the log of the store was not moved into its file: %s", error)


def _purge(db: sqlite3.Connection, table: Table, rows: Sequence[tuple[str, str]], now: float) -> int:
    sql = f"SELECT 1 FROM {table} WHERE partition = ? AND sort = ? AND {EXPIRED}"
    db.execute("BEGIN IMMEDIATE")
    gone = [row for row in rows if db.execute(sql, (*row, now)).fetchone()]
    for row in gone:
        delete_row(db, table, *row)
    db.execute("COMMIT")
    return len(gone)


def _apply(db: sqlite3.Connection, name: str, index: int, operation: Operation) -> None:
    key = operation.key
    value = applied(name, index, operation, partial(_load, db, key))
    if isinstance(operation, Check):
        return
    if value is None:
        delete_row(db, *key)
    else:
        put_row(db, *key, dumps(value))
