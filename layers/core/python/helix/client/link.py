"""The interface through which a client reaches sessions, and the client's settings."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helix.core.errors import OperatorError
from helix.core.json import JsonObject, JsonValue

if TYPE_CHECKING:
    from helix.client.feed import Following

Token = str | Callable[[], str] | Callable[[], Awaitable[str]] | None
"""A token, or a function that returns one. The client calls it for each connection, and when a token is rejected."""


class ConnectionLostError(OperatorError):
    """The connection is lost, and the client has stopped trying to reconnect. Runs continue without it, and a new
    client can find them by their ids."""

    code = "connection_lost"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client. Times are in seconds."""

    request_s: float = 30
    """The timeout of a request, including reconnections. The client sends the request again after a third of this
    time."""
    open_s: float = 10
    """The timeout of one attempt to connect. The first connection also fails after this time."""
    give_up_s: float = 120
    """The time for which the client tries to reconnect. Then all waiting requests and readers fail."""
    backoff_s: float = 0.25
    """The maximum pause after the first failed attempt to connect. It doubles with each further failure, and each
    actual pause is a random fraction of it."""
    backoff_max_s: float = 15
    """The maximum pause between attempts to connect."""
    heartbeat_s: float = 240
    """The interval of the pings that keep a quiet connection open. API Gateway closes an idle connection after 600
    seconds."""
    max_age_s: float = 6900
    """The age at which the client replaces a connection. API Gateway closes connections after 7200 seconds."""
    reorder_s: float = 0.2
    """The time for which a missing message may be late before the client asks for it."""
    quiet_s: float = 20
    """The length of silence after which the client asks the service whether it missed any of the run's messages."""
    buffer: int = 10_000
    """The number of messages that are kept while a reader does not read. The client drops later messages, and requests
    them again when the reader continues."""


class Link(ABC):
    """The interface through which a client reaches sessions."""

    following: Following
    """The receiver of new connections, messages and the link's end. The client sets it before it opens the link."""
    connections: int
    """The number of connections opened so far."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def open(self) -> None: ...

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, work: Any) -> asyncio.Task[None]:
        """Start a task that ends with the link."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @abstractmethod
    async def ask(self, action: str, fields: JsonObject) -> JsonObject:
        """Return the result of a request (docs/guide/websocket.md). After `subscribe`, the link passes the stream's
        messages to `following`."""


def fields_of(value: JsonValue) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
