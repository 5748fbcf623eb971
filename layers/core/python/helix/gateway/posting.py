"""Posting: messages to every socket that wants them, each at its own pace.

Law: all sockets are served at once, each within a deadline of its own; whoever misses it is marked, told once, and left
alone until it has subscribed again. It holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from helix.core.errors import StoreError
from helix.core.frames import lagging_frame, message_frames
from helix.core.wire import StreamMessage, is_stream_end
from helix.gateway.connections import Connections, Subscriber
from helix.ports.sockets import Posted, Sockets

logger = logging.getLogger("helix.gateway")
DEADLINE_S = 2.0  # for what is posted to one socket
FRAME_S = 0.25  # what each of many frames may take: a large message is not a slow reader
NOTICE_S = 0.5


@dataclass(slots=True)
class Told:
    """To how many sockets messages were posted, and how many were too slow for them."""

    sent: int = 0
    lagging: int = 0
    gone: int = 0


async def post_messages(
    connections: Connections, sockets: Sockets, stream_id: str, messages: Sequence[StreamMessage]
) -> Told:
    """Post `messages`, at least one, to the stream's subscribers.

    Raises `StoreError` where the store does not answer, or the gateway takes nothing for anybody: post it all again.
    """
    told = Told()
    # Read behind the append: who subscribed before it is here, who subscribes after it finds the messages in the log.
    subscribers = await connections.subscribers(stream_id)
    if not subscribers:
        return told
    frames = message_frames(stream_id, messages)
    notice = lagging_frame(stream_id, messages[0].sequence - 1)
    faults: dict[str, StoreError] = {}
    ending = any(is_stream_end(message) for message in messages)

    async def serve(subscriber: Subscriber) -> None:
        name = subscriber.connection_id
        if subscriber.lagging:
            if ending:  # it may have missed the notice too, and nothing more will come to remind it
                await _post(sockets, name, [notice], NOTICE_S)
            return
        outcome = await _post(sockets, name, frames, max(DEADLINE_S, FRAME_S * len(frames)))
        if isinstance(outcome, StoreError):
            faults[name] = outcome
        elif outcome == "sent":
            told.sent += 1
        elif outcome == "gone":
            told.gone += 1
            await connections.close(name)
        else:
            await leave(name)

    async def leave(name: str) -> None:
        told.lagging += 1
        await connections.mark_lagging(stream_id, name)
        await _post(sockets, name, [notice], NOTICE_S)

    await _all(serve(subscriber) for subscriber in subscribers)
    if faults and not told.sent:
        raise next(iter(faults.values()))
    for name, fault in faults.items():
        logger.warning("connection %r: %s", name, fault)
    await _all(leave(name) for name in faults)
    return told


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Let all end, then raise what the first of them raised."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome


async def _post(
    sockets: Sockets, connection_id: str, frames: Sequence[bytes], deadline_s: float
) -> Posted | StoreError:
    """The first outcome that is not "sent", or "sent"."""
    try:
        async with asyncio.timeout(deadline_s):
            for frame in frames:
                posted = await sockets.post(connection_id, frame)
                if posted != "sent":
                    return posted
    except TimeoutError:
        return "slow"
    except StoreError as fault:
        return fault
    return "sent"
