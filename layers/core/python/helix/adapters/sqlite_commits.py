"""Commits the transactions of a SQLite store.

The first transaction in a turn of the event loop is committed at once. Later ones wait until the turn ends. All wait
while another process writes.

Law: transactions that wait keep their order and share one commit. The conditions of each are checked against the writes
of those before it. A transaction that is refused writes nothing. Heartbeats go first.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from helix.adapters.sqlite_schema import delete_row, put_row
from helix.core.json import dumps
from helix.ports.state_store import HEARTBEAT, Check, Key, Operation, Value, applied, read_value

BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
RETRY_S = 0.001
"""The delay between two attempts to commit the waiting transactions."""
GROUP = 256
"""The maximum number of operations in one commit. A commit of this size blocks the event loop for a few
milliseconds."""
Transaction = tuple[str, Sequence[Operation]]


def commit(db: sqlite3.Connection, group: Sequence[Transaction]) -> list[Exception | None]:
    """Commit the group. Return for each transaction the error that refused it, or None if it was written. Raises
    `sqlite3.Error` if nothing is written."""
    db.execute("BEGIN IMMEDIATE")
    try:
        refusals = [_apply(db, *transaction) for transaction in group]
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk has rolled it back already
            db.execute("ROLLBACK")
        raise
    return refusals


def _apply(db: sqlite3.Connection, name: str, operations: Sequence[Operation]) -> Exception | None:
    try:
        after = [
            (operation.key, None if value is None else dumps(value))
            for index, operation in enumerate(operations)
            for value in [applied(name, index, operation, partial(load, db, operation.key))]
            if not isinstance(operation, Check)
        ]
    except sqlite3.Error:
        raise
    except Exception as error:
        return error
    for key, text in after:
        if text is None:
            delete_row(db, *key)
        else:
            put_row(db, *key, text)
    return None


def load(db: sqlite3.Connection, key: Key) -> Value | None:
    sql = f"SELECT value FROM {key.table} WHERE partition = ? AND sort = ?"
    row = db.execute(sql, (key.partition, key.sort)).fetchone()
    return None if row is None else read_value(key, row[0])


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection is writing, so that the transaction may be repeated."""
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in BUSY


@dataclass(slots=True, eq=False)
class _Waiting:
    transaction: Transaction
    """The name and operations of the transaction."""
    until: float
    """The caller's deadline, in seconds of `time.monotonic`."""
    done: asyncio.Future[None]
    """The caller's future: done when the transaction is written or refused."""


class Line:
    """The queue of one event loop's transactions. `commit` commits on the store's connection that never waits."""

    def __init__(self, commit: Callable[[Sequence[Transaction]], list[Exception | None]]) -> None:
        self._commit = commit
        self._line: deque[_Waiting] = deque()
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle | None = None
        """The scheduled call of `_write_waiting`. None: no transaction was committed in this turn, and none waits."""

    async def write_transaction(self, name: str, operations: Sequence[Operation], patience_s: float) -> None:
        """Return once the transaction is written. Raises the error that refused it, or `sqlite3.Error` if another
        process still writes after `patience_s`. If the caller is cancelled before the commit, nothing is written."""
        if self._next is None and self._write_at_once((name, operations)):
            return
        waiting = _Waiting((name, operations), time.monotonic() + patience_s, self._loop.create_future())
        if name == HEARTBEAT:
            self._line.appendleft(waiting)
        else:
            self._line.append(waiting)
        try:
            await waiting.done
        except asyncio.CancelledError:
            if waiting in self._line:
                self._line.remove(waiting)
            raise

    def _write_at_once(self, transaction: Transaction) -> bool:
        """Commit the transaction, and return False if another connection is writing."""
        self._next = self._loop.call_soon(self._write_waiting)
        try:
            (refusal,) = self._commit([transaction])
        except sqlite3.OperationalError as error:
            if is_busy(error):
                return False
            raise
        if refusal is not None:
            raise refusal
        return True

    def _write_waiting(self) -> None:
        """Write as many of the waiting transactions as fit into one commit."""
        if not self._line:
            self._next = None
            return
        group = self._take_group()
        self._next = self._loop.call_soon(self._write_waiting)
        try:
            self._write(group)
        except sqlite3.OperationalError as error:
            self._next.cancel()
            self._next = self._loop.call_later(RETRY_S, self._write_waiting)
            now = time.monotonic()
            for waiting in [each for each in self._line if each.until < now]:
                self._resolve(waiting, error)

    def _take_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        for waiting in self._line:
            size += len(waiting.transaction[1])
            if group and size > GROUP:
                break
            group.append(waiting)
        return group

    def _write(self, group: Sequence[_Waiting]) -> None:
        """Write a group. Raises `sqlite3.OperationalError` while another connection writes."""
        try:
            refusals = self._commit([each.transaction for each in group])
        except Exception as error:
            if isinstance(error, sqlite3.Error) and is_busy(error):
                raise
            if len(group) == 1:
                self._resolve(group[0], error)
            else:  # one of them cannot be written, and the others can
                for waiting in group:
                    self._write([waiting])
        else:
            for waiting, refusal in zip(group, refusals, strict=True):
                self._resolve(waiting, refusal)

    def _resolve(self, waiting: _Waiting, refusal: Exception | None) -> None:
        self._line.remove(waiting)
        if waiting.done.done():  # its caller was cancelled just now
            return
        if refusal is None:
            waiting.done.set_result(None)
        else:
            waiting.done.set_exception(refusal)
