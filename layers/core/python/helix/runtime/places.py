"""A limit on the runs that are active in one process at a time. Other runs wait for a place.

Law: a waiting run has claimed nothing, and runs get places in the order of their arrival. A run that another run starts
needs no place, so a parent never holds the place that its child waits for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar

from helix._log import get_logger
from helix.core.errors import QueueFullError

logger = get_logger("helix")
AT_WORK: ContextVar[bool] = ContextVar("helix_at_work", default=False)
"""True in the context of a run of this process."""


class Places:
    """The places of a process. `most`: the limit on active runs; None for no limit. `most_waiting`: the limit on
    waiting runs."""

    def __init__(self, most: int | None, most_waiting: int) -> None:
        self._most, self._most_waiting = most, most_waiting
        self._line: deque[asyncio.Future[None]] = deque()
        self.working = 0

    @property
    def waiting(self) -> int:
        return len(self._line)

    async def acquire(self, agent: str) -> bool:
        """Wait for a place. Return False inside a run, which needs no place. In that case the caller must not release
        one. Raises `QueueFullError`."""
        if AT_WORK.get():
            return False
        if self._most is None or (self.working < self._most and not self._line):
            self.working += 1
            return True
        if len(self._line) >= self._most_waiting:
            raise QueueFullError(agent, len(self._line), self._most_waiting)
        if not self._line:
            logger.warning("%d runs work in this process: others wait for their turn (max_runs)", self.working)
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the place had just been granted
                self.release()
            else:
                self._line.remove(turn)
            raise
        return True

    def release(self) -> None:
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)  # the place is handed over
                return
        self.working -= 1
