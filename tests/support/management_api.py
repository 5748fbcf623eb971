"""The management API of a WebSocket stage on loopback HTTP, with open, closed and stalling connections."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import botocore.session
from tests.support.aws_servers import KEYS

from helix.adapters.aws.sockets import sockets_config

MAX_BYTES = 128 * 1024
PATIENCE_S = 5.0
ERRORS = {
    403: "ForbiddenException",
    410: "GoneException",
    413: "PayloadTooLargeException",
    429: "LimitExceededException",
}


class ManagementApi:
    """The server and its clients, which are the peers of `SocketsContract`. `answers` sets the status for a connection."""

    def __init__(self) -> None:
        self.frames: dict[str, list[bytes]] = {}
        self.open: set[str] = set()
        self.answers: dict[str, int] = {}
        self._stalled: set[str] = set()
        self._ended = threading.Event()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                name = unquote(self.path.rpartition("/")[2])
                if name in api._stalled:
                    api._ended.wait(PATIENCE_S)
                    self.close_connection = True
                    return
                status = 413 if len(body) > MAX_BYTES else 200 if name in api.open else 410
                status = api.answers.get(name, status)
                if status == 200:
                    api.frames[name].append(body)
                self.answer(status)

            def do_DELETE(self) -> None:
                name = unquote(self.path.rpartition("/")[2])
                found = name in api.open
                api.open.discard(name)
                self.answer(api.answers.get(name, 204 if found else 410))

            def answer(self, status: int) -> None:
                body = b"" if status < 300 else json.dumps({"message": "as it is"}).encode()
                self.send_response(status)
                if status in ERRORS:
                    self.send_header("x-amzn-ErrorType", ERRORS[status])
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/dev"

    def client(self, deadline_s: float) -> Any:
        session = botocore.session.get_session()
        config = sockets_config(deadline_s)
        return session.create_client("apigatewaymanagementapi", endpoint_url=self.url, config=config, **KEYS)

    async def connect(self) -> str:
        name = f"c{len(self.frames)}/+="  # characters that must be escaped in a path
        self.frames[name] = []
        self.open.add(name)
        return name

    async def hang_up(self, connection_id: str) -> None:
        self.open.discard(connection_id)

    async def stall(self, connection_id: str) -> None:
        self._stalled.add(connection_id)

    async def received(self, connection_id: str, count: int) -> list[bytes]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.frames[connection_id]) < count:
                await asyncio.sleep(0.01)
        return self.frames[connection_id]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
