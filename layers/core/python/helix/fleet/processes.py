"""ProcessManager: processes of this machine, started, watched, ended, and started again.

Law: an exit is noticed by waiting for it. A process that ends without having been asked to has crashed, and is started
again after a pause that grows; one that crashes in a row is given up (`helix.fleet.restarting`). What it used and why it
ended is told to whoever listens, before anything is started in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from helix.adapters.system import SystemClock, SystemIds
from helix.core.errors import ProcessFailedError, ProcessNotFoundError, StoreError
from helix.core.resources import ResourceConfig
from helix.engine.engine import logger
from helix.fleet.child import Child, Command, NotReadyError
from helix.fleet.limits import bind, born, read, share
from helix.fleet.process_info import OVER, ProcessInfo, ProcessStatus
from helix.fleet.restarting import RestartPolicy
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.runtime.ending import end_tasks

LOOK_S = 0.5
"""Memory above the limit is noticed after so long."""
TOLD_S = 5.0
"""Numbers that move are told so often."""
LAST_GRACE_S = 2.0
"""What a process over its memory limit has to give back what it holds."""

Listener = Callable[[ProcessInfo], Awaitable[None]]
Mourner = Callable[[ProcessInfo, bool], Awaitable[None]]


class _Kept:
    """One process id over all its lives. `asked`: what it is to become: None while it is to run."""

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
    """logs: the folder of the processes' logs. on_change: told of each change. on_end: told of each life that has ended,
    and whether it crashed. jitter: draws a number from 0 to 1 for each pause. supervisor: a name for who looks after them,
    written to each `ProcessInfo`."""

    def __init__(
        self,
        *,
        logs: str | Path = ".helix/logs",
        on_change: Listener | None = None,
        on_end: Mourner | None = None,
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
        self._kept: dict[str, _Kept] = {}
        self._told = asyncio.Condition()

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
        """Start it, and keep it running. Returns at once: see `ready`. `generation` is the caller's number for what it
        was started from."""
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
        kept = self._kept[ident] = _Kept(info, command, wanted)
        await self._tell(kept)
        kept.task = asyncio.get_running_loop().create_task(self._keep(kept), name=f"helix:{ident}")
        return kept.info

    async def ready(self, process_id: str) -> ProcessInfo:
        """Wait until it runs. Raises `ProcessFailedError` if it was given up or stopped before."""
        kept = self._find(process_id)
        async with self._told:
            await self._told.wait_for(lambda: kept.info.status in OVER or kept.info.status is ProcessStatus.RUNNING)
        if kept.info.status in OVER:
            raise ProcessFailedError(
                f"process {process_id!r} did not start: {kept.info.last_error or 'it was stopped'}"
            )
        return kept.info

    async def stop_process(
        self, process_id: str, *, timeout_s: float | None = None, drain: bool = False
    ) -> ProcessInfo:
        """End it in order: it is asked, and killed if it is still there after `timeout_s` (default its shutdown timeout).
        drain: it may take all the time that its work needs."""
        kept = self._find(process_id)
        if kept.asked != "stop":  # a stop that is under way is not turned into a drain
            kept.ask("drain" if drain else "stop", timeout_s)
        await self._ended(kept)
        return kept.info

    async def kill_process(self, process_id: str) -> ProcessInfo:
        """End it now."""
        kept = self._find(process_id)
        kept.ask("kill", 0)
        if kept.child is not None:
            kept.child.kill()
        await self._ended(kept)
        return kept.info

    async def restart_process(
        self, process_id: str, *, command: Command | None = None, generation: int | None = None
    ) -> ProcessInfo:
        """End it in order and start it again under its id, from `command` if one is given; one that was given up too."""
        kept = self._find(process_id)
        kept.command = command or kept.command
        if generation is not None:
            kept.generation = generation  # of its next life
        lives_on = kept.task is not None and not kept.task.done()
        if not lives_on:
            kept.deaths, kept.asked = 0, None
            kept.info = kept.info.model_copy(update={"restart_count": kept.info.restart_count + 1})
            await self._tell(kept, status=ProcessStatus.STARTING, last_error=None, stopped_at=None)
            kept.task = asyncio.get_running_loop().create_task(self._keep(kept), name=f"helix:{process_id}")
            return kept.info
        count = kept.info.restart_count
        if kept.asked is None:
            kept.ask("restart", None)
        async with self._told:
            await self._told.wait_for(lambda: kept.info.restart_count > count or kept.info.status in OVER)
        return kept.info

    async def get_process(self, process_id: str) -> ProcessInfo:
        """Raises `ProcessNotFoundError`."""
        return self._find(process_id).info

    async def list_processes(self, name: str | None = None) -> list[ProcessInfo]:
        """Those that are kept, and those that ended since this manager was made, oldest first."""
        return [kept.info for kept in self._kept.values() if name is None or kept.info.name == name]

    def forget(self, process_id: str) -> None:
        """Drop what is known of one that is over."""
        kept = self._kept.get(process_id)
        if kept is not None and kept.info.status in OVER:
            del self._kept[process_id]

    def read_log(self, process_id: str, last_bytes: int = 16_384) -> str:
        """The end of its log; empty if it has none."""
        path = self.logs / f"{process_id}.log"
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - last_bytes))
            return file.read().decode("utf-8", "replace")

    def drop(self, process_id: str) -> None:
        """Forget one that has stopped, here or under another manager of these logs, and its log."""
        kept, path = self._kept.get(process_id), self.logs / f"{process_id}.log"
        if path.parent == self.logs and (kept is None or kept.info.status is ProcessStatus.STOPPED):
            self._kept.pop(process_id, None)
            path.unlink(missing_ok=True)

    async def shutdown(self, timeout_s: float | None = None) -> None:
        """End all of them in order, side by side."""
        running = [ident for ident, kept in self._kept.items() if kept.info.status not in OVER]
        await asyncio.gather(*(self.stop_process(ident, timeout_s=timeout_s) for ident in running))

    # --- lives ----------------------------------------------------------------------------------------------------

    async def _keep(self, kept: _Kept) -> None:
        """One life after the other."""
        while True:
            began = self._clock.now()
            try:
                reason = await self._life(kept)
            except Exception as error:  # else it would stand for an instance for ever, and be looked after by nobody
                logger.exception("process %s of %s cannot be looked after", kept.info.process_id, kept.info.name)
                reason = f"{type(error).__name__}: {error}"
            now = self._clock.now()
            crashed = reason is not None
            if self._on_end is not None:
                await self._guarded(self._on_end(kept.info, crashed))
            if kept.asked in ("stop", "drain", "kill"):
                await self._tell(kept, status=ProcessStatus.STOPPED, pid=None, stopped_at=now)
                return
            if kept.asked == "restart":
                kept.asked = None
            elif reason is None:  # a command that came to its end
                await self._tell(kept, status=ProcessStatus.STOPPED, pid=None, stopped_at=now)
                return
            else:
                logger.warning("process %s of %s crashed: %s", kept.info.process_id, kept.info.name, reason)
                kept.deaths = self._policy.in_a_row(kept.deaths, now - began)
                pause = self._policy.pause_s(kept.deaths, self._jitter())
                over = ProcessStatus.FAILED if pause is None else ProcessStatus.CRASHED
                await self._tell(kept, status=over, pid=None, stopped_at=now, last_error=reason)
                if pause is None:
                    logger.error("process %s of %s is given up", kept.info.process_id, kept.info.name)
                    return
                await _within(kept.changed.wait(), pause)
                if kept.asked in ("stop", "drain", "kill"):
                    await self._tell(kept, status=ProcessStatus.STOPPED)
                    return
                kept.asked = None
            kept.changed.clear()
            kept.info = kept.info.model_copy(update={"restart_count": kept.info.restart_count + 1})

    async def _life(self, kept: _Kept) -> str | None:
        """From start to end. Returns why it crashed, or None if it ended as it was asked to, or by itself and well."""
        begun = {"started_at": self._clock.now(), "stopped_at": None, "generation": kept.generation}
        await self._tell(kept, status=ProcessStatus.STARTING, **begun)
        try:
            child = kept.child = await Child.start(kept.command, Path(kept.info.log), kept.info)
        except OSError as error:
            return f"it cannot be started: {error}"
        await self._tell(kept, pid=child.pid, born=born(child.pid))
        watching = asyncio.get_running_loop().create_task(self._watch(kept, child))
        try:
            try:
                await child.ready(kept.resources.startup_timeout, kept.changed)
                await self._tell(kept, status=ProcessStatus.RUNNING)
                done = {
                    asyncio.ensure_future(child.exited.wait()),
                    asyncio.ensure_future(kept.changed.wait()),
                    watching,
                }
                await asyncio.wait(done, return_when=asyncio.FIRST_COMPLETED)
                for waiting in done - {watching}:
                    waiting.cancel()
            except NotReadyError as error:
                child.kill()
                await child.exited.wait()
                return None if kept.asked else str(error)
            return await self._part(kept, child, watching)
        finally:
            await end_tasks(watching)
            child.kill()  # and what it left running
            await child.exited.wait()
            kept.child = None

    async def _part(self, kept: _Kept, child: Child, watching: asyncio.Task[str]) -> str | None:
        """It has exited, is to end, or uses too much."""
        if child.exited.is_set():
            return child.how_it_ended()
        if watching.done():
            return await self._exceeded(kept, child, watching.result())
        await self._tell(kept, status=ProcessStatus.STOPPING)
        while True:
            kept.changed.clear()
            drains, timeout_s = kept.asked == "drain", kept.timeout_s
            child.ask("drain" if drains else "leave", timeout_s)
            waits = asyncio.get_running_loop().create_task(child.end(None if drains else timeout_s))
            changed = asyncio.ensure_future(kept.changed.wait())
            await asyncio.wait({waits, changed, watching}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if waits.done():
                return None
            await end_tasks(waits)
            if watching.done():
                return await self._exceeded(kept, child, watching.result())

    async def _exceeded(self, kept: _Kept, child: Child, reason: str) -> str:
        await self._tell(kept, status=ProcessStatus.STOPPING, last_error=reason)
        child.ask("leave", LAST_GRACE_S)
        await child.end(LAST_GRACE_S)
        return reason

    async def _watch(self, kept: _Kept, child: Child) -> str:
        """Measure it. Returns, once it uses more memory than it may, what to say about it."""
        loop = asyncio.get_running_loop()
        cores, limit = kept.resources.cpu_limit, kept.resources.memory_limit_mb
        sharing = None
        if cores is not None and not bind(child.pid, cores):
            sharing = loop.create_task(share(child.pid, cores))
        try:
            seen, at, told = read(child.pid), loop.time(), 0.0
            while True:
                await asyncio.sleep(LOOK_S)
                now = read(child.pid)
                if now is None or seen is None:
                    await asyncio.Event().wait()  # what comes next is said by its exit
                    continue
                percent = 100 * (now.cpu_s - seen.cpu_s) / max(0.01, loop.time() - at)
                numbers = {"cpu_percent": round(max(0.0, percent), 1), "memory_mb": round(now.memory_mb, 1)}
                seen, at = now, loop.time()
                if limit is not None and now.memory_mb > limit:
                    await self._tell(kept, **numbers)
                    return f"it used {now.memory_mb:.0f} MiB of memory; its limit is {limit} MiB"
                if at - told >= TOLD_S:
                    told = at
                    await self._tell(kept, **numbers)
                else:
                    kept.info = kept.info.model_copy(update=numbers)
        finally:
            if sharing is not None:
                await end_tasks(sharing)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _find(self, process_id: str) -> _Kept:
        kept = self._kept.get(process_id)
        if kept is None:
            raise ProcessNotFoundError(f"there is no process {process_id!r} here: see list_processes")
        return kept

    async def _ended(self, kept: _Kept) -> None:
        if kept.task is not None:
            await asyncio.wait({kept.task})

    async def _tell(self, kept: _Kept, **changes: Any) -> None:
        kept.info = kept.info.model_copy(update={**changes, "seen_at": self._clock.now()})
        if self._on_change is not None:
            await self._guarded(self._on_change(kept.info))
        async with self._told:
            self._told.notify_all()

    async def _guarded(self, telling: Awaitable[None]) -> None:
        """Processes are looked after whatever becomes of the telling."""
        try:
            await telling
        except StoreError as error:
            logger.warning("what became of a process could not be told: %s", error)
        except Exception:
            logger.exception("what became of a process could not be told")


async def _within(what: Awaitable[Any], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await what
