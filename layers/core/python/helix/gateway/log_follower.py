"""The follower of the log: it posts new segments to subscribed sockets, from the DynamoDB stream of the `streams`
table.

Law: the log contains every message, so clients lose nothing here and can request what they missed. A batch that is
delivered again is posted again, unless it is old. A stream's messages are posted in order, and the streams of a batch
do not wait for each other. The batches of a shard do wait for each other, so a slow socket is soon marked as lagging.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from helix._log import get_logger
from helix.core.errors import StoreError
from helix.core.wire import StreamMessage
from helix.gateway import projector
from helix.gateway.connections import Connections
from helix.gateway.projector import REPOST_S, Patience
from helix.ports.clock import Clock
from helix.ports.sockets import Sockets

logger = get_logger("helix.gateway")
SHARD = Patience(post_s=0.5, frame_s=0.1, notice_s=0.1)
"""A shard of a table has one lane (docs/adr/0028-streams-without-kinesis.md), so all its streams wait for a slow
socket. The first post of a process opens its connection, which takes longer than the usual 30 ms."""


class AppendedSegment(NamedTuple):
    """A segment that was appended to the log."""

    position: str
    """The sequence number of the segment's record in the table's stream."""
    stream_id: str
    """The stream that it belongs to."""
    messages: Sequence[StreamMessage]
    """Its messages, in order. Empty if it cannot be read or was deleted."""
    time: float
    """The time of the write, in Unix seconds."""


class Follower:
    def __init__(self, connections: Connections, sockets: Sockets, clock: Clock) -> None:
        self._connections, self._sockets, self._clock = connections, sockets, clock

    async def post(self, batch: Sequence[AppendedSegment]) -> str | None:
        """Post the segments of a batch. Return the position of the first segment that must be delivered again, or None.
        Never raises an error that a retry could fix."""
        since = self._clock.now() - REPOST_S
        streams: dict[str, list[AppendedSegment]] = {}
        for segment in batch:
            if segment.messages and segment.time >= since:
                streams.setdefault(segment.stream_id, []).append(segment)
        failed = await asyncio.gather(*(self._post_stream(name, found) for name, found in streams.items()))
        return next((segment.position for segment in batch if segment.position in failed), None)

    async def _post_stream(self, stream_id: str, segments: Sequence[AppendedSegment]) -> str | None:
        messages = [message for segment in segments for message in segment.messages]
        try:
            await projector.post_messages(self._connections, self._sockets, stream_id, messages, SHARD)
        except StoreError as error:
            logger.error("stream %r cannot be posted: %s", stream_id, error)
            return segments[0].position
        return None
