"""The addresses from which clients on this machine upload and download files, for stores that are not in S3.

Law: an address contains a random token that works for one file and a limited time, as a presigned request of S3 does. So
only the client that asked the gateway for it can use it. Downloads are attachments, so that no browser runs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from helix.core.errors import CallerError, FileMissingError
from helix.core.media_types import BINARY
from helix.gateway.loopback_pages import BrokenRequestError, LoopbackHandler, PageServer
from helix.gateway.origins import hosts_of, why_foreign
from helix.ports.blobs import Upload, attachment
from helix.ports.clock import Clock
from helix.ports.ids import Ids, new_secret

T = TypeVar("T")
STORED_S: Final = 60.0
"""The number of seconds within which the store must take or return the bytes of a file."""
MAX_ADDRESSES: Final = 10_000
"""The most addresses that work at the same time. A new one replaces the oldest."""
TEXT: Final = "text/plain; charset=utf-8"
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
CORS: Final = {
    "Access-Control-Allow-Methods": "GET, PUT",
    "Access-Control-Allow-Headers": "content-type",
    "Vary": "Origin",
}


class _Address(NamedTuple):
    """What a token allows."""

    expires_at: float
    """The time until which it works, in Unix seconds."""
    take: Callable[[bytes], Coroutine[Any, Any, None]] | None = None
    """Stores the bytes of an upload. None for a download."""
    size: int = 0
    """The number of bytes of the upload."""
    read: Callable[[], Coroutine[Any, Any, bytes]] | None = None
    """Returns the bytes of a download. None for an upload."""
    name: str | None = None
    """The name under which a browser saves the download."""


class LoopbackFiles:
    """A server on 127.0.0.1 that starts with its first address. It is used from one event loop, that of the store."""

    def __init__(self, clock: Clock, ids: Ids) -> None:
        self._clock, self._ids, self._addresses = clock, ids, dict[str, _Address]()
        self._server: PageServer | None = None

    @property
    def port(self) -> int:
        """The port of the server, which runs from now on."""
        if self._server is None:
            self._loop = asyncio.get_running_loop()
            self._server = PageServer(0, type("Handler", (_Handler,), {"files": self}))
            self._server.start()
        return self._server.port

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """End the server. This may take 0.1 s."""
        if self._server is not None:
            self._server.stop()

    def receive_at(self, take: Callable[[bytes], Coroutine[Any, Any, None]], size: int, expires_s: float) -> Upload:
        """Return the request with which a client sends `size` bytes, which `take` then stores."""
        expires_at = self._clock.now() + expires_s
        url = self._add(_Address(expires_at, take=take, size=size))
        return Upload(url, "PUT", {"Content-Type": BINARY}, expires_at)

    def offer_at(self, read: Callable[[], Coroutine[Any, Any, bytes]], name: str | None, expires_s: float) -> str:
        """Return the address of the bytes that `read` returns. A browser saves them under `name`."""
        return self._add(_Address(self._clock.now() + expires_s, read=read, name=name))

    def _add(self, address: _Address) -> str:
        token, now = new_secret(self._ids), self._clock.now()
        while self._addresses:
            oldest = next(iter(self._addresses))
            if len(self._addresses) < MAX_ADDRESSES and self._addresses[oldest].expires_at > now:
                break
            del self._addresses[oldest]
        self._addresses[token] = address
        return f"{self.origin}/{token}"

    def find(self, token: str) -> _Address | None:
        """Return what this token allows. None if there is no such token, or it has expired."""
        found = self._addresses.get(token)
        return found if found is not None and found.expires_at > self._clock.now() else None

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the event loop of the store, from another thread, and return its result. Raises
        `BrokenRequestError` if the store takes too long, and cancels `work`."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(STORED_S)
        except TimeoutError as error:
            running.cancel()
            raise BrokenRequestError(503, f"The store did not respond within {STORED_S:g} s: try again.") from error


class _Handler(LoopbackHandler):
    files: ClassVar[LoopbackFiles]
    headers_of_all: ClassVar[Mapping[str, str]] = {"X-Content-Type-Options": "nosniff"}

    def handle_one_request(self) -> None:
        self._cors: Mapping[str, str] = NO_HEADERS
        super().handle_one_request()

    def respond(self, status: int, body: bytes, kind: str = TEXT, headers: Mapping[str, str] = NO_HEADERS) -> None:
        """Respond as `LoopbackHandler` does. A page whose request was admitted can read the response, also a
        refusal."""
        super().respond(status, body, kind, {**self._cors, **headers})

    def do_OPTIONS(self) -> None:
        if self._admitted():
            self.respond(204, b"")

    def do_PUT(self) -> None:
        address = self._address()
        if address is None:
            return
        if address.take is None:
            raise BrokenRequestError(405, "This address is for a download.")
        if self._length != address.size:
            raise BrokenRequestError(400, f"The upload has {address.size} bytes, not {self._length}.")
        self._carry_out(address.take(self.read_body(address.size)))

    def do_GET(self) -> None:
        address = self._address()
        if address is None:
            return
        if address.read is None:
            raise BrokenRequestError(405, "This address is for an upload.")
        self._carry_out(address.read(), address.name)

    def _carry_out(self, work: Coroutine[Any, Any, bytes | None], name: str | None = None) -> None:
        try:
            found = self.files.wait(work)
        except CallerError as error:
            status = 404 if isinstance(error, FileMissingError) else 400
            self.respond(status, f"{error}\n".encode())
        else:
            self.respond(200, found or b"", BINARY, {"Content-Disposition": attachment(name)})

    def _address(self) -> _Address | None:
        """Return what the address allows. Otherwise refuse the request."""
        if not self._admitted():
            return None
        found = self.files.find(self.path.removeprefix("/"))
        if found is None:
            raise BrokenRequestError(403, "The address is unknown or has expired: ask for a new one.")
        return found

    def _admitted(self) -> bool:
        """Return whether the request comes from this machine. Otherwise refuse it. A page of another server on this
        machine, such as the console, may show an image or link to a download."""
        headers = [(name.lower(), value) for name, value in self.headers.items()]
        headers = [pair for pair in headers if pair != ("sec-fetch-site", "same-site")]
        why = why_foreign(headers, hosts_of(self.files.port), any_port=True)
        if why is not None:
            self.refuse(why)
            return False
        origin = self.headers.get("origin")
        if origin is not None:
            self._cors = {"Access-Control-Allow-Origin": origin, **CORS}
        return True
