"""The agents that an MCP server serves, and the client through which a caller reaches them.

Law: a caller acts as its own principal, through the gateway's own actions, and reaches only its own sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, cast

from helix.client import ConnectionLostError, HelixClient
from helix.client.link import Link
from helix.client.polling import PollingLink
from helix.core.errors import NotAuthenticatedError
from helix.core.json import JsonObject
from helix.core.protocol import parse_request, request
from helix.core.registry import AgentRegistry
from helix.gateway.authoriser import Authoriser
from helix.gateway.backend import Backend
from helix.gateway.connections import Connection
from helix.gateway.gateway import act
from helix.ports.sockets import Sockets
from helix.runtime.executor import Executor

POLL_S = 0.05


class Source(Protocol):
    """A source of agents. `only` contains the names of the agents that are served; None means all that the caller may
    run."""

    @property
    def only(self) -> Collection[str] | None: ...

    def client(self, principal: str | None) -> AbstractAsyncContextManager[HelixClient]:
        """Open a client that acts as `principal` (None: callers are not authenticated)."""
        ...


class ExecutorSource:
    """The agents of an executor in this process. `registry` contains the agents that are served (default: the
    executor's)."""

    only: Collection[str] | None = None
    """The names of the agents that are served. Always None here, because the registry decides which agents are
    served."""

    def __init__(self, executor: Executor, *, registry: AgentRegistry | None = None) -> None:
        anonymous = Authoriser(executor.engine.clock, anonymous=True)  # the server has already authenticated the caller
        self._backend = Backend(executor, cast("Sockets", None), anonymous, registry=registry)

    @asynccontextmanager
    async def client(self, principal: str | None) -> AsyncIterator[HelixClient]:
        async with HelixClient.over(PollingLink(_Service(self._backend, principal), poll_s=POLL_S)) as client:
            yield client


class _Service:
    """Implements `helix.client.polling.Service` for one principal."""

    def __init__(self, backend: Backend, principal: str | None) -> None:
        self._backend = backend
        self._caller = Connection(backend.ids.new("con"), principal, float("inf"), backend.clock.now())

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    async def act(self, action: str, fields: JsonObject) -> JsonObject:
        asked = parse_request(request(action, self._backend.ids.new("req"), fields))
        return await act(self._backend, self._caller, asked)


class LinkSource:
    """The agents behind a link, for the user that the link acts as.

    The link is opened when it is first needed. If it is lost, a new one is opened, because a server outlives a client's
    attempts to reconnect. `only` contains the names of the agents that are served.
    """

    def __init__(self, link: Callable[[], Link], only: Collection[str] | None = None) -> None:
        self._link, self.only = link, only
        self._client: HelixClient | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> HelixClient:
        """Return the open client, opening it first if necessary. Raises `NotAuthenticatedError`, and `ConnectionLostError`
        if the service cannot be reached."""
        async with self._opening:
            if self._client is None:
                self._client = await HelixClient.over(self._link()).__aenter__()
            return self._client

    async def close(self) -> None:
        """Close the link. Runs continue."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @asynccontextmanager
    async def client(self, principal: str | None) -> AsyncIterator[HelixClient]:
        client = await self.open()
        try:
            yield client
        except (ConnectionLostError, NotAuthenticatedError):  # only a new link can succeed
            if self._client is client:
                await self.close()
            raise
