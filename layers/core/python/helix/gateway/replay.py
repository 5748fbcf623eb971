"""Replay: what a stream has stored after a sequence, posted to one connection.

Law: whoever subscribes was registered before the log is read, so nothing falls between replay and what is posted live;
what comes twice has its sequence, and the client drops it.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from helix.core.frames import lagging_frame, message_frames
from helix.core.wire import StreamMessage
from helix.gateway.connections import Connections
from helix.ports.clock import Clock
from helix.ports.sockets import Sockets
from helix.ports.streams import StreamManager
from helix.stream.reader import read_with_idle

REPLAY_S: Final = 15.0
"""How long one request replays: well within the 29 s after which API Gateway gives the function up."""
BATCH: Final = 200


class ConnectionGoneError(Exception):
    """There is nobody to answer any more."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """`caught_up` is the last sequence that was posted; `complete` that nothing was stored behind it."""

    caught_up: int
    complete: bool


async def replay(
    streams: StreamManager,
    connections: Connections,
    sockets: Sockets,
    clock: Clock,
    connection_id: str,
    stream_id: str,
    after: int,
) -> Replayed:
    """Post what is stored behind `after`, for at most `REPLAY_S`. A connection that is too slow for it is marked lagging.

    A hole at the log's beginning, which expires, is told as `stream_resync`. Raises `ConnectionGoneError`;
    `StreamNotFoundError` where there were messages once and is no stream now.
    """
    until = clock.now() + REPLAY_S
    position, batch = after, list[StreamMessage]()

    async def flush() -> bool:
        nonlocal position
        for frame in message_frames(stream_id, batch):
            match await sockets.post(connection_id, frame):
                case "gone":
                    raise ConnectionGoneError(connection_id)
                case "slow":
                    await connections.mark_lagging(stream_id, connection_id)
                    await sockets.post(connection_id, lagging_frame(stream_id, position))
                    return False
        position = batch[-1].sequence if batch else position
        batch.clear()
        return True

    reading = read_with_idle(streams, stream_id, from_sequence=after, follow=True, idle_s=0)
    async with aclosing(reading) as messages:
        async for message in messages:
            if message is None:
                return Replayed(position, True) if await flush() else Replayed(position, False)
            batch.append(message)
            if len(batch) >= BATCH and (not await flush() or clock.now() > until):
                return Replayed(position, False)
    raise AssertionError("a followed stream ends with its reader only")
