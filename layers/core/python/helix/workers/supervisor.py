"""Supervisor: brings the processes on this machine to the desired state.

Law: an agent has one supervisor at a time, which holds a lease in the agent's entry. A runtime without the lease starts
nothing. Each time, the supervisor rereads the desired state and compares it with the actual state. It therefore does not
matter which process wrote it, when, or how often.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from helix.core.errors import StoreError
from helix.engine.engine import Engine, logger
from helix.engine.runs.admission import begin_granted
from helix.fleet.process_info import OVER, ProcessInfo, ProcessStatus, born, is_living
from helix.fleet.rows import (
    FLEET,
    AgentEntry,
    change_entry,
    forget_processes,
    put_process,
    read_entries,
    read_processes,
)
from helix.runtime.launching import LaunchingExecutor
from helix.services.work_queue import WorkQueue
from helix.workers.child import Command
from helix.workers.config import RuntimeConfig
from helix.workers.execution import end_stopped
from helix.workers.manager import ProcessManager, RestartPolicy
from helix.workers.registering import Registered
from helix.workers.tasks import end_tasks, first_of

LEASE_S = 15.0
LOOK_S = 2.0
SILENT_S = 600.0
"""The number of seconds after which a silent process on another machine is considered dead."""
PAUSE_S = 0.05
"""The minimum number of seconds between two reads of the state. It is needed because any write to a SQLite file wakes its
watchers."""


class Supervisor:
    """The supervisor of one runtime's agents. `registered` is read each time, so agents may be added while the supervisor
    is running."""

    def __init__(
        self,
        config: RuntimeConfig,
        executor: LaunchingExecutor,
        queue: WorkQueue,
        registered: Mapping[str, Registered],
        *,
        policy: RestartPolicy | None = None,
        jitter: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.config, self.executor, self.queue = config, executor, queue
        self.engine: Engine = executor.engine
        self.store, self.clock = executor.store, executor.engine.clock
        self.ident = self.engine.ids.new("runtime")
        reports: dict[str, Any] = {"on_change": self._record_process, "on_end": self._release, "supervisor": self.ident}
        reports |= {"clock": self.clock, "ids": self.engine.ids}
        self.manager = ProcessManager(logs=config.logs, policy=policy, jitter=jitter, **reports)
        self._host, self._born = socket.gethostname(), born(os.getpid())
        self._registered = registered
        self._starts: dict[str, int] = {}
        self._orphans_checked: dict[str, float] = {}
        self._granted: dict[str, tuple[int, bool]] = {}
        self._tasks: dict[str, asyncio.Task[object]] = {}
        self._kicked = asyncio.Event()
        self._looked = asyncio.Condition()

    # --- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Supervise the processes until cancelled."""
        with self.store.watch("control", FLEET) as wanted, self.queue.watch() as waiting:
            while True:
                self._kicked.clear()
                await self.compare_once()
                await first_of(wanted.changed(LOOK_S), waiting.changed(LOOK_S), self._kicked.wait(), timeout_s=LOOK_S)
                await self.clock.sleep(PAUSE_S)

    def compare_soon(self) -> None:
        """Compare the states again without waiting for a change."""
        self._kicked.set()

    async def compare_once(self) -> None:
        """Compare the desired state with the actual state once, and start the necessary changes."""
        try:
            for entry in await read_entries(self.store):
                known = self._registered.get(entry.agent_id)
                if known is not None:
                    await self._supervise(entry, known)
        except StoreError as error:
            logger.warning("the fleet cannot be read; trying again: %s", error)
        async with self._looked:
            self._looked.notify_all()

    async def wait_until(self, reached: Callable[[], Awaitable[bool]], timeout_s: float) -> bool:
        """Wait until `reached` returns True for the rows or the processes. Return False if it does not within
        `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                self.compare_soon()
                while not await reached():
                    async with self._looked:
                        await self._looked.wait()
        except TimeoutError:
            return False
        return True

    async def close(self, timeout_s: float | None = None) -> None:
        """End the processes gracefully, and leave the agents to the next runtime. `run` must have ended."""
        await self.manager.shutdown(timeout_s)
        await end_tasks(*self._tasks.values())
        try:
            for agent_name in self._registered:
                mine = {"supervisor": self.ident}
                await change_entry(self.store, agent_name, seen=mine, supervisor=None, supervisor_expires=0)
        except StoreError as error:
            logger.warning("the agents could not be released; their leases will expire: %s", error)

    async def list_counted(self, entry: AgentEntry) -> list[ProcessInfo]:
        """Return the processes that count as desired instances, without those that are draining."""
        return [info for info in await self.manager.list_processes(entry.agent_id) if self._counts(info, entry)]

    async def is_at_rest(self, entry: AgentEntry) -> bool:
        """Return whether the agent has the desired number of processes, all with the desired code, and each either running
        or abandoned."""
        infos = await self.list_counted(entry)
        up = [info for info in infos if info.status in (ProcessStatus.RUNNING, ProcessStatus.FAILED)]
        fresh = all(info.generation >= entry.restarts for info in infos)
        return fresh and len(up) == len(infos) == (0 if entry.stopped else await self._wanted(entry))

    # --- one agent ------------------------------------------------------------------------------------------------

    async def _supervise(self, entry: AgentEntry, known: Registered) -> None:
        """Start the changes that an agent needs. An unexpected error is logged, because the other agents also need
        supervision. Raises `StoreError`."""
        try:
            await self._change_processes(entry, known)
        except StoreError:
            raise
        except Exception:
            logger.exception("checking agent %s failed with an unexpected error; trying again", entry.agent_id)

    async def _change_processes(self, entry: AgentEntry, known: Registered) -> None:
        if not await self._hold_lease(entry):
            await self._end_processes_here(entry.agent_id)
            return
        now = self.clock.now()
        if now >= self._orphans_checked.get(entry.agent_id, 0) + LOOK_S:
            self._orphans_checked[entry.agent_id] = now
            await self._expire_orphans(entry)
        if self._granted.get(entry.agent_id) != (entry.wanted, entry.stopped) and self.engine.slots is not None:
            self._granted[entry.agent_id] = entry.wanted, entry.stopped
            await begin_granted(self.engine, await self.engine.slots.grant())
        if entry.stopped:
            self._run_in_background(f"stop {entry.agent_id}", lambda: self._stop(entry))
            return
        counted = await self.list_counted(entry)
        for info in counted:
            if info.generation < entry.restarts and info.status is not ProcessStatus.STOPPING:
                self._run_in_background(f"restart {info.process_id}", partial(self._restart, info, entry, known))
        wanted = await self._wanted(entry)
        for _ in range(len(counted), wanted):
            await self._start(entry, known)
        await self._drain(
            [info for info in counted if info.status is not ProcessStatus.STOPPING], len(counted) - wanted
        )

    async def _hold_lease(self, entry: AgentEntry) -> bool:
        """Renew the agent's lease, or acquire it if it is free."""
        now = self.clock.now()
        mine = entry.supervisor == self.ident
        if mine and entry.supervisor_expires > now + 2 * LEASE_S / 3:
            return True
        if self.is_foreign(entry):
            return False
        seen = {"supervisor": entry.supervisor, "supervisor_expires": entry.supervisor_expires}
        me: dict[str, Any] = {"supervisor": self.ident, "supervisor_expires": now + LEASE_S}
        me |= {"supervisor_host": self._host, "supervisor_pid": os.getpid(), "supervisor_born": self._born}
        return await change_entry(self.store, entry.agent_id, seen=seen, **me)

    def is_foreign(self, entry: AgentEntry) -> bool:
        """Return whether another live runtime supervises the agent. The death of a runtime on this machine is known
        immediately."""
        if entry.supervisor == self.ident or not entry.supervised(self.clock.now()):
            return False
        here = entry.supervisor_host == self._host
        return not here or is_living(entry.supervisor_pid, entry.supervisor_born)

    def _counts(self, info: ProcessInfo, entry: AgentEntry) -> bool:
        """Return whether the process counts as a desired instance. A process that the supervisor gave up on counts until a
        start is requested. Otherwise the supervisor would keep restarting it forever."""
        if f"drain {info.process_id}" in self._tasks:
            return False
        if info.status is ProcessStatus.FAILED:
            if self._starts.get(info.process_id, 0) >= entry.starts:
                return True
            self.manager.forget(info.process_id)
            return False
        return info.status is not ProcessStatus.STOPPED

    async def _wanted(self, entry: AgentEntry) -> int:
        """Return the desired number of processes, within the limit for all workers. If the number is 0 and a run is
        waiting, set it to 1."""
        wanted = entry.wanted
        if wanted == 0 and await self._has_waiting_run(entry.agent_id):
            wanted = 1
            await change_entry(self.store, entry.agent_id, seen={"wanted": 0}, wanted=wanted)
        others = [info for info in await self.manager.list_processes() if info.name != entry.agent_id]
        room = self.config.max_workers - sum(info.status not in OVER for info in others)
        return max(0, min(wanted, room))

    async def _has_waiting_run(self, agent_name: str) -> bool:
        rows = await self.queue.open_work()
        return any(row.value["agent_type"] == agent_name and row.value["root"] for row in rows)

    async def _start(self, entry: AgentEntry, known: Registered) -> None:
        info = await self.manager.start_process(
            entry.agent_id, self._command(known), resources=known.resources, generation=entry.restarts
        )
        self._starts[info.process_id] = entry.starts

    async def _restart(self, info: ProcessInfo, entry: AgentEntry, known: Registered) -> None:
        self._starts[info.process_id] = entry.starts
        await self.manager.restart_process(info.process_id, command=self._command(known), generation=entry.restarts)

    async def _drain(self, running: list[ProcessInfo], surplus: int) -> None:
        """End the surplus processes, idle ones first. All of them finish their work."""
        if surplus <= 0:
            return
        busy = {row.value["owner"] for row in await self.queue.open_work()}
        for info in sorted(running, key=lambda info: info.worker_id in busy)[:surplus]:
            end = partial(self.manager.stop_process, info.process_id, drain=True)
            self._run_in_background(f"drain {info.process_id}", end)

    async def _stop(self, entry: AgentEntry) -> None:
        """End all processes of the agent, and its active runs."""
        await self._stop_runs(entry)
        there = [info for info in await self.manager.list_processes(entry.agent_id) if info.status not in OVER]
        end = self.manager.kill_process if entry.force else self.manager.stop_process
        await asyncio.gather(*(end(info.process_id) for info in there))
        await self._stop_runs(entry)
        await self.end_stopped()

    async def _stop_runs(self, entry: AgentEntry) -> None:
        for row in await self.queue.open_work():
            value = row.value
            if value["agent_type"] != entry.agent_id or not value["root"]:
                continue
            session_id, run_id = value["session_id"], value["run_id"]
            if entry.force:
                agent = self._registered[entry.agent_id].agent
                await self.executor.abort(agent, session_id, "its agent was stopped", run_id=run_id)
            else:
                await self.executor.interrupt(session_id, "its agent was stopped", run_id=run_id)

    async def _end_processes_here(self, agent_name: str) -> None:
        """End the processes here, because another runtime now supervises the agent."""
        for info in await self.manager.list_processes(agent_name):
            if info.status not in OVER:
                self._run_in_background(
                    f"retire {info.process_id}", partial(self.manager.stop_process, info.process_id)
                )

    async def end_stopped(self) -> int:
        """End the runs that were asked to stop and that no worker holds. Return their number."""
        return await end_stopped(self.engine, self.queue, f"{self.ident}.stops")

    # --- processes ------------------------------------------------------------------------------------------------

    def _command(self, known: Registered) -> Command:
        config = self.config
        given: dict[str, Any] = {
            "agent": known.served.dump(),
            "store": config.store,
            "model": config.model,
            "path": [os.path.abspath(place) for place in sys.path],
            "settings": config.retention,
            "max_runs": config.max_workers,
            "lease_s": self.queue.lease_s,
            "log_level": "DEBUG" if config.debug else config.log_level.upper(),
            "shutdown_timeout": known.resources.shutdown_timeout,
        }
        return Command((sys.executable, "-m", "helix.workers.entry"), given, reports=True)

    async def _record_process(self, info: ProcessInfo) -> None:
        await put_process(self.store, info.name, info, self.clock.now())
        self.compare_soon()

    async def _release(self, info: ProcessInfo, crashed: bool, handed_over: bool = False) -> None:
        """Release the executions that an ended worker held, without waiting for their leases to expire."""
        for name in await self.queue.release_dead_worker(info.worker_id, died=crashed, handed_over=handed_over):
            logger.warning("worker %s ended and held the execution %s: it is free again", info.worker_id, name)

    async def _expire_orphans(self, entry: AgentEntry) -> None:
        """Record the end of processes whose supervisor is dead, because they end on their own and leave no record. This
        runtime cannot inspect another machine (such as a container that was replaced). A process there that has been silent
        for too long is considered dead, and the leases of its runs expire."""
        processes, now = await read_processes(self.store, entry.agent_id), self.clock.now()
        for info in processes:
            if info.supervisor == self.ident or info.status in OVER:
                continue
            here = info.host == self._host
            if is_living(info.pid, info.born) if here else info.seen_at > now - SILENT_S:
                continue
            if here:
                await self._release(info, True, handed_over=True)
            dead = {"status": ProcessStatus.STOPPED, "last_error": info.last_error or "its supervisor died"}
            over = info.model_copy(update={**dead, "pid": None, "stopped_at": self.clock.now()})
            await put_process(self.store, entry.agent_id, over, self.clock.now())
        for info in await forget_processes(self.store, entry.agent_id, processes):
            self.manager.drop(info.process_id)

    def _run_in_background(self, what: str, begin: Callable[[], Awaitable[object]]) -> None:
        """Run the task in the background, one at a time for each name."""
        if what in self._tasks:
            return

        async def work() -> None:
            try:
                await begin()
            except Exception:
                logger.exception("could not %s", what)
            finally:
                del self._tasks[what]
                self.compare_soon()

        self._tasks[what] = asyncio.get_running_loop().create_task(work(), name=f"helix:{what}")
