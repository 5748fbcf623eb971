"""Deletes the blobs that no session holds (`services.blob_rows` has the rows and states).

Law: the due row of a blob is deleted after its bytes, so the next call finds everything that a dead process left
behind.
"""

from __future__ import annotations

import math

from helix._log import get_logger
from helix.core.errors import ConditionFailedError, StoreError
from helix.core.row_keys import SESSION
from helix.ports.blobs import Blobs
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, Put, Row, Scalar, StateStore, Value, When
from helix.services.blob_releases import release_blob
from helix.services.blob_rows import (
    PARTITIONS,
    blob_key,
    due_partition,
    held_key,
    read_blob,
    unchanged,
)
from helix.services.committing import refused
from helix.services.paging import pages

logger = get_logger("helix")
DELETING = "deleting"
"""The status of a session that is being deleted (`core.status`)."""


class BlobCollector:
    """A collector that deletes blobs without holders. Any number of collectors may work at once."""

    def __init__(self, store: StateStore, blobs: Blobs, clock: Clock) -> None:
        self._store, self._blobs, self._clock = store, blobs, clock

    async def collect(self, until: float = math.inf) -> int:
        """Delete all blobs that are due: those without a holder for an hour, and uploads that no message used. Release
        the holds of sessions that do not exist. Return the number of deleted blobs. Stops at the time `until` (Unix
        seconds); the next call continues."""
        return sum([await self.collect_partition(number, until) for number in range(PARTITIONS)])

    async def collect_partition(self, number: int, until: float = math.inf) -> int:
        """Run `collect` on one partition of the due rows. `number` may be any integer. A row that cannot be processed is
        logged and does not delay the others."""
        count, now = 0, self._clock.now()
        async for rows in pages(self._store, due_partition(number % PARTITIONS), end=f"{now:015.3f}"):
            for row in rows:
                if self._clock.now() >= until:
                    return count
                count += await self.process(row)
        return count

    async def process(self, row: Row) -> int:
        """Process a due row, whether or not its time has come. Return the number of deleted blobs. A failure is logged,
        and the row stays for the next call."""
        try:
            if "session_id" in row.value:
                await self._confirm(row.key, row.value)
                return 0
            return await self._delete(row.key, row.value)
        except StoreError as error:
            logger.warning("blobs: %s is left for the next sweep: %s", row.key.sort, error)
            return 0

    async def _confirm(self, key: Key, value: Value) -> None:
        """Release the holds of a session that does not exist or is being deleted. The deletion may have listed the
        session's holds before these were written."""
        session = Key("sessions", value["session_id"], SESSION)
        (found,) = await self._store.get([session])
        if found is not None and found.get("status") != DELETING:
            await self._store.transact("confirm_hold", [Delete(key)])
            return
        same: dict[str, Scalar] = {"status": DELETING, "version": (found or {}).get("version")}
        guard = Check(session, ABSENT if found is None else When(equal=same))
        try:
            for sha256 in value["hashes"]:
                hold = held_key(value["session_id"], sha256, value["owner"])
                await release_blob(self._store, self._clock, hold, [guard])
        except ConditionFailedError:
            return  # the session was created or deleted in the meantime: the next call checks again
        await self._store.transact("confirm_hold", [Delete(key)])

    async def _delete(self, key: Key, value: Value) -> int:
        owner, sha256, name = value["owner"], value["sha256"], value["key"]
        (found,) = await self._store.get([blob_key(owner, sha256)])
        row = read_blob(owner, sha256, found)
        if row is not None and row.key == name:
            if row.due is None or f"{row.due:015.3f}" != key.sort.partition("#")[0]:
                await self._store.transact("drop_due", [Delete(key)])  # the blob expires at another time, or is live
                return 0
            take: list[Operation] = [
                Delete(blob_key(owner, sha256), unchanged(row)),
                Put(key, {**value, "deleting": True}),
            ]
            if await refused(self._store, "begin_delete_blob", take) is not None:
                return 0  # a session holds it again
        await self._blobs.delete(name)
        await self._store.transact("finish_delete_blob", [Delete(key)])
        return 1
