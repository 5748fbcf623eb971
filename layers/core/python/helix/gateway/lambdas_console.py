"""The function that serves a stage's console page: files from the package, and the stage's `config.json`.

Law: it reads no tables and has no secrets. A browser caches the files and revalidates them each time. So after a
deployment, no user gets one release's page with another release's script.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from helix.core.errors import InvalidInputError
from helix.core.json import load_object
from helix.gateway.console_page import CONFIG, KINDS, PAGE, TLS_ONLY, connections_of, files_of, page_files, page_headers
from helix.runtime.cloud import Application

if TYPE_CHECKING:
    from helix.core.delivery import Delivery

Json = dict[str, Any]
NOT_THERE: Final = b"There is nothing here.\n"
TEXT: Final = "text/plain; charset=utf-8"
COMPRESSED: Final = 512
"""The minimum size of a file that is compressed, in bytes."""


class PageEvent(BaseModel):
    """An HTTP API's event, payload 2.0. Other fields that API Gateway sends are ignored."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    headers: dict[str, str] = Field(default_factory=dict)
    """The request's headers, by name."""
    path: dict[str, str] | None = Field(default=None, alias="pathParameters")
    """The values of the route's path parameters: `file`, if one is named. None if there are none."""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers.items() if key.lower() == name), "")


class File(NamedTuple):
    kind: str
    """The content type."""
    tag: str
    """The digest of the content, for the `etag` header."""
    body: bytes
    """The content."""
    packed: bytes | None
    """The content compressed with gzip. None for a small file."""


class Site(NamedTuple):
    files: dict[str, tuple[str, bytes]]
    """The content type and the content of each file by name, including `config.json`."""
    headers: dict[str, str]
    """The headers of every response, such as the content security policy."""


async def serve_console(app: Application, event: PageEvent, delivery: Delivery) -> Json:
    """Return a file of the page. Without a name, redirect to the page."""
    site, name = site_of(app), (event.path or {}).get("file")
    if name is None:
        return {"statusCode": 302, "headers": {**site.headers, "location": f"console/{PAGE}"}}
    if name not in site.files:
        headers = {**site.headers, "content-type": TEXT, "cache-control": "no-store"}
        return {"statusCode": 404, "headers": headers, "body": NOT_THERE.decode()}
    file = _file(*site.files[name])
    packed = file.packed if "gzip" in event.header("accept-encoding") else None
    tag = f'"{file.tag}{"" if packed is None else "-gzip"}"'
    headers = {**site.headers, "cache-control": "no-cache", "etag": tag, "vary": "accept-encoding"}
    if tag in (known.strip().removeprefix("W/") for known in event.header("if-none-match").split(",")):
        return {"statusCode": 304, "headers": headers}
    headers |= {"content-type": file.kind} | ({} if packed is None else {"content-encoding": "gzip"})
    body = base64.b64encode(file.body if packed is None else packed).decode()
    return {"statusCode": 200, "headers": headers, "body": body, "isBase64Encoded": True}


@lru_cache(maxsize=1)
def site_of(app: Application) -> Site:
    text = app.settings.console
    config = load_object(text)
    if config is None:
        raise InvalidInputError("HELIX_CONSOLE is not a JSON object: the stage has no console")
    files = {**page_files(), CONFIG: (KINDS[".json"], text.encode())}
    headers = {**page_headers(connections_of(config), files_of(config)), **TLS_ONLY}
    return Site(files, headers)


@lru_cache(maxsize=64)
def _file(kind: str, body: bytes) -> File:
    """Return the file as it is sent. It is compressed when it is first requested, because the page loads the largest files
    on demand."""
    packed = gzip.compress(body, 9, mtime=0) if len(body) >= COMPRESSED else None
    return File(kind, hashlib.sha256(body).hexdigest()[:32], body, packed)
