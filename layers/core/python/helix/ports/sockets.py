"""Sockets: bytes to the clients that hold a WebSocket open."""

from __future__ import annotations

from typing import Literal, Protocol

Posted = Literal["sent", "gone", "slow"]


class Sockets(Protocol):
    """Connections by the ids that the gateway gave them. Both verbs may be called from several tasks at once."""

    async def post(self, connection_id: str, data: bytes) -> Posted:
        """Hand one frame to a connection, and return what became of it within a deadline that the adapter sets.

        "sent": the gateway took it. "gone": the connection is closed for good. "slow": the frame was not taken in time,
        or refused because frames came too fast; it is unknown whether the client gets it. A slow connection does not
        delay others. Raises `InvalidInputError` if `data` is larger than a frame may be. Raises `StoreError` if the
        gateway cannot be reached or refuses the caller; nothing is known about the connection then.
        """
        ...

    async def drop(self, connection_id: str) -> None:
        """Close the connection. One that is closed already is not an error. Raises `StoreError` as `post` does."""
        ...
