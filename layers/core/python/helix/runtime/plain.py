"""`helix.run`: one run of an agent from code without `await`, such as a script or a cell of a notebook.

Law: the caller waits until the run has ended. Nothing of it is left in the process: the event loop, the executor and the
dependencies of tools are closed. Ctrl-C interrupts the run, so that its session can be resumed.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from helix.core.agents import Agent
from helix.core.budget import BudgetDefinition
from helix.core.errors import HelixError
from helix.core.files import Content
from helix.core.handles import AgentExecutionHandle, AgentResult
from helix.core.initial import Input
from helix.core.periods import TokenPeriod
from helix.core.user_budgets import whole_amount
from helix.ports.state_store import StateStore
from helix.runtime.agent_models import Models
from helix.runtime.local import LocalExecutor
from helix.services.claim_input import check_session_id

OutputT = TypeVar("OutputT")
T = TypeVar("T")
STOP_S = 5.0
"""The time, in seconds, that Ctrl-C gives the run to stop. After that, `run` stops waiting. The run can be resumed."""


def run(
    agent: Agent[Any, OutputT],
    input: Input | Content,
    *,
    session_id: str | None = None,
    user_id: str | None = None,
    budget: float | None = None,
    store: str | Path | StateStore = "helix.db",
    model: Models | None = None,
) -> AgentResult[OutputT]:
    """Run the agent to its end and return its result. Works without asyncio, also in a notebook.

    The caller waits. In async code, this blocks the event loop: use `LocalExecutor` there. Each call opens the store, and
    closes it.

    input: a message, a list of texts and files, or a mapping with `message` and `state`, as for `LocalExecutor.execute`.
    session_id: the session that the message continues, or the id of a new one. Default: a new session.
    user_id: the user to whom the session belongs.
    budget: the limit of the session in US dollars, for all its runs together. It stays until another call changes it.
    store: as for `LocalExecutor`.
    model: as for `LocalExecutor`.

    Ctrl-C interrupts the run and raises `KeyboardInterrupt`. The exception has a note with the session's id. To continue,
    send another message to the session. Raises what `LocalExecutor.execute` raises. A run that fails or pauses does not
    raise: see `AgentResult.status`.
    """
    limit = None if budget is None else whole_amount(budget, "usd")
    started: list[AgentExecutionHandle[OutputT]] = []

    async def main() -> AgentResult[OutputT]:
        async with LocalExecutor(store, model=model) as executor:
            session = session_id
            if limit is not None:
                session = await _limited(executor, session_id, user_id, limit)
            try:
                handle = await executor.execute(agent, input, session_id=session, user_id=user_id)
            except HelixError:
                if session is not None and session_id is None:  # no run will ever use the new budget
                    await executor.engine.budgets.forget(_scope(session))
                raise
            started.append(handle)
            try:
                return await handle.result()
            except asyncio.CancelledError:  # Ctrl-C
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_S):
                        await handle.interrupt("interrupted by Ctrl-C", wait=True)
                raise

    try:
        return _run(main)
    except KeyboardInterrupt as error:
        if started:
            error.add_note(f"The session {started[0].session_id!r} was interrupted. A further message continues it.")
        raise


async def _limited(executor: LocalExecutor, session_id: str | None, user_id: str | None, limit: int) -> str:
    """Set the session's budget, in micro-dollars, and return the id of the session. Raises `SessionNotFoundError` if it
    belongs to another user."""
    session_id = executor.engine.ids.new("ses") if session_id is None else session_id
    check_session_id(session_id)
    if await executor.sessions.exists(session_id):
        await executor._check_user(session_id, user_id)
    definition = BudgetDefinition(scope=_scope(session_id), period=TokenPeriod.TOTAL, unit="micros", limit=limit)
    await executor.engine.budgets.define(definition, executor.engine.clock.now())
    return session_id


def _scope(session_id: str) -> str:
    return f"session:{session_id}"


def _run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine to its end. If this thread runs an event loop already, another thread runs it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    entered = threading.Event()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def enter() -> T:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        entered.set()
        return await main()

    with ThreadPoolExecutor(1, "helix-run") as threads:
        result = threads.submit(contextvars.copy_context().run, lambda: asyncio.run(enter()))
        try:
            return result.result()
        except KeyboardInterrupt:
            entered.wait()
            ((loop, task),) = running
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(task.cancel)
            raise
