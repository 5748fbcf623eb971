"""ProcessManager: starts, watches, ends and restarts processes on this machine.

Law: the manager waits for each process, so it notices an exit immediately. A process that ends without being asked to has
crashed, and is restarted after increasing pauses. After too many consecutive crashes, the manager gives up on the process
(`RestartPolicy`). The listeners receive its usage and the reason for its end before it is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix.adapters.system import SystemClock, SystemIds
from helix.core.errors import ProcessFailedError, ProcessNotFoundError, StoreError
from helix.core.resources import ResourceConfig
from helix.engine.engine import logger
from helix.fleet.process_info import OVER, ProcessInfo, ProcessStatus, born
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.workers.child import Child, Command, NotReadyError, read_end
from helix.workers.tasks import end_tasks, first_of
from helix.workers.usage import bind_cores, limit_cpu, read_usage

LOOK_S = 0.5
"""The number of seconds between two measurements, and so the delay before excessive memory use is noticed."""
REPORT_S = 5.0
"""The number of seconds between two reports of changed measurements."""
LAST_GRACE_S = 2.0
"""The number of seconds that a process over its memory limit has to return the work that it holds."""


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The pauses before a crashed process is restarted. Times are in seconds.

    The caller supplies a random jitter between 0 and 1, which lengthens the pause by up to half.
    """

    first_s: float = 0.5
    """The pause after the first death. It doubles with each consecutive death: `first_s * 2^(n-1)` after the n-th."""
    longest_s: float = 30.0
    """The longest pause, before the jitter is added."""
    healthy_s: float = 60.0
    """The lifetime after which a death is again treated as the first."""
    limit: int = 5
    """The number of consecutive deaths that are considered a crash loop. The manager then gives up on the process."""

    def in_a_row(self, before: int, lived_s: float) -> int:
        """Return the number of consecutive deaths, including this one."""
        return 1 if lived_s >= self.healthy_s else before + 1

    def pause_s(self, deaths: int, jitter: float) -> float | None:
        """Return the number of seconds to wait before the next start, or None to give up on the process."""
        if deaths >= self.limit:
            return None
        pause = min(self.longest_s, self.first_s * 2.0 ** (deaths - 1))
        return pause * (1 + 0.5 * jitter)


Listener = Callable[[ProcessInfo], Awaitable[None]]
ExitListener = Callable[[ProcessInfo, bool], Awaitable[None]]


class _Managed:
    """One managed process across all its lives. `asked` is the order that it was given, or None while it should run."""

    def __init__(self, info: ProcessInfo, command: Command, resources: ResourceConfig) -> None:
        self.info, self.command, self.resources = info, command, resources
        self.child: Child | None = None
        self.asked: str | None = None
        self.timeout_s = resources.shutdown_timeout
        self.changed = asyncio.Event()
        self.deaths = 0
        self.generation = info.generation
        self.task: asyncio.Task[None] | None = None

    def ask(self, what: str, timeout_s: float | None) -> None:
        self.asked = what
        self.timeout_s = self.resources.shutdown_timeout if timeout_s is None else timeout_s
        self.changed.set()


class ProcessManager:
    """Manages the processes of one supervisor.

    `logs` is the folder for their logs. `on_change` receives each change. `on_end` receives each life that has ended, and
    whether it crashed. `jitter` returns a random number from 0 to 1 for each pause. `supervisor` is the name of the
    supervisor, which is written to each `ProcessInfo`.
    """

    def __init__(
        self,
        *,
        logs: str | Path = ".helix/logs",
        on_change: Listener | None = None,
        on_end: ExitListener | None = None,
        policy: RestartPolicy | None = None,
        jitter: Callable[[], float] = lambda: 0.5,
        clock: Clock | None = None,
        ids: Ids | None = None,
        supervisor: str = "",
    ) -> None:
        self.logs = Path(logs)
        self._on_change, self._on_end = on_change, on_end
        self._policy, self._jitter = policy or RestartPolicy(), jitter
        self._clock, self._ids = clock or SystemClock(), ids or SystemIds()
        self._supervisor, self._host = supervisor, socket.gethostname()
        self._managed: dict[str, _Managed] = {}
        self._changes = asyncio.Condition()

    # --- verbs ----------------------------------------------------------------------------------------------------

    async def start_process(
        self,
        name: str,
        command: Command,
        *,
        resources: ResourceConfig | None = None,
        generation: int = 0,
        process_id: str | None = None,
    ) -> ProcessInfo:
        """Start a process, and keep it running. Returns immediately; `ready` waits for the process. `generation` is the
        caller's version number for the code that the process is started from."""
        wanted = resources or ResourceConfig()
        ident = process_id or self._ids.new("proc")
        info = ProcessInfo(
            process_id=ident,
            name=name,
            cpu_limit=wanted.cpu_limit,
            memory_limit_mb=wanted.memory_limit_mb,
            host=self._host,
            supervisor=self._supervisor,
            log=str(self.logs / f"{ident}.log"),
            generation=generation,
            started_at=self._clock.now(),
        )
        managed = self._managed[ident] = _Managed(info, command, wanted)
        await self._update(managed)
        managed.task = asyncio.get_running_loop().create_task(self._run(managed), name=f"helix:{ident}")
        return managed.info

    async def ready(self, process_id: str) -> ProcessInfo:
        """Wait until the process is running. Raises `ProcessFailedError` if it fails for good or is stopped first."""
        managed, done = self._find(process_id), (*OVER, ProcessStatus.RUNNING)
        async with self._changes:
            await self._changes.wait_for(lambda: managed.info.status in done)
        if managed.info.status in OVER:
            raise ProcessFailedError(
                f"process {process_id!r} did not start: {managed.info.last_error or 'it was stopped'}"
            )
        return managed.info

    async def stop_process(
        self, process_id: str, *, timeout_s: float | None = None, drain: bool = False
    ) -> ProcessInfo:
        """End a process gracefully. Ask it to end, and kill it if it is still running after `timeout_s` (default: its
        shutdown timeout). With `drain` it may take as long as its work needs."""
        managed = self._find(process_id)
        if managed.asked != "stop":  # a stop that is in progress is not turned into a drain
            managed.ask("drain" if drain else "stop", timeout_s)
        await self._record_end(managed)
        return managed.info

    async def kill_process(self, process_id: str) -> ProcessInfo:
        """Kill the process, and wait for its end."""
        managed = self._find(process_id)
        managed.ask("kill", 0)
        if managed.child is not None:
            managed.child.kill()
        await self._record_end(managed)
        return managed.info

    async def restart_process(
        self, process_id: str, *, command: Command | None = None, generation: int | None = None
    ) -> ProcessInfo:
        """End a process gracefully and start it again under the same id, from `command` if one is given. It works even if
        the manager had given up on the process."""
        managed = self._find(process_id)
        managed.command = command or managed.command
        if generation is not None:
            managed.generation = generation  # for its next life
        lives_on = managed.task is not None and not managed.task.done()
        if not lives_on:
            managed.deaths, managed.asked = 0, None
            managed.changed.clear()  # it was set by the stop that ended the process
            managed.info = managed.info.model_copy(update={"restart_count": managed.info.restart_count + 1})
            await self._update(managed, status=ProcessStatus.STARTING, last_error=None, stopped_at=None)
            managed.task = asyncio.get_running_loop().create_task(self._run(managed), name=f"helix:{process_id}")
            return managed.info
        count = managed.info.restart_count
        if managed.asked is None:
            managed.ask("restart", None)
        async with self._changes:
            await self._changes.wait_for(lambda: managed.info.restart_count > count or managed.info.status in OVER)
        return managed.info

    async def get_process(self, process_id: str) -> ProcessInfo:
        """Return the process. Raises `ProcessNotFoundError`."""
        return self._find(process_id).info

    async def list_processes(self, name: str | None = None) -> list[ProcessInfo]:
        """Return the managed processes, and those that have ended since this manager was created, oldest first."""
        return [managed.info for managed in self._managed.values() if name is None or managed.info.name == name]

    def forget(self, process_id: str) -> None:
        """Forget a process that has ended for good."""
        managed = self._managed.get(process_id)
        if managed is not None and managed.info.status in OVER:
            del self._managed[process_id]

    def read_log(self, process_id: str, last_bytes: int = 16_384) -> str:
        """Return the end of the process's log, or an empty string if it does not have one."""
        return read_end(self.logs / f"{process_id}.log", last_bytes)

    def drop(self, process_id: str) -> None:
        """Forget a stopped process of this manager, or of another manager with the same log folder, and delete its log."""
        managed, path = self._managed.get(process_id), self.logs / f"{process_id}.log"
        if path.parent == self.logs and (managed is None or managed.info.status is ProcessStatus.STOPPED):
            self._managed.pop(process_id, None)
            path.unlink(missing_ok=True)

    async def shutdown(self, timeout_s: float | None = None) -> None:
        """End all processes gracefully, and concurrently."""
        running = [ident for ident, managed in self._managed.items() if managed.info.status not in OVER]
        await asyncio.gather(*(self.stop_process(ident, timeout_s=timeout_s) for ident in running))

    # --- lives ----------------------------------------------------------------------------------------------------

    async def _run(self, managed: _Managed) -> None:
        """Run one life after another."""
        while True:
            began = self._clock.now()
            try:
                reason = await self._run_life(managed)
            except Exception as error:  # otherwise it would count as an instance forever, without a supervisor
                logger.exception("supervising process %s of %s failed", managed.info.process_id, managed.info.name)
                reason = f"{type(error).__name__}: {error}"
            now, ended = self._clock.now(), {"pid": None, "stopped_at": self._clock.now()}
            if self._on_end is not None:
                await self._log_errors(self._on_end(managed.info, reason is not None))
            if managed.asked != "restart":
                if managed.asked is not None or reason is None:  # it was stopped, or a command has finished
                    await self._update(managed, status=ProcessStatus.STOPPED, **ended)
                    return
                logger.warning("process %s of %s crashed: %s", managed.info.process_id, managed.info.name, reason)
                managed.deaths = self._policy.in_a_row(managed.deaths, now - began)
                pause = self._policy.pause_s(managed.deaths, self._jitter())
                status = ProcessStatus.FAILED if pause is None else ProcessStatus.CRASHED
                await self._update(managed, status=status, last_error=reason, **ended)
                if pause is None:
                    logger.error(
                        "process %s of %s crashed too often and is not restarted",
                        managed.info.process_id,
                        managed.info.name,
                    )
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(managed.changed.wait(), pause)
                if managed.asked in ("stop", "drain", "kill"):
                    await self._update(managed, status=ProcessStatus.STOPPED)
                    return
            managed.asked = None
            managed.changed.clear()
            managed.info = managed.info.model_copy(update={"restart_count": managed.info.restart_count + 1})

    async def _run_life(self, managed: _Managed) -> str | None:
        """Run one life, from start to end. Return why it crashed, or None if it ended because it was asked to, or on its
        own without an error."""
        begun = {"started_at": self._clock.now(), "stopped_at": None, "generation": managed.generation}
        await self._update(managed, status=ProcessStatus.STARTING, **begun)
        try:
            child = managed.child = await Child.start(managed.command, Path(managed.info.log), managed.info)
        except OSError as error:
            return f"it cannot be started: {error}"
        await self._update(managed, pid=child.pid, born=born(child.pid))
        watching = asyncio.get_running_loop().create_task(self._watch(managed, child))
        try:
            try:
                await child.ready(managed.resources.startup_timeout, managed.changed)
                await self._update(managed, status=ProcessStatus.RUNNING)
                await first_of(child.exited.wait(), managed.changed.wait(), watching)
            except NotReadyError as error:
                child.kill()
                await child.exited.wait()
                return None if managed.asked else str(error)
            return await self._handle_end(managed, child, watching)
        finally:
            await end_tasks(watching)
            child.kill()  # this also kills the processes that it left running
            await child.exited.wait()
            managed.child = None

    async def _handle_end(self, managed: _Managed, child: Child, watching: asyncio.Task[str]) -> str | None:
        """Handle a process that has exited, was asked to end, or exceeds its memory limit. Return why it crashed, or
        None."""
        if child.exited.is_set():
            return child.how_it_ended()
        if watching.done():
            return await self._end_oversized(managed, child, watching.result())
        await self._update(managed, status=ProcessStatus.STOPPING)
        while True:
            managed.changed.clear()
            drains, timeout_s = managed.asked == "drain", managed.timeout_s
            child.ask("drain" if drains else "leave", timeout_s)
            waits = asyncio.get_running_loop().create_task(child.end(None if drains else timeout_s))
            await first_of(managed.changed.wait(), waits, watching)
            if waits.done():
                return None
            await end_tasks(waits)
            if watching.done():
                return await self._end_oversized(managed, child, watching.result())

    async def _end_oversized(self, managed: _Managed, child: Child, reason: str) -> str:
        await self._update(managed, status=ProcessStatus.STOPPING, last_error=reason)
        child.ask("leave", LAST_GRACE_S)
        await child.end(LAST_GRACE_S)
        return reason

    async def _watch(self, managed: _Managed, child: Child) -> str:
        """Measure the process. Return an error message once it exceeds its memory limit."""
        loop = asyncio.get_running_loop()
        cores, limit = managed.resources.cpu_limit, managed.resources.memory_limit_mb
        sharing = None
        if cores is not None and not bind_cores(child.pid, cores):
            sharing = loop.create_task(limit_cpu(child.pid, cores))
        try:
            seen, at, reported = read_usage(child.pid), loop.time(), 0.0
            while True:
                await asyncio.sleep(LOOK_S)
                now = read_usage(child.pid)
                if now is None or seen is None:
                    await asyncio.Event().wait()  # the process's exit ends this wait
                    continue
                percent = 100 * (now.cpu_s - seen.cpu_s) / max(0.01, loop.time() - at)
                numbers = {"cpu_percent": round(max(0.0, percent), 1), "memory_mb": round(now.memory_mb, 1)}
                seen, at = now, loop.time()
                if limit is not None and now.memory_mb > limit:
                    await self._update(managed, **numbers)
                    return f"it used {now.memory_mb:.0f} MiB of memory; its limit is {limit} MiB"
                if at - reported >= REPORT_S:
                    reported = at
                    await self._update(managed, **numbers)
                else:
                    managed.info = managed.info.model_copy(update=numbers)
        finally:
            if sharing is not None:
                await end_tasks(sharing)

    # --- internals ------------------------------------------------------------------------------------------------

    def _find(self, process_id: str) -> _Managed:
        managed = self._managed.get(process_id)
        if managed is None:
            raise ProcessNotFoundError(f"there is no process {process_id!r} here: see list_processes")
        return managed

    async def _record_end(self, managed: _Managed) -> None:
        if managed.task is not None:
            await asyncio.wait({managed.task})

    async def _update(self, managed: _Managed, **changes: Any) -> None:
        managed.info = managed.info.model_copy(update={**changes, "seen_at": self._clock.now()})
        if self._on_change is not None:
            await self._log_errors(self._on_change(managed.info))
        async with self._changes:
            self._changes.notify_all()

    async def _log_errors(self, report: Awaitable[None]) -> None:
        """Await the report, and log its errors, so that a failing listener does not stop supervision."""
        try:
            await report
        except StoreError as error:
            logger.warning("the change of a process could not be reported: %s", error)
        except Exception:
            logger.exception("the change of a process could not be reported")
