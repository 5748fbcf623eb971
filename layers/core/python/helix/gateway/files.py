"""The requests that upload and download files.

Law: a caller reaches only the files of their own sessions, and learns only of their own uploads whether the service
already has some bytes. The bytes go to S3, or to the loopback server's `LoopbackFiles`, never through a request.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from helix.core.errors import InvalidFileError, InvalidInputError
from helix.core.file_checks import clean_name
from helix.core.file_requests import FinishUpload, GetFile, Upload
from helix.core.files import FilePart
from helix.core.json import JsonObject
from helix.core.media_types import BINARY
from helix.gateway.backend import Backend
from helix.gateway.connections import Connection
from helix.ports.blobs import ADDRESS_S
from helix.runtime.message_files import owner_of
from helix.services.blob_rows import blob_owner
from helix.services.session_files import SessionFiles

if TYPE_CHECKING:
    from helix.gateway.loopback_files import LoopbackFiles


async def upload(backend: Backend, caller: Connection, request: Upload) -> JsonObject:
    files, sha256 = _files(backend), request.sha256
    owner = await _owner(backend, caller, request.session_id)
    stored, target = await files.uploads.begin(
        owner, sha256, request.size, request.media_type or BINARY, ADDRESS_S, request.name
    )
    if stored:
        return {"stored": True, "upload": None}
    if target is None:
        take = partial(files.uploads.receive, owner, sha256, name=request.name)
        target = _served(backend).receive_at(take, request.size, ADDRESS_S)
    return {"stored": False, "upload": {**asdict(target), "headers": dict(target.headers)}}


async def finish_upload(backend: Backend, caller: Connection, request: FinishUpload) -> JsonObject:
    owner = await _owner(backend, caller, request.session_id)
    part = await _files(backend).uploads.finish(owner, request.sha256, clean_name(request.name))
    return {"file": part.model_dump(mode="json")}


async def get_file(backend: Backend, caller: Connection, request: GetFile) -> JsonObject:
    files = _files(backend)
    row = await backend.get_owned(caller.principal, request.session_id)
    part = FilePart(kind="file", media_type=BINARY, sha256=request.sha256, name=clean_name(request.name))
    held = await files.held(row.session_id)
    url = await held.download(part, ADDRESS_S)
    if url is None:
        url = _served(backend).offer_at(partial(held.read, part), part.name, ADDRESS_S)
    return {"url": url, "expires_at": backend.clock.now() + ADDRESS_S}


def _files(backend: Backend) -> SessionFiles:
    found = backend.executor.engine.files
    if found is None:
        raise InvalidFileError("this service takes no files: it has no place to store them")
    return found


def _served(backend: Backend) -> LoopbackFiles:
    if backend.served_files is None:
        raise InvalidFileError("this service cannot receive or send the bytes of files: its store is not in S3")
    return backend.served_files


async def _owner(backend: Backend, caller: Connection, session_id: str | None) -> str:
    """Return the owner of a file that the caller uploads for a session, which may not exist yet."""
    if session_id is None:
        if caller.principal is None:
            raise InvalidInputError(
                "session_id is missing: this connection has no user, so its files belong to the session whose message "
                "names them"
            )
        return blob_owner(caller.principal, "")
    row = await backend.find(caller.principal, session_id)
    if row is not None:
        return blob_owner(*await owner_of(backend.executor.engine, row))
    backend.check_prefix(caller.principal, session_id)
    await backend.check_free(session_id)
    return blob_owner(caller.principal, session_id)
