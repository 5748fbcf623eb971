"""A proxy for sockets that cuts connections at any byte, and a server whose frames are lost, doubled, delayed and
reordered.

Law: all faults follow from the seed of a scenario, as far as concurrent processes allow. Their number is limited, so that a
client that keeps asking reaches the service in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import TracebackType
from typing import Self

from helix.gateway.loopback import LoopbackSockets
from helix.ports.sockets import Posted

FRAMES = 40
"""The number of frames of a scenario that may be affected."""


class HostileSockets(LoopbackSockets):
    """Sockets that lose, double, delay and reorder everything that is posted: replies, parts and messages alike."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice, self._left = dice, FRAMES
        self._held: list[tuple[str, bytes]] = []
        self.harmed = 0

    async def post(self, connection_id: str, data: bytes) -> Posted:
        fate = self._dice.random() if self._left > 0 else 1.0
        self._left -= 1
        if fate < 0.45:
            self.harmed += 1
        if fate < 0.12:
            return "sent"  # lost
        if fate < 0.24:
            self._held.append((connection_id, data))  # arrives after a later one
            return "sent"
        if fate < 0.36:
            await super().post(connection_id, data)
        elif fate < 0.45:
            await asyncio.sleep(self._dice.random() / 50)
        posted = await super().post(connection_id, data)
        while self._held and (self._left <= 0 or self._dice.random() < 0.6):
            await super().post(*self._held.pop(self._dice.randrange(len(self._held))))
        return posted


class CuttingProxy:
    """A proxy: `async with CuttingProxy(port, dice) as proxy: ...` forwards connections to `proxy.port` to `port`. The
    first few end without a closing handshake after some bytes in one direction: in the handshake, within a frame, or
    between two."""

    def __init__(self, port: int, dice: random.Random) -> None:
        self._target, self._dice = port, dice
        self._cuts = [dice.choice([dice.randrange(300), dice.randrange(6_000)]) for _ in range(dice.randrange(4))]
        self._tasks: set[asyncio.Task[None]] = set()
        self.cut = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        budget = self._cuts.pop() if self._cuts else None
        upward = budget is not None and self._dice.random() < 0.3
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            ways = (
                self._pump(reader, far_writer, budget if upward else None),
                self._pump(far_reader, writer, None if upward else budget),
            )
            pumps = [asyncio.create_task(way) for way in ways]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            for side in (writer, far_writer):
                side.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int | None) -> None:
        """Forward until the connection ends, or `budget` bytes have passed in this direction."""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                if budget is not None and len(data) >= budget:
                    writer.write(data[:budget])
                    await writer.drain()
                    self.cut += 1
                    return
                budget = None if budget is None else budget - len(data)
                writer.write(data)
                await writer.drain()
