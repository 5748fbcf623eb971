"""The files of sessions: the messages and results that name them, and the model calls that read them.

Law: the bytes come first, then the session's hold, and then the row that names the file. A crash between two of these
leaves nothing that `collect` does not delete.
"""

from __future__ import annotations

from collections.abc import Sequence

from helix.core.files import FilePart
from helix.core.session_row import SessionRow
from helix.ports.blobs import Blobs
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.model import Files, NoFiles
from helix.ports.state_store import Check, StateStore
from helix.services.blob_collector import BlobCollector
from helix.services.blob_holders import BlobHolders
from helix.services.blob_rows import blob_owner
from helix.services.blob_uploads import BlobUploads
from helix.services.file_inputs import ReadFile
from helix.services.held_files import HeldFiles

NO_FILES = 'this store has no place for files: give the executor `blobs`, such as FolderBlobs("files")'


class SessionFiles:
    """Stores the files of sessions in a store of blobs, and reads them."""

    def __init__(self, store: StateStore, blobs: Blobs, clock: Clock, ids: Ids) -> None:
        self._blobs = blobs
        self.uploads = BlobUploads(store, blobs, clock, ids)
        self.holders = BlobHolders(store, self.uploads, clock, ids)
        self.collector = BlobCollector(store, blobs, clock)

    async def take(
        self, user_id: str | None, root_id: str, session_id: str, files: Sequence[ReadFile]
    ) -> list[FilePart]:
        """Store the files and hold them for the session, and return them as a row names them. `root_id`: the root session,
        which owns the files if it has no user. Raises `FileMissingError` for a file without bytes that the owner does not
        have."""
        return await self.holders.store(blob_owner(user_id, root_id), session_id, files) if files else []

    def checks(self, user_id: str | None, root_id: str, session_id: str, files: Sequence[FilePart]) -> list[Check]:
        """Return the conditions of the transaction that writes a row with these files."""
        return self.holders.checks(blob_owner(user_id, root_id), session_id, files)

    async def of(self, session: SessionRow, files: Sequence[FilePart]) -> Files:
        """Return the source of these files for a model call of the session. Nothing is read if no file is stored."""
        if all(file.sha256 is None for file in files):
            return NoFiles()
        return HeldFiles(self._blobs, await self.holders.held(session.session_id))
