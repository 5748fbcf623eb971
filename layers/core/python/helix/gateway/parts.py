"""Requests in parts, from clients that cannot send a message in several frames.

Law: a request is handled once, by the call that removes its parts. Parts are stored under their connection. They are
deleted with it, or after one minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from helix.core.errors import InvalidInputError, NotAuthenticatedError
from helix.core.json import text_size
from helix.core.protocol import MAX_REQUEST_BYTES
from helix.core.requests import Part
from helix.gateway.connections import CONNECTION, partition_name
from helix.ports.clock import Clock
from helix.ports.state_store import Delete, Key, Operation, Put, Row, StateStore, When
from helix.services.committing import refused

MAX_OPEN_REQUESTS: Final = 4
"""The maximum number of incomplete requests of a connection."""
PARTS_S: Final = 60.0
"""The time for which a part waits for the others, in seconds."""
PART: Final = "part#"


async def add_part(store: StateStore, clock: Clock, connection_id: str, part: Part) -> str | None:
    """Add a part of a request. Return the text of the request if this call completes it, and None otherwise.

    Raises `NotAuthenticatedError` if the connection is closed or has expired, and `InvalidInputError` if too many parts
    or bytes are waiting. In both cases the request's parts are deleted.
    """
    now, partition = clock.now(), partition_name(connection_id)
    key = Key("streams", partition, f"{PART}{part.part}#{part.index:02d}")
    value = {"data": part.data, "total": part.total, "ttl": int(now + PARTS_S)}
    await store.transact("add_part", [Put(key, value)])
    rows = await store.query("streams", partition)
    parts = [row for row in rows if row.key.sort.startswith(PART)]
    waiting = [row for row in parts if row.value["ttl"] > now]
    ours = [row for row in waiting if row.key.sort.startswith(f"{PART}{part.part}#")]
    open_until = next((float(row.value["expires_at"]) for row in rows if row.key.sort == CONNECTION), 0.0)
    problem = _problem(part, waiting, ours)
    old = [row for row in parts if row.value["ttl"] <= now]
    for row in old + ours if problem is not None or open_until <= now else old:
        gone = Delete(row.key, When(equal={"ttl": row.value["ttl"]}))  # unless it was sent again
        await refused(store, "forget_part", [gone])
    if open_until <= now:
        raise NotAuthenticatedError("the connection has expired: authenticate, or open a new one")
    if problem is not None:
        raise InvalidInputError(problem)
    taken: list[Operation] = [Delete(row.key, When()) for row in ours]  # parts may arrive at the same time, or twice
    if len(ours) < part.total or await refused(store, "take_parts", taken) is not None:
        return None
    return "".join(row.value["data"] for row in ours)


def _problem(part: Part, waiting: Sequence[Row], ours: Sequence[Row]) -> str | None:
    if len({row.key.sort.rpartition("#")[0] for row in waiting}) > MAX_OPEN_REQUESTS:
        return f"a connection may have at most {MAX_OPEN_REQUESTS} requests with missing parts"
    if any(row.value["total"] != part.total for row in ours):
        return "all parts of a request must have the same total"
    if sum(text_size(row.value["data"]) for row in ours) > MAX_REQUEST_BYTES:
        return f"a request may have at most {MAX_REQUEST_BYTES} bytes"
    return None
