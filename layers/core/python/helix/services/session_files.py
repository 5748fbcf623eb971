"""The files of sessions, which messages and results name and model calls read.

Law: the bytes are written first, then the session's hold, and then the row that names the file. `collect` deletes
everything that a crash between two of these leaves behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from helix.core.messages import AnyMessage, files_of
from helix.core.views import without_files
from helix.ports.blobs import Blobs
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.model import Files, NoFiles
from helix.ports.state_store import StateStore
from helix.services.blob_collector import BlobCollector
from helix.services.blob_holders import BlobHolders, HeldParts
from helix.services.blob_rows import blob_owner
from helix.services.blob_uploads import BlobUploads
from helix.services.file_inputs import ReadFile
from helix.services.held_files import HeldFiles

NO_FILES = 'this store has no place for files: give the executor `blobs`, such as FolderBlobs("files")'


class SessionFiles:
    """A component that stores the files of sessions in a blob store, and reads them."""

    def __init__(self, store: StateStore, blobs: Blobs, clock: Clock, ids: Ids) -> None:
        self._blobs = blobs
        self.uploads = BlobUploads(store, blobs, clock, ids)
        self.holders = BlobHolders(store, self.uploads, clock, ids)
        self.collector = BlobCollector(store, blobs, clock)

    async def take(self, user_id: str | None, root_id: str, session_id: str, files: Sequence[ReadFile]) -> HeldParts:
        """Store the files, hold them for the session, and return them in the form that rows contain. `root_id`: the
        root session, which owns the files if it has no user. Raises `FileMissingError` for a file without bytes that
        neither the owner nor the session has."""
        return await self.holders.store(blob_owner(user_id, root_id), session_id, files)

    async def show(self, session_id: str, messages: Sequence[AnyMessage]) -> tuple[Sequence[AnyMessage], Files]:
        """Return the messages of a model call and the source of their files. A file that the session does not hold, for
        example after an import without files, is replaced by a note. Nothing is read if no file is stored."""
        if all(file.sha256 is None for file in files_of(messages)):
            return messages, NoFiles()
        held = await self.held(session_id)
        shown = [without_files(message, "not available", lambda file: file not in held) for message in messages]
        return shown, held

    async def held(self, session_id: str) -> HeldFiles:
        """Return the files that the session holds now."""
        return HeldFiles(self._blobs, await self.holders.held(session_id))
