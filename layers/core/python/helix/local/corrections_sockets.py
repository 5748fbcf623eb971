"""Corrections to MiniStack's WebSocket server. Part of `helix.local.corrections`."""

from __future__ import annotations

from typing import Any

from hypercorn.protocol import ws_stream
from hypercorn.protocol.events import StreamClosed
from hypercorn.protocol.ws_stream import FrameTooLargeError, WebsocketBuffer
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection

from helix.local.corrections_alarms import Corrections

SOCKET_MESSAGE, SOCKET_FRAME = 128 * 1024, 32 * 1024
CORRECTIONS = Corrections()


class _FrameBuffer(WebsocketBuffer):
    """A buffer that counts bytes, even for a message that consists of a single frame. hypercorn counts characters."""

    frame = 0

    def extend(self, event: Any) -> None:
        given = event.data.encode() if isinstance(event.data, str) else event.data
        self.frame += len(given)
        if self.frame > SOCKET_FRAME or self.length + len(given) > self.max_length:
            raise FrameTooLargeError
        self.frame = 0 if event.frame_finished else self.frame
        super().extend(event)
        self.length += len(given) - len(event.data)


@CORRECTIONS.add
def sockets_close_on_long_frames() -> None:
    """End a connection with code 1009 after a frame of more than 32 KB, or a message of more than 128 KB."""
    ws_stream.WebsocketBuffer = _FrameBuffer  # type: ignore[misc]
    handle = ws_stream.WSStream._handle_events

    async def until_the_clients_close(stream: Any) -> None:
        """Keep reading until the client closes. hypercorn stops at the frame that exceeds the limit, but the rest of the
        message and the client's close frame are still to come."""
        if stream.connection.state is not ConnectionState.LOCAL_CLOSING:
            await handle(stream)
        if stream.connection.state is ConnectionState.LOCAL_CLOSING:
            for event in stream.connection.events():
                if isinstance(event, CloseConnection):
                    await stream.send(StreamClosed(stream_id=stream.stream_id))

    ws_stream.WSStream._handle_events = until_the_clients_close  # type: ignore[method-assign, assignment]
