"""Seeded requests, byte by byte, that no well-behaved client sends, for any HTTP server on loopback.

Law: a server answers each of them or closes the connection, within a bound. It writes no traceback, and serves the next
request.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

BOUND_S = 10.0
AT_ONCE = 15
End = Literal["finish", "leave", "reset"]
LINES = (
    b"",
    b"GET",
    b"GET /",
    b"GET  / HTTP/1.1",
    b"GET http://[/ HTTP/1.1",
    b"GET //[ HTTP/1.1",
    b"GET /%zz%00 HTTP/1.1\r\nx",
    b"GET / HTTP/9.9",
    b"GET / HTTP/1.1 more",
    b"GET / HTTP/1." + b"1" * 5_000,
    b"GET /\xff\xfe\x00 HTTP/1.1",
    b"G\x00T / HTTP/1.1",
    b"TRACE / HTTP/1.1",
    b"CONNECT 127.0.0.1:1 HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"POST /" + b"a" * 70_000 + b" HTTP/1.1",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\r\n\r\n\r\n",
)
HEADERS = (
    b"content-length: -1",
    b"content-length: +3",
    b"content-length: 1, 1",
    b"content-length: 1\r\ncontent-length: 2",
    b"content-length: " + b"9" * 5_000,
    b"content-length: \xc2\xb2",
    b"content-length: 0x10",
    b"content-length: 1_0",
    b"content-length: 99999999999999999999",
    b"transfer-encoding: chunked",
    b"transfer-encoding: chunked\r\ncontent-length: 3",
    b"transfer-encoding: cow",
    b"content-encoding: gzip",
    b"host: evil.example",
    b"host: [",
    b"origin: http://[",
    b"no colon",
    b": no name",
    b"a b: c",
    b"x:\x00",
    b" folded: first",
    b"x: a\r\n folded",
    b"x-\xff\xfe: \xff\xfe",
    b"connection: \xff",
    b"expect: 100-continue",
    b"upgrade: websocket\r\nconnection: upgrade",
    b"x: " + b"y" * 70_000,
    b"\r\n".join(b"x-%d: y" % n for n in range(3_000)),
)
BODIES = (
    b"",
    b"{}",
    b"{",
    b"\xff\xfe",
    b"[" * 20_000,
    b"null",
    b"zz\r\n{}\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\n",
    b"x" * 9_000,
)


@dataclass(frozen=True)
class HostileRequest:
    """A request whose parts are sent one after the other. `is_broken` means that its line or headers are invalid, so that
    the answer is an error."""

    parts: tuple[bytes, ...]
    end: End


def hostile_request(rng: random.Random, paths: tuple[str, ...], host: str) -> HostileRequest:
    """Return one request, or several in sequence."""
    sent = b"".join(_one(rng, paths, host) for _ in range(rng.choice((1, 1, 1, 2, 5))))
    if rng.random() < 0.3:
        sent = sent[: rng.randrange(len(sent) + 1)]
    if rng.random() < 0.1:
        sent = bytes(byte ^ (rng.random() < 0.02) * rng.randrange(256) for byte in sent[:2_000])
    cuts = sorted(rng.randrange(len(sent) + 1) for _ in range(rng.choice((0, 0, 1, 3))))
    parts = tuple(sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True))
    return HostileRequest(parts, rng.choice(("finish", "finish", "finish", "leave", "reset")))


def _one(rng: random.Random, paths: tuple[str, ...], host: str) -> bytes:
    good = f"{rng.choice(('GET', 'POST', 'PUT', 'HEAD'))} {rng.choice(paths)} HTTP/1.{rng.randrange(2)}".encode()
    line = rng.choice(LINES) if rng.random() < 0.3 else good
    headers = [b"host: " + host.encode()] if rng.random() < 0.9 else []
    headers += [b"content-type: application/json"] if rng.random() < 0.5 else []
    headers += [rng.choice(HEADERS) for _ in range(rng.choice((0, 1, 1, 2)))]
    body = rng.choice(BODIES)
    if rng.random() < 0.6:
        headers.append(b"content-length: %d" % (len(body) + rng.choice((0, 0, 0, 0, 7, -1)) % (1 << 40)))
    rng.shuffle(headers)
    separator = b"\n" if rng.random() < 0.05 else b"\r\n"
    return separator.join([line, *headers, b"", b""]) + body


def talk(port: int, request: HostileRequest) -> bytes:
    """Return all that the server answers before it closes. The client ends its side, unless it leaves at once or resets the
    connection. Raise `TimeoutError` if the server does neither within the bound."""
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND_S) as connection:
        with suppress(ConnectionError):
            for part in request.parts:
                connection.sendall(part)
            if request.end == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if request.end != "finish":
                return b""
            with suppress(OSError):  # the server has closed it already
                connection.shutdown(socket.SHUT_WR)
            return read_all(connection)
        return b""


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes. The bytes before a reset count."""
    answer = bytearray()
    with suppress(ConnectionError):
        while data := connection.recv(65_536):
            answer += data
    return bytes(answer)


def attack(
    port: int, count: int, paths: tuple[str, ...], is_well: Callable[[], bool], *, seed: int = 23
) -> list[bytes]:
    """Send `count` hostile requests, some of them concurrently, and return the answers. After each batch the server must
    work normally."""
    rng, answers = random.Random(seed), list[bytes]()

    def one(request: HostileRequest) -> bytes:
        try:
            answer = talk(port, request)
        except TimeoutError:
            raise AssertionError(f"neither an answer nor a closed connection: {request!r:.2000}") from None
        assert not answer or answer.startswith(b"HTTP/1."), (f"{request!r:.2000}", answer[:200])
        assert b"Traceback" not in answer and b"HTTP/1.1 5" not in answer, (f"{request!r:.2000}", answer[:500])
        return answer

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(0, count, AT_ONCE):
            requests = [hostile_request(rng, paths, f"127.0.0.1:{port}") for _ in range(AT_ONCE)]
            answers += pool.map(one, requests)
            assert is_well(), f"after {requests!r:.9000}"
    return answers
