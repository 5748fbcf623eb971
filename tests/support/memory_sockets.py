"""Sockets in memory which record the frames of each connection, and their clients for `SocketsContract`."""

from __future__ import annotations

from helix.core.errors import InvalidInputError
from helix.ports.sockets import Posted

MAX_BYTES = 128 * 1024


class MemorySockets:
    """Sockets in memory. `open` adds a connection, and `frames[connection_id]` are its frames. A connection in `slow`
    accepts nothing."""

    def __init__(self) -> None:
        self.frames: dict[str, list[bytes]] = {}
        self.slow: set[str] = set()
        self._open: set[str] = set()

    def open(self, connection_id: str) -> None:
        self._open.add(connection_id)
        self.frames.setdefault(connection_id, [])

    async def post(self, connection_id: str, data: bytes) -> Posted:
        if len(data) > MAX_BYTES:
            raise InvalidInputError(f"a frame of {len(data)} bytes is more than a connection takes: split it")
        if connection_id not in self._open:
            return "gone"
        if connection_id in self.slow:
            return "slow"
        self.frames[connection_id].append(data)
        return "sent"

    async def drop(self, connection_id: str) -> None:
        self._open.discard(connection_id)


class MemoryPeers:
    def __init__(self, sockets: MemorySockets) -> None:
        self._sockets, self._count = sockets, 0

    async def connect(self) -> str:
        self._count += 1
        name = f"connection{self._count}="
        self._sockets.open(name)
        return name

    async def hang_up(self, connection_id: str) -> None:
        await self._sockets.drop(connection_id)

    async def stall(self, connection_id: str) -> None:
        self._sockets.slow.add(connection_id)

    async def received(self, connection_id: str, count: int) -> list[bytes]:
        frames = self._sockets.frames[connection_id]
        assert len(frames) == count, f"{len(frames)} frames instead of {count}"
        return frames
