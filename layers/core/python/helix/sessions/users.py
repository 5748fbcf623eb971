"""Lists the users of a store.

Law: a user is listed from their first claim. Without an index of open runs, the claim that creates a user's session
also writes a row for the user. With such an index, the session is listed there until its first run has ended; after
that, the usage counters contain the user.
"""

from __future__ import annotations

from helix.core.row_keys import SESSION
from helix.engine.claims.claim_rows import USERS
from helix.ports.state_store import Key, StateStore
from helix.services.open_runs import PARTITIONS, partition_name
from helix.services.paging import pages
from helix.services.usage_counters import SCOPES

TENANT = "tenant:"
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
