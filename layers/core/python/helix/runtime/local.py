"""The executor that runs agents in this process, durable in one SQLite file."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Self, TypeVar

from helix.adapters.models.catalog import LitellmCatalog
from helix.adapters.system import SystemClock, SystemIds
from helix.core.agents import Agent, AnyAgent
from helix.core.context import secrets_of
from helix.core.delivery import Delivery
from helix.core.errors import AgentNotFoundError, StoreError
from helix.core.handles import AgentExecutionHandle, AgentResult
from helix.core.hooks import Hooks
from helix.core.model_limits import parse_limits
from helix.core.registry import AgentRegistry
from helix.core.row_keys import make_worker_id
from helix.core.session_row import SessionRow
from helix.core.status import OVER
from helix.core.user_budgets import parse_user_budgets
from helix.engine.batches.collect import collect
from helix.engine.batches.lease import acquire
from helix.engine.claims.claim import Claimed
from helix.engine.claims.liveness import LostClaimError
from helix.engine.claims.timeouts import end_wait
from helix.engine.engine import Engine, Settings, logger
from helix.engine.placement import IN_PROCESS
from helix.engine.runs.housekeeping import EXPIRY_PARTITIONS
from helix.engine.verbs import Executed, continue_run, execute_run
from helix.ports.blobs import Blobs
from helix.ports.catalog import ModelCatalog
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.metrics import Metrics, NoMetrics
from helix.ports.state_store import Row, StateStore
from helix.ports.streams import StreamManager
from helix.ports.tracing import Tracer
from helix.runtime.agent_models import Agents, Models
from helix.runtime.declared import project_limits, project_user_budgets
from helix.runtime.executor import Executor
from helix.runtime.handle import RunStoppedError, ended_by, make_result
from helix.runtime.load import LoadWatch
from helix.runtime.places import AT_WORK, Places
from helix.runtime.stores import open_blobs, open_store
from helix.runtime.tracing import open_tracer
from helix.services.claim_input import ClaimInput
from helix.services.hook_manager import HookManager
from helix.services.row_budgets import RowBudgets
from helix.services.row_cache import RowCache
from helix.services.segments import SegmentStreams
from helix.services.session_files import SessionFiles
from helix.services.waits import deadline_of, read_waits
from helix.sessions.deletion import expire_sessions

OutputT = TypeVar("OutputT")
EXPIRED_AT_OPENING = 5
COLLECT_AT_OPENING_S = 1.0
"""The number of seconds that an executor spends on the deletion of files when it is entered."""
MAX_RUNS, MAX_WAITING = 500, 10_000
WAIT_AGAIN_S = 5.0
"""The longest time between two looks at the waits. Another process may have added one."""
SECRETS_ADVICE = "set the environment variable of that name; the command `helix` reads .env too"


class LocalExecutor(Executor):
    """An executor that runs agents as tasks of this event loop. Any other process with the same file can watch, answer
    and resume them.

    store: path of a SQLite file (default `helix.db`), `":memory:"`, a URL (`sqlite:///helix.db?synchronous=normal`,
        `redis://127.0.0.1:6379/0`, see docs/guide/durability.md#stores-by-url), or a `StateStore`.
    model: the `LLMAdapter` for all agents, or a function agent -> adapter. Default: litellm.
    hooks: called before the agents' own hooks.
    registry: resolves sub-agents and names that do not match the given agents.
    metrics: receives measures. Default: they are dropped.
    tracer: receives spans. Default: the one that the environment names, see `helix.runtime.tracing`.
    catalog: windows and prices of models, for routes and budgets. Default: litellm's own table.
    blobs: the bytes of files. Default: a folder next to the SQLite file, or memory for an in-memory store.
    cache: stored answers for agents whose `LLMConfig.response_cache` allows their reuse. Default: rows of the same store.
    secrets: the values that `ToolContext.secret` returns. Default: the process's environment.
    max_runs: the limit on runs that are active in this process at a time; None for no limit. Others wait in order, before
        they claim anything, and `waiting` counts them. Runs that another run starts, or an answer continues, do not wait.
    max_waiting: the limit on waiting runs. Beyond it, `execute`, `resume` and `retry` raise `QueueFullError`.
    user_budgets: limits of each user, by period, as in the table `[tool.helix.budgets.user]`: `{"day": 2.0}`. Default:
        that table in the project in which the process runs. `{}` sets no limits.
    limits: limits of models that all processes of the store share, as in the table `[tool.helix.limits]`:
        `{"openai/gpt-5": {"requests": 50, "tokens": 100_000}}`. Default: that table in the project. `{}` declares none.
    """

    def __init__(
        self,
        store: str | Path | StateStore = "helix.db",
        *,
        model: Models | None = None,
        streams: StreamManager | None = None,
        registry: AgentRegistry | None = None,
        hooks: Hooks | Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
        catalog: ModelCatalog | None = None,
        cache: RowCache | None = None,
        blobs: Blobs | None = None,
        settings: Settings | None = None,
        secrets: Mapping[str, str] | None = None,
        user_budgets: Mapping[str, Any] | None = None,
        limits: Mapping[str, Any] | None = None,
        max_runs: int | None = MAX_RUNS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        opened = open_store(store)
        blobs = blobs or open_blobs(store)
        agents = Agents(registry, model)
        clock, ids = clock or SystemClock(), ids or SystemIds()
        declared = project_user_budgets() if user_budgets is None else parse_user_budgets({"user": user_budgets})
        engine = Engine(
            store=opened,
            streams=streams or SegmentStreams(opened),
            clock=clock,
            ids=ids,
            models=agents.model_of,
            agents=agents.named,
            hooks=HookManager(hooks),
            budgets=RowBudgets(opened, user_budgets=declared),
            placement=IN_PROCESS,
            settings=settings or Settings(),
            metrics=metrics or NoMetrics(),
            tracer=tracer or open_tracer(os.environ),
            catalog=catalog or LitellmCatalog(),
            files=None if blobs is None else SessionFiles(opened, blobs, clock, ids),
            cache=cache or RowCache(opened, clock=clock),
            declared_limits=project_limits() if limits is None else parse_limits(limits),
            secrets=secrets_of(os.environ if secrets is None else secrets, SECRETS_ADVICE),
        )
        super().__init__(engine, agents)
        self._owner = make_worker_id(engine.ids.new("worker"))
        self._own_tracer = None if tracer is not None else engine.tracer
        self._places = Places(max_runs, max_waiting)
        self._max_runs = inf if max_runs is None else max_runs
        self._tasks: dict[str, asyncio.Task[Executed | None]] = {}
        self._placed: set[str] = set()
        self._load = LoadWatch(engine.metrics, lambda: len(self._tasks))
        self._failures: dict[str, Exception] = {}
        self._timer: asyncio.Task[None] | None = None
        self._new_waits = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Enter, and delete a few expired sessions and files that no session holds, so that a store in use does not
        grow forever."""
        for number in range(EXPIRY_PARTITIONS if self.engine.settings.session_ttl_s is not None else 0):
            await expire_sessions(self.engine, number, self._delivery(), limit=EXPIRED_AT_OPENING)
        if self.engine.files is not None:
            await self.engine.files.collector.collect(self.engine.clock.now() + COLLECT_AT_OPENING_S)
        self._watch_waits()
        return self

    async def close(self) -> None:
        """Stop this process's runs at their current point, and release their claims, so that `resume` works at once. Close
        the dependencies of tools, and the store."""
        tasks = [*self._tasks.values(), *([self._timer] if self._timer is not None and self._is_watching() else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._load.end()
        await self.engine.dependencies.close()
        await self.store.close()
        if self._own_tracer is not None:
            await asyncio.to_thread(self._own_tracer.close)

    async def wait_result(
        self, agent: Agent[Any, OutputT], session_id: str, run_id: str, timeout_s: float | None
    ) -> AgentResult[OutputT]:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        task = self._tasks.get(run_id)
        if task is not None and task is not asyncio.current_task():
            async with asyncio.timeout(timeout_s):
                await asyncio.wait({task})  # this process's own run, including its effects
            done = None if task.cancelled() or task.exception() is not None else task.result()
            if done is not None and done.row is not None and done.row.status in OVER:
                active = ended_by(self.engine, agent, done.row)
                return make_result(active, done.row, done.text if done.row.status == "completed" else None, [])
        left = None if timeout_s is None else timeout_s - (loop.time() - begun)
        return await super().wait_result(agent, session_id, run_id, left)

    @property
    def waiting(self) -> int:
        """The number of runs that are waiting for a place in this process."""
        return self._places.waiting

    async def _claim(
        self, agent: Agent[Any, OutputT], session_id: str, ask: ClaimInput
    ) -> AgentExecutionHandle[OutputT]:
        placed = await self._places.acquire(agent.name)
        task = None
        try:
            handle = await super()._claim(agent, session_id, ask)
            if handle.run_id not in self._placed:  # a repeated request finds a run that already has a place
                task = self._tasks.get(handle.run_id)
        finally:
            if placed and task is None:
                self._places.release()
        if placed and task is not None:
            self._placed.add(handle.run_id)
            task.add_done_callback(lambda _: self._release_place(handle.run_id))
        return handle

    def _release_place(self, run_id: str) -> None:
        self._placed.discard(run_id)
        self._places.release()

    async def _begin(self, agent: AnyAgent, claimed: Claimed, delivery: Delivery) -> None:
        self._begin_task(claimed.run.run_id, partial(execute_run, self.engine, agent, claimed, delivery))

    def _begin_task(self, run_id: str, execute: Callable[[], Awaitable[Executed]]) -> None:
        task = asyncio.get_running_loop().create_task(self._run(run_id, execute), name=f"helix:{run_id}")
        self._tasks[run_id] = task
        self._load.begin()
        task.add_done_callback(lambda _: self._tasks.pop(run_id, None))

    async def _run(self, run_id: str, execute: Callable[[], Awaitable[Executed]]) -> Executed | None:
        AT_WORK.set(True)
        try:
            executed = await execute()
            if executed.row is None or executed.row.status == "paused":
                self._watch_waits()
            await self._begin_each(executed.claims)
            return executed
        except LostClaimError as error:
            self._failures[run_id] = error
            logger.warning("%s", error)
        except Exception as error:
            self._failures[run_id] = error
            logger.exception("run %s stopped here; resume goes on with it", run_id)
        return None

    async def _continue(self, session: SessionRow) -> bool:
        """Continue the run of a session that waited for a batch. False: there is no room for it now, or another worker
        has it."""
        if session.run_id in self._tasks:
            return True
        if len(self._tasks) >= self._max_runs:
            return False
        agent = self.engine.agents(session.agent_type)
        if (held := await acquire(self.engine, session, self._owner)) is None:
            return False
        self._failures.pop(session.run_id, None)
        self._begin_task(session.run_id, partial(continue_run, self.engine, agent, held, self._delivery()))
        return True

    def _watch_waits(self) -> None:
        """Look at the waits of the store now, and watch them while there are any."""
        if not self._is_watching():
            self._new_waits = asyncio.Event()
            self._timer = asyncio.get_running_loop().create_task(self._end_waits(), name="helix:waits")
        self._new_waits.set()

    def _is_watching(self) -> bool:
        """Return whether a task of this event loop watches the waits. A caller may use the executor in several loops, one
        after the other."""
        timer = self._timer
        return timer is not None and not timer.done() and timer.get_loop() is asyncio.get_running_loop()

    async def _end_waits(self) -> None:
        """End the waits whose deadlines pass, of this process's sessions and of others in the store, until there are none.
        An entry that fails, or whose agent is not known here, is tried again later."""
        try:
            self._new_waits.clear()
            while (again := await self._next_look()) is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(again - self.engine.clock.now(), WAIT_AGAIN_S)):
                        await self._new_waits.wait()
                self._new_waits.clear()
        except StoreError as error:
            logger.warning("the waits cannot be read: %s", error)

    async def _next_look(self) -> float | None:
        """End the waits that are due, and carry on the batches. Return the time of the next look (Unix seconds), or None
        if nothing waits."""
        times = [await self._end_due_waits()]
        try:
            times.append(await collect(self.engine, self._owner, self._continue))
        except StoreError as error:
            logger.warning("the batches cannot be read: %s", error)
            times.append(self.engine.clock.now() + WAIT_AGAIN_S)
        return min((at for at in times if at is not None), default=None)

    async def _end_due_waits(self) -> float | None:
        """End the waits that are due. Return the time of the next look (Unix seconds), or None if no entry is left."""
        again: float | None = None
        async for page in read_waits(self.store):
            for row in page:
                now, deadline = self.engine.clock.now(), deadline_of(row)
                if deadline > now:
                    return deadline
                # An entry that was ended may have been moved to a later time, which the next look finds.
                later = now if await self._end_wait(row) else now + WAIT_AGAIN_S
                again = later if again is None else min(again, later)
        return again

    async def _end_wait(self, row: Row) -> bool:
        """End the wait. Return whether its entry was dropped or moved."""
        try:
            await self._begin_each(await end_wait(self.engine, row, self._delivery()))
        except (AgentNotFoundError, StoreError) as error:
            logger.warning("the wait %s: %s", row.key.sort, error)
            return False
        return True

    def _raise_if_lost(self, run_id: str) -> None:
        if run_id in self._failures and run_id not in self._tasks:
            raise RunStoppedError(run_id) from self._failures[run_id]

    def _delivery(self) -> Delivery:
        return Delivery(self._owner)
