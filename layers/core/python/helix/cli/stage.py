"""Where a run plays: one executor, one agent, one view, and the user's Ctrl-C.

Law: the first Ctrl-C asks the run to stop and waits for it; the second leaves at once and gives the lease back, so that
`resume` works immediately. Whatever else ends this process, the session can be resumed once its lease has lapsed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from helix.adapters.system import SystemClock
from helix.cli.questions import open_questions
from helix.cli.refusal import STOPPED, exit_code
from helix.cli.views import View, say
from helix.cli.waiting import unserved, until_free
from helix.core.agents import AnyAgent
from helix.core.chunks import StreamChunk
from helix.runtime.executor import Executor
from helix.runtime.handle import AgentExecutionHandle, AgentResult

Handle = AgentExecutionHandle[Any]
LOOK_S = 2.0


class RunLostError(Exception):
    """Nobody executes the run any more, and it has not ended."""


class Stage:
    def __init__(self, executor: Executor, agent: AnyAgent, view: View) -> None:
        self.executor, self.agent, self.view = executor, agent, view
        self._clock = SystemClock()
        self._watched: Handle | None = None
        self._signals = 0
        self._asking: asyncio.Task[bool] | None = None
        self._standing: str | None = None

    async def play(self, act: Callable[[Stage], Awaitable[Handle]]) -> AgentResult[Any] | None:
        """Do `act`, show how its last run ended and return that; None if the user did not wait for the end."""
        with self._interruptible():
            try:
                handle = await act(self)
                result: AgentResult[Any] = await handle.result()
            except (asyncio.CancelledError, RunLostError) as error:
                await self._leave(error)
                return None
        paused = result.status == "paused"
        self.view.result(result, await open_questions(self.executor, handle.session_id) if paused else ())
        return result

    async def until_free(self, session_id: str) -> None:
        await until_free(self.executor, session_id, self._clock, say)

    async def watch(self, handle: Handle, *, after: int | None = None, root: str | None = None) -> int:
        """Show the run to its end. Returns the sequence of the last chunk seen. `root`: the session that the user named,
        where it is not the run's own."""
        self._watched = handle
        self.view.opened(root or handle.session_id)
        sequence = after or 0
        async with contextlib.aclosing(self._chunks(handle, after)) as chunks:
            async for chunk in chunks:
                sequence = max(sequence, chunk.sequence)
                self.view.chunk(chunk)
        return sequence

    async def _chunks(self, handle: Handle, after: int | None) -> AsyncGenerator[StreamChunk, None]:
        """The run's chunks. Raises `RunLostError` when they stop coming because nobody makes them."""
        chunks: AsyncIterator[StreamChunk] = await handle.stream(after=after)
        coming = asyncio.ensure_future(_next(chunks))
        try:
            while True:
                while not (await asyncio.wait({coming}, timeout=LOOK_S))[0]:
                    await self._check_alive(handle)
                if (chunk := coming.result()) is None:
                    return
                yield chunk
                coming = asyncio.ensure_future(_next(chunks))
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    async def _check_alive(self, handle: Handle) -> None:
        """A living worker is late at times; one that is half a lease late is not coming back."""
        state = await self.executor.sessions.get(handle.session_id)
        slack_s = self.executor.engine.settings.lease_s / 2
        mine = state.status == "running" and state.current_run_id == handle.run_id
        if mine and state.lease_expires and state.lease_expires + slack_s < self._clock.now():
            raise RunLostError("the process that executed the run is gone")
        if mine and not state.lease_expires:  # of a fleet, which may come back
            why = await unserved(self.executor, self.agent.name, self._clock)
            if why is not None and why != self._standing:
                say(why)
            self._standing = why

    # --- stopping -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        numbers = (signal.SIGINT, signal.SIGTERM)
        try:
            for number in numbers:
                loop.add_signal_handler(number, self._on_signal, task)
        except (NotImplementedError, RuntimeError, ValueError):  # not on this system, or not the main thread
            yield
            return
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _on_signal(self, task: asyncio.Task[Any]) -> None:
        self._signals += 1
        if self._signals == 1 and self._watched is not None:
            self.view.stopping()
            interrupt = self.executor.interrupt(self._watched.session_id, "interrupted at the terminal")
            self._asking = asyncio.get_running_loop().create_task(interrupt)
        elif self._signals <= 2:
            task.cancel()
        else:
            os._exit(STOPPED)

    async def _leave(self, error: BaseException) -> None:
        if self._watched is None:
            say("stopped before anything was started")
        else:
            self.view.left(self._watched, str(error) or "left before the run had stopped")
        if isinstance(error, asyncio.CancelledError):
            await self.executor.close()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(STOPPED)  # a tool in a thread cannot be cancelled, and Python would wait for it


async def _next(chunks: AsyncIterator[StreamChunk]) -> StreamChunk | None:
    return await anext(chunks, None)


def code_of(result: AgentResult[Any] | None) -> int:
    return STOPPED if result is None else exit_code(result.status)
