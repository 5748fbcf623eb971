"""Watches whether the event loop of this process keeps up. Where it is late, heartbeats are late too, and other processes
may take its runs over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from helix._log import get_logger
from helix.core.measures import Measures
from helix.ports.metrics import Metrics

LOOK_S = 1.0
LATE_S = 1.0
FEW = 50
"""So many runs do not keep a processor busy: then something else holds the loop."""
logger = get_logger("helix")


class LagWatch:
    """`working`: how many runs are at work. Records `LoopLag` each second while the loop is late, and warns each time it
    falls behind."""

    def __init__(self, metrics: Metrics, working: Callable[[], int]) -> None:
        self._metrics, self._working = metrics, working
        self._timer: asyncio.TimerHandle | None = None
        self._behind = False

    def begin(self) -> None:
        """Watch from now on, until no run is at work."""
        if self._timer is None:
            self._next()

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_S, self._look, loop.time() + LOOK_S)

    def _look(self, due: float) -> None:
        late = asyncio.get_running_loop().time() - due
        working = self._working()
        if late >= LATE_S:
            self._metrics.record(Measures({"LoopLag": late * 1000}))
            if not self._behind:
                logger.warning("the event loop was late by %.1f s: %s", late, _cause(working))
        self._behind = late >= LATE_S
        self._timer = None
        if working:
            self._next()


def _cause(working: int) -> str:
    if working > FEW:
        return f"{working} runs are at work in this process. Lower max_runs, or add processes"
    return (
        "something holds it. Make a tool that computes, or that waits without await, a plain function: it gets a thread"
    )
