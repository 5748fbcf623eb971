"""An MCP server over streamable HTTP, as an ASGI app for one route of another app.

Law: each request is authenticated with the keys and tokens of the gateway. The app accepts only the host names and origins
that it was given. So a page in a browser cannot reach a server on the same machine through a host name of its own choosing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from helix.core.errors import NotAuthenticatedError
from helix.core.registry import AgentRegistry
from helix.gateway.authoriser import Authoriser
from helix.gateway.origins import LOOPBACK
from helix.mcp.server import WAIT_S, make_server
from helix.mcp.sources import ExecutorSource, Source
from helix.runtime.executor import Executor

LOOPBACK_PAGES: Final = tuple(f"http://{host}:*" for host in LOOPBACK)


class Proving(TokenVerifier):
    """The gateway's authoriser, as a token verifier for the `mcp` package."""

    def __init__(self, authoriser: Authoriser) -> None:
        self._authoriser = authoriser

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            proof = await self._authoriser.prove(token)
        except NotAuthenticatedError:
            return None
        who = proof.principal or ""
        return AccessToken(token=token, client_id=who, scopes=[], expires_at=int(proof.expires_at), subject=who)


class MCPApp:
    """An ASGI app that serves every path. It starts with its first request, or with the server's lifespan."""

    def __init__(
        self,
        source: Source,
        verifier: TokenVerifier | None,
        hosts: Sequence[str],
        origins: Sequence[str],
        wait_s: float,
        *,
        lists_tasks: bool,
    ) -> None:
        self._source, self._wait_s, self._verifier, self._lists = source, wait_s, verifier, lists_tasks
        self._security = TransportSecuritySettings(
            allowed_hosts=[*hosts, *(f"{host}:*" for host in hosts)], allowed_origins=[*origins]
        )
        self._app: ASGIApp | None = None
        self._serving: asyncio.Task[None] | None = None
        self._ready, self._ending = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self._run_lifespan(receive, send)
            case "http":
                await (await self._wait_until_ready())(scope, receive, send)
            case other:
                raise ValueError(f"MCP is served over HTTP, not {other}")

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "lifespan.shutdown":
            assert message["type"] == "lifespan.startup"
            await self._wait_until_ready()
            await send({"type": "lifespan.startup.complete"})
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def aclose(self) -> None:
        """Close the connections. Runs continue."""
        self._ending.set()
        if self._serving is not None:
            await self._serving

    async def _wait_until_ready(self) -> ASGIApp:
        if self._serving is None:
            self._serving = asyncio.get_running_loop().create_task(self._serve(), name="helix:mcp")
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait({ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._app is None:
            self._serving.result()
            raise RuntimeError("this MCP app was closed: make another")
        return self._app

    async def _serve(self) -> None:
        manager = StreamableHTTPSessionManager(
            make_server(self._source, wait_s=self._wait_s, lists_tasks=self._lists),
            security_settings=self._security,
        )
        app: Any = StreamableHTTPASGIApp(manager)
        if self._verifier is not None:
            app = RequireAuthMiddleware(AuthContextMiddleware(app), [])
            app = AuthenticationMiddleware(app, backend=BearerAuthBackend(self._verifier))
        async with manager.run():
            self._app = app
            self._ready.set()
            await self._ending.wait()
            self._app = None


def app(
    executor: Executor,
    *,
    registry: AgentRegistry | None = None,
    authoriser: Authoriser | None = None,
    hosts: Sequence[str] = LOOPBACK,
    origins: Sequence[str] = LOOPBACK_PAGES,
    wait_s: float = WAIT_S,
) -> MCPApp:
    """Serve the agents of an executor as MCP tools, on one route of an ASGI app: `Route("/mcp", app(executor))`.

    registry: the agents that are served. The default is the executor's registry. authoriser: the authentication of callers,
    each of whom can reach only their own sessions. By default every caller is accepted, and can reach all sessions. hosts:
    the accepted names in the `Host` header, with any port. The default is this machine's own names. origins: the origins of
    browser pages that may send requests, such as `https://app.example.org`. The default is pages that this machine serves.
    wait_s: the number of seconds that a call waits before it reports that the run is still in progress.
    """
    verifier = None if authoriser is None or authoriser.anonymous else Proving(authoriser)
    source, private = ExecutorSource(executor, registry=registry), verifier is not None
    return MCPApp(source, verifier, hosts, origins, wait_s, lists_tasks=private)
