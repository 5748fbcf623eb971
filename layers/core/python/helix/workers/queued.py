"""The engine for runs that worker processes execute. Every process that starts or plays them uses it, all with one store.

Law: the engine is that of a `LocalExecutor`, with a launcher and a different placement. Both engines are composed in one
place.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from helix.core.registry import AgentRegistry
from helix.engine.engine import Engine, Settings
from helix.engine.placement import IN_WORKERS
from helix.ports.clock import Clock
from helix.ports.metrics import Metrics
from helix.ports.state_store import StateStore
from helix.runtime.agent_models import Agents, Models
from helix.runtime.launching import LaunchingExecutor
from helix.runtime.local import LocalExecutor
from helix.runtime.stores import open_store
from helix.runtime.tracing import open_tracer
from helix.services.row_slots import RowSlots
from helix.services.slot_counters import STORED, Stored
from helix.services.work_queue import LEASE_S, WorkQueue
from helix.workers.execution import end_stopped


class QueuedExecutor(LaunchingExecutor):
    """A `LaunchingExecutor` whose runs wait for workers. A stopped run that no worker holds is ended here, because a
    worker may never come."""

    def __init__(self, engine: Engine, agents: Agents, queue: WorkQueue) -> None:
        super().__init__(engine, agents)
        self._queue = queue

    async def interrupt(self, session_id: str, reason: str | None = None, *, run_id: str | None = None) -> bool:
        asked = await super().interrupt(session_id, reason, run_id=run_id)
        if asked:
            await end_stopped(self.engine, self._queue, self._owner)
        return asked


def fleet_executor(
    store: str | Path | StateStore, *, registry: AgentRegistry | None = None, settings: Settings | None = None
) -> QueuedExecutor:
    """Return an executor that starts, watches and answers runs. The worker processes that use the store (`AgentRuntime`,
    `helix fleet serve`) execute them. `store` has the same meaning as for `LocalExecutor`. `session_ttl_s` in the settings
    must equal that of the `AgentRuntime`."""
    engine, agents, queue = queued_engine(open_store(store), registry=registry, settings=settings, max_runs=STORED)
    return QueuedExecutor(engine, agents, queue)


def queued_engine(
    store: StateStore,
    *,
    model: Models | None = None,
    registry: AgentRegistry | None = None,
    settings: Settings | None = None,
    lease_s: float = LEASE_S,
    max_runs: int | Stored | None = None,
    metrics: Callable[[Clock], Metrics] | None = None,
) -> tuple[Engine, Agents, WorkQueue]:
    """Return the engine, the agents that it knows, and its launcher. `max_runs` is the limit on concurrent runs of all
    agents, as in `RowSlots`. `metrics` creates the metrics recorder with the engine's clock."""
    tracer = open_tracer(os.environ, service="helix-worker")
    made = LocalExecutor(store, model=model, registry=registry, settings=settings, tracer=tracer)
    engine, queue = made.engine, WorkQueue(store, made.engine.clock, lease_s=lease_s)
    engine.launcher, engine.placement, engine.slots = queue, IN_WORKERS, RowSlots(store, account_limit=max_runs)
    if metrics is not None:
        engine.metrics = metrics(engine.clock)
    return engine, made.agents, queue
