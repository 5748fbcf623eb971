"""Stop records: interrupt and abort, durable and of one run only (PROTOCOL 7)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from helix.core.errors import StoreError
from helix.core.row_keys import stop_sort
from helix.core.rows import SessionRow, StopRow
from helix.engine.engine import Engine, logger
from helix.engine.history import row_key, session_key


async def read_stop(engine: Engine, session: SessionRow, run_id: str) -> StopRow | None:
    """The stop record of this run, or of the current run of one of its ancestors."""
    (value,) = await engine.store.get([row_key(session.session_id, stop_sort(run_id))])
    return await judge_stop(engine, session, run_id, value)


async def judge_stop(engine: Engine, session: SessionRow, run_id: str, value: dict[str, Any] | None) -> StopRow | None:
    """The same, from the run's own stop row as already read."""
    if value is not None:
        return StopRow.model_validate(value)
    if session.parent is None:
        return None
    (above,) = await engine.store.get([session_key(session.parent.session_id)])
    if above is None:
        return None
    parent = SessionRow.model_validate(above)
    stop = await read_stop(engine, parent, parent.run_id)
    if stop is None and parent.status == "failed" and parent.aborted:
        return StopRow(run_id=run_id, stop="abort", reason=parent.abort_reason)
    return stop


class StopWatch:
    """Looks for a stop every half second while a run works. `stop` is the record once it was seen."""

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


@asynccontextmanager
async def watch_stops(engine: Engine, session: SessionRow, run_id: str) -> AsyncIterator[StopWatch]:
    """A watch for the length of the block. Another process's stop is seen within `stop_poll_s`."""
    watch = StopWatch()

    async def look() -> None:
        while watch.stop is None:
            await asyncio.sleep(engine.settings.stop_poll_s)
            try:
                stop = await read_stop(engine, session, run_id)
            except StoreError:
                logger.warning("could not look for a stop of run %s; trying again", run_id, exc_info=True)
            else:
                if stop is not None:
                    watch.seen(stop)

    task = asyncio.get_running_loop().create_task(look())
    try:
        yield watch
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
