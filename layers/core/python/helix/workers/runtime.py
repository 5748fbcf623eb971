"""AgentRuntime, the fleet on this machine. Worker processes serve its agents, and share one store.

    runtime = AgentRuntime(RuntimeConfig(store="helix.db"))
    await runtime.register_agent("support", support_agent, ResourceConfig(min_instances=2, max_instances=4))
    await runtime.start()
    await runtime.start_agent("support")
    handle = await runtime.execute("support", "Hello")

Law: rows store the desired state, and processes are the actual state. This class writes the rows and supervises the
processes. Any process with the same store may change the desired state (`helix.fleet.control.FleetControl`), execute runs
and watch them. Runs that are active when it shuts down stay open, and the next runtime that uses the store continues them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from helix.adapters.system import SystemIds
from helix.core.agents import AnyAgent
from helix.core.delivery import Delivery
from helix.core.errors import AgentNotFoundError, AgentStoppedError, InvalidInputError, ProcessFailedError, StoreError
from helix.core.handles import AgentExecutionHandle
from helix.core.health import CheckType, HealthCheck
from helix.core.initial import Input
from helix.core.periods import TokenPeriod
from helix.core.resources import ResourceConfig
from helix.engine.engine import Settings, logger
from helix.engine.runs.admission import begin_granted
from helix.fleet.budgets import bind_token_budget_manager, release_token_budget_manager
from helix.fleet.control import FleetControl
from helix.fleet.decisions import DecisionLog
from helix.fleet.health import HealthChange, HealthChecker
from helix.fleet.metric_rows import StoreMetrics
from helix.fleet.monitoring import FleetMonitor
from helix.fleet.process_info import ProcessInfo, ProcessStatus
from helix.fleet.rows import read_entry, read_processes
from helix.ports.clock import Clock
from helix.ports.metrics import Metrics
from helix.runtime.models import named_models
from helix.runtime.stores import open_store
from helix.sessions.sweep import sweep
from helix.workers import current
from helix.workers.config import RuntimeConfig
from helix.workers.manager import RestartPolicy
from helix.workers.queued import QueuedExecutor, queued_engine
from helix.workers.registering import Bounds, Register, Registered, RegistrationOptions
from helix.workers.supervisor import Supervisor
from helix.workers.tasks import end_tasks

MORE_S = 5.0
"""The number of seconds, beyond the agent's own timeout, to wait for a start or a stop."""
SWEEP_S = 60.0
PURGE_S = 600.0


class Monitoring(Protocol):
    """A background task of a runtime, such as the scaler or the file watcher."""

    async def start_monitoring(self) -> None: ...

    async def stop_monitoring(self) -> None: ...


class AgentRuntime:
    """The agents on this machine, served by worker processes.

    - `health` checks agents by id.
    - `scaler` runs as long as the runtime does. Before `start` it may be replaced, or set to None.
    - `control` shows and changes the desired state.
    - `executor` holds the sessions and runs.
    - `processes` are the workers.

    `restarts` is the policy for restarting a process that died. `jitter` returns a random number from 0 to 1 for each pause
    before a restart.
    """

    def __init__(
        self,
        config: RuntimeConfig | None = None,
        *,
        restarts: RestartPolicy | None = None,
        jitter: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.config = config or RuntimeConfig()
        self.store = open_store(self.config.store)
        model = named_models(self.config.model)
        engine, agents, queue = queued_engine(
            self.store,
            model=model,
            settings=Settings(**self.config.retention),
            max_runs=self.config.max_workers,
            metrics=self._make_metrics,
        )
        self.engine, self.queue = engine, queue
        self.executor = QueuedExecutor(engine, agents, queue)
        log = DecisionLog(self.store, engine.clock, engine.ids)
        self.control = FleetControl(self.store, engine.clock, slots=engine.slots, log=log)
        self.budgets = bind_token_budget_manager(self.store, clock=engine.clock)
        self.health = HealthChecker(self.store, clock=engine.clock, on_change=self._on_health)
        self.scaler: Monitoring | None = FleetMonitor(engine, health=self.health)
        self._agents = Register(self.store, engine.clock, self.config, engine.slots)
        self._supervisor = Supervisor(self.config, self.executor, queue, self._agents, policy=restarts, jitter=jitter)
        self._agents.is_foreign = self._supervisor.is_foreign
        self.processes = self._supervisor.manager
        self.watcher: Monitoring | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._state = "new"
        self._over = asyncio.Event()
        self.shutdown_is_awaited = False
        self._purge_at = 0.0

    async def __aenter__(self) -> AgentRuntime:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    def _make_metrics(self, clock: Clock) -> Metrics:
        self._metrics = StoreMetrics(self.store, clock, SystemIds().new("runtime"))
        return self._metrics

    # --- registering ----------------------------------------------------------------------------------------------

    async def register_agent(
        self,
        agent_id: str,
        agent_callable: Any,
        resources: ResourceConfig | None = None,
        health_check: HealthCheck | None = None,
        *,
        replace: bool = False,
    ) -> None:
        """Register an agent: an `Agent`, an async function, or the import path of one, `module:attribute` or
        `file.py:attribute`. Worker processes import it from there.

        `resources` defaults to the agent's own, or else to the runtime's. Registering the same definition again changes
        nothing. A different definition under the same id raises `DuplicateAgentError`, unless `replace` is set. Raises
        `DefinitionError` for a definition that cannot be served.
        """
        await self._register(agent_id, agent_callable, RegistrationOptions(resources, None, replace), health_check)

    async def register_llm_agent(
        self,
        agent_id: str,
        agent_callable: Any,
        model: str,
        max_tokens: int = 2000,
        cost_budget: float | None = None,
        resources: ResourceConfig | None = None,
        *,
        health_check: HealthCheck | None = None,
        replace: bool = False,
    ) -> None:
        """Register an agent like `register_agent`, but with limits. The agent calls `model`, and no answer is longer than
        `max_tokens`.

        All of its runs together spend at most `cost_budget` US dollars per hour. If a call would exceed that, its run fails
        with `budget_exceeded`, or pauses if the agent is set to pause. A function is refused, because its model calls
        cannot be observed here.
        """
        asked = RegistrationOptions(resources, Bounds(model, max_tokens, cost_budget), replace)
        await self._register(agent_id, agent_callable, asked, health_check)

    async def _register(
        self, agent_id: str, agent_callable: Any, asked: RegistrationOptions, health_check: HealthCheck | None
    ) -> None:
        known = await self._agents.add(agent_id, agent_callable, asked)
        self.executor.agents.know(known.agent)
        if known.cost_budget is not None:
            await self.budgets.set_budget(known.cost_budget, TokenPeriod.HOURLY, agent_id, unit="usd")
        if health_check is not None:
            await self.health.register_check(agent_id, health_check)
        if known.resources.health_check_enabled:
            check, interval = partial(self._check_processes, agent_id), known.resources.health_check_interval
            own = HealthCheck(name="processes", check_type=CheckType.CUSTOM, check_fn=check, interval=interval)
            await self.health.register_check(agent_id, own)
        if known.resources.auto_start:
            await self.control.start(agent_id)
        self._supervisor.compare_soon()

    # --- the runtime itself ---------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start supervising the agents, and start those whose desired number is above 0. Idempotent."""
        if self._state == "running":
            return
        if self._state != "new":
            raise InvalidInputError("this runtime was shut down: make a new one")
        self._state = "running"
        current.add_runtime(self)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._supervisor.run(), name="helix:supervisor"),
            loop.create_task(self._sweep(), name="helix:sweep"),
            loop.create_task(self._publish_alerts(), name="helix:alerts"),
        ]
        self._metrics.start()
        await self.health.start_monitoring()
        if self.scaler is not None:
            await self.scaler.start_monitoring()
        if self.config.hot_reload:
            from helix.workers.watcher import FileWatcher, WatcherConfig

            self.watcher = FileWatcher(WatcherConfig(watch_paths=list(self.config.watch_paths)), self)
            await self.watcher.start_monitoring()

    async def shutdown(self, timeout_s: float | None = None) -> None:
        """Stop accepting runs, let each worker hand over its work at its next pause, and end. A worker has `timeout_s`, or
        by default its agent's shutdown timeout. The desired state is kept, and runs stay open for the next runtime.
        Idempotent."""
        if self._state in ("over", "closing"):
            await self._over.wait()
            return
        running, self._state = self._state == "running", "closing"
        try:
            if running:
                for beside in (self.watcher, self.scaler):
                    if beside is not None:
                        await beside.stop_monitoring()
                await self.health.stop_monitoring()
            await end_tasks(*self._tasks)
            await self._supervisor.close(timeout_s)
            if running:
                await self._metrics.stop()
            await self.executor.close()
        finally:
            self._state = "over"
            release_token_budget_manager(self.store)
            current.remove_runtime(self)
            self._over.set()

    async def wait_for_shutdown(self) -> None:
        """Return once the runtime has shut down, because of a signal or `shutdown`. If a program does not wait here, the
        signal ends the program after the shutdown."""
        self.shutdown_is_awaited = True
        await self._over.wait()

    async def _sweep(self) -> None:
        """Do the work of a deployed stage's schedule, and purge expired rows."""
        while True:
            await self.engine.clock.sleep(self.config.sweep_s)
            for tidy in (self._sweep_runs, self._supervisor.end_stopped, self.queue.trim, self._purge):
                try:  # separately, because a run that cannot be read must not hold up the rest forever
                    await tidy()
                except StoreError as error:
                    logger.warning("could not sweep; trying again: %s", error)
                except Exception:
                    logger.exception("the sweep failed with an unexpected error")

    async def _sweep_runs(self) -> None:
        await sweep(self.engine, Delivery(self.engine.ids.new("sweep"), self.engine.clock.now() + SWEEP_S))

    async def _purge(self) -> None:
        now = self.engine.clock.now()
        if now >= self._purge_at:
            await self.store.purge(now)
            self._purge_at = now + PURGE_S

    async def _publish_alerts(self) -> None:
        """Publish the alerts that workers raised to the callbacks of this process. This is a separate task, because
        callbacks may be slow."""
        while True:
            await self.engine.clock.sleep(self.config.sweep_s)
            try:
                await self.budgets.publish_alerts()
            except StoreError as error:
                logger.warning("could not publish budget alerts; trying again: %s", error)
            except Exception:
                logger.exception("publishing budget alerts failed; trying again")

    # --- agents ---------------------------------------------------------------------------------------------------

    async def start_agent(self, agent_id: str) -> list[str]:
        """Raise the desired number to at least the agent's minimum, and return the ids of its processes once they are
        running. Idempotent. Raises `AgentNotFoundError`, and `ProcessFailedError` if a process does not start."""
        self._registered(agent_id)
        await self.control.start(agent_id)
        return await self._wait_until_at_rest(agent_id)

    async def stop_agent(self, agent_id: str, force: bool = False) -> None:
        """Stop accepting runs, interrupt active ones, and end the agent's processes gracefully within its shutdown timeout.
        With `force`, abort the runs and kill the processes."""
        known = self._registered(agent_id)
        await self.control.stop(agent_id, force=force)
        await self._supervisor.wait_until(
            lambda: self._is_stopped(agent_id), known.resources.shutdown_timeout + MORE_S if not force else MORE_S
        )

    async def restart_agent(self, agent_id: str) -> list[str]:
        """Restart all processes of the agent, each after it has handed over its work. Return the ids of those that are then
        running."""
        self._registered(agent_id)
        await self.control.restart(agent_id)
        return await self._wait_until_at_rest(agent_id)

    async def scale_agent(self, agent_id: str, instances: int) -> list[str]:
        """Set the desired number, and return the ids of the processes that are then running. Surplus processes finish their
        work and end. Raises `InvalidScaleError` if the number is outside the agent's bounds."""
        self._registered(agent_id)
        await self.control.scale(agent_id, instances)
        return await self._wait_until_at_rest(agent_id)

    async def get_agent_status(self, agent_id: str) -> dict[str, Any]:
        """Return the status of the agent, in the format of `FleetControl.status`."""
        return await self.control.status(agent_id)

    async def list_agents(self, *, after: str = "", limit: int | None = None) -> list[dict[str, Any]]:
        """Return the status of every agent, ordered by id. With `limit`, return one page: the agents whose ids follow
        `after`."""
        return await self.control.list(after=after, limit=limit)

    async def execute(self, agent_id: str, input: Input, **options: Any) -> AgentExecutionHandle[Any]:
        """Start a run. `options` are those of `Executor.execute`. If the agent has no instances, one is started. Raises
        `AgentStoppedError` if the agent was stopped."""
        known = self._registered(agent_id)
        entry = await read_entry(self.store, agent_id)
        if entry is not None and entry.stopped:
            raise AgentStoppedError(f"agent {agent_id!r} is stopped: start it with start_agent({agent_id!r})")
        return await self.executor.execute(known.agent, input, **options)

    def agent(self, agent_id: str) -> AnyAgent:
        """Return the definition that is served under the id. Raises `AgentNotFoundError`."""
        return self._registered(agent_id).agent

    # --- internals ------------------------------------------------------------------------------------------------

    def _registered(self, agent_id: str) -> Registered:
        if agent_id not in self._agents:
            names = ", ".join(sorted(self._agents)) or "none"
            raise AgentNotFoundError(f"agent {agent_id!r} is not registered with this runtime; registered: {names}")
        return self._agents[agent_id]

    async def _wait_until_at_rest(self, agent_id: str) -> list[str]:
        """Wait until the agent's processes match the desired state. A runtime that was not started has only written that
        state, so it does not wait."""
        if self._state != "running":
            return []
        known = self._agents[agent_id]
        await self._supervisor.wait_until(lambda: self._is_at_rest(agent_id), known.resources.startup_timeout + MORE_S)
        processes = await self._processes(agent_id)
        failed = [info for info in processes if info.status is ProcessStatus.FAILED]
        if failed:
            raise ProcessFailedError(f"agent {agent_id!r} does not start: {failed[-1].last_error}")
        if known.resources.health_check_enabled:
            await self.health.check_health(agent_id, run=True)  # the last check saw them while they were starting
        return [info.process_id for info in processes if info.status is ProcessStatus.RUNNING]

    async def _processes(self, agent_id: str) -> list[ProcessInfo]:
        """Return the processes that count as desired instances, in this runtime or another."""
        entry = await read_entry(self.store, agent_id)
        if entry is None:
            return []
        if self._supervisor.is_foreign(entry):
            return [info for info in await read_processes(self.store, agent_id) if self.control.is_live(info)]
        return await self._supervisor.list_counted(entry)

    async def _is_at_rest(self, agent_id: str) -> bool:
        entry = await read_entry(self.store, agent_id)
        if entry is None:
            return True
        if not self._supervisor.is_foreign(entry):
            return entry.supervisor == self._supervisor.ident and await self._supervisor.is_at_rest(entry)
        running = [i for i in await self._processes(agent_id) if i.status is ProcessStatus.RUNNING]
        return len(running) == (0 if entry.stopped else entry.wanted)

    async def _is_stopped(self, agent_id: str) -> bool:
        if self._state != "running":
            return True
        if any(self.control.is_live(info) for info in await read_processes(self.store, agent_id)):
            return False
        rows = await self.queue.open_work()
        return not any(row.value["agent_type"] == agent_id and row.value["root"] for row in rows)

    async def _check_processes(self, agent_id: str) -> tuple[bool, str]:
        """Return whether at least the desired number of processes are running, and a description."""
        status = await self.control.status(agent_id)
        states = [info["status"] for info in status["processes"]]  # rows, because another runtime may supervise them
        wanted, running = status["wanted"], states.count(ProcessStatus.RUNNING)
        coming = states.count(ProcessStatus.STARTING)
        starting = f", {coming} starting" if coming else ""
        return running >= wanted, f"{running} of {wanted} processes run{starting}"

    async def _on_health(self, change: HealthChange) -> None:
        """Stop admitting runs if readiness was lost. Restart the processes if liveness was lost."""
        if change.target not in self._agents:
            return
        if change.check_type is CheckType.LIVENESS and change.asks_restart:
            with contextlib.suppress(AgentStoppedError):  # a manual stop takes precedence
                await self.control.restart(change.target)
        if change.stops_admission is not None and self.engine.slots is not None:
            await self.control.apply_health(change)
            await begin_granted(self.engine, await self.engine.slots.grant())
