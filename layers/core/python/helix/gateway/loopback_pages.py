"""The HTTP server of Helix's own pages on loopback. It parses requests strictly, and refuses requests from other sites.

Law: each request gets a response or a closed connection within `patience_s`, whatever it contains. A request that could
be interpreted in two ways is refused with a short 4xx, and its connection is closed, so nothing after it is read as
another request. A client that drops the connection does not cause a server error.
"""

from __future__ import annotations

import io
import re
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, ClassVar, Final

from helix._log import get_logger
from helix.gateway.origins import hosts_of, why_foreign

logger = get_logger("helix.gateway")
PATIENCE_S: Final = 30.0
MAX_HEAD: Final = 65_536
"""The maximum number of bytes in a request's first line and headers."""
MAX_REASON: Final = 300
"""The maximum number of characters in a refusal. It is limited because the refusal quotes the request."""
DRAIN_S: Final = 1.0
"""The time for which the rest of a refused request is read, in seconds. Unread bytes would reset the connection too
early."""
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LINE: Final = re.compile(rf"({_TOKEN}) (/[!-~]*) HTTP/1\.([01])")
_HEADER: Final = re.compile(rf"({_TOKEN}):[ \t]*([ \t\x21-\x7e\x80-\xff]*)")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")


class BrokenRequestError(Exception):
    """A refused request, with its status and a sentence for the client."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class PageServer(ThreadingHTTPServer):
    """A server on 127.0.0.1 with a thread for each connection. `with` serves until the block ends."""

    daemon_threads = True
    request_queue_size = 128  # a larger burst waits a second, because the system drops its packets

    def __init__(self, port: int, handler: type[LoopbackHandler]) -> None:
        super().__init__(("127.0.0.1", port), handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a connection was lost", exc_info=True)  # handlers log their own errors and respond to them


class _UntilDeadline(io.RawIOBase):
    """The bytes of a connection. Raises `TimeoutError` after the request's deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline, self.received = 0.0, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        count = self._connection.recv_into(buffer)
        self.received = self.received or count > 0
        return count


class LoopbackHandler(BaseHTTPRequestHandler):
    """A handler of requests. `headers_of_all` are sent with each response. A subclass defines `do_GET` and
    `do_POST`."""

    headers_of_all: ClassVar[Mapping[str, str]] = {}
    patience_s: ClassVar[float] = PATIENCE_S
    """The time limit, in seconds, for receiving one request and for each write of its response."""
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "helix", ""

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.patience_s)
        self._wire = _UntilDeadline(self.connection)
        self.rfile = io.BufferedReader(self._wire)

    def handle_one_request(self) -> None:
        self._wire.deadline, self._wire.received = time.monotonic() + self.patience_s, False
        self.command, self.request_version, self.requestline = "", self.protocol_version, ""
        self.close_connection, self._is_answered = True, False
        try:
            if head := self._read_head():
                self._parse(head)
                getattr(self, f"do_{self.command}")()
        except BrokenRequestError as error:
            self._reject(error.status, str(error))
        except TimeoutError:
            self.close_connection = True
            if self._wire.received:
                self._reject(408, "The request did not arrive in time.")
        except ConnectionError:
            self.close_connection = True
        except Exception:
            logger.exception("a request could not be handled")
            self._reject(500, "The server failed; its log says why.")

    def read_body(self, most: int) -> bytes:
        """Read the whole body. Raises `BrokenRequestError` if it is longer than `most` bytes, or ends early."""
        if self._length > most:
            raise BrokenRequestError(413, f"The body has {self._length} bytes; send at most {most}.")
        if self.headers.get("expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        body = self.rfile.read(self._length)
        if len(body) < self._length:
            raise BrokenRequestError(400, "The body is shorter than content-length says.")
        return body

    def find_refusal(self, port: int, *, from_links: bool = False) -> str | None:
        """Return why the request is refused, or None. from_links: accept a request from a link on another site that a
        person followed."""
        headers = [(name.lower(), value) for name, value in self.headers.items()]
        if from_links and self.command == "GET" and self.headers.get("sec-fetch-mode") == "navigate":
            headers = [pair for pair in headers if pair[0] != "sec-fetch-site"]
        return why_foreign(headers, hosts_of(port))

    def refuse(self, why: str) -> None:
        self.close_connection = True  # because its body is not read
        self.respond(403, f"This request is refused: {why[:MAX_REASON]}.\n".encode())

    def respond(
        self,
        status: int,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._is_answered = True
        self.connection.settimeout(self.patience_s)
        self.send_response(status)
        for name, value in {**self.headers_of_all, **headers}.items():
            self.send_header(name, value)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body if self.command != "HEAD" else b"")

    def log_message(self, format: str, *args: object) -> None:
        return

    def _read_head(self) -> list[str]:
        """Return the lines of the request's head. Empty if the client has closed the connection."""
        lines, left = list[str](), MAX_HEAD
        while line := self.rfile.readline(left + 1):
            left -= len(line)
            if left < 0:
                raise BrokenRequestError(431, f"The line and the headers have more than {MAX_HEAD} bytes.")
            if not line.endswith(b"\r\n"):
                raise BrokenRequestError(400, "Each line of the request's head ends with CR LF.")
            if line == b"\r\n":
                if not lines:
                    raise BrokenRequestError(400, "The request is empty.")
                return lines
            lines.append(line[:-2].decode("latin-1"))
        if lines:
            raise BrokenRequestError(400, "The request's head ends early.")
        return []

    def _parse(self, lines: list[str]) -> None:
        """Set method, path, headers and body length from these lines. Raises `BrokenRequestError`."""
        line = _LINE.fullmatch(lines[0])
        if line is None:
            raise BrokenRequestError(400, "The first line is not 'METHOD /path HTTP/1.1'.")
        self.command, self.path, minor = line.groups()
        self.headers = HTTPMessage()
        for text in lines[1:]:
            header = _HEADER.fullmatch(text)
            if header is None:
                raise BrokenRequestError(400, "A header is not of the form 'name: value'.")
            self.headers[header[1]] = header[2].rstrip(" \t")
        self._length = self._body_length()
        if not hasattr(self, f"do_{self.command}"):
            raise BrokenRequestError(405, "This method is not accepted here.")
        keeps = minor == "1" and "close" not in self.headers.get("connection", "").lower()
        reads = self.command in ("POST", "PUT")
        self.close_connection = not keeps or (not reads and self._length > 0)  # a body that is not read

    def _body_length(self) -> int:
        if "transfer-encoding" in self.headers:
            raise BrokenRequestError(400, "A chunked body is not accepted: send a content-length.")
        given = self.headers.get_all("content-length", [])
        if not given and self.command in ("POST", "PUT"):
            raise BrokenRequestError(411, "Send the body's content-length.")
        if len(given) > 1 or any(_LENGTH.fullmatch(one) is None for one in given):
            raise BrokenRequestError(400, "content-length must be one number of bytes.")
        return int(given[0]) if given else 0

    def _reject(self, status: int, why: str) -> None:
        """Respond, and read and drop the remaining bytes for a moment, so that the client can read the response."""
        self.close_connection = True
        if self._is_answered:
            return
        with suppress(OSError):
            self.respond(status, f"{why}\n".encode())
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self._wire.deadline = time.monotonic() + DRAIN_S
            while self.rfile.read1(MAX_HEAD):
                pass
