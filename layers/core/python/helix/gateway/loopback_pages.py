"""The part of a small HTTP server on loopback that all have: whom it refuses, and how it answers."""

from __future__ import annotations

from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler

from helix.gateway.origins import hosts_of, why_foreign


class LoopbackHandler(BaseHTTPRequestHandler):
    """`headers_of_all` go with each answer."""

    headers_of_all: Mapping[str, str] = {}

    def foreign(self, port: int, *, from_links: bool = False) -> str | None:
        """Why the request may not come in. from_links: a link of another site that a person followed may."""
        headers = [(name.lower(), value) for name, value in self.headers.items()]
        if from_links and self.command == "GET" and self.headers.get("sec-fetch-mode") == "navigate":
            headers = [pair for pair in headers if pair[0] != "sec-fetch-site"]
        return why_foreign(headers, hosts_of(port))

    def refuse(self, why: str) -> None:
        self.close_connection = True  # its body is not read
        self.answer(403, f"This request is refused: {why}.\n".encode())

    def answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        for name, value in self.headers_of_all.items():
            self.send_header(name, value)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return
