"""Source: whose agents an MCP server serves, and the client through which a caller reaches them.

Law: a caller acts as its own principal and reaches its own sessions only, by the gateway's own actions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, cast

from helix.client import HelixClient
from helix.client.polling import PollingLink
from helix.core.agents import AnyAgent
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import Record
from helix.core.protocol import parse_request, request
from helix.core.registry import AgentFactoryContext, AgentRegistry
from helix.gateway.authoriser import Authoriser
from helix.gateway.backend import Backend
from helix.gateway.connections import Connection
from helix.gateway.gateway import act
from helix.ports.sockets import Sockets
from helix.runtime.executor import Executor

POLL_S = 0.05


class Card(Record):
    """An agent as callers see it. `input_schema`: of a function agent's parameters, None for one that takes a message.
    `output_schema`: of what it returns, None for text, or for a function without an annotation."""

    name: str
    description: str = ""
    input_schema: JsonObject | None = None
    output_schema: JsonObject | None = None


class Source(Protocol):
    def client(self, principal: str | None) -> AbstractAsyncContextManager[HelixClient]:
        """A client that acts as `principal`; None where nobody is asked who they are."""
        ...

    async def agents(self, client: HelixClient, principal: str | None) -> list[Card]: ...


class ExecutorSource:
    """The agents of an executor of this process. registry: those that are served (default: the executor's)."""

    def __init__(self, executor: Executor, *, registry: AgentRegistry | None = None) -> None:
        nobody = Authoriser(executor.engine.clock, anonymous=True)  # proofs are checked before a caller comes here
        self._backend = Backend(executor, cast("Sockets", None), nobody, registry=registry)

    @asynccontextmanager
    async def client(self, principal: str | None) -> AsyncIterator[HelixClient]:
        async with HelixClient.over(PollingLink(_Service(self._backend, principal), poll_s=POLL_S)) as client:
            yield client

    async def agents(self, client: HelixClient, principal: str | None) -> list[Card]:
        registry, context = self._backend.registry, AgentFactoryContext(user_id=principal)
        return [card_of(registry.resolve(name, context)) for name in registry.registered_types()]


class _Service:
    """Implements `helix.client.polling.Service` for one principal."""

    def __init__(self, backend: Backend, principal: str | None) -> None:
        self._backend = backend
        now = backend.clock.now()
        self._caller = Connection(backend.ids.new("con"), principal, float("inf"), now)

    async def open(self) -> None:
        return

    async def close(self) -> None:
        return

    async def act(self, action: str, fields: JsonObject) -> JsonObject:
        asked = parse_request(request(action, self._backend.ids.new("req"), fields))
        return await act(self._backend, self._caller, asked)


class ClientSource:
    """The agents behind a client that is open, for whoever it acts as. only: names of those that are served."""

    def __init__(self, client: HelixClient, only: Collection[str] | None = None) -> None:
        self._client, self._only = client, only

    @asynccontextmanager
    async def client(self, principal: str | None) -> AsyncIterator[HelixClient]:
        yield self._client

    async def agents(self, client: HelixClient, principal: str | None) -> list[Card]:
        found = await client.ask("list_agents", {})
        cards = [Card.model_validate({name: row.get(name) for name in Card.model_fields}) for row in _rows(found)]
        return [card for card in cards if self._only is None or card.name in self._only]


def _rows(found: JsonObject) -> list[dict[str, JsonValue]]:
    rows: Any = found["agents"]
    return [row for row in rows if isinstance(row, dict)]


def card_of(agent: AnyAgent) -> Card:
    output: Any = agent.output_schema
    return Card(
        name=agent.name,
        description=agent.description,
        input_schema=None if agent.function is None else agent.function.parameters,
        output_schema=None if output is None else output.model_json_schema(mode="serialization"),
    )
