"""Stops: interrupts and aborts, each a durable record for a single run (docs/protocol.md#interrupt).

Law: a worker sees a stop of any run that it executes within `stop_poll_s`, whichever process it came from. All runs of
an event loop share one poll, so that a thousand runs cost only a few reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

from helix._log import get_logger
from helix.core.errors import StoreError
from helix.core.row_keys import stop_sort
from helix.core.rows import StopRow
from helix.core.session_row import SessionRow
from helix.engine.history import row_key, session_key
from helix.ports.state_store import Key, StateStore

logger = get_logger("helix")
AT_ONCE = 100
"""The maximum number of stop records that one read fetches."""


async def read_stop(store: StateStore, session: SessionRow, run_id: str) -> StopRow | None:
    """Return the stop record of this run, or of the current run of one of its ancestors."""
    (value,) = await store.get([_key(session, run_id)])
    return await judge_stop(store, session, run_id, value)


async def judge_stop(
    store: StateStore, session: SessionRow, run_id: str, value: dict[str, Any] | None
) -> StopRow | None:
    """Return the same as `read_stop`, given the run's own stop row (`value`), which has already been read."""
    if value is not None:
        own = StopRow.read(session.session_id, stop_sort(run_id), value)
        if own.stop is not None:
            return own
    if session.parent is None:
        return None
    (above,) = await store.get([session_key(session.parent.session_id)])
    if above is None:
        return None
    parent = SessionRow.at(session.parent.session_id, above)
    stop = await read_stop(store, parent, parent.run_id)
    if stop is None and parent.status == "failed" and parent.aborted:
        return StopRow(run_id=run_id, stop="abort", reason=parent.abort_reason)
    return stop


def _key(session: SessionRow, run_id: str) -> Key:
    return row_key(session.session_id, stop_sort(run_id))


class StopWatch:
    """The watch for a stop of one run. `stop` is the stop record, or None until it is seen."""

    def __init__(self) -> None:
        self.stop: StopRow | None = None
        self._call: asyncio.Future[Any] | None = None

    def cancelled(self) -> bool:
        return self.stop is not None

    def cancels(self, call: asyncio.Future[Any]) -> None:
        """Cancel `call` when a stop is seen, or now if it was seen already."""
        self._call = call
        if self.stop is not None:
            call.cancel()

    def seen(self, stop: StopRow) -> None:
        self.stop = stop
        if self._call is not None:
            self._call.cancel()


class Stops:
    """A poller that looks for stops of the runs that work in this process, every `poll_s` seconds."""

    def __init__(self, store: StateStore, poll_s: float) -> None:
        self._store, self._poll_s = store, poll_s
        self._polls: WeakKeyDictionary[asyncio.AbstractEventLoop, _Poll] = WeakKeyDictionary()

    @asynccontextmanager
    async def watch(self, session: SessionRow, run_id: str) -> AsyncIterator[StopWatch]:
        """Watch this run while the block works."""
        loop = asyncio.get_running_loop()
        poll = self._polls.setdefault(loop, _Poll(self._store, self._poll_s))
        watch = StopWatch()
        poll.add(watch, session, run_id)
        try:
            yield watch
        finally:
            await poll.remove(watch)


class _Poll:
    """The poll of one event loop. Its task runs while any run is watched."""

    def __init__(self, store: StateStore, poll_s: float) -> None:
        self._store, self._poll_s = store, poll_s
        self._runs: dict[StopWatch, tuple[SessionRow, str]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, watch: StopWatch, session: SessionRow, run_id: str) -> None:
        self._runs[watch] = session, run_id
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._poll_forever())

    async def remove(self, watch: StopWatch) -> None:
        del self._runs[watch]
        if not self._runs and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait({task})

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            waiting = [watch for watch in self._runs if watch.stop is None]
            for first in range(0, len(waiting), AT_ONCE):
                await self._read_stops(waiting[first : first + AT_ONCE])

    async def _read_stops(self, watches: Sequence[StopWatch]) -> None:
        runs = [(watch, *self._runs[watch]) for watch in watches if watch in self._runs]
        try:
            values = await self._store.get([_key(session, run_id) for _, session, run_id in runs])
        except Exception as error:
            _warn(f"{len(runs)} runs", error)
            return
        judgements = [
            self._judge(*run, value)
            for run, value in zip(runs, values, strict=True)
            if value is not None or run[1].parent is not None
        ]
        await asyncio.gather(*judgements)

    async def _judge(self, watch: StopWatch, session: SessionRow, run_id: str, value: dict[str, Any] | None) -> None:
        try:
            stop = await judge_stop(self._store, session, run_id, value)
        except Exception as error:
            _warn(f"run {run_id}", error)
        else:
            if stop is not None:
                watch.seen(stop)


def _warn(what: str, error: Exception) -> None:
    """Log a failed read, which must not end the watches of other runs."""
    if isinstance(error, StoreError):
        logger.warning("could not check whether to stop %s; trying again: %s", what, error)
    else:
        logger.exception("could not check whether to stop %s; trying again", what)
