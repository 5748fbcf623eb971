"""The contract of `Sockets`: bytes reach their connection, and a slow connection does not delay others."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

import pytest

from helix.core.errors import InvalidInputError
from helix.ports.sockets import Sockets

SOON_S = 5.0


class Peers(Protocol):
    """The clients at the other ends. The author of an adapter provides them, as real connections or as fakes."""

    async def connect(self) -> str:
        """Connect a new client, and return its connection id."""
        ...

    async def hang_up(self, connection_id: str) -> None:
        """Disconnect the client. Return once the gateway knows."""
        ...

    async def stall(self, connection_id: str) -> None:
        """Stop reading for this client from now on."""
        ...

    async def received(self, connection_id: str, count: int) -> list[bytes]:
        """Wait until the client has received `count` frames, and return them. Fails if that takes too long."""
        ...


class SocketsContract:
    """The tests. They need the fixtures `sockets`, with a deadline of about a second, and `peers`."""

    pytestmark = pytest.mark.asyncio

    async def test_frames_arrive_in_order(self, sockets: Sockets, peers: Peers) -> None:
        """Each frame arrives unchanged, in the order of the posts."""
        one, two = await peers.connect(), await peers.connect()
        frames = [b'{"n":1}', '{"é":"\U0001f600"}'.encode(), b"x" * 32_768]
        for frame in frames:
            assert await sockets.post(one, frame) == "sent"
        assert await sockets.post(two, b"another") == "sent"
        assert await peers.received(one, 3) == frames
        assert await peers.received(two, 1) == [b"another"]

    async def test_who_hung_up_is_gone(self, sockets: Sockets, peers: Peers) -> None:
        """A post to a client that disconnected returns `gone`, and so does one to an unknown connection id."""
        one = await peers.connect()
        await peers.hang_up(one)
        assert await sockets.post(one, b"late") == "gone"
        assert await sockets.post("nobody=", b"?") == "gone"

    async def test_a_dropped_connection_is_gone(self, sockets: Sockets, peers: Peers) -> None:
        """Dropping a connection twice is not an error."""
        one = await peers.connect()
        await sockets.drop(one)
        await sockets.drop(one)
        assert await sockets.post(one, b"late") == "gone"

    async def test_a_slow_one_holds_up_nobody(self, sockets: Sockets, peers: Peers) -> None:
        """A post to a slow connection returns `slow` within the deadline, and the other connections are served in the
        meantime."""
        slow, quick = await peers.connect(), await peers.connect()
        await peers.stall(slow)
        began = time.monotonic()
        waiting = [asyncio.ensure_future(sockets.post(slow, b"?")) for _ in range(12)]
        assert [await sockets.post(quick, b"!") for _ in range(3)] == ["sent"] * 3
        assert await asyncio.gather(*waiting) == ["slow"] * 12
        assert time.monotonic() - began < SOON_S
        assert await peers.received(quick, 3) == [b"!"] * 3

    async def test_what_is_too_large_is_refused(self, sockets: Sockets, peers: Peers) -> None:
        """A frame that is too large raises `InvalidInputError`, because a retry would be refused again."""
        one = await peers.connect()
        with pytest.raises(InvalidInputError):
            await sockets.post(one, b"x" * 200_000)
