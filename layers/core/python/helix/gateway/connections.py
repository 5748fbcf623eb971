"""Connections and subscriptions: the connected clients, their principals, their expiry, and the streams to which each
has subscribed.

Rows of the streams table, in their own partitions:

    conn#<connection>  connection       principal, expires_at, and `operator` if its proof grants that
    conn#<connection>  sub#<stream>     a subscription, for reading by connection
    conn#<connection>  part#<id>#<nn>   a part of an incomplete request (`helix.gateway.parts`)
    subs#<stream>      <connection>     the same subscription, for the projector, which reads all in one query

Law: a subscription requires a connection that exists and has not expired. Both its rows are written in one transaction.
`close` deletes the connection first, so nothing can subscribe afterwards. Every row carries `ttl`, for connections
whose end was not reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from helix.core.errors import InvalidInputError, NotAuthenticatedError
from helix.ports.clock import Clock
from helix.ports.state_store import Check, Delete, Key, Operation, Put, Row, StateStore, Update, When
from helix.services.committing import refused

MAX_CONNECTION_S: Final = 2 * 3600.0
"""The maximum lifetime of a connection, after which API Gateway closes it in any case."""
ROW_MARGIN_S: Final = 600.0
MAX_SUBSCRIPTIONS: Final = 32
PAGE: Final = 40
CONNECTION = "connection"


@dataclass(frozen=True, slots=True)
class Connection:
    """A client's connection, or the caller of an HTTP request in that form. Times are Unix seconds."""

    connection_id: str
    """API Gateway's id for the connection, or a name that the transport chose."""
    principal: str | None
    """The authenticated principal. None if the caller is not identified, as in an anonymous service."""
    expires_at: float
    """The end of the principal's proof. The connection may stay open after it, but can only authenticate."""
    opened_at: float
    """The time at which the connection was opened."""
    operator: bool = False
    """Whether the caller may read the fleet and change budgets."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A connection that has subscribed to a stream."""

    connection_id: str
    """The connection to post to."""
    principal: str | None
    """The principal of the connection. None if the service is anonymous."""
    expires_at: float
    """The end of the principal's proof, in Unix seconds."""
    lagging: bool = False
    """Whether the connection was too slow and missed a frame. It must subscribe again to receive more."""


class Connections:
    """The connections, on any `StateStore`. All verbs may be repeated. A missing connection is not an error unless a
    verb says so."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def open(
        self, connection_id: str, principal: str | None, expires_at: float, *, operator: bool = False
    ) -> None:
        """Write the connection's row. An `expires_at` beyond the maximum lifetime of a connection is reduced to it."""
        now = self._clock.now()
        ttl = int(now + MAX_CONNECTION_S + ROW_MARGIN_S)
        value = {"principal": principal, "expires_at": min(expires_at, ttl), "opened_at": now, "ttl": ttl}
        if operator:
            value["operator"] = True
        await self._store.transact("open_connection", [Put(_connection_key(connection_id), value)])

    async def get(self, connection_id: str) -> Connection | None:
        """Return the connection, expired or not (compare `expires_at`). None if it was never opened, or has been
        closed."""
        (value,) = await self._store.get([_connection_key(connection_id)])
        if value is None:
            return None
        times = float(value["expires_at"]), float(value["opened_at"])
        return Connection(connection_id, value["principal"], *times, bool(value.get("operator")))

    async def renew(
        self, connection_id: str, principal: str | None, expires_at: float, *, operator: bool = False
    ) -> None:
        """Accept a new proof of the same principal. The connection and its subscriptions live until `expires_at`, with
        the permissions of the new proof.

        Raises `NotAuthenticatedError` if the connection is closed or belongs to another principal.
        """
        rows = await self._store.query("streams", partition_name(connection_id))
        value = next((row.value for row in rows if row.key.sort == CONNECTION), None)
        if value is None or value["principal"] != principal:
            raise NotAuthenticatedError("this connection belongs to another user, or is closed: open a new one")
        until = {"expires_at": min(expires_at, value["ttl"])}
        same = When(equal={"principal": principal})
        renewed = Update(_connection_key(connection_id), set={**until, "operator": operator}, when=same)
        if await refused(self._store, "renew", [renewed]) is not None:
            raise NotAuthenticatedError("the connection is closed: open a new one")
        for stream_id in _subscribed_streams(rows):
            await self._update("renew_subscription", _subscriber_key(stream_id, connection_id), until)

    async def close(self, connection_id: str) -> None:
        """Remove the connection and its subscriptions. A repeat continues where it stopped."""
        await self._store.transact("close_connection", [Delete(_connection_key(connection_id))])
        while rows := await self._store.query("streams", partition_name(connection_id), limit=PAGE):
            await self._store.transact("close_subscriptions", _deletions(connection_id, rows))

    # --- subscriptions ------------------------------------------------------------------------------------------------

    async def subscribe(self, connection_id: str, stream_id: str) -> None:
        """Subscribe the connection to the messages that are posted on the stream from now on. It no longer counts as
        lagging. Idempotent.

        Raises `NotAuthenticatedError` if the connection is closed or has expired, and `InvalidInputError` beyond
        `MAX_SUBSCRIPTIONS`.
        """
        while True:
            rows = await self._store.query("streams", partition_name(connection_id))
            value = next((row.value for row in rows if row.key.sort == CONNECTION), None)
            if value is None or value["expires_at"] <= self._clock.now():
                raise NotAuthenticatedError("the connection has expired: authenticate, or open a new one")
            streams = _subscribed_streams(rows)
            if stream_id not in streams and len(streams) >= MAX_SUBSCRIPTIONS:
                raise InvalidInputError(
                    f"a connection may have at most {MAX_SUBSCRIPTIONS} subscriptions, and this one has {len(streams)}: "
                    "unsubscribe from a stream, or open another connection"
                )
            as_read = When(equal={"expires_at": value["expires_at"]})
            copied = {name: value[name] for name in ("principal", "expires_at", "ttl")}
            operations: list[Operation] = [
                Check(_connection_key(connection_id), as_read),
                Put(_subscription_key(connection_id, stream_id), {"ttl": value["ttl"]}),
                Put(_subscriber_key(stream_id, connection_id), {**copied, "lagging": False}),
            ]
            if await refused(self._store, "subscribe", operations) is None:
                return  # refused if renewed or closed in between

    async def unsubscribe(self, connection_id: str, stream_id: str) -> None:
        await self._store.transact("unsubscribe", _subscription_puts(connection_id, stream_id))

    async def subscribers(self, stream_id: str) -> list[Subscriber]:
        """Return the subscribers whose connection has not expired, in no particular order. This takes one query."""
        now = self._clock.now()
        rows = await self._store.query("streams", _subscribers_of(stream_id))
        live = [(row.key.sort, row.value) for row in rows if row.value["expires_at"] > now]
        return [Subscriber(name, v["principal"], float(v["expires_at"]), bool(v.get("lagging"))) for name, v in live]

    async def mark_lagging(self, stream_id: str, connection_id: str) -> None:
        """Record that the connection missed a frame. It gets no more posts until it has subscribed again."""
        await self._update("mark_lagging", _subscriber_key(stream_id, connection_id), {"lagging": True})

    async def drop_stream(self, stream_id: str) -> None:
        """Remove all subscriptions of a deleted stream, because its id may later belong to another user."""
        while rows := await self._store.query("streams", _subscribers_of(stream_id), limit=PAGE):
            pairs = [operation for row in rows for operation in _subscription_puts(row.key.sort, stream_id)]
            await self._store.transact("drop_stream", pairs)

    async def _update(self, name: str, key: Key, fields: dict[str, Any]) -> None:
        """Update the row. The store refuses the update if the client has unsubscribed or the connection was closed."""
        await refused(self._store, name, [Update(key, set=fields)])


# --- keys and values --------------------------------------------------------------------------------------------------


def partition_name(connection_id: str) -> str:
    return f"conn#{connection_id}"


def _connection_key(connection_id: str) -> Key:
    return Key("streams", partition_name(connection_id), CONNECTION)


def _subscription_key(connection_id: str, stream_id: str) -> Key:
    return Key("streams", partition_name(connection_id), f"sub#{stream_id}")


def _subscribers_of(stream_id: str) -> str:
    return f"subs#{stream_id}"


def _subscriber_key(stream_id: str, connection_id: str) -> Key:
    return Key("streams", _subscribers_of(stream_id), connection_id)


def _subscription_puts(connection_id: str, stream_id: str) -> list[Operation]:
    return [Delete(_subscription_key(connection_id, stream_id)), Delete(_subscriber_key(stream_id, connection_id))]


def _subscribed_streams(rows: Sequence[Row]) -> list[str]:
    return [row.key.sort.removeprefix("sub#") for row in rows if row.key.sort.startswith("sub#")]


def _deletions(connection_id: str, rows: Sequence[Row]) -> list[Operation]:
    """Return the deletions of these connection rows, and of the stream's row for each subscription."""
    operations: list[Operation] = [Delete(row.key) for row in rows]
    return operations + [Delete(_subscriber_key(stream_id, connection_id)) for stream_id in _subscribed_streams(rows)]
