"""`helix console`: show the sessions and agents of a store, a service or a stage in a browser, until Ctrl-C.

Law: the console serves only a browser on this machine that has the code from the printed address. The code is never passed
as a process argument, because every user on the machine can read those. The browser gets it from a file that only this user
can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import webbrowser
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from helix.adapters.system import SystemClock, SystemIds
from helix.cli.agent_lookup import all_agents, load_agent
from helix.cli.options import Model, settings
from helix.cli.output import RefusedError, say, write
from helix.cli.stores import aws_client, with_store
from helix.cli.where import Where
from helix.console.here import serve_console
from helix.console.server import ConsoleServer, Service, storage_of
from helix.core.registry import AgentRegistry
from helix.engine.engine import Settings
from helix.gateway.authoriser import ApiKeys, Principal
from helix.local.credentials import write_private
from helix.runtime.local import LocalExecutor
from helix.runtime.models import choose_model
from helix.runtime.stores import store_exists

KEY_S = 12 * 3600
"""The lifetime, in seconds, of the key that a console for a stage uses. The key is revoked when the console ends."""


def console(
    where: Where,
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--agent", metavar="AGENT", help="Talk to this agent; again for more [default: all that are known]"
        ),
    ] = None,
    model: Model = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 for a free one")] = 0,
    user: Annotated[str, typer.Option("--user", help="With --stage: whose sessions are shown")] = "admin",
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser")] = True,
) -> None:
    if not where.here and (model is not None or agents):
        raise RefusedError(f"--agent and --model are for agents that run on this machine; {where.option} uses its own")
    asyncio.run(_serve(where, agents or [], model, port, user, opens))


async def _serve(where: Where, agents: list[str], model: str | None, port: int, user: str, opens: bool) -> None:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with _service(where, agents, model, user) as service:
        try:
            server = ConsoleServer(service, port=port)
        except OSError as error:
            raise RefusedError(f"port {port} of 127.0.0.1 cannot be served: {error.strerror or error}") from None
        with server, _open_browser(server.address) if opens else contextlib.nullcontext():
            write(server.address)
            say(f"the console of {service.place}; this address signs in: it is for you alone. Press Ctrl-C to stop.")
            await ended.wait()


@contextmanager
def _open_browser(address: str) -> Iterator[None]:
    """Open the address in a browser, if there is one. The browser opens a local page that redirects to the address. The
    page is in a folder that only the user can read, which is deleted when the console ends."""
    with tempfile.TemporaryDirectory(prefix="helix-console-") as folder:
        page = Path(folder) / "open.html"
        write_private(page, f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">')
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(page.as_uri())
        yield


@asynccontextmanager
async def _service(where: Where, agents: list[str], model: str | None, user: str) -> AsyncIterator[Service]:
    if where.url is not None:
        yield Service(where.url, where.key, where.url, files=storage_of(where.url))
    elif where.stage is not None:
        outputs, key = await asyncio.to_thread(_key, where, where.stage, user)
        try:
            yield Service(outputs["Url"], key, f"stage {where.stage}, user {user}", files=outputs.get("FilesUrl", ""))
        finally:
            await asyncio.to_thread(_revoke, where, key)
    else:
        async with _executor(where, agents, model) as executor, serve_console(executor, where.db) as service:
            yield service


@asynccontextmanager
async def _executor(where: Where, agents: list[str], model: str | None) -> AsyncIterator[LocalExecutor]:
    """Open an executor for the store, with the named agents, or with all known agents."""
    listed, registry = settings().agents, AgentRegistry()
    for agent in [load_agent(spec, listed) for spec in agents] or all_agents(listed):
        registry.replace(agent)
    names = registry.registered_types()
    if not names and not store_exists(where.db):
        raise RefusedError(f"there is no store {where.db!r} here, and no agent (see --db, --agent, --url and --stage)")
    adapter = None
    if names:
        choice = choose_model(registry.resolve(names[0]), model, os.environ)
        adapter = choice.adapter
        if choice.missing is not None:
            say(f"{choice.missing} is not set: the demonstration model answers")
    lease = Settings(claim_s=settings().lease_s)
    async with LocalExecutor(where.db, model=adapter, registry=registry, settings=lease) as executor:
        yield executor


def _key(where: Where, stage: str, user: str) -> tuple[Mapping[str, str], str]:
    """Return the stage's outputs and a new, expiring key for the user."""
    from botocore.exceptions import BotoCoreError, ClientError

    from helix.cli.cloud.stack import describe_stack, outputs_of

    stack = f"helix-{stage}"
    try:
        found = describe_stack(aws_client("cloudformation", where.profile, where.region), stack)
    except (BotoCoreError, ClientError) as error:
        raise RefusedError(f"stage {stage!r}: AWS refuses: {error}") from error
    outputs = outputs_of(found or {})
    if "Url" not in outputs:
        raise RefusedError(f"there is no stage {stage!r} here: no stack {stack!r} in this account and region")
    clock = SystemClock()
    made = with_store(
        where,
        lambda rows: ApiKeys(rows, clock).create(
            SystemIds(), Principal(user), name="helix console", expires_at=clock.now() + KEY_S, operator=True
        ),
    )
    return outputs, made


def _revoke(where: Where, key: str) -> None:
    with_store(where, lambda rows: ApiKeys(rows, SystemClock()).revoke(key.split("_")[1]))
