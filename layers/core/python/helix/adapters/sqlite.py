"""The state store in one SQLite file: durable, and safe for several processes at once.

WAL mode: an acknowledged transaction survives the death of every process, and by default also a power loss. A store
reads and commits on the calling thread, because a read or a commit takes less time than handing it to another thread.
Commits queue while another process writes (`sqlite_commits`). Commits that wait for the disk share its syncs
(`sqlite_log`). Purges and checkpoints of the log use the store's thread. Rows are JSON text, so `sqlite3 helix.db` can
show everything through the views of `sqlite_schema`.
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
from urllib.parse import parse_qsl, unquote

from helix._private_files import make_file, make_folder
from helix.adapters.sqlite_commits import Line, Transaction, commit, load
from helix.adapters.sqlite_log import CHECKPOINT_ROWS, Log, checkpoint, log_failure
from helix.adapters.sqlite_schema import TABLES, delete_row, prepare, readable
from helix.adapters.watching import Watchers
from helix.core.errors import InvalidInputError, StoreError
from helix.ports.state_store import (
    HEARTBEAT,
    Check,
    Key,
    Operation,
    Row,
    Table,
    Value,
    Watch,
    check_keys,
    check_operations,
    check_range,
    read_value,
)

T = TypeVar("T")
Synchronous = Literal["FULL", "NORMAL"]
URL = "sqlite:///"
PURGED_AT_ONCE = 500
UNSYNCED = frozenset({"append_segment", HEARTBEAT})
"""The transactions that do not wait for the disk. Lost stream text is streamed again with the next answer. After a
power loss, no process holds a claim."""
UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
# `instr` avoids parsing rows without an expiry, which are the majority. A damaged row does not block the others.
EXPIRED = """CASE WHEN instr(value, '"ttl":') AND json_valid(value) AND json_type(value, '$.ttl') IN ('integer', 'real')
    THEN json_extract(value, '$.ttl') < ? END"""


def read_sqlite_url(store: str) -> tuple[Path, Synchronous]:
    """Parse a path, or a URL such as `sqlite:///helix.db?synchronous=normal`, into the file and its setting. The path
    of a URL begins after the third slash. Raises `InvalidInputError`."""
    if not store.startswith("sqlite://"):
        return Path(store), "FULL"
    path, _, query = store.removeprefix(URL).partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    wanted = given.pop("synchronous", "full").upper()
    if not store.startswith(URL) or not path or given or wanted not in ("FULL", "NORMAL"):
        raise InvalidInputError(
            f"{store!r} is not the URL of a SQLite store: "
            "write sqlite:///FILE, with ?synchronous=full or ?synchronous=normal if needed"
        )
    return Path(unquote(path)), "FULL" if wanted == "FULL" else "NORMAL"


def open_sqlite(store: str) -> SQLiteStateStore:
    """Return the store at a path or URL. Raises `InvalidInputError`."""
    path, synchronous = read_sqlite_url(store)
    return SQLiteStateStore(path, synchronous=synchronous)


class SQLiteStateStore:
    """A store in a file, `path`, which is created if it does not exist. `busy_timeout_s` bounds the wait for another
    process's transaction.

    `synchronous="FULL"` waits for the disk before it acknowledges, and loses nothing when the power fails. Concurrent
    transactions share the wait. `"NORMAL"` does not wait: it loses nothing when processes die, and may lose the last
    transactions, as a whole, when the power fails. Raises `StoreError` if the file is not a Helix store or cannot be
    opened.
    """

    def __init__(self, path: str | Path, *, busy_timeout_s: float = 30, synchronous: Synchronous = "FULL") -> None:
        self.path = Path(path)
        self._uri: str | None = None
        self._busy_timeout_s = busy_timeout_s
        self._log = Log(self.path) if synchronous == "FULL" else None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="helix-sqlite")
        self._connection: sqlite3.Connection | None = None
        self._here: sqlite3.Connection | None = None
        self._using = threading.Lock()
        self._lines: dict[asyncio.AbstractEventLoop, Line] = {}
        self._unchecked = 0
        self._foreign = 0
        self._closed = False
        self._watchers = Watchers(self._foreign_version)

    # --- verbs ----------------------------------------------------------------------------------------------------

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        check_keys(keys)
        return await self._read(lambda db: [load(db, key) for key in keys])

    async def query(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        known_head: bool = False,
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
        await self._shared_connection()
        if self._uri is not None:
            raise self._store_error("the file is readonly")
        try:
            await self._commit(name, operations)
        except (sqlite3.Error, OSError) as error:
            raise self._store_error(error) from error
        self._watchers.wake((o.key.table, o.key.partition) for o in operations if not isinstance(o, Check))

    async def purge(self, now: float) -> int:
        """Delete expired rows. Writers in other processes wait for a page of deletions, not for the search."""
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
            if self._log is not None:
                await asyncio.to_thread(self._log.close)
            with self._using:
                if self._here is not None:
                    self._here.close()
                    self._here = None

    # --- in place -------------------------------------------------------------------------------------------------

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        db = await self._shared_connection()
        try:
            with self._using:
                return work(db)
        except sqlite3.Error:  # recovery or a checkpoint holds the file briefly, so wait for it off the event loop
            return await self._run(work)

    async def _commit(self, name: str, operations: Sequence[Operation]) -> None:
        if self._log is not None and self._log.failure is not None:
            raise self._log.failure
        await self._commit_line().write_transaction(name, operations, self._busy_timeout_s)
        if self._log is not None and name not in UNSYNCED:
            await self._log.synced()

    def _commit_group(self, group: Sequence[Transaction]) -> list[Exception | None]:
        with self._using:
            if self._here is None:
                raise self._closed_error()
            refusals = commit(self._here, group)
        self._unchecked += sum(len(operations) for _, operations in group)
        if self._unchecked >= CHECKPOINT_ROWS:
            self._unchecked = 0
            with contextlib.suppress(RuntimeError):  # closed by another event loop, which moves the log itself
                self._thread.submit(self._run_with_rollback, checkpoint).add_done_callback(log_failure)
        return refusals

    def _commit_line(self) -> Line:
        loop = asyncio.get_running_loop()
        with self._using:
            if loop not in self._lines:
                self._lines = {of: line for of, line in self._lines.items() if not of.is_closed()}
                self._lines[loop] = Line(self._commit_group)
            return self._lines[loop]

    async def _shared_connection(self) -> sqlite3.Connection:
        """Return the connection that never waits for another."""
        if self._closed:
            raise self._closed_error()
        if self._here is None:
            await self._run(lambda _: None)  # creates the file and its tables
            with self._using:
                if self._here is None:
                    self._here = self._open(0)
                    self._here.execute("PRAGMA wal_autocheckpoint = 0")
                    self._here.execute("PRAGMA synchronous = NORMAL")
        return self._here

    # --- the thread -----------------------------------------------------------------------------------------------

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise self._closed_error()
        loop = asyncio.get_running_loop()
        # Shielded: the thread finishes the transaction even if the caller is cancelled, so its outcome is never
        # unknown.
        try:
            done = loop.run_in_executor(self._thread, self._run_with_rollback, work)
        except RuntimeError as error:  # another event loop has closed it since
            raise self._closed_error() from error
        done.add_done_callback(lambda future: future.cancelled() or future.exception())  # the caller may be gone
        return await asyncio.shield(done)

    def _run_with_rollback(self, work: Callable[[sqlite3.Connection], T]) -> T:
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
        """Open a read-only file. `immutable` is for a file whose folder is read-only too, so that there can be no
        writers."""
        log = self.path.with_name(f"{self.path.name}-wal")
        unread = log.is_file() and log.stat().st_size > 0
        for mode in ("mode=ro", *([] if unread else ["mode=ro&immutable=1"])):
            self._uri = f"{self.path.resolve().as_uri()}?{mode}"
            db = self._open(self._busy_timeout_s)
            with contextlib.suppress(sqlite3.OperationalError):  # the next mode may work
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
        _execute_patiently(db, "PRAGMA journal_mode = WAL", self._busy_timeout_s)
        db.execute(f"PRAGMA synchronous = {'NORMAL' if self._log is None else 'FULL'}")
        db.execute("PRAGMA fullfsync = ON")  # for a checkpoint on macOS, see `sqlite_log`
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

    def _foreign_version(self) -> int:
        """Return a number that changes when another connection commits."""
        with self._using:
            if self._here is not None:
                with contextlib.suppress(sqlite3.Error):  # if busy, poll again; if broken, the next read raises
                    self._foreign = self._here.execute("PRAGMA data_version").fetchone()[0]
        return self._foreign


def _execute_patiently(db: sqlite3.Connection, sql: str, timeout_s: float) -> None:
    """Run a statement, with retries. A change of the journal mode ignores the busy timeout when several processes open
    a new file at once."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            db.execute(sql)
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _purge(db: sqlite3.Connection, table: Table, rows: Sequence[tuple[str, str]], now: float) -> int:
    sql = f"SELECT 1 FROM {table} WHERE partition = ? AND sort = ? AND {EXPIRED}"
    db.execute("BEGIN IMMEDIATE")
    gone = [row for row in rows if db.execute(sql, (*row, now)).fetchone()]
    for row in gone:
        delete_row(db, table, *row)
    db.execute("COMMIT")
    return len(gone)
