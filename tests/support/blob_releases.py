"""Releases all files of a session at once, without the work around the deletion of a session."""

from __future__ import annotations

from collections.abc import Sequence

from helix.ports.clock import Clock
from helix.ports.state_store import Operation, StateStore
from helix.services.blob_releases import release_blob
from helix.services.blob_rows import HELD_END, HELD_START
from helix.services.paging import pages


async def release_blobs(store: StateStore, clock: Clock, session_id: str, guard: Sequence[Operation] = ()) -> int:
    """Release all blobs that the session holds, and return how many. See `release_blob`."""
    count = 0
    async for rows in pages(store, session_id, table="sessions", start=HELD_START, end=HELD_END):
        for row in rows:
            await release_blob(store, clock, row.key, guard)
            count += 1
    return count
