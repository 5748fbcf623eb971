"""`helix mcp`: serve agents as Model Context Protocol tools to programs on this machine.

Law: standard output belongs to the protocol. Over HTTP, only clients on this machine that have the token are served.
Without a token, a loopback port would be open to every user on the machine and to every web page.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Annotated, Any

import h11
import typer
import uvicorn
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from uvicorn.protocols.http.h11_impl import H11Protocol

from helix.adapters.system import SystemIds
from helix.cli.agent_lookup import all_agents, load_agent
from helix.cli.options import Model, settings
from helix.cli.output import INTERRUPTED, RefusedError, say
from helix.cli.run.follow import on_signals
from helix.cli.where import Where, link_to
from helix.core.errors import NotAuthenticatedError
from helix.core.registry import AgentRegistry
from helix.engine.engine import Settings
from helix.gateway.origins import LOOPBACK
from helix.mcp import ExecutorSource, LinkSource, MCPApp, Source, make_server
from helix.mcp.server import WAIT_S
from helix.mcp.web import LOOPBACK_PAGES
from helix.ports.ids import new_secret
from helix.runtime.local import LocalExecutor
from helix.runtime.models import choose_model


def mcp(
    where: Where,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="AGENT", help="Serve this agent; again for more [default: all that are known]"),
    ] = None,
    model: Model = None,
    http: Annotated[
        int | None,
        typer.Option("--http", metavar="PORT", min=0, max=65535, help="Serve over HTTP on 127.0.0.1, instead of stdio"),
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", envvar="HELIX_MCP_TOKEN", help="Token of --http [default: a new one]")
    ] = None,
    wait: Annotated[float, typer.Option("--wait", min=0.1, help="Seconds that a call waits for its run")] = WAIT_S,
) -> None:
    if not where.here and model is not None:
        raise RefusedError(
            f"--model is for agents that run on this machine; with {where.option} the service uses its own"
        )
    if http is None and token is not None and "HELIX_MCP_TOKEN" not in os.environ:
        raise RefusedError("--token is for --http: over stdio only the program that started this command is served")
    asyncio.run(_serve(where, agents or [], model, http, token, wait))


async def _serve(
    where: Where, agents: list[str], model: str | None, port: int | None, token: str | None, wait_s: float
) -> None:
    lists = where.stage is None  # with AWS credentials the caller is an operator, who can access all users' sessions
    interrupted = asyncio.Event()
    try:
        with ExitStack() as stack:
            async with open_source(where, agents, model) as source:
                if port is None:
                    stack.enter_context(on_signals(lambda: _stop(interrupted), signal.SIGINT))
                    await _serve_stdio(make_server(source, wait_s=wait_s, lists_tasks=lists), interrupted)
                else:
                    await _serve_http(source, port, token or new_secret(SystemIds()), wait_s, lists)
            if interrupted.is_set():
                _exit_at_once()
    except NotAuthenticatedError as error:
        raise RefusedError(f"{where}: {error}; give a key with --key or HELIX_KEY") from None


def _stop(interrupted: asyncio.Event) -> None:
    """Close the server on the first Ctrl-C, and exit on the second."""
    if interrupted.is_set():
        _exit_at_once()
    interrupted.set()


def _exit_at_once() -> None:
    """Exit immediately. Python would otherwise wait for the thread that reads standard input, which cannot be cancelled."""
    os._exit(INTERRUPTED)


@asynccontextmanager
async def open_source(where: Where, agents: list[str], model: str | None) -> AsyncIterator[Source]:
    """Open the source of the served agents for the duration of the block."""
    if not where.here:
        source = LinkSource(lambda: link_to(where), agents or None)
        await source.open()
        try:
            yield source
        finally:
            await source.close()
        return
    listed, registry = settings().agents, AgentRegistry()
    for agent in [load_agent(spec, listed) for spec in agents] or all_agents(listed):
        registry.replace(agent)
        if model is None and (missing := choose_model(agent, None, os.environ).missing) is not None:
            say(f"{agent.name}: {missing} is not set: its calls will fail; set it, or use --model demo")
    names = registry.registered_types()
    if not names:
        raise RefusedError("there are no agents here: name some with --agent, or see --url and --stage")
    adapter = None if model is None else choose_model(registry.resolve(names[0]), model, os.environ).adapter
    lease = Settings(claim_s=settings().lease_s)
    async with LocalExecutor(where.db, model=adapter, registry=registry, settings=lease) as executor:
        yield ExecutorSource(executor)


async def _serve_stdio(server: Server[Any], interrupted: asyncio.Event) -> None:
    """Serve until the client closes standard input or the user presses Ctrl-C."""

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    serving, stopping = asyncio.create_task(serve()), asyncio.create_task(interrupted.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if serving.done():
        serving.result()


async def _serve_http(source: Source, port: int, token: str, wait_s: float, lists: bool) -> None:
    try:
        sock = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise RefusedError(f"port {port} of 127.0.0.1 cannot be served: {error.strerror}") from None
    with sock:
        app = MCPApp(source, _OneToken(token), LOOPBACK, LOOPBACK_PAGES, wait_s, lists_tasks=lists)
        say(f"serving http://127.0.0.1:{sock.getsockname()[1]}/mcp until Ctrl-C; send Authorization: Bearer {token}")
        config = uvicorn.Config(app, http=ClosingProtocol, log_level="warning", timeout_graceful_shutdown=2)
        await uvicorn.Server(config).serve([sock])


class ClosingProtocol(H11Protocol):
    """Uvicorn's HTTP protocol, without the errors that it raises if a request body turns out to be malformed while the app
    is handling the request."""

    def send_400_response(self, msg: str) -> None:
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:  # a response has begun, or must not have a body
            self.transport.close()
        if self.cycle is not None:  # the app must not answer, because the connection is closed
            self.cycle.disconnected = True
            self.cycle.message_event.set()


class _OneToken(TokenVerifier):
    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        if not hmac.compare_digest(token.encode(), self._token):
            return None
        return AccessToken(token=token, client_id="owner", scopes=[])
