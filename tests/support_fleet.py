"""Workers and runtimes in tests: in this process on one store, or as processes (`tests/support/worker_agents.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.worker_agents import logged

from helix import MemoryStateStore, ScriptedModel, SQLiteStateStore
from helix.core.agents import AnyAgent
from helix.core.delivery import Delivery
from helix.core.handles import AgentExecutionHandle
from helix.core.registry import AgentRegistry
from helix.core.session_row import SessionRow
from helix.engine.engine import Engine, Settings
from helix.fleet import AgentRuntime, ProcessInfo
from helix.fleet.rows import read_processes
from helix.ports.state_store import StateStore
from helix.runtime.agent_models import Agents
from helix.runtime.launching import LaunchingExecutor
from helix.services.work_queue import WorkQueue
from helix.sessions.sweep import sweep
from helix.testing.invariants import check_session
from helix.workers.queued import queued_engine
from helix.workers.worker import Worker

PATIENCE_S = 20.0


class Yard:
    """One store, with executors and workers on it. Each has its own engine, as in separate processes."""

    def __init__(self, kind: str, folder: Path, *agents: AnyAgent, script: Any = (), **settings: Any) -> None:
        self._kind, self._path, self._memory = kind, folder / "helix.db", MemoryStateStore()
        self.model = script if hasattr(script, "generate_step") else ScriptedModel(script, record=True)
        self._known, self._settings = agents, Settings(**{"stop_poll_s": 0.02, **settings})
        self._stores: list[StateStore] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.engine, agents_, self.queue = self.composed()
        self.executor = LaunchingExecutor(self.engine, agents_)

    def composed(self, lease_s: float = 30.0) -> tuple[Engine, Agents, WorkQueue]:
        store: StateStore = self._memory if self._kind == "memory" else SQLiteStateStore(self._path)
        self._stores.append(store)
        registry = AgentRegistry()
        for agent in self._known:
            registry.register(agent)
        return queued_engine(store, model=self.model, registry=registry, settings=self._settings, lease_s=lease_s)

    def worker(self, name: str, *agents: str, lease_s: float = 30.0) -> Worker:
        engine, _, queue = self.composed(lease_s)
        return Worker(engine, queue, name, agents or [agent.name for agent in self._known])

    def serve(self, worker: Worker) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(worker.serve())
        self._tasks.append(task)
        return task

    async def rested(self) -> None:
        """Wait until every execution has ended and the effects of their runs are done."""
        async with asyncio.timeout(PATIENCE_S):
            with self.queue.watch() as watch:
                while await self.queue.open_work():
                    await watch.changed(1)

    async def check(self, session_id: str) -> None:
        await self.rested()
        await check_session(self.engine.store, self.engine.streams, session_id, at_rest=True)

    async def sweep(self) -> None:
        await sweep(self.engine, Delivery(self.engine.ids.new("sweep"), self.engine.clock.now() + 60))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for store in self._stores:
            await store.close()


async def seen(store: StateStore, place: tuple[Any, str], reached: Callable[[], Awaitable[Any]]) -> Any:
    """Wait until `reached` returns a value. It is called whenever the partition changes."""
    async with asyncio.timeout(PATIENCE_S):
        with store.watch(*place) as watch:
            while not (found := await reached()):
                await watch.changed(1)
    return found


async def buying(executor: LaunchingExecutor, handle: AgentExecutionHandle[Any], step: int) -> SessionRow:
    """Return the session once a worker asks the model for that step."""

    async def reached() -> SessionRow | None:
        session = await executor.engine.history.existing(handle.session_id)
        claim = session.claim
        return session if claim is not None and claim.step == step and claim.deadline > 0 else None

    session: SessionRow = await seen(executor.store, ("sessions", handle.session_id), reached)
    return session


async def asked(executor: LaunchingExecutor, handle: AgentExecutionHandle[Any], step: int, folder: Path) -> None:
    """Wait until a worker's model blocks at that step. Its claim is stored before the model is asked."""
    await buying(executor, handle, step)
    first = (await executor.sessions.get_messages(handle.session_id)).messages[0]
    async with asyncio.timeout(PATIENCE_S):
        while f"asked {first.content}" not in logged(folder):
            await asyncio.sleep(0.01)  # a file sends no notification


async def processes_of(
    runtime: AgentRuntime, agent_id: str, reached: Callable[[list[ProcessInfo]], bool]
) -> list[ProcessInfo]:
    """Return the agent's processes from the rows, once they are as expected."""

    async def look() -> list[ProcessInfo] | None:
        found = await read_processes(runtime.store, agent_id)
        return found if reached(found) else None

    infos: list[ProcessInfo] = await seen(runtime.store, ("control", f"fleet#{agent_id}"), look)
    return infos
