"""Link: where sessions are, as a client reaches them; the client's settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from helix.core.errors import OperatorError
from helix.core.json import JsonObject, JsonValue

if TYPE_CHECKING:
    from helix.client.feed import Following

Token = str | Callable[[], str] | Callable[[], Awaitable[str]] | None
"""A token, or a function that gives one: it is asked at each connection, and when the service wants a new proof."""


class ConnectionLostError(OperatorError):
    """There is no connection, and patience is at an end. Runs go on without it: come back by their ids."""

    code = "connection_lost"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Times in seconds.

    request_s: how long an answer is waited for, reconnections included. open_s: one attempt to connect. give_up_s: how long
    connecting is tried again before everything that waits fails. backoff_s, backoff_max_s: the pause after the first failed
    attempt, doubled up to the longest, each times a random part of one. heartbeat_s: how often something is sent on a quiet
    connection (API Gateway ends one after 600). max_age_s: when a connection is replaced (it ends one after 7200).
    reorder_s: how long a missing message may be late before it is asked for. quiet_s: how long a run may say nothing before
    the log is asked whether it has. buffer: messages that are kept for a reader that does not read.
    """

    request_s: float = 30
    open_s: float = 10
    give_up_s: float = 120
    backoff_s: float = 0.25
    backoff_max_s: float = 15
    heartbeat_s: float = 240
    max_age_s: float = 6900
    reorder_s: float = 0.2
    quiet_s: float = 20
    buffer: int = 10_000


class Link(Protocol):
    """Where sessions are, as a client reaches them. `following` receives new connections, messages and the link's end; it
    is set before the link is opened."""

    following: Following

    @property
    def connections(self) -> int:
        """How often it has connected."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def spawn(self, work: Any) -> asyncio.Task[None]:
        """A task that ends with the link."""
        ...

    async def ask(self, action: str, fields: JsonObject) -> JsonObject:
        """The result of a request (docs/guide/websocket.md). `subscribe` has the messages given to `following`."""
        ...


def fields_of(value: JsonValue) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
