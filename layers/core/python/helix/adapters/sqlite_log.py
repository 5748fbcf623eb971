"""The write-ahead log of a SQLite store: its syncs to the disk, and its checkpoints into the file.

Law: a commit writes to the log without waiting for the disk. A commit that must survive a power loss waits for the next
sync of the log; all waiting commits share one. Until then other processes may see such a commit. Their later writes
reach the disk after it, because the log is one file that is synced from its beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from weakref import WeakSet

from helix._log import get_logger

CHECKPOINT_ROWS = 2_000
"""The number of rows committed between two checkpoints of the log: about 16 MB."""
CHECKPOINT_WAIT_MS = 50
"""The maximum time, in milliseconds, that a checkpoint makes writers wait for readers of the log. The next checkpoint
tries again."""
logger = get_logger("helix.sqlite")
Waiting = list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]]


class Log:
    """The log of one store. `file`: the store's file. Its log is next to it while a connection is open. SQLite itself
    syncs the log's name and header, and the log before a checkpoint moves it."""

    def __init__(self, file: Path) -> None:
        self._file, self._number, self._closed = file, -1, False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="helix-sqlite-sync")
        self._lock, self._waiting, self._busy = threading.Lock(), Waiting(), False
        self._turns: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        self.failure: OSError | None = None
        """The error of a failed sync. Data that was not on disk at that time may never get there, even if a later sync
        succeeds."""

    async def synced(self) -> None:
        """Wait until all earlier commits are on the disk. Calls in one turn of the event loop share a sync. Raises
        `OSError`."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        with self._lock:
            self._waiting.append((loop, done))
            first = loop not in self._turns
            self._turns.add(loop)
        if first:
            loop.call_soon(self._begin, loop)
        await done

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._turns.discard(loop)
            begin = bool(self._waiting) and not self._busy
            self._busy = self._busy or begin
        if begin:
            try:
                self._thread.submit(self._sync_all)
            except RuntimeError:  # another event loop has closed the store
                self._sync_all()

    def _sync_all(self) -> None:
        while waiting := self._take_waiting():
            try:
                self._sync()
            except OSError as error:
                self.failure = error
            for loop in {loop for loop, _ in waiting}:
                futures = [done for of, done in waiting if of is loop]
                with contextlib.suppress(RuntimeError):  # the loop is closed, so there is no waiter
                    loop.call_soon_threadsafe(_resolve, futures, self.failure)

    def _take_waiting(self) -> Waiting:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._busy = bool(waiting)
        return waiting

    def _sync(self) -> None:
        if self._closed:
            raise OSError("the store was closed before this transaction was on the disk")
        if self._number < 0:
            log = self._file.resolve()
            self._number = os.open(log.with_name(f"{log.name}-wal"), os.O_RDWR)
        _flush_to_disk(self._number)

    def close(self) -> None:
        self._thread.shutdown()
        self._closed = True
        if self._number >= 0:
            os.close(self._number)
            self._number = -1


def _resolve(futures: list[asyncio.Future[None]], failure: OSError | None) -> None:
    for done in futures:
        if done.done():  # its caller was cancelled
            continue
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)


def _flush_to_disk(number: int) -> None:
    if sys.platform == "darwin":  # there fsync leaves the data in the disk's own cache
        import fcntl

        fcntl.fcntl(number, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(number)
    else:
        os.fsync(number)


def checkpoint(db: sqlite3.Connection) -> None:
    """Move the log into the file. Most of it moves while others write. They wait for the rest, because the log would
    otherwise grow forever. The first commit after that waits for the disk, so it is made here. It writes a number that
    is never read."""
    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    (patience,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout = {CHECKPOINT_WAIT_MS}")
    try:
        db.execute("PRAGMA wal_checkpoint(RESTART)")
    finally:
        db.execute(f"PRAGMA busy_timeout = {patience}")
    db.execute("PRAGMA application_id = 0")


def log_failure(done: Future[None]) -> None:
    if (error := done.exception()) is not None:
        logger.warning("the store's write-ahead log could not be moved into its file: %s", error)
