"""What a process uses, and holding it to what it may use.

Law: looked at from outside, because a process that takes too much can no longer be asked. Memory is the resident memory of
the process and of those under it: over the limit, it is ended. CPU: the process is bound to as many cores as the limit
needs, where the system lets (Linux); a limit that is no whole number of cores is kept by stopping the process group for a
moment whenever it has used more than its share (SIGSTOP, SIGCONT).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import signal
from dataclasses import dataclass

import psutil

MIB = 1024 * 1024
SLICE_S = 0.1
"""CPU above the share is noticed after so long."""
LONGEST_STOP_S = 1.0
"""No process stands still longer than this at a time: its leases must be renewed."""
_turn = itertools.count()


@dataclass(frozen=True, slots=True)
class Reading:
    """`cpu_s` is used since the process began; memory in MiB."""

    cpu_s: float
    memory_mb: float


def read(pid: int) -> Reading | None:
    """None: there is no such process any more."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return None
    cpu_s, memory = 0.0, 0
    for member in family:
        with contextlib.suppress(psutil.Error):  # it ended meanwhile
            with member.oneshot():
                times = member.cpu_times()
                cpu_s += times.user + times.system
                memory += member.memory_info().rss
    return Reading(cpu_s, memory / MIB)


def bind(pid: int, cores: float) -> bool:
    """Bind the process to this number of cores. True: that alone keeps the limit."""
    with contextlib.suppress(psutil.Error, OSError):  # it has ended already
        process = psutil.Process(pid)
        if not hasattr(process, "cpu_affinity"):
            return False
        there = sorted(process.cpu_affinity())
        needed = math.ceil(cores)
        if needed >= len(there):
            return cores >= len(there)
        first = next(_turn)  # processes one after the other take other cores
        process.cpu_affinity([there[(first + n) % len(there)] for n in range(needed)])
        return cores == needed
    return False


async def share(pid: int, cores: float) -> None:
    """Keep the process group of `pid` at or below `cores`, until cancelled or until it has ended."""
    loop = asyncio.get_running_loop()
    seen = read(pid)
    while seen is not None:
        since = loop.time()
        await asyncio.sleep(SLICE_S)
        now = read(pid)
        if now is None:
            return
        ahead = (now.cpu_s - seen.cpu_s) / cores - (loop.time() - since)
        if ahead > 0:
            await _stand(pid, min(ahead, LONGEST_STOP_S))
        seen = now


async def _stand(pid: int, seconds: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)
