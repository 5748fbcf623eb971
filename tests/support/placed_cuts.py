"""A proxy of WebSockets that cuts a connection at one named place: in the handshake, or before, within or after the frame
with some text.

Law: the first `times` connections end there, without a closing handshake. All others pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

from tests.support.offline_cloud import CloudForTests

HOST = re.compile(rb"\r\nHost:[^\r\n]*", re.IGNORECASE)
EXTENSIONS = re.compile(rb"Sec-WebSocket-Extensions:[^\r\n]*\r\n", re.IGNORECASE)
"""A header that is removed from the handshake, because compressed frames cannot be read here."""
HEAD_END = b"\r\n\r\n"


Way = Literal["up", "down"]
At = Literal["before", "within", "behind"]
AROUND: tuple[At, ...] = ("before", "within", "behind")


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a cut. `way` is the direction: from the client (up) or to it (down). `text` is the text of the frame, or
    None for the handshake, which is cut after `offset` bytes. `nth` counts the frames with that text."""

    way: Way
    text: str | None
    nth: int = 1
    at: At = "before"
    offset: int = 0


class _Passage:
    """One direction of a connection. It decides which of the received bytes may pass, up to the place of the cut."""

    def __init__(self, place: Place | None, host: str) -> None:
        self._place, self._left, self._host = place, place.nth if place is not None else 0, host
        self._buffer, self._shaken = b"", False
        self.over = False

    def passes(self, data: bytes) -> bytes:
        self._buffer += data
        return b"".join(self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        if not self._shaken:
            head, found, rest = self._buffer.partition(HEAD_END)
            if self._place is not None and self._place.text is None:
                self.over = True
                yield self._buffer[: self._place.offset]
                return
            if not found:
                return
            self._shaken, self._buffer = True, rest
            yield HOST.sub(f"\r\nHost: {self._host}".encode(), EXTENSIONS.sub(b"", head + found))
        while not self.over and (frame := self._frame()) is not None:
            raw, start, payload = frame
            self._buffer = self._buffer[len(raw) :]
            yield self._cut(raw, start, payload)

    def _cut(self, raw: bytes, start: int, payload: bytes) -> bytes:
        place = self._place
        if place is None or place.text is None or (found := payload.find(place.text.encode())) < 0:
            return raw
        self._left -= 1
        if self._left:
            return raw
        self.over = True
        return {"before": b"", "within": raw[: start + found + 1], "behind": raw}[place.at]

    def _frame(self) -> tuple[bytes, int, bytes] | None:
        """Return the first frame of the buffer, the start of its payload, and the unmasked payload (RFC 6455, section
        5.2)."""
        data = self._buffer
        if len(data) < 2:
            return None
        size, start = data[1] & 127, 2
        if size > 125:
            start = 4 if size == 126 else 10
            size = int.from_bytes(data[2:start])
        masked = bool(data[1] & 128)
        start += 4 * masked
        if len(data) < start + size:
            return None
        payload = data[start : start + size]
        if masked:
            mask = (data[start - 4 : start] * (size // 4 + 1))[:size]
            payload = (int.from_bytes(payload) ^ int.from_bytes(mask)).to_bytes(size)
        return data[: start + size], start, payload


def address_of(cloud: CloudForTests) -> tuple[int, str]:
    """Return the port of its WebSocket API, and the path."""
    parts = urlsplit(cloud.url)
    assert parts.port is not None
    return parts.port, parts.path.removeprefix("/")


class PlacedCuts:
    """A proxy: `async with PlacedCuts(port, place) as proxy: ...` forwards connections to `proxy.port` to `port`."""

    def __init__(self, port: int, place: Place | None, times: int = 1) -> None:
        self._target, self._place, self._times = port, place, times
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self._refuses = False
        self.cut = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        await asyncio.gather(*self._tasks)

    def refuse(self) -> None:
        """End all connections, and each new one at once."""
        self._refuses = True
        for writer in self._open:
            writer.transport.abort()

    def accept(self) -> None:
        self._refuses = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._open.add(writer)
        place = self._place if self._times > 0 else None
        self._times -= 1
        host = f"127.0.0.1:{self._target}"
        ways = {name: _Passage(place if place and place.way == name else None, host) for name in ("up", "down")}
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            pumps = [
                asyncio.create_task(_pump(reader, far_writer, ways["up"])),
                asyncio.create_task(_pump(far_reader, writer, ways["down"])),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                self.cut += any(way.over for way in ways.values())
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
                far_writer.transport.abort()
        writer.transport.abort()
        self._open.discard(writer)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Passage) -> None:
    """Forward until the connection ends, or is cut."""
    with contextlib.suppress(ConnectionError):
        while not way.over and (data := await reader.read(65536)):
            writer.write(way.passes(data))
            await writer.drain()
