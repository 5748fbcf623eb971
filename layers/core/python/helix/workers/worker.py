"""A worker, which claims waiting executions and plays them (`helix.workers.execution`).

Law: it executes one root run at a time, so it counts as one instance. In addition, it concurrently executes all available
sub-agents' runs, so that a tree of agents cannot deadlock. It renews the executions that it holds, and immediately drops
those that it has lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from helix.core.errors import AgentNotFoundError, StoreError
from helix.engine.engine import Engine, logger
from helix.ports.state_store import Value
from helix.services.work_queue import Work, WorkQueue
from helix.workers.execution import Execution
from helix.workers.tasks import end_tasks, first_of

LOOK_S = 5.0
AGAIN_S = 5.0
"""The number of seconds before retrying an execution whose failure could not even be recorded."""


class Worker:
    """A worker for the runs of `agents`. It accepts sub-agents' executions for every agent that the engine knows.
    `worker_id` names one life of one process. It must not contain `/`."""

    def __init__(self, engine: Engine, queue: WorkQueue, worker_id: str, agents: Collection[str]) -> None:
        self.engine, self.queue, self.worker_id = engine, queue, worker_id
        self._agents = frozenset(agents)
        self._playing: dict[str, tuple[Execution, asyncio.Task[None]]] = {}
        self._draining = self._leaving = False
        self._changed = asyncio.Event()

    @property
    def held(self) -> list[Work]:
        return [execution.work for execution, _ in self._playing.values()]

    async def serve(self) -> None:
        """Work until `drain` or `leave` is called, and then until everything that it holds is done or returned. When
        cancelled, it returns everything immediately."""
        renewing = asyncio.create_task(self._renew())
        try:
            await self._claim()
        finally:
            await end_tasks(*(task for _, task in self._playing.values()))
            await end_tasks(renewing)

    def drain(self) -> None:
        """Stop taking runs, and finish the active ones."""
        self._draining = True
        self._changed.set()

    def leave(self) -> None:
        """Stop taking executions, and return each run at the next point where another worker can continue."""
        self._leaving = True
        self.drain()
        for execution, _ in self._playing.values():
            execution.leave()

    # --- claiming -------------------------------------------------------------------------------------------------

    async def _claim(self) -> None:
        with self.queue.watch() as watch:
            while not (self._draining and not self._playing):
                self._changed.clear()
                timeout = LOOK_S
                try:
                    while (work := await self.queue.claim(self.worker_id, self._is_wanted)) is not None:
                        self._begin(work)
                    if (free := await self.queue.next_free()) is not None:
                        timeout = min(timeout, max(0.05, free - self.engine.clock.now()))
                except StoreError:
                    logger.warning("worker %s cannot look for work; trying again", self.worker_id, exc_info=True)
                await first_of(watch.changed(timeout), self._changed.wait())

    def _is_wanted(self, value: Value) -> bool:
        if self._leaving or value["name"] in self._playing:
            return False  # another worker has it now, and this one has not dropped it yet
        if not value["root"]:
            return (not self._draining or bool(self._playing)) and self._knows(value["agent_type"])
        busy = any(work.root for work in self.held)
        return not self._draining and not busy and value["agent_type"] in self._agents

    def _knows(self, agent_type: str) -> bool:
        try:
            self.engine.agents(agent_type)
        except AgentNotFoundError:
            return False
        return True

    def _begin(self, work: Work) -> None:
        execution = Execution(self.engine, self.queue, work)
        if self._leaving:  # the worker was asked to leave while it was claiming
            execution.leave()
        task = asyncio.get_running_loop().create_task(self._play(execution), name=f"helix:{work.name}")
        self._playing[work.name] = execution, task
        task.add_done_callback(lambda _: self._on_done(work.name))

    def _on_done(self, name: str) -> None:
        del self._playing[name]
        self._changed.set()

    # --- playing --------------------------------------------------------------------------------------------------

    async def _play(self, execution: Execution) -> None:
        work = execution.work
        logger.info("run %s: worker %s executes it", work.part.run_id, self.worker_id)
        playing = asyncio.get_running_loop().create_task(execution.play())
        listening = asyncio.get_running_loop().create_task(self._listen(execution, playing))
        try:
            try:
                played = await playing
            finally:
                await end_tasks(playing, listening)
            if played == "ended":
                await self.queue.finish(work)
            else:
                await self.queue.give_back(work)
        except asyncio.CancelledError:
            await self._return_execution(work, 0)  # has no effect if the execution was stopped or lost
            raise
        except Exception:
            logger.exception("run %s cannot be executed now", work.part.run_id)
            await self._return_execution(work, self.engine.clock.now() + AGAIN_S)

    async def _return_execution(self, work: Work, not_before: float) -> None:
        try:
            await self.queue.give_back(work, not_before=not_before)
        except StoreError:
            logger.warning("run %s could not be released; its lease will expire", work.part.run_id, exc_info=True)

    async def _listen(self, execution: Execution, playing: asyncio.Task[object]) -> None:
        """Listen for tokens, and for a request to stop the execution."""
        with self.queue.signals_of(execution.work) as watch:
            while True:
                try:
                    signals = await self.queue.signals(execution.work)
                except StoreError:
                    logger.warning("run %s: its signals cannot be read", execution.work.part.run_id, exc_info=True)
                else:
                    if not signals.open:
                        playing.cancel()
                        return
                    execution.receive_signals(signals)
                await watch.changed(LOOK_S)

    async def _renew(self) -> None:
        while True:
            await self.engine.clock.sleep(self.queue.lease_s / 3)
            for execution, task in list(self._playing.values()):
                try:
                    held = await self.queue.renew(execution.work)
                except StoreError:
                    logger.warning("run %s: its lease was not renewed", execution.work.part.run_id, exc_info=True)
                else:
                    if not held and not task.done():
                        logger.warning("another worker holds run %s now", execution.work.part.run_id)
                        task.cancel()
