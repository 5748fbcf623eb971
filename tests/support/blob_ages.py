"""Files whose time has come."""

from __future__ import annotations

from helix.ports.state_store import Operation, StateStore, Update
from helix.services.blob_rows import blob_key, due_deletes, due_put, read_blob

LONG_AGO = 1.0


async def due_now(store: StateStore, owner: str, sha256: str) -> None:
    """Let the time come at which a file without holders is deleted."""
    key = blob_key(owner, sha256)
    row = read_blob(owner, sha256, (await store.get([key]))[0])
    assert row is not None and row.due is not None, "a session holds the file"
    moved: list[Operation] = [*due_deletes(row), due_put(owner, sha256, row, LONG_AGO)]
    await store.transact("due_now", [Update(key, set={"due": LONG_AGO}), *moved])
