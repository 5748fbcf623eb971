"""LocalExecutor: agents in this process, durable in one SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from helix.adapters.row_budgets import RowBudgets
from helix.adapters.segments import SegmentStreams
from helix.adapters.system import SystemClock, SystemIds
from helix.core.agents import Agent, AnyAgent
from helix.core.hooks import Hooks
from helix.core.registry import AgentRegistry
from helix.core.rows import SessionRow
from helix.engine.claims import Claimed
from helix.engine.delivery import Delivery, Lease
from helix.engine.engine import AppliedBudget, Engine, Settings, logger, no_budgets
from helix.engine.hooks import HookManager
from helix.engine.loop import LostLeaseError, run_loop
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.runtime.agents import Agents, Models
from helix.runtime.executor import Executor
from helix.runtime.handle import AgentResult
from helix.runtime.watching import RunStoppedError

OutputT = TypeVar("OutputT")


class LocalExecutor(Executor):
    """Runs agents as tasks of this event loop; any other process with the same file can watch, answer and resume them.

    store: path of a SQLite file (default `helix.db`), `":memory:"`, the URL of a Redis server, or a `StateStore`.
    model: the `LLMAdapter` for all agents, or a function agent -> adapter; default litellm.
    hooks: called before the agents' own. registry: where sub-agents and names are resolved, besides the agents given.
    budgets: which budgets bound a session, see `helix.ports.budgets`.
    """

    def __init__(
        self,
        store: str | Path | StateStore = "helix.db",
        *,
        model: Models | None = None,
        streams: StreamManager | None = None,
        registry: AgentRegistry | None = None,
        hooks: Hooks | Mapping[str, Any] | None = None,
        budgets: Callable[[SessionRow], list[AppliedBudget]] | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        settings: Settings | None = None,
    ) -> None:
        opened = open_store(store)
        agents = Agents(registry, model)
        engine = Engine(
            store=opened,
            streams=streams or SegmentStreams(opened),
            clock=clock or SystemClock(),
            ids=ids or SystemIds(),
            models=agents.model_of,
            agents=agents.named,
            hooks=HookManager(hooks),
            budgets=RowBudgets(opened),
            applied_budgets=budgets or no_budgets,
            settings=settings or Settings(),
        )
        super().__init__(engine, agents)
        self._owner = engine.ids.new("worker")
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, Exception] = {}

    async def __aenter__(self) -> LocalExecutor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop this process's runs where they are, giving back their leases: `resume` works at once. Close the store."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store.close()

    async def wait_result(
        self, agent: Agent[Any, OutputT], session_id: str, run_id: str, timeout_s: float | None
    ) -> AgentResult[OutputT]:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        task = self._tasks.get(run_id)
        if task is not None and task is not asyncio.current_task():
            async with asyncio.timeout(timeout_s):
                await asyncio.wait({task})  # this process's own run, its effects included
        left = None if timeout_s is None else timeout_s - (loop.time() - begun)
        return await super().wait_result(agent, session_id, run_id, left)

    async def _begin(self, agent: AnyAgent, claimed: Claimed, delivery: Delivery) -> None:
        run_id = claimed.run.run_id
        task = asyncio.get_running_loop().create_task(self._run(agent, claimed, delivery), name=f"helix:{run_id}")
        self._tasks[run_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(run_id, None))

    async def _run(self, agent: AnyAgent, claimed: Claimed, delivery: Delivery) -> None:
        try:
            for other in await run_loop(self.engine, agent, claimed, delivery):
                await self._begin(self.agents.named(other.session.agent_type), other, self._delivery())
        except LostLeaseError as error:
            logger.warning("%s", error)
        except Exception as error:
            self._failures[claimed.run.run_id] = error
            logger.exception("run %s stopped here; resume goes on with it", claimed.run.run_id)

    def _gave_up(self, run_id: str) -> None:
        if run_id in self._failures and run_id not in self._tasks:
            raise RunStoppedError(run_id) from self._failures[run_id]

    def _delivery(self) -> Delivery:
        lease = Lease(self.engine.clock.now() + self.engine.settings.lease_s)
        return Delivery(self._owner, self.engine.clock.now() + 24 * 3600, lease)


def open_store(store: str | Path | StateStore) -> StateStore:
    if isinstance(store, (str, Path)):
        if str(store) == ":memory:":
            from helix.adapters.memory import MemoryStateStore

            return MemoryStateStore()
        if str(store).startswith(("redis://", "rediss://", "unix://")):
            from helix.adapters.redis import open_redis

            return open_redis(str(store))
        from helix.adapters.sqlite import SQLiteStateStore

        return SQLiteStateStore(store)
    return store
