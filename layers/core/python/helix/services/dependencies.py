"""The dependencies of tools, such as a database pool. Each process makes them at their first use, and closes them at its
end.

Law: each function that an agent names in `deps` has at most one open value. A dedicated task enters and exits the context
manager, so that a call that ends or is cancelled does not close the value for other calls.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from contextvars import Context
from typing import Any, cast

from helix._log import get_logger
from helix.core.agents import AnyAgent
from helix.core.context import NO_DEPS, Secrets
from helix.core.dependencies import Factory, takes_secret
from helix.core.errors import DependencyError, FatalToolError
from helix.core.json import text_of

logger = get_logger("helix")
MAX_REASON = 2_000
"""The maximum length, in characters, of the reason that an error repeats."""


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Held:
    """One value, and the task that makes it and closes it."""

    def __init__(self, factory: Factory, secrets: Secrets) -> None:
        loop = asyncio.get_running_loop()
        self.made: asyncio.Future[Any] = loop.create_future()
        """The value, or `_Failed`. A failure is not the exception of the future, because perhaps no call awaits it."""
        self.closing = asyncio.Event()
        # The context is empty, because the value belongs to no run: no span or user of the first call stays with it.
        self.task = loop.create_task(self._hold(factory, secrets), name="helix-deps", context=Context())

    async def _hold(self, factory: Factory, secrets: Secrets) -> None:
        async with AsyncExitStack() as stack:
            try:
                self.made.set_result(await _make(factory, secrets, stack))
            except BaseException as error:  # including SystemExit, which fails the call, not the worker
                self.made.set_result(_Failed(error))
                if isinstance(error, KeyboardInterrupt):
                    raise
                return
            with suppress(asyncio.CancelledError):  # the event loop ends: close as usual
                await self.closing.wait()

    @property
    def is_usable(self) -> bool:
        """Whether calls of this event loop may wait for the value or use it: it has not failed, and is not closed."""
        failed = self.made.done() and isinstance(self.made.result(), _Failed)
        return not (failed or self.task.done()) and self.task.get_loop() is asyncio.get_running_loop()


async def _make(factory: Factory, secrets: Secrets, stack: AsyncExitStack) -> Any:
    call = cast("Callable[..., Any]", factory)
    given = call(secret=secrets) if takes_secret(factory) else call()
    if isinstance(given, AbstractAsyncContextManager):  # also a pool that can be awaited instead: only this closes it
        return await stack.enter_async_context(given)
    return await given if inspect.isawaitable(given) else given


class Dependencies:
    """The open dependencies of one process, by the function that made them."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held: dict[Factory, _Held] = {}

    async def get(self, agent: AnyAgent, timeout_s: float) -> Any:
        """Return the dependencies of the agent's tools, or `NO_DEPS` if it declares none. The first call makes them, and
        concurrent calls wait for it.

        Raises `DependencyError` if that fails, or takes longer than `timeout_s` (seconds), and `FatalToolError` if a
        secret is missing. After a failure, the next call tries again.
        """
        if agent.overridden_deps is not NO_DEPS or agent.deps is None:
            return agent.overridden_deps
        held = self._held.get(agent.deps)
        if held is None or not held.is_usable:
            held = self._held[agent.deps] = _Held(agent.deps, self._secrets)
        await asyncio.wait({held.made}, timeout=timeout_s)
        owner = f"the dependencies of agent {agent.name!r}"
        if not held.made.done():
            raise DependencyError(f"{owner} were not ready after {timeout_s:g} s")
        made = held.made.result()
        if isinstance(made, _Failed):
            if isinstance(made.error, FatalToolError):
                raise made.error
            reason = f"{type(made.error).__name__}: {text_of(made.error)[:MAX_REASON]}"
            raise DependencyError(f"{owner} could not be made: {reason}") from made.error
        return made

    async def close(self) -> None:
        """Close all of them, the newest first. An error of one is logged, and the others are closed. A later call makes
        them again."""
        while self._held:
            factory, held = self._held.popitem()
            if held.task.get_loop() is not asyncio.get_running_loop():  # that event loop has ended, and its tasks too
                continue
            held.closing.set()
            if not held.made.done():
                held.task.cancel()
            await asyncio.wait({held.task})
            if not held.task.cancelled() and (error := held.task.exception()) is not None:
                logger.error("what %r made was not closed properly", factory, exc_info=error)
