"""A platform that accepts reports, on loopback. It answers what the test tells it to, and stores the requests."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Platform:
    """A platform. `answers` are (status, headers) of the next requests, and 200 when none is left. `hang_up` ends
    connections."""

    url: str = ""
    answers: deque[tuple[int, dict[str, str]]] = field(default_factory=deque)
    hang_up: bool = False
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    accepted: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, *statuses: int, **headers: str) -> None:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.extend((status, told) for status in statuses)

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Return the requests in everything that was accepted, in order."""
        return [request for payload in self.accepted for request in payload["requests"]]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                headers: dict[str, str] = {}
                while (field_line := (await reader.readline()).decode().strip()) != "":
                    name, _, value = field_line.partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.paths.append(line.decode().split(" ")[1])
                self.headers.append(headers)
                self.bodies.append(body)
                if self.hang_up:
                    return
                status, extra = self.answers.popleft() if self.answers else (200, {})
                if status < 300:
                    self.accepted.append(json.loads(body))
                told = "".join(f"{name}: {value}\r\n" for name, value in extra.items())
                writer.write(f"HTTP/1.1 {status} Told\r\ncontent-length: 0\r\n{told}\r\n".encode())
                await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def platform() -> AsyncIterator[Platform]:
    made = Platform()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
