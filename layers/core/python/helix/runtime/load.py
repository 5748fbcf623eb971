"""Watches the load of a process that runs agents.

When the event loop is late, heartbeats are late too, and another process may take over its runs. `LoadWatch` reports that.
When many runs are active, Python's garbage collector scans all their objects again and again, and finds almost nothing.
`LoadWatch` makes it run less often. Reference counting frees what runs leave behind; only cycles wait for the collector.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

from helix._log import get_logger
from helix.core.measures import Measures
from helix.ports.metrics import Metrics

LOOK_S = 1.0
LATE_S = 1.0
FEW = 50
"""The number of runs that cannot keep a processor busy. If the loop is late with no more runs than this, something else is
blocking it."""
COLLECTED = (10_000, 20, 20)
"""The collector's thresholds (`gc.set_threshold`) while more runs than `FEW` are active."""
logger = get_logger("helix")


class LoadWatch:
    """A watch on the event loop. `working` returns the number of active runs. The watch records `LoopLag` each second while
    the loop is late, and warns when the loop falls behind. If the process has set a higher first threshold itself, the
    thresholds are left unchanged."""

    def __init__(self, metrics: Metrics, working: Callable[[], int]) -> None:
        self._metrics, self._working = metrics, working
        self._timer: asyncio.TimerHandle | None = None
        self._behind = False
        self._thresholds: tuple[int, int, int] | None = None

    def begin(self) -> None:
        """Watch from now on, until no run is active."""
        if self._timer is None:
            self._schedule_check(asyncio.get_running_loop())

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._restore_collector()

    def _schedule_check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(LOOK_S, self._check_load, loop, loop.time() + LOOK_S)

    def _check_load(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        late = loop.time() - due
        working = self._working()
        if late >= LATE_S:
            self._metrics.record(Measures({"LoopLag": late * 1000}))
            if not self._behind:
                logger.warning("the event loop was late by %.1f s: %s", late, _cause(working))
        self._behind = late >= LATE_S
        if working > FEW and gc.get_threshold()[0] < COLLECTED[0]:
            self._thresholds = self._thresholds or gc.get_threshold()
            gc.set_threshold(*COLLECTED)
        self._timer = None
        if working:
            self._schedule_check(loop)
        else:
            self._restore_collector()

    def _restore_collector(self) -> None:
        if self._thresholds is not None and gc.get_threshold() == COLLECTED:
            gc.set_threshold(*self._thresholds)
        self._thresholds = None


def _cause(working: int) -> str:
    if working > FEW:
        return f"{working} runs are at work in this process. Lower max_runs, or add processes"
    return "something blocks it. Make a tool that computes, or that waits without await, a plain function: it gets a thread"
