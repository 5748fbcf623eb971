"""Lists the users of a store, and sessions across several users.

Law: a user is listed from their first claim. Without an index of open runs, the claim that creates a user's session
also writes a row for the user. With such an index, the session is listed there until its first run has ended; after
that, the usage counters contain the user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from helix.core.row_keys import SESSION
from helix.engine.claims.claim_rows import USERS, index_partition
from helix.ports.state_store import Key, StateStore
from helix.services.claim_input import check_session_id
from helix.services.open_runs import PARTITIONS, partition_name
from helix.services.paging import pages
from helix.services.usage_counters import SCOPES
from helix.sessions.read import SessionPage, Sessions

TENANT = "tenant:"
AT_ONCE = 16
PAGE = 50


async def list_users(store: StateStore) -> list[str]:
    """Return the ids of all users with sessions, sorted. May include users who no longer have sessions."""
    found = {row.key.sort async for rows in pages(store, USERS, table="sessions") for row in rows}
    async for rows in pages(store, SCOPES, start=TENANT, end=f"{TENANT}\U0010ffff"):
        found |= {row.key.sort.removeprefix(TENANT) for row in rows}
    for number in range(PARTITIONS):
        async for rows in pages(store, partition_name(number), limit=PAGE):
            ids = sorted({str(row.value["session_id"]) for row in rows})
            values = await store.get([Key("sessions", id_, SESSION) for id_ in ids])
            found |= {str(value["user_id"]) for value in values if value is not None and value.get("user_id")}
    return sorted(found)


async def list_of_users(
    sessions: Sessions, users: Sequence[str | None], *, limit: int = 50, after: str | None = None
) -> SessionPage:
    """Return the root sessions of these users, newest id first. None selects sessions without a user. `after` is the
    cursor of the previous page."""
    if len(users) == 1:
        return await sessions.list_sessions(user_id=users[0], limit=limit, after=after)
    if after is not None:
        check_session_id(after)
    gate = asyncio.Semaphore(AT_ONCE)

    async def ids_of(user: str | None) -> list[str]:
        async with gate:
            rows = await sessions.store.query(
                "sessions", index_partition(user), end=after, limit=limit + 1, reverse=True
            )
            return [row.key.sort for row in rows]

    found = await asyncio.gather(*(ids_of(user) for user in users))
    ids = sorted({session_id for some in found for session_id in some}, reverse=True)
    return await sessions.read_page(ids[:limit], ids[limit - 1] if len(ids) > limit else None)
