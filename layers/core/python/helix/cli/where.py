"""The place where sessions are stored: a store on this machine (`--db`), a service at a URL (`--url`), or a deployed stage
(`--stage`).

Law: commands use one client, `helix.client.HelixClient`, and do not know which of the three places it uses. A service gives
access only to the caller's own sessions. A store and a stage give access to all sessions, because a user who can open them
is their operator. A command that only reads refuses a store that does not exist, and never creates it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast
from urllib.parse import urlsplit

import typer

from helix.adapters.system import SystemClock, SystemIds
from helix.cli.environment import explain_missing_package
from helix.cli.options import Db, Profile, Region, settings
from helix.cli.output import RefusedError, name_session_in_errors
from helix.cli.stores import aws_client
from helix.client import HelixClient
from helix.client.link import ClientSettings, Link
from helix.client.polling import PollingLink
from helix.core.agents import Agent
from helix.core.config import LLMConfig
from helix.core.errors import NotAuthenticatedError, SessionNotFoundError
from helix.core.json import JsonObject
from helix.core.protocol import parse_request, request
from helix.core.refusals import error_of
from helix.core.registry import AgentRegistry
from helix.runtime.settings import DEFAULT_DB
from helix.runtime.stores import store_exists
from helix.services.claim_input import check_session_id

if TYPE_CHECKING:
    from helix.runtime.local import LocalExecutor

T = TypeVar("T")
FUNCTION, ALIAS = "ws_message", "live"

Url = Annotated[str | None, typer.Option("--url", metavar="WSS", help="WebSocket URL of a service, instead of a store")]
Key = Annotated[str | None, typer.Option("--key", envvar="HELIX_KEY", help="API key or token for --url")]
Stage = Annotated[
    str | None, typer.Option("--stage", help="A stage of this AWS account (or of `helix dev`), instead of a store")
]


@dataclass(frozen=True, slots=True)
class Where:
    """The place that a command's options name. Raises `RefusedError` if they name more than one."""

    db: Db = DEFAULT_DB
    """The store on this machine: the path of a SQLite file, or the URL of another store. It is used if neither `url`
    nor `stage` is given."""
    url: Url = None
    """The WebSocket URL of a service."""
    key: Key = None
    """The API key or token for `url`. None for a service that does not authenticate its callers."""
    stage: Stage = None
    """The name of a deployed stage, which is accessed with AWS credentials."""
    profile: Profile = None
    """The AWS configuration profile for `stage`. None: the default profile."""
    region: Region = None
    """The AWS region of `stage`. None: the region from the AWS configuration."""

    def __post_init__(self) -> None:
        if self.url is not None and self.stage is not None:
            raise RefusedError("--url and --stage exclude each other: choose one")
        if not self.here and self.db not in (settings().db, DEFAULT_DB):
            raise RefusedError(f"--db and {self.option} exclude each other: choose one")
        if self.url is not None:
            check_url(self.url)

    @property
    def here(self) -> bool:
        return self.url is None and self.stage is None

    @property
    def option(self) -> str:
        return "--url" if self.url is not None else "--stage" if self.stage is not None else "--db"

    def __str__(self) -> str:
        if self.url is not None:
            return self.url
        return f"stage {self.stage!r}" if self.stage is not None else f"the store {self.db!r}"

    def words(self) -> list[str]:
        """Return the command-line options that name this place, without the key."""
        if self.url is not None:
            return ["--url", self.url]
        if self.stage is not None:
            given = {"--stage": self.stage, "--profile": self.profile, "--region": self.region}
            return [word for name, value in given.items() if value is not None for word in (name, value)]
        return [] if self.db == settings().db else ["--db", self.db]


def named_agent(name: str) -> Agent[Any, Any]:
    """Return a placeholder for an agent about which only the name is known."""
    model = LLMConfig(model="the service's model")
    return Agent[Any, Any](name=name, system_prompt="It has its own.", llm_config=model)


class NotThereError(RefusedError):
    """The named place does not support the command. The message says what to use instead."""


def check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise RefusedError(f"--url is {url!r}: {error}") from None
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise RefusedError(f"--url is {url!r}; it must be a WebSocket URL: wss://... or ws://...")


def link_to(where: Where, *, quiet_s: float | None = None) -> Link:
    """Create a link to the place. `quiet_s` is the maximum pause, in seconds, between two polls of a stream without new
    chunks."""
    if where.url is not None:
        try:
            from helix.client.socket import SocketLink
        except ModuleNotFoundError as error:
            raise RefusedError(explain_missing_package(str(error.name))) from error
        return SocketLink(where.url, where.key, ClientSettings(), SystemClock(), SystemIds())
    if where.stage is not None:
        return PollingLink(StageService(where, where.stage), slowest_s=quiet_s)
    return PollingLink(StoreService(where.db), slowest_s=quiet_s)


def with_client(where: Where, session_id: str | None, work: Callable[[HelixClient], Awaitable[T]]) -> T:
    """Return the result of `work`, which receives a client for the place. `session_id` is the session that the work
    concerns."""
    if session_id is not None:
        check_session_id(session_id)

    async def main() -> T:
        async with HelixClient.over(link_to(where)) as client:
            return await work(client)

    with name_session_in_errors(session_id):
        try:
            return asyncio.run(main())
        except NoStoreError as error:
            if session_id is None:
                raise
            raise NoStoreError(f"session {session_id!r} does not exist: {error}") from None
        except SessionNotFoundError as error:
            raise RefusedError(f"there is no session {error.session_id!r} in {where} (see `helix sessions`)") from None
        except NotAuthenticatedError as error:
            raise RefusedError(f"{where}: {error}; give a key with --key or HELIX_KEY") from None


# --- a store ----------------------------------------------------------------------------------------------------------


class NoStoreError(RefusedError):
    """The store does not exist."""


class StoreService:
    """Implements `helix.client.polling.Service` for a store. It uses the gateway's own actions and acts as the store's
    operator."""

    def __init__(self, db: str) -> None:
        self._db, self._ids, self._registry = db, SystemIds(), AgentRegistry()

    def executor(self) -> LocalExecutor:
        """Create the executor of the service. Raises `NoStoreError`."""
        from helix.runtime.local import LocalExecutor

        if not store_exists(self._db):
            raise NoStoreError(f"there is no store {self._db!r} here (see --db, --url and --stage)")
        return LocalExecutor(self._db, registry=self._registry)

    async def open(self) -> None:
        from helix.gateway.authoriser import Authoriser
        from helix.gateway.backend import OperatorBackend
        from helix.gateway.loopback_files import LoopbackFiles
        from helix.ports.sockets import Sockets

        self._files = LoopbackFiles(SystemClock(), self._ids)
        self._executor = self.executor()
        await self._executor.__aenter__()
        anonymous = Authoriser(SystemClock(), anonymous=True)
        self._backend = OperatorBackend(self._executor, cast("Sockets", None), anonymous, served_files=self._files)

    async def close(self) -> None:
        if hasattr(self, "_executor"):
            await self._executor.close()
            await asyncio.to_thread(self._files.close)

    async def act(self, action: str, fields: JsonObject) -> JsonObject:
        from helix.gateway.backend import OPERATOR
        from helix.gateway.gateway import act

        asked = parse_request(request(action, self._ids.new("req"), fields))
        if action == "abort":
            await self._register_agents(str(fields["session_id"]))
        return await act(self._backend, OPERATOR, asked)

    async def _register_agents(self, session_id: str) -> None:
        """Register the agents of the session. The project's agents are loaded, so that their hooks run. A placeholder with
        the agent's name represents any other agent."""
        from helix.cli.agent_lookup import load_agent

        names = {entry["agent_type"]} if (entry := await self._backend.get_entry(None, session_id)) else set()
        row = await self._executor.engine.history.session(session_id)
        for name in {*names, *([row.agent_type] if row is not None else [])}:
            if self._registry.has(name):
                continue
            try:
                agent = load_agent(name, settings().agents)
            except RefusedError:
                agent = named_agent(name)
            self._registry.register(agent)


# --- a stage ----------------------------------------------------------------------------------------------------------


class StageService:
    """Implements `helix.client.polling.Service` for a stage by invoking its function as the operator. IAM must allow the
    invocation."""

    def __init__(self, where: Where, stage: str) -> None:
        self._where, self._stage, self._ids = where, stage, SystemIds()

    async def open(self) -> None:
        from helix.cli.cloud.stack import describe_stack

        profile, region = self._where.profile, self._where.region
        stack = f"helix-{self._stage}"
        self._function = f"{stack}-{FUNCTION}"
        cloudformation = aws_client("cloudformation", profile, region)
        self._client = aws_client("lambda", profile, region)
        if await self._call(describe_stack, cloudformation, stack) is None:
            raise RefusedError(f"there is no stage {self._stage!r} here: no stack {stack!r} in this account and region")

    async def close(self) -> None:
        return

    async def act(self, action: str, fields: JsonObject) -> JsonObject:
        text = request(action, self._ids.new("req"), fields)
        payload = json.dumps({"operator": text}).encode()
        asked = {"FunctionName": self._function, "Qualifier": ALIAS, "Payload": payload}
        answer = await self._call(lambda: self._client.invoke(**asked))
        body = json.loads(await asyncio.to_thread(answer["Payload"].read))
        if "FunctionError" in answer or not isinstance(body, dict) or "body" not in body:
            raise RefusedError(
                f"stage {self._stage!r} does not answer as an operator expects; is it of an older version? "
                f"Deploy it again, or use --url. Its function said: {json.dumps(body)[:300]}"
            )
        reply = json.loads(body["body"])
        if reply["type"] == "error":
            raise error_of(reply["error"])
        return cast("JsonObject", reply["result"])

    async def _call(self, call: Callable[..., T], *arguments: Any) -> T:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return await asyncio.to_thread(call, *arguments)
        except (BotoCoreError, ClientError) as error:
            raise RefusedError(f"stage {self._stage!r}: AWS refuses: {error}") from error
