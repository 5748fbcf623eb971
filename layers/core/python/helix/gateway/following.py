"""The follower of the log: what the stream of the table `streams` says was appended goes to the subscribed sockets.

Law: the log has it all, so nothing here is lost for a client, which asks for what it misses. What comes again is posted
again, unless it is old. A stream's messages are posted in the order in which they come, and streams do not wait for each
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from helix._log import get_logger
from helix.core.errors import StoreError
from helix.core.wire import StreamMessage
from helix.gateway import projecting
from helix.gateway.connections import Connections
from helix.gateway.projecting import REPOST_S, Projected
from helix.ports.clock import Clock
from helix.ports.sockets import Sockets

logger = get_logger("helix.gateway")


class Appended(NamedTuple):
    """A segment. `position`: of its record in the table's stream. `time`: when it was written (Unix seconds)."""

    position: str
    stream_id: str
    messages: Sequence[StreamMessage]
    time: float


class Follower:
    def __init__(self, connections: Connections, sockets: Sockets, clock: Clock) -> None:
        self._connections, self._sockets, self._clock = connections, sockets, clock

    async def post(self, batch: Sequence[Appended]) -> Projected:
        """Raises nothing that a repeat could fix: see `Projected.failed`."""
        since = self._clock.now() - REPOST_S
        streams: dict[str, list[Appended]] = {}
        for segment in batch:
            if segment.messages and segment.time >= since:
                streams.setdefault(segment.stream_id, []).append(segment)
        done = Projected()
        failed = await asyncio.gather(*(self._stream(name, found, done) for name, found in streams.items()))
        first = {position for position in failed if position is not None}
        done.failed = next((segment.position for segment in batch if segment.position in first), None)
        return done

    async def _stream(self, stream_id: str, segments: Sequence[Appended], done: Projected) -> str | None:
        messages = [message for segment in segments for message in segment.messages]
        try:
            tally = await projecting.post_messages(self._connections, self._sockets, stream_id, messages)
        except StoreError as error:
            logger.error("stream %r cannot be posted: %s", stream_id, error)
            return segments[0].position
        done.messages += len(messages)
        done.posted += tally.sent
        done.lagging += tally.lagging
        return None
