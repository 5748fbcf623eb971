"""The other ends of `MemorySockets`, for tests and for `SocketsContract`."""

from __future__ import annotations

from helix.adapters.memory_sockets import MemorySockets


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
