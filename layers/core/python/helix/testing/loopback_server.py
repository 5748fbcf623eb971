"""A real HTTP/1.1 server on 127.0.0.1 for tests. It runs in a separate thread and serves one request per connection.

Law: a test sees real network behavior, not a mock: the raw request, a dropped connection, a client that disconnects.
Startup takes milliseconds. Exiting the context closes every connection and ends the thread.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(slots=True)
class RecordedRequest:
    """A request as received."""

    method: str
    """The HTTP method."""
    path: str
    """The request target, including the query string."""
    headers: dict[str, str]
    """The headers. Names are in lower case."""
    body: bytes
    """The raw body."""
    json: Any
    """The parsed body. None if the body is not JSON."""
    disconnected: threading.Event = field(default_factory=threading.Event)
    """An event that is set if the client disconnects before the response is complete. Wait for it instead of polling."""


class Responder:
    """Writes one response. Every method raises `ConnectionError` once the client has disconnected."""

    def __init__(self, writer: asyncio.StreamWriter, connection: Any) -> None:
        self._writer, self._connection = writer, connection

    async def start(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        import h11

        merged = {"connection": "close", **(headers or {})}
        pairs = [(name.encode(), value.encode()) for name, value in merged.items()]
        await self._write(h11.Response(status_code=status, headers=pairs))

    async def send(self, data: bytes) -> None:
        import h11

        await self._write(h11.Data(data=data))

    async def end(self) -> None:
        import h11

        await self._write(h11.EndOfMessage())

    async def send_json(self, status: int, body: object, headers: Mapping[str, str] | None = None) -> None:
        await self.start(status, {"content-type": "application/json", **(headers or {})})
        await self.send(json.dumps(body).encode())
        await self.end()

    def abort(self) -> None:
        """Drop the connection like a crashed server, without flushing or finishing the response."""
        self._writer.transport.abort()

    async def _write(self, event: Any) -> None:
        self._writer.write(self._connection.send(event) or b"")
        await self._writer.drain()


Handler = Callable[[RecordedRequest, Responder], Awaitable[None]]


class LoopbackServer:
    """A server on a free port that calls `handle` for each request. It is a context manager (`with` or `async with`).
    `requests` contains every request."""

    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self.requests: list[RecordedRequest] = []
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def origin(self) -> str:
        """`http://127.0.0.1:<port>`. Raises `RuntimeError` before the server is entered."""
        if self._socket is None:
            raise RuntimeError("the server is not running: use it as a context manager")
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def start(self) -> Self:
        """Start listening. The port is known when this returns."""
        if self._socket is not None:
            raise RuntimeError("the server is running already")
        self._socket = socket.create_server(("127.0.0.1", 0))
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), name="loopback", daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def stop(self) -> None:
        """Close every connection and end the thread. Idempotent."""
        if self._loop is not None and self._stop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._loop = self._stop = self._thread = self._socket = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    async def _run(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        connections: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._connection(reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        server = await asyncio.start_server(accept, sock=self._socket)
        ready.set()
        await self._stop.wait()
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import h11

        connection = h11.Connection(h11.SERVER)
        try:
            request = await _read_request(reader, connection)
            if request is None:
                return
            self.requests.append(request)
            answer = asyncio.ensure_future(self._handle(request, Responder(writer, connection)))
            hangup = asyncio.create_task(reader.read())
            try:
                await asyncio.wait({answer, hangup}, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    request.disconnected.set()
                    return
                await answer
            except ConnectionError:  # the client hung up during a write
                request.disconnected.set()
            finally:
                answer.cancel()
                hangup.cancel()
                await asyncio.gather(answer, hangup, return_exceptions=True)
        except (ConnectionError, h11.RemoteProtocolError):
            pass
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader, connection: Any) -> RecordedRequest | None:
    import h11

    head: Any = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            break
        else:
            return None
    try:
        parsed = json.loads(bytes(body))
    except ValueError:
        parsed = None
    headers = {name.decode(): value.decode() for name, value in head.headers}
    return RecordedRequest(head.method.decode(), head.target.decode(), headers, bytes(body), parsed)
