"""The sessions that hold blobs (`services.blob_rows` has the rows and states).

Law: a session's hold is written before the message that names the file. It is written once per blob and session, so
later steps write nothing for files that the session already holds.

A message that is then refused, for example because the session is running, leaves its holds until the session is
deleted, so that its repetition uploads nothing. They are not released earlier: another message or a tool's result may
name the same file by then, and only a read of the whole history could tell.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from helix.core.errors import FileMissingError
from helix.core.files import FilePart
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.state_store import ABSENT, Check, Operation, Put, StateStore, Update, Value, When
from helix.services.blob_rows import (
    CONFIRM_S,
    HELD_END,
    HELD_START,
    BlobRow,
    blob_key,
    due_deletes,
    due_key,
    due_time,
    held_key,
    holder_key,
    parse_held,
    read_blob,
    unchanged,
)
from helix.services.blob_uploads import BlobUploads
from helix.services.committing import Again, refused, repeat_attempt
from helix.services.file_inputs import ReadFile
from helix.services.paging import pages

BATCH = 20
"""The number of blobs for which one transaction writes holds. Each needs up to four operations."""
UPLOADS = 5
"""The maximum number of times that `store` uploads its files again because they were deleted before it held them."""


@dataclass(frozen=True, slots=True)
class HeldBlob:
    """A blob that a session holds."""

    owner: str
    """The owner of the blob (`blob_owner`). In a branch, it may be the owner of the session from which the branch was
    copied."""
    key: str
    """The key of the bytes in the blob store."""


@dataclass(frozen=True, slots=True)
class HeldParts:
    """The files of a message, which a session holds."""

    parts: list[FilePart]
    """The files in the form that the message contains, in order."""
    owners: dict[str, str]
    """The owner of each stored file (`HeldBlob.owner`), by hash. It is not always the session's own owner."""

    def checks(self, session_id: str) -> list[Check]:
        """Return the conditions that the session still holds these files, one for each hash. The transaction that writes
        the message includes them, because `collect` releases the files of a session if its first message does not
        arrive within an hour."""
        return [Check(held_key(session_id, sha256, owner), When()) for sha256, owner in self.owners.items()]


class BlobHolders:
    """The holds of sessions on blobs."""

    def __init__(self, store: StateStore, uploads: BlobUploads, clock: Clock, ids: Ids) -> None:
        self._store, self._uploads, self._clock, self._ids = store, uploads, clock, ids

    async def store(self, owner: str, session_id: str, files: Sequence[ReadFile]) -> HeldParts:
        """Store the files of a message, and hold them for the session. Raises `FileMissingError` for a file without
        bytes that neither the owner nor the session has."""
        ours = {file.part.sha256 for file in files if file.data is not None}
        left = UPLOADS
        while True:
            await self._uploads.store(owner, files)
            left -= 1
            try:
                return await self.hold(owner, session_id, [file.part for file in files])
            except FileMissingError as error:
                if not left or error.address not in ours:
                    raise

    async def hold(self, owner: str, session_id: str, files: Sequence[FilePart]) -> HeldParts:
        """Hold the files for the session before a message names them, and return them with the metadata of their blobs.
        Files at a URL are returned unchanged. Idempotent; a repeat writes nothing.

        Raises `FileMissingError` for a file that neither the owner nor the session has. Files that were already held at
        that point stay held until the session is deleted.
        """
        wanted = {file.sha256: file for file in files if file.sha256 is not None}
        found: dict[str, _Found] = {}
        ours = list(wanted.values())
        for start in range(0, len(ours), BATCH):
            found |= await self._hold_batch(owner, session_id, ours[start : start + BATCH])
        parts = [
            file if file.sha256 is None else found[file.sha256].row.describe(file.sha256, file.name, file.after_text)
            for file in files
        ]
        return HeldParts(parts, {sha256: found[sha256].owner for sha256 in wanted})

    async def held(self, session_id: str) -> dict[str, HeldBlob]:
        """Return the blobs that the session holds, by hash."""
        found = {}
        async for rows in pages(self._store, session_id, table="sessions", start=HELD_START, end=HELD_END):
            for row in rows:
                sha256, owner = parse_held(row.key.sort)
                found[sha256] = HeldBlob(owner, row.value["key"])
        return found

    async def share(self, source_id: str, target_id: str, hashes: Collection[str] | None = None) -> None:
        """Hold one session's blobs for another session, such as a branch, before that session's messages are written.
        `hashes`: the blobs to hold; None for all. Idempotent. The source must hold the blobs until this returns."""
        for sha256, blob in (await self.held(source_id)).items():
            if hashes is None or sha256 in hashes:
                part = FilePart(kind="file", media_type="*/*", sha256=sha256)
                await self._hold_batch(blob.owner, target_id, [part])

    async def _hold_batch(self, owner: str, session_id: str, files: Sequence[FilePart]) -> dict[str, _Found]:
        async def attempt() -> dict[str, _Found] | Literal[Again.AGAIN]:
            found, operations, new = dict[str, _Found](), list[Operation](), list[str]()
            for file, values in zip(files, await self._read(owner, session_id, files), strict=True):
                sha256, row = file.sha256 or "", read_blob(owner, file.sha256 or "", values[0])
                if row is None or row.state == "uploading":
                    found[sha256] = await self._held_from_another(session_id, file)
                    continue
                found[sha256] = _Found(owner, row)
                if more := _hold_operations(owner, session_id, sha256, row, values):
                    operations += more
                    new.append(sha256)
            if not operations:
                return found
            operations.append(self._confirmation(owner, session_id, new))
            return found if await refused(self._store, "hold_blobs", operations) is None else Again.AGAIN

        return await repeat_attempt(f"hold#{session_id}", attempt)

    async def _read(
        self, owner: str, session_id: str, files: Sequence[FilePart]
    ) -> Sequence[tuple[Value | None, Value | None, Value | None]]:
        """Return the values of each blob's row, its row for this holder, and the session's row for the hold."""
        keys = [
            key
            for file in files
            for key in (
                blob_key(owner, file.sha256 or ""),
                holder_key(owner, file.sha256 or "", session_id),
                held_key(session_id, file.sha256 or "", owner),
            )
        ]
        values = await self._store.get(keys)
        return list(zip(values[::3], values[1::3], values[2::3], strict=True))

    async def _held_from_another(self, session_id: str, file: FilePart) -> _Found:
        """Return the blob and its owner if the session holds another owner's blob, as a branch does. Raises
        `FileMissingError`."""
        start = f"{HELD_START}{file.sha256}#"
        for held in await self._store.query("sessions", session_id, start=start, end=f"{start}~", limit=1):
            sha256, owner = parse_held(held.key.sort)
            (value,) = await self._store.get([blob_key(owner, sha256)])
            row = read_blob(owner, sha256, value)
            if row is not None and row.state == "live":
                return _Found(owner, row)
        raise FileMissingError(file.sha256 or "", file.name)

    def _confirmation(self, owner: str, session_id: str, hashes: list[str]) -> Put:
        due = due_time(self._clock.now(), CONFIRM_S)
        value = {"session_id": session_id, "owner": owner, "hashes": hashes}
        return Put(due_key(due, f"hold#{self._ids.new('hold')}"), value)


class _Found(NamedTuple):
    """A blob that the session holds, under its owner."""

    owner: str
    """The owner of the blob."""
    row: BlobRow
    """The blob's row."""


def _hold_operations(
    owner: str,
    session_id: str,
    sha256: str,
    row: BlobRow,
    values: tuple[Value | None, Value | None, Value | None],
) -> list[Operation]:
    """Return the operations that make the session a holder of the blob. Empty if it already is one."""
    _, holder, held = values
    if holder is not None and held is not None and row.state == "live":
        return []
    key = blob_key(owner, sha256)
    operations: list[Operation] = [Put(held_key(session_id, sha256, owner), {"kind": "held_blob", "key": row.key})]
    if holder is not None:  # the session's own row of the hold was lost
        return [Check(key, unchanged(row)), *operations]
    operations.append(Put(holder_key(owner, sha256, session_id), {"session_id": session_id}, ABSENT))
    if row.state == "live":
        live = When(equal={"state": "live", "key": row.key})
        return [Update(key, add={"holders": 1}, when=live), *operations]
    change = Update(key, set={"state": "live", "due": None}, add={"holders": 1}, when=unchanged(row))
    return [change, *operations, *due_deletes(row)]
