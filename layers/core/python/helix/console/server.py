"""The server for the console page: a few files, and the sign-in.

    GET  /               the page and its files (`static/`, built from `clients/console`)
    GET  /config.json    says that the page signs in with a code
    POST /sign-in        {"code"} -> {"url", "token", "place", "agents"}: the service to connect to, and the token for it

The page itself talks to the service over the WebSocket protocol. No session data goes through this server.

Law: the server listens on 127.0.0.1 only. It refuses every request for another host or from a page on another origin, but
any page may link to it. The page exchanges the code for the token. The code is the fragment (after the `#`) of the printed
address; browsers do not send it, so it does not appear in logs. Without the code, even a client on this machine receives
nothing but the page. The page loads no scripts or styles from other origins, runs no inline scripts, and connects only to
the service and to its files.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from helix.adapters.system import SystemIds
from helix.core.json import dumps, load_object
from helix.gateway.console_page import CONFIG, KINDS, PAGE, origin_of, page_files, page_headers
from helix.gateway.loopback_pages import PATIENCE_S, LoopbackHandler, PageServer
from helix.ports.ids import new_secret

MAX_BODY: Final = 4096
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
STAGE_HOST: Final = re.compile(r"[a-z0-9]+\.execute-api\.([a-z0-9-]+\.amazonaws\.com(?:\.cn)?)")
"""The host of a stage's WebSocket API. The group is the region and the domain of its partition."""


@dataclass(frozen=True, slots=True)
class Service:
    """The service that the page connects to."""

    url: str
    """The URL of the WebSocket API."""
    token: str | None
    """The token that the page authenticates with. None if the service does not authenticate its callers."""
    place: str
    """The service's display name, such as `stage prod, user admin`."""
    agents: Sequence[str] = ()
    """The names of the agents that the user can run. The page also asks the service for them, if the service can list its
    agents."""
    files: str = ""
    """The origin to which the page sends files. Empty if it is not known; then the page cannot send or show any."""


class ConsoleServer:
    """`with ConsoleServer(service) as console: print(console.address)`

    port: the port on 127.0.0.1, or 0 for a free one. patience_s: the timeout of a request in seconds.
    Raises `OSError` if the port is taken, and `FileNotFoundError` if the bundle is missing.
    """

    def __init__(self, service: Service, *, port: int = 0, patience_s: float = PATIENCE_S) -> None:
        self.service, self.code = service, new_secret(SystemIds())
        files = {f"/{name}": file for name, file in page_files().items()}
        config = (KINDS[".json"], dumps({"sign_in": ["code"]}).encode())
        self.files: Mapping[str, tuple[str, bytes]] = {**files, "/": files[f"/{PAGE}"], f"/{CONFIG}": config}
        self.headers = {**page_headers([origin_of(service.url)], service.files), "cache-control": "no-store"}
        self._server = PageServer(port, _handler(self, patience_s))

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        """The address that signs in the browser that opens it. Only the user may see it."""
        return f"http://127.0.0.1:{self.port}/#code={self.code}"

    def __enter__(self) -> ConsoleServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def sign_in(self, body: bytes) -> bytes | None:
        """Return the JSON response to a sign-in, or None if the code is wrong."""
        code = (load_object(body) or {}).get("code")
        if not isinstance(code, str) or not hmac.compare_digest(code.encode("utf-8", "replace"), self.code.encode()):
            return None
        service = self.service
        agents: list[Any] = [{"name": name} for name in service.agents]
        found = {"url": service.url, "token": service.token, "place": service.place, "agents": agents}
        return dumps(found).encode()


def storage_of(url: str) -> str:
    """Return the origins that may have the files of a service of which only the URL is known, as a source of the content
    security policy. `url`: the URL of the service's WebSocket API. The files of a stage are in S3, in the region of its
    API. Those of a service on this machine have a server of their own on 127.0.0.1."""
    host = urlsplit(url).hostname or ""
    if host in LOOPBACK:
        return "http://127.0.0.1:*"
    found = STAGE_HOST.fullmatch(host)
    return "https://*.amazonaws.com" if found is None else f"https://*.s3.{found[1]}"


def _handler(console: ConsoleServer, patience: float) -> type[LoopbackHandler]:
    class Handler(LoopbackHandler):
        headers_of_all = console.headers
        patience_s = patience

        def do_GET(self) -> None:
            if not self._admitted():
                return
            kind, body = console.files.get(self.path.partition("?")[0], ("", b""))
            if kind:
                self.respond(200, body, kind)
            else:
                self.respond(404, b"There is nothing here.\n")

        def do_POST(self) -> None:
            if not self._admitted():
                return None
            body = self.read_body(MAX_BODY)
            if self.path != "/sign-in":
                return self.respond(404, b"There is nothing here.\n")
            found = console.sign_in(body)
            if found is None:
                return self.respond(403, b"The code is not that of this console.\n")
            return self.respond(200, found, "application/json")

        def _admitted(self) -> bool:
            """Return whether the request is allowed. Otherwise refuse it."""
            why = self.find_refusal(console.port, from_links=True)
            if why is not None:
                self.refuse(why)
            return why is None

    return Handler
