"""The blobs of one owner, for the deletion of a user's data (`services.blob_rows` has the rows and states).

Law: blobs that no session holds are deleted at once, in the order in which `collect` deletes them. A blob that another
user's session holds, such as a branch, stays. This also applies to a blob whose row cannot be read, because its holders
have rows of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from helix._log import get_logger
from helix.core.errors import DamagedRowError
from helix.ports.blobs import Blobs
from helix.ports.clock import Clock
from helix.ports.state_store import Damaged, Delete, Row, StateStore, Value, When
from helix.services.blob_collector import BlobCollector
from helix.services.blob_rows import (
    PARTITIONS,
    blob_key,
    blob_partition,
    due_partition,
    owner_prefix,
    parse_object_key,
    read_blob,
)
from helix.services.committing import refused
from helix.services.paging import pages

logger = get_logger("helix")
PAGE = 1000
"""The number of keys that are listed at once."""


class OwnerBlobs:
    """The blobs of `owner` (`blob_owner`)."""

    def __init__(self, store: StateStore, blobs: Blobs, clock: Clock, owner: str) -> None:
        self._store, self._blobs, self._owner = store, blobs, owner
        self._collector = BlobCollector(store, blobs, clock)

    async def count(self, sessions: Collection[str]) -> int:
        """Return the number of blobs that exist for the owner's `sessions`, or for no session. Blobs that other sessions
        hold are not counted."""
        found = {row.value["sha256"] async for row in self._due_rows() if "sha256" in row.value}
        async for key in self._keys():
            if (sha256 := await self._counted(key, sessions)) is not None:
                found.add(sha256)
        return len(found)

    async def delete(self) -> None:
        """Delete all blobs that no session holds, and bytes that no row refers to. Idempotent. Bytes that a client uploads
        later, with a request that it got before, are deleted by the next call."""
        await self._process_due("session_id")  # the release of a hold may leave a blob without a holder
        await self._delete_damaged_rows()
        await self._process_due("sha256")
        await self._delete_unnamed()

    async def _delete_unnamed(self) -> None:
        """Delete bytes that no row refers to. A blob's row is written before its bytes, and the key of the bytes is never
        reused. So if no row refers to the bytes when they are listed, none ever will. Bytes whose row cannot be read are
        kept, because sessions may hold them."""
        async for key in self._keys():
            if (found := parse_object_key(key)) is None:
                continue
            (value,) = await self._store.get([blob_key(*found)])
            try:
                row = read_blob(*found, value)
            except DamagedRowError as error:
                logger.warning("blobs: %s is kept: %s", key, error)
                continue
            if row is None or row.key != key:
                await self._blobs.delete(key)

    async def _process_due(self, kind: str) -> None:
        for row in [row async for row in self._due_rows() if kind in row.value]:
            await self._collector.process(row)

    async def _delete_damaged_rows(self) -> None:
        """Delete the rows that cannot be read, of blobs that no session holds. No row then refers to their bytes."""
        hashes = {row.value["sha256"] async for row in self._due_rows() if "sha256" in row.value}
        hashes |= {parsed[1] async for key in self._keys() if (parsed := parse_object_key(key)) is not None}
        for sha256 in hashes:
            key = blob_key(self._owner, sha256)
            (value,) = await self._store.get([key])
            try:
                read_blob(self._owner, sha256, value)
            except DamagedRowError:
                if not await self._held_by_others(sha256, ()):
                    await refused(self._store, "delete_damaged_blob", [Delete(key, _same_damage(value))])

    async def _due_rows(self) -> AsyncIterator[Row]:
        """Yield the due rows of the owner's blobs and holds, whenever they are due."""
        for number in range(PARTITIONS):
            async for rows in pages(self._store, due_partition(number)):
                for row in rows:
                    if not isinstance(row.value, Damaged) and row.value.get("owner") == self._owner:
                        yield row

    async def _keys(self) -> AsyncIterator[str]:
        keys = await self._blobs.list(owner_prefix(self._owner), limit=PAGE)
        while keys:
            for key in keys:
                yield key
            keys = await self._blobs.list(owner_prefix(self._owner), keys[-1], PAGE)

    async def _counted(self, key: str, sessions: Collection[str]) -> str | None:
        """Return the hash of the blob with these bytes. None if sessions of others hold it."""
        if (parsed := parse_object_key(key)) is None:
            return None
        owner, sha256 = parsed
        (value,) = await self._store.get([blob_key(owner, sha256)])
        try:
            row = read_blob(owner, sha256, value)
        except DamagedRowError:
            return None if await self._held_by_others(sha256, sessions) else sha256
        if row is None or row.key != key or row.state != "live":
            return sha256
        return None if await self._held_by_others(sha256, sessions) else sha256

    async def _held_by_others(self, sha256: str, sessions: Collection[str]) -> bool:
        """Return whether sessions other than `sessions` hold the blob."""
        async for holders in pages(self._store, blob_partition(self._owner, sha256), start="h#", end="h$"):
            if any(holder.key.sort[2:] not in sessions for holder in holders):
                return True
        return False


def _same_damage(value: Value | None) -> When:
    """Return the condition that a damaged row was not replaced since it was read. A caller may have deleted it, and an
    upload may have written a new row."""
    if value is None or isinstance(value, Damaged):
        return When()
    fields = {name: value.get(name) for name in ("state", "key", "size", "created_at")}
    return When(equal={name: field for name, field in fields.items() if not isinstance(field, dict | list)})
