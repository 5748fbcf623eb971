"""A worker process of the fleet (`python -m helix.workers.entry`), which a supervisor starts.

Law: standard input contains JSON lines: first the assignment, then orders `{"do": "drain" | "leave", "grace_s": ...}`. The
end of that input means that the supervisor is dead. The worker then leaves, and any processes that its tools left running
end with it. It writes one line to standard output, which says that it is ready, or why it is not. Everything else that the
process prints is its log. SIGTERM also asks it to leave.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any, TextIO

from helix.engine.engine import Engine, Settings, logger
from helix.fleet.budgets import bind_token_budget_manager
from helix.fleet.metric_rows import StoreMetrics
from helix.runtime.importing import ServedAgent
from helix.runtime.models import named_models
from helix.runtime.stores import open_store
from helix.workers.queued import queued_engine
from helix.workers.tasks import AGAIN_S
from helix.workers.worker import Worker

ORPHAN_GRACE_S = 5.0
LAST_S = 5.0
"""The number of seconds after its grace period that an orphan has to close its resources."""
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The first line that the supervisor sends."""

    worker_id: str
    """The id of the worker. Each life of the process has a new one."""
    agent: dict[str, Any]
    """The source of the agent that the worker serves, as written by `ServedAgent.dump`."""
    store: str
    """The path of the SQLite file, or the URL of another store."""
    model: str | None
    """The model for all agents, as in `RuntimeConfig.model`. None: each agent's own."""
    path: list[str]
    """The supervisor's module search path, from which the agent is imported."""
    settings: dict[str, Any]
    """The fields of the engine's `Settings` that the supervisor sets. They are those for retention."""
    max_runs: int
    """The maximum number of concurrently active runs of all agents in the store."""
    lease_s: float
    """The number of seconds after which a silent worker loses an execution."""
    log_level: str
    """The log level of this process."""
    shutdown_timeout: float
    """The number of seconds that the worker has to leave after a SIGTERM. It is the agent's shutdown timeout."""

    @classmethod
    def parse(cls, line: str) -> Assignment:
        value = json.loads(line)
        return cls(**{name: value[name] for name in cls.__slots__})


def main() -> None:
    reports, orders = os.fdopen(os.dup(1), "w", encoding="utf-8"), os.fdopen(os.dup(0), "r", encoding="utf-8")
    os.dup2(2, 1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)  # processes that tools start must not read the orders from standard input
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    line = orders.readline()
    if not line:
        return  # its supervisor died before it sent the assignment
    given = Assignment.parse(line)
    sys.path.extend(place for place in given.path if place not in sys.path)
    logging.basicConfig(level=given.log_level, format=FORMAT, stream=sys.stderr)
    code, orphaned = 1, threading.Event()
    try:
        code = asyncio.Runner().run(_serve(given, reports, orders, orphaned))
    except BaseException:
        logger.exception("worker %s ended", given.worker_id)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if orphaned.is_set():
            _end_group()
        os._exit(code)  # a tool's thread that is still running must not keep the process alive


async def _serve(given: Assignment, reports: TextIO, orders: TextIO, orphaned: threading.Event) -> int:
    try:
        store = open_store(given.store)
        served = ServedAgent(**given.agent)
        agent = served.load()
        model = named_models(given.model)
        engine, agents, queue = queued_engine(
            store,
            model=model,
            settings=Settings(**given.settings),
            lease_s=given.lease_s,
            max_runs=given.max_runs,
            metrics=lambda clock: StoreMetrics(store, clock, given.worker_id),
        )
        agents.know(agent)
        await queue.open_work()  # check that the store responds
        bind_token_budget_manager(store)  # for the usage that agents record themselves
    except (Exception, SystemExit) as error:
        logger.exception("worker %s cannot serve", given.worker_id)
        _write_report(reports, {"status": "failed", "error": f"{type(error).__name__}: {error}"})
        return 1
    metrics = engine.metrics
    assert isinstance(metrics, StoreMetrics)
    metrics.start()
    worker = Worker(engine, queue, given.worker_id, [agent.name])
    serving = asyncio.create_task(worker.serve())
    leaving = _Shutdown(worker, serving)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, leaving.leave, given.shutdown_timeout)
    orphan_grace_s = min(ORPHAN_GRACE_S, given.shutdown_timeout)
    listened = (orders, loop, leaving, orphan_grace_s, orphaned)
    listening = threading.Thread(target=_read_orders, args=listened, daemon=True)
    listening.start()
    _write_report(reports, {"status": "ready"})
    logger.info("worker %s serves %s", given.worker_id, agent.name)
    await asyncio.wait({serving})
    logger.info("worker %s leaves", given.worker_id)
    await _close(engine, metrics)
    return 0 if serving.cancelled() or serving.exception() is None else 1


class _Shutdown:
    """Ends the worker at its next pause, or immediately when its time is up."""

    def __init__(self, worker: Worker, serving: asyncio.Task[None]) -> None:
        self._worker, self._serving = worker, serving
        self._loop = asyncio.get_running_loop()

    def drain(self) -> None:
        self._worker.drain()

    def leave(self, grace_s: float) -> None:
        self._worker.leave()
        # Cancel it a little earlier, so that it has time to return the executions that it holds.
        self._loop.call_later(max(0.0, grace_s - min(1.0, grace_s / 2)), self._cancel_until_ended)

    def _cancel_until_ended(self) -> None:
        """Cancel the worker repeatedly until it has ended, because a cancellation can be lost."""
        if not self._serving.done():
            self._serving.cancel()
            self._loop.call_later(AGAIN_S, self._cancel_until_ended)


def _read_orders(
    orders: TextIO,
    loop: asyncio.AbstractEventLoop,
    leaving: _Shutdown,
    orphan_grace_s: float,
    orphaned: threading.Event,
) -> None:
    for line in orders:
        order = json.loads(line)
        if order["do"] == "drain":
            loop.call_soon_threadsafe(leaving.drain)
        else:
            loop.call_soon_threadsafe(leaving.leave, float(order["grace_s"]))
    orphaned.set()
    loop.call_soon_threadsafe(leaving.leave, orphan_grace_s)
    # This thread ends with the process. If something blocks the event loop, only this thread can end it.
    threading.Event().wait(orphan_grace_s + LAST_S)
    _end_group()


def _end_group() -> None:
    """Kill this process and the processes that it left running, as its supervisor would. Do so only if it has its own
    process group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _write_report(reports: TextIO, report: dict[str, str]) -> None:
    reports.write(json.dumps(report) + "\n")
    reports.close()


async def _close(engine: Engine, metrics: StoreMetrics) -> None:
    try:
        await engine.dependencies.close()
        await metrics.stop()
        await asyncio.to_thread(engine.tracer.close)
        await engine.store.close()
    except Exception:
        logger.exception("not all could be closed")


if __name__ == "__main__":
    main()
