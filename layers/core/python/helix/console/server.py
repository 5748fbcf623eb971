"""The server of the console's page: a few files, and the sign-in.

    GET  /               the page, and the files that it is made of (`static/`, built from `clients/console`)
    GET  /config.json    says that one signs in by the code
    POST /sign-in        {"code"} -> {"url", "token", "place", "agents"}: what the page connects to, and as whom

The page itself speaks the WebSocket protocol with the service; nothing of a session goes through this server.

Law: it listens on 127.0.0.1 alone. A request for another host or from another origin's page is refused, whatever it asks; a
link on any page may lead here.
The token is given for the code, which is in the printed address behind the `#`: browsers do not send that part, so it is in
no log. Who does not know the code, another process of this machine included, gets nothing but the page. The page loads
nothing from elsewhere, runs no inline script, and connects to the service alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from helix.core.json import dumps, load_object
from helix.gateway.console_page import CONFIG, KINDS, PAGE, origin_of, page_files, page_headers
from helix.gateway.loopback_pages import PATIENCE_S, LoopbackHandler, PageServer
from helix.runtime.system import SystemIds

MAX_BODY: Final = 4096
RANDOM: Final = 16
"""Characters of an id of `SystemIds` that are random, of 5 bits each."""


@dataclass(frozen=True, slots=True)
class Service:
    """What the page connects to. url: of the WebSocket API. token: None where the service takes anybody. place: in words,
    for people. agents: names of those that can be run; the page asks the service too, where it can say."""

    url: str
    token: str | None
    place: str
    agents: Sequence[str] = ()


def random_code() -> str:
    """160 random bits."""
    ids = SystemIds()
    return "".join(ids.new("code")[-RANDOM:] for _ in range(2))


class ConsoleServer:
    """`with ConsoleServer(service) as console: print(console.address)`. port: 0 for a free one. patience_s: how long one
    request may take. Raises `OSError` where the port is taken, and `FileNotFoundError` where the bundle is not there."""

    def __init__(self, service: Service, *, port: int = 0, patience_s: float = PATIENCE_S) -> None:
        self.service, self.code = service, random_code()
        files = {f"/{name}": file for name, file in page_files().items()}
        config = (KINDS[".json"], dumps({"sign_in": ["code"]}).encode())
        self.files: Mapping[str, tuple[str, bytes]] = {**files, "/": files[f"/{PAGE}"], f"/{CONFIG}": config}
        self.headers = {**page_headers([origin_of(service.url)]), "cache-control": "no-store"}
        self._server = PageServer(port, _handler(self, patience_s))

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        """It signs the browser in that opens it: for its user alone."""
        return f"http://127.0.0.1:{self.port}/#code={self.code}"

    def __enter__(self) -> ConsoleServer:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def sign_in(self, body: bytes) -> bytes | None:
        """None: the code is wrong."""
        code = (load_object(body) or {}).get("code")
        if not isinstance(code, str) or not hmac.compare_digest(code.encode("utf-8", "replace"), self.code.encode()):
            return None
        service = self.service
        agents: list[Any] = [{"name": name} for name in service.agents]
        found = {"url": service.url, "token": service.token, "place": service.place, "agents": agents}
        return dumps(found).encode()


def _handler(console: ConsoleServer, patience: float) -> type[LoopbackHandler]:
    class Handler(LoopbackHandler):
        headers_of_all = console.headers
        patience_s = patience

        def do_GET(self) -> None:
            if not self._admitted():
                return
            kind, body = console.files.get(self.path.partition("?")[0], ("", b""))
            if kind:
                self.answer(200, body, kind)
            else:
                self.answer(404, b"There is nothing here.\n")

        def do_POST(self) -> None:
            if not self._admitted():
                return None
            body = self.read_body(MAX_BODY)
            if self.path != "/sign-in":
                return self.answer(404, b"There is nothing here.\n")
            found = console.sign_in(body)
            if found is None:
                return self.answer(403, b"The code is not that of this console.\n")
            return self.answer(200, found, "application/json")

        def _admitted(self) -> bool:
            """Whether the request may come in; else it is answered."""
            why = self.foreign(console.port, from_links=True)
            if why is not None:
                self.refuse(why)
            return why is None

    return Handler
