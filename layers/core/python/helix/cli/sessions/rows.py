"""The stored rows of a session, of its sub-agents' sessions and of its stream, read through a client."""

from __future__ import annotations

from typing import Any

from helix.client import HelixClient
from helix.core.errors import SessionNotFoundError
from helix.core.request_fields import PAGE
from helix.ports.state_store import Key, Row, Table
from helix.sessions.exports import children_of


async def read_tree(client: HelixClient, session_id: str) -> list[Row]:
    """Read the rows. A sub-agent that never started does not have rows. Raises `SessionNotFoundError`."""
    rows = await _read(client, session_id, "sessions")
    left, seen = children_of(rows), {session_id}
    while left:
        child = left.pop(0)
        if child in seen:
            continue
        seen.add(child)
        try:
            below = await _read(client, child, "sessions")
        except SessionNotFoundError:
            continue
        rows += below
        left += children_of(below)
    session: dict[str, Any] = dict(await client.ask("get_session", {"session_id": session_id}))
    if session["session"]["stream_id"] == session_id:
        rows += await _read(client, session_id, "streams")
    return rows


async def _read(client: HelixClient, session_id: str, table: Table) -> list[Row]:
    rows: dict[Key, Row] = {}  # several pages may have the same request head
    cursor: Any = None
    while True:
        asked = {"session_id": session_id, "stream": table == "streams", "after": cursor, "limit": PAGE}
        page: dict[str, Any] = dict(await client.ask("read_rows", asked))
        found = [Row(Key(table, session_id, sort), value) for sort, value in page["rows"]]
        rows |= {row.key: row for row in found}
        if (cursor := page["cursor"]) is None:
            return list(rows.values())
