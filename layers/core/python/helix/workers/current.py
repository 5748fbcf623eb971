"""The runtimes in this process. Its signals shut them down, and the module-level helpers use the last one.

Law: a runtime is listed from its start to its end. SIGTERM and SIGINT shut down all of them gracefully. The signal's
previous handler runs afterwards, unless the program waits for the shutdown itself (`AgentRuntime.wait_for_shutdown`).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any

from helix.core.errors import AgentNotFoundError
from helix.engine.engine import logger

if TYPE_CHECKING:
    from helix.workers.runtime import AgentRuntime

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_running: list[AgentRuntime] = []
_closing: set[asyncio.Task[None]] = set()
_former: dict[signal.Signals, Any] = {}


def get_runtime() -> AgentRuntime:
    """Return the runtime that was started last in this process. Raises `AgentNotFoundError` if none is running."""
    if not _running:
        raise AgentNotFoundError("no AgentRuntime runs in this process: start one first")
    return _running[-1]


def add_runtime(runtime: AgentRuntime) -> None:
    _running.append(runtime)
    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
        for number in SIGNALS:
            _former.setdefault(number, signal.getsignal(number))
            asyncio.get_running_loop().add_signal_handler(number, _on_signal, number)


def remove_runtime(runtime: AgentRuntime) -> None:
    """Remove the runtime from the list, if it is there."""
    if runtime not in _running:
        return
    _running.remove(runtime)
    if not _running:
        for number in SIGNALS:
            if asyncio.get_running_loop().remove_signal_handler(number):
                signal.signal(number, _former.pop(number, None) or signal.SIG_DFL)


def _on_signal(number: signal.Signals) -> None:
    logger.warning("%s: shutting down; workers hand over their runs", number.name)
    task = asyncio.get_running_loop().create_task(_shut_down(number, list(_running)))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _shut_down(number: signal.Signals, runtimes: list[AgentRuntime]) -> None:
    try:
        await asyncio.gather(*(runtime.shutdown() for runtime in runtimes))
    finally:
        if not any(runtime.shutdown_is_awaited for runtime in runtimes):
            signal.raise_signal(number)
