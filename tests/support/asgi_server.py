"""An ASGI app on loopback, in this process or in its own one, which can be killed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn


@asynccontextmanager
async def serving(app: Any, **more: Any) -> AsyncIterator[str]:
    """Serve the app, and yield its address. `more` are settings of uvicorn."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1, **more)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


class Sent:
    """One server-sent event."""

    def __init__(self, id: str, data: str) -> None:
        self.id, self.data = id, data

    @property
    def json(self) -> Any:
        return json.loads(self.data)


async def events(response: httpx.Response) -> AsyncIterator[Sent]:
    """Return the events of a response, without comments."""
    id, data = "", ""
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            id = value
        elif name == "data":
            data = value
        elif not line and data:
            yield Sent(id, data)
            id, data = "", ""
