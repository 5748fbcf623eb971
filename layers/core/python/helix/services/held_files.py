"""The files of a session for a model call, read from the blobs that the session holds.

Law: a file is read only through a hold of the session, so knowing the hash of another user's file gives no access.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.core.errors import BYTES_DELETED, NOT_HELD, FileMissingError
from helix.core.files import FilePart
from helix.ports.blobs import Blobs
from helix.services.blob_holders import HeldBlob


class HeldFiles:
    """An implementation of `helix.ports.model.Files`. `held`: the blobs that the session holds, as returned by
    `BlobHolders.held`."""

    def __init__(self, blobs: Blobs, held: Mapping[str, HeldBlob]) -> None:
        self._blobs, self._held = blobs, held

    def __contains__(self, file: FilePart) -> bool:
        """Whether a model call can use the file: the session holds it, or it is at a URL."""
        return file.url is not None or file.sha256 in self._held

    async def read(self, file: FilePart) -> bytes:
        """Return the bytes of a stored file. Raises `FileMissingError` if the session does not hold it, or if its bytes
        were deleted."""
        data = await self._blobs.get(self._key(file))
        if data is None:
            raise FileMissingError(file.sha256 or "", file.name, BYTES_DELETED)
        return data

    def location(self, file: FilePart) -> str | None:
        """Return the S3 address of a stored file. None if the bytes are not in S3."""
        return self._blobs.location(self._key(file))

    async def download(self, file: FilePart, expires_s: float) -> str | None:
        """Return a URL from which a client reads the file. None: the bytes go through `read`."""
        return await self._blobs.download(self._key(file), file.name, expires_s)

    def _key(self, file: FilePart) -> str:
        blob = self._held.get(file.sha256 or "")
        if blob is None:
            raise FileMissingError(file.sha256 or file.url or "", file.name, NOT_HELD)
        return blob.key
