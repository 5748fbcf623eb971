"""Sockets, which send bytes to clients over their open WebSocket connections."""

from __future__ import annotations

from typing import Literal, Protocol

Posted = Literal["sent", "gone", "slow"]


class Sockets(Protocol):
    """Connections, identified by the gateway's connection ids. Both verbs may be called from several tasks at once."""

    async def post(self, connection_id: str, data: bytes) -> Posted:
        """Send one frame to a connection, and return the outcome within a deadline that the adapter sets.

        "sent": the gateway accepted it. "gone": the connection is closed permanently. "slow": the frame was not
        accepted in time, or was throttled; the client may or may not receive it. A slow connection does not delay
        others. Raises `InvalidInputError` if `data` exceeds the frame size limit. Raises `StoreError` if the gateway
        cannot be reached or refuses the caller; the state of the connection is then unknown.
        """
        ...

    async def drop(self, connection_id: str) -> None:
        """Close the connection. It is not an error if it is already closed. Raises `StoreError` like `post`."""
        ...
