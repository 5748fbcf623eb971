"""Downloads of the files that a session holds.

Law: the address of a file contains its session, whose owner is checked first. A hash by itself gives access to nothing.
A browser saves the bytes and never runs them on the app's origin.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import RedirectResponse, Response

from helix.core.errors import NOT_HELD, FileMissingError
from helix.core.files import FilePart
from helix.core.media_types import BINARY, sniff
from helix.http.message_parts import is_hash
from helix.ports.blobs import ADDRESS_S, attachment
from helix.runtime.executor import Executor

_SAFE: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, no-store",
}


async def file_response(executor: Executor, session_id: str, sha256: str, name: str | None) -> Response:
    """Return the bytes of a file as an attachment called `name`, or a redirect to S3. Raises `FileMissingError` if the
    session does not hold the file."""
    files = executor.engine.files
    if files is None or not is_hash(sha256):
        raise FileMissingError(sha256, name, NOT_HELD)
    part = FilePart(kind="file", media_type=BINARY, sha256=sha256, name=name)
    held = await files.held(session_id)
    url = await held.download(part, ADDRESS_S)
    if url is not None:
        return RedirectResponse(url, 307, _SAFE)
    data = await held.read(part)
    media_type = sniff(data, len(data), name=name).media_type
    return Response(data, 200, {**_SAFE, "Content-Disposition": attachment(name)}, media_type)
