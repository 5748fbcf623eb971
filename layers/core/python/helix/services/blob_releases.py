"""Releases the blobs of deleted sessions (`services.blob_rows` has the rows and states).

Law: a hold is deleted from the session's partition only in the transaction that removes the session from the blob's
holders. So a deletion may stop anywhere, and the next one finds the remaining holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from helix._log import get_logger
from helix.core.errors import ConditionFailedError, DamagedRowError
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, StateStore, Update, Value, When
from helix.services.blob_rows import (
    HELD_START,
    UNUSED_S,
    blob_key,
    due_put,
    due_time,
    holder_key,
    parse_held,
    read_blob,
)
from helix.services.committing import Again, refused, repeat_attempt

logger = get_logger("helix")


def is_hold(key: Key) -> bool:
    """Return whether this is the key of a session's row for a blob that it holds."""
    return key.sort.startswith(HELD_START)


async def release_blob(store: StateStore, clock: Clock, hold: Key, guard: Sequence[Operation] = ()) -> None:
    """Release one blob. `hold`: the key of the session's row (`held_key`). `guard`: additional conditions of the
    transaction, for example that the session is hidden. Idempotent. Raises `ConditionFailedError` if the conditions do
    not hold."""
    sha256, owner = parse_held(hold.sort)
    holder = holder_key(owner, sha256, hold.partition)

    async def attempt() -> Literal[Again.AGAIN] | None:
        blob, found = await store.get([blob_key(owner, sha256), holder])
        operations = [*guard, Delete(hold)]
        if found is None:
            operations.append(Check(holder, ABSENT))
        else:
            operations.append(Delete(holder, When()))
            operations += _without_holder(owner, sha256, blob, due_time(clock.now(), UNUSED_S))
        index = await refused(store, "release_blob", operations)
        if index is not None and index < len(guard):
            raise ConditionFailedError("release_blob", index)
        return None if index is None else Again.AGAIN

    await repeat_attempt(f"release#{hold.partition}#{sha256}", attempt)


def _without_holder(owner: str, sha256: str, value: Value | None, due: float) -> list[Operation]:
    """Return the operations for a blob that loses a holder. `due`: the time at which the blob is deleted if this was
    its last holder."""
    try:
        row = read_blob(owner, sha256, value)
    except DamagedRowError as error:
        logger.warning("a blob is not deleted with its last session: %s", error)
        return []
    if row is None or row.state != "live":
        return []
    key, live = blob_key(owner, sha256), {"state": "live", "key": row.key}
    if row.holders > 1:
        return [Update(key, add={"holders": -1}, when=When(equal=live, at_least={"holders": 2}))]
    last = When(equal={**live, "holders": row.holders})
    marked = {"state": "marked", "holders": 0, "due": due}
    return [Update(key, set=marked, when=last), due_put(owner, sha256, row, due)]
