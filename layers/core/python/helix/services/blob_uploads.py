"""Uploads of files to the blob store (`services.blob_rows` has the states).

Law: the row of a blob exists before its bytes, so bytes that a dead process left behind are found and deleted. Bytes
count as stored only after they have been read and checked.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Literal

from helix.core.errors import FileMissingError, InvalidFileError
from helix.core.file_checks import check_size, describe, label
from helix.core.files import FilePart
from helix.core.media_types import BINARY, HEAD_BYTES, clean_media_type
from helix.ports.blobs import Blobs, Upload
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.state_store import ABSENT, Operation, Put, StateStore, Update, When
from helix.services.blob_rows import (
    UPLOAD_S,
    UPLOADED_S,
    BlobRow,
    blob_key,
    due_deletes,
    due_put,
    due_time,
    new_object_key,
    read_blob,
    unchanged,
)
from helix.services.committing import Again, refused, repeat_attempt
from helix.services.file_inputs import ReadFile

AT_ONCE = 8
"""The number of files that one call uploads concurrently."""


class BlobUploads:
    """The uploads of a process. A server stores bytes with `store`. A client uploads between `begin` and `finish`."""

    def __init__(self, store: StateStore, blobs: Blobs, clock: Clock, ids: Ids) -> None:
        self._store, self._blobs, self._clock, self._ids = store, blobs, clock, ids

    async def store(self, owner: str, files: Sequence[ReadFile]) -> None:
        """Store the bytes of these files, unless the owner already has them. Bytes that were deleted behind Helix's
        back are stored again."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def store(file: ReadFile) -> None:
            async with slots:
                await self._store_one(owner, file)

        wanted = {file.part.sha256: file for file in files if file.data is not None}
        await asyncio.gather(*(store(file) for file in wanted.values()))

    async def begin(
        self, owner: str, sha256: str, size: int, media_type: str, expires_s: float, name: str | None = None
    ) -> tuple[bool, Upload | None]:
        """Return whether the owner already has these bytes, and the request with which the client uploads them. There
        is no request if the bytes are already stored, or if they go through `receive`. Raises `InvalidFileError` if
        the size is not allowed."""
        check_size(None, size, label(name))
        given = BlobRow(state="uploading", key="", media_type=clean_media_type(media_type) or BINARY, size=size)
        row = await self._reserve(owner, sha256, given, expires_s + UPLOAD_S)
        if row.state != "uploading":
            return True, None
        return False, await self._blobs.upload(row.key, row.size, sha256, row.media_type, expires_s)

    async def receive(self, owner: str, sha256: str, data: bytes, name: str | None = None) -> None:
        """Store bytes for a client that called `begin`, if the blob store does not support direct uploads. Raises
        `InvalidFileError` if the bytes are not the announced ones."""
        row = await self._read(owner, sha256)
        if row is None:
            raise FileMissingError(sha256, name)
        if len(data) != row.size or (await asyncio.to_thread(hashlib.sha256, data)).hexdigest() != sha256:
            raise InvalidFileError(
                f"{label(name)} has other bytes than its upload announced ({row.size} bytes): begin the upload again"
            )
        if row.state == "uploading":
            await self._blobs.put(row.key, data, row.media_type)

    async def finish(self, owner: str, sha256: str, name: str | None = None) -> FilePart:
        """Check the bytes that a client has uploaded, and return the file, which messages may name from now on.
        Idempotent.

        The blob store has already checked their hash. Raises `FileMissingError` if they did not arrive, and
        `InvalidFileError` if they exceed a limit; `collect` then deletes them.
        """
        row = await self._read(owner, sha256)
        if row is None:
            raise FileMissingError(sha256, name)
        if row.state != "uploading":
            return row.describe(sha256, name)
        head = await self._blobs.head(row.key, HEAD_BYTES)
        if head is None:
            raise FileMissingError(sha256, name)
        if head[0] != row.size:
            raise InvalidFileError(f"{label(name)} has {head[0]} bytes, not the {row.size} that were announced")
        part = describe(head[1], size=row.size, sha256=sha256, media_type=row.media_type, name=name)
        if await self._mark_uploaded(owner, part, row):
            return part
        return await self.finish(owner, sha256, name)  # another call finished it, or it expired

    async def _store_one(self, owner: str, file: ReadFile) -> None:
        part, sha256 = file.part, file.part.sha256 or ""
        given = BlobRow(state="uploading", key="", media_type=part.media_type, size=part.size)

        async def attempt() -> Literal[Again.AGAIN] | None:
            row = await self._reserve(owner, sha256, given, UPLOAD_S)
            if row.state != "uploading" and await self._blobs.head(row.key, 0) is not None:
                return None
            await self._blobs.put(row.key, file.data or b"", part.media_type)
            if row.state != "uploading" or await self._mark_uploaded(owner, part, row):
                return None
            after = await self._read(owner, sha256)
            if after is None or after.key != row.key:  # it expired, so no row names these bytes
                await self._blobs.delete(row.key)
            return Again.AGAIN

        await repeat_attempt(f"upload#{owner}#{sha256}", attempt)

    async def _read(self, owner: str, sha256: str) -> BlobRow | None:
        (value,) = await self._store.get([blob_key(owner, sha256)])
        return read_blob(owner, sha256, value)

    async def _reserve(self, owner: str, sha256: str, given: BlobRow, lasts_s: float) -> BlobRow:
        """Return the blob's row, creating it if necessary. It is kept for at least `lasts_s`. `given` has the announced
        type and size."""

        async def attempt() -> BlobRow | Literal[Again.AGAIN]:
            now = self._clock.now()
            due, row = due_time(now, lasts_s), await self._read(owner, sha256)
            if row is None:
                key = new_object_key(owner, sha256, self._ids.new("blob"))
                made = given.model_copy(update={"key": key, "due": due, "created_at": now})
                return await self._written(
                    made, [Put(blob_key(owner, sha256), made.dump(), ABSENT), due_put(owner, sha256, made, due)]
                )
            announced = {"media_type": given.media_type, "size": given.size}
            news: dict[str, object] = {**announced} if row.state == "uploading" else {}
            if row.due is not None and row.due < due:
                news["due"] = due
            after = row.model_copy(update=news)
            if after == row:
                return row
            moved: list[Operation] = [*due_deletes(row), due_put(owner, sha256, row, due)] if "due" in news else []
            return await self._written(after, [Update(blob_key(owner, sha256), set=news, when=unchanged(row)), *moved])

        return await repeat_attempt(f"reserve#{owner}#{sha256}", attempt)

    async def _written(self, row: BlobRow, operations: list[Operation]) -> BlobRow | Literal[Again.AGAIN]:
        return row if await refused(self._store, "reserve_blob", operations) is None else Again.AGAIN

    async def _mark_uploaded(self, owner: str, part: FilePart, row: BlobRow) -> bool:
        """Record that the bytes exist. Return False if the row has changed in the meantime."""
        sha256, due = part.sha256 or "", due_time(self._clock.now(), UPLOADED_S)
        facts = {"media_type": part.media_type, "width": part.width, "height": part.height, "pages": part.pages}
        change = Update(
            blob_key(owner, sha256),
            set={**facts, "state": "marked", "size": part.size, "due": due},
            when=When(equal={"state": "uploading", "key": row.key, "due": row.due}),
        )
        moved: list[Operation] = [*due_deletes(row), due_put(owner, sha256, row, due)]
        return await refused(self._store, "mark_uploaded", [change, *moved]) is None
