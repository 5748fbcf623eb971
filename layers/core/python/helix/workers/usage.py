"""Measures the resource usage of a process, and enforces its limits.

Law: the process is measured from the outside, because a process that uses too much may no longer respond. Memory is the
resident memory of the process and its descendants. A process that exceeds its memory limit is ended. For CPU, the process
is bound to as many cores as the limit needs, if the system allows it (Linux). That cannot enforce a limit with a fraction
of a core. For such a limit the process group is paused (SIGSTOP, SIGCONT) whenever it has used more than its share.
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
"""The number of seconds before CPU use above the share is noticed."""
LONGEST_STOP_S = 1.0
"""The longest pause of a process, in seconds. It is limited because the process must renew its leases."""
_turn = itertools.count()


@dataclass(frozen=True, slots=True)
class Reading:
    """The usage of a process and its descendants at one point in time."""

    cpu_s: float
    """The CPU seconds (user and system) used since the processes started."""
    memory_mb: float
    """The resident memory in MiB."""


def read_usage(pid: int) -> Reading | None:
    """Return the usage of the process and its descendants. None if the process no longer exists."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return None
    cpu_s, memory = 0.0, 0
    for member in family:
        with contextlib.suppress(psutil.Error):  # it has ended in the meantime
            with member.oneshot():
                times = member.cpu_times()
                cpu_s += times.user + times.system
                memory += member.memory_info().rss
    return Reading(cpu_s, memory / MIB)


def bind_cores(pid: int, cores: float) -> bool:
    """Bind the process to this number of cores. Return whether that alone enforces the limit."""
    with contextlib.suppress(psutil.Error, OSError):  # it has already ended
        process = psutil.Process(pid)
        if not hasattr(process, "cpu_affinity"):
            return False
        there = sorted(process.cpu_affinity())
        needed = math.ceil(cores)
        if needed >= len(there):
            return cores >= len(there)
        first = next(_turn)  # each further process starts at another core
        process.cpu_affinity([there[(first + n) % len(there)] for n in range(needed)])
        return cores == needed
    return False


async def limit_cpu(pid: int, cores: float) -> None:
    """Keep the process group of `pid` at or below `cores`, until cancelled or until it has ended."""
    loop = asyncio.get_running_loop()
    seen = read_usage(pid)
    while seen is not None:
        since = loop.time()
        await asyncio.sleep(SLICE_S)
        now = read_usage(pid)
        if now is None:
            return
        ahead = (now.cpu_s - seen.cpu_s) / cores - (loop.time() - since)
        if ahead > 0:
            await _pause(pid, min(ahead, LONGEST_STOP_S))
        seen = now


async def _pause(pid: int, seconds: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)
