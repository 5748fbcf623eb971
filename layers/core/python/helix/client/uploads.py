"""Sends the files of a message to the service, and reads files from it.

Law: a file is uploaded before the message that names it. An upload may be repeated at any point, because the service names
the bytes by their hash.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final

from helix.client.link import fields_of
from helix.core.errors import BYTES_DELETED, FileMissingError, OperatorError
from helix.core.file_checks import label
from helix.core.files import FilePart
from helix.core.json import JsonObject
from helix.services.file_inputs import ReadFile

Ask = Callable[[str, JsonObject], Awaitable[JsonObject]]
AT_ONCE: Final = 4
"""The number of files that a client sends at once."""
TRIES: Final = 4
"""The number of times that a client sends a file."""
PAUSE_S: Final = 0.25
"""The pause after the first failed attempt to send a file, in seconds. It doubles with each further attempt."""
RETRIED: Final = frozenset({400, 403, 408, 409, 429})
"""The refusals of the storage after which a new attempt may succeed, besides those from 500 on. The request may have
expired (400 or 403), or have been damaged on its way (400)."""
SENT_S: Final = 300.0
"""The timeout of one attempt to send or read a file, in seconds without progress."""


class TransferError(OperatorError):
    """The bytes of a file could not be sent or read. The message says which file, and what the storage answered."""

    code = "transfer_failed"

    def __init__(self, problem: str, status: int | None = None) -> None:
        self.status = status
        """The HTTP status of the answer. None if there was no answer."""
        super().__init__(problem)


async def upload_files(ask: Ask, files: Sequence[ReadFile], session_id: str | None) -> list[FilePart]:
    """Upload the files that have bytes, each content once, and return the files as a message names them. Raises
    `InvalidFileError` for a file that the service refuses, and `TransferError`. The first error stops the other
    uploads."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def send(file: ReadFile) -> FilePart:
        async with turns:
            return await _upload(ask, file, session_id)

    unique = {file.part.sha256: file for file in files if file.data is not None}
    sending = [asyncio.ensure_future(send(file)) for file in unique.values()]
    try:
        found = dict(zip(unique, await asyncio.gather(*sending), strict=True))
    finally:
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
    return [
        file.part
        if file.data is None
        else found[file.part.sha256].model_copy(update={"name": file.part.name, "after_text": file.part.after_text})
        for file in files
    ]


async def _upload(ask: Ask, file: ReadFile, session_id: str | None) -> FilePart:
    part = file.part
    about: JsonObject = {"sha256": part.sha256, "name": part.name, "session_id": session_id}
    attempt = 1
    while True:
        begun = await ask("upload", {**about, "size": part.size, "media_type": part.media_type})
        try:
            if begun["upload"] is not None:
                await asyncio.to_thread(_send, fields_of(begun["upload"]), file.data or b"", label(part.name))
            return FilePart.model_validate((await ask("finish_upload", about))["file"])
        except (TransferError, FileMissingError) as error:
            if attempt == TRIES or not _may_succeed(error):
                raise
        await asyncio.sleep(PAUSE_S * 2 ** (attempt - 1))
        attempt += 1


def _may_succeed(error: TransferError | FileMissingError) -> bool:
    """Return whether a new attempt may succeed after this error."""
    if isinstance(error, FileMissingError) or error.status is None:  # its bytes or the response were lost
        return True
    return error.status in RETRIED or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _send(target: dict[str, Any], data: bytes, what: str) -> None:
    request = urllib.request.Request(
        str(target["url"]), data=data, headers=fields_of(target["headers"]), method=str(target["method"])
    )
    _open(request, f"{what} could not be uploaded")


async def download(url: str, file: FilePart) -> bytes:
    """Return the bytes at an address that `get_file` returned. Raises `FileMissingError` if they were deleted, and
    `TransferError`."""
    try:
        return await asyncio.to_thread(
            _open, urllib.request.Request(url), f"{label(file.name)} could not be downloaded"
        )
    except TransferError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise FileMissingError(file.sha256 or "", file.name, BYTES_DELETED) from error
        raise


def _open(request: urllib.request.Request, problem: str) -> bytes:
    try:
        with urllib.request.urlopen(request, timeout=SENT_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        said = error.read(300).decode(errors="replace").strip()
        raise TransferError(f"{problem}: HTTP {error.code} {said}", error.code) from error
    except OSError as error:
        raise TransferError(f"{problem}: {error}") from error
