"""Subscriptions that a client gives up to make room for others."""

from __future__ import annotations

import asyncio

from helix.adapters.system import SystemClock
from helix.client import ClientSettings
from helix.client.feed import MAX_STREAMS, Following, whole_stream
from helix.client.link import ConnectionLostError
from helix.core.json import JsonObject


async def test_callers_that_make_room_at_once_give_up_each_stream_once() -> None:
    """Several runs may be started at once with one client."""
    asked: list[str] = []

    async def ask(action: str, fields: JsonObject) -> JsonObject:
        assert action == "unsubscribe"
        asked.append(str(fields["stream_id"]))
        await asyncio.sleep(0)
        return {}

    following = Following(ask, lambda work: None, SystemClock(), ClientSettings())
    streams = [f"s{number}" for number in range(MAX_STREAMS + 3)]
    for stream_id in streams:
        following.add(stream_id, 0, whole_stream, subscribed=True)
    for stream_id in streams[1:]:
        following.on_stream_fail(stream_id, ConnectionLostError("its reader is gone"))
    await asyncio.gather(*(following.make_room() for _ in range(3)))
    assert sorted(asked) == sorted(streams[1:])
