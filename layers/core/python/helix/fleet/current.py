"""The runtimes of this process, which its signals mean and the module-level helpers use.

Law: a runtime is here from its start to its end; SIGTERM and SIGINT shut down all of them in order, and are the process's
own again once there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from helix.core.errors import AgentNotFoundError
from helix.engine.engine import logger

if TYPE_CHECKING:
    from helix.fleet.runtime import AgentRuntime

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_running: list[AgentRuntime] = []
_closing: set[asyncio.Task[None]] = set()


def get_runtime() -> AgentRuntime:
    """The runtime that was started last in this process. Raises `AgentNotFoundError` if none runs."""
    if not _running:
        raise AgentNotFoundError("no AgentRuntime runs in this process: start one first")
    return _running[-1]


def enter(runtime: AgentRuntime) -> None:
    _running.append(runtime)
    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, _signalled, number)


def leave(runtime: AgentRuntime) -> None:
    """Harmless where it never entered."""
    if runtime not in _running:
        return
    _running.remove(runtime)
    if not _running:
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)


def _signalled(number: signal.Signals) -> None:
    logger.warning("%s: shutting down; workers hand over what they are at", number.name)
    for runtime in _running:
        task = asyncio.get_running_loop().create_task(runtime.shutdown())
        _closing.add(task)
        task.add_done_callback(_closing.discard)
