"""Sockets: bytes to the clients that hold a WebSocket open."""

from __future__ import annotations

from typing import Literal, Protocol

Posted = Literal["sent", "gone", "slow"]


class Sockets(Protocol):
    """Connections are known by the ids that the gateway gave them. Both verbs may be called from several tasks at once."""

    async def post(self, connection_id: str, data: bytes) -> Posted:
        """Hand one frame to a connection, and say how it went within a deadline that the adapter sets.

        "sent": the gateway took it. "gone": there is no such connection any more, nor will there be. "slow": not taken
        in time, or refused for being too fast; it is not known whether the client gets it. One slow connection holds
        up no other. Raises `InvalidInputError` when `data` exceeds what a frame may carry, `StoreError` when the
        gateway cannot be reached or refuses the caller: nothing is known about the connection then.
        """
        ...

    async def drop(self, connection_id: str) -> None:
        """Close the connection; one that is gone already is no error. Raises `StoreError` as `post` does."""
        ...
