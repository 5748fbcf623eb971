"""A page's requests about files, and its uploads: recorded, refused or held."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.support.browser import Watched


class PageFiles:
    """The requests of a browser's pages that are about files. Enter it before a page is opened."""

    def __init__(self, browser: Watched) -> None:
        self.browser = browser
        self.requests: list[dict[str, Any]] = []
        """The requests that the service received."""
        self.refused = ""
        """The message with which runs with files are refused. Empty: the service answers them."""
        self.statuses: list[int] = []
        """The statuses with which the next uploads are refused."""
        self.held: asyncio.Event | None = None
        """Uploads wait until it is set."""
        self.uploads: list[int] = []
        """The numbers of bytes that were sent to the store."""

    async def start(self) -> None:
        await self.browser.context.route_web_socket(lambda url: url.startswith("ws://127"), self._socket)
        await self.browser.context.route(lambda url: url.startswith("http://127") and "#" not in url, self._store)

    def of(self, action: str) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["action"] == action]

    def _socket(self, page: Any) -> None:
        server = page.connect_to_server()

        def to_server(text: str) -> None:
            request = json.loads(text)
            if request.get("files") and self.refused:
                error = {"code": "invalid_input", "message": self.refused, "recoverable": False, "details": {}}
                page.send(json.dumps({"v": 1, "id": request["id"], "type": "error", "error": error}))
                return
            if request.get("files") or "sha256" in request:
                self.requests.append(request)
            server.send(text)

        page.on_message(to_server)

    async def _store(self, route: Any) -> None:
        if route.request.method != "PUT":
            await route.continue_()
            return
        self.uploads.append(len(route.request.post_data_buffer or b""))
        if self.held is not None:
            await self.held.wait()
        if self.statuses:
            allowed = {"access-control-allow-origin": "*"}
            body = "<Error><Code>AccessDenied</Code></Error>"
            await route.fulfill(status=self.statuses.pop(0), headers=allowed, body=body)
            return
        await route.continue_()
