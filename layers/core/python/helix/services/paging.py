"""Reads long partitions in pages, so that no process reads a whole index at once."""

from __future__ import annotations

from collections.abc import AsyncIterator

from helix.ports.state_store import Row, StateStore, Table

PAGE = 100


async def pages(
    store: StateStore,
    partition: str,
    *,
    table: Table = "control",
    start: str = "",
    end: str | None = None,
    limit: int = PAGE,
) -> AsyncIterator[list[Row]]:
    """Yield all rows with `start <= sort < end` that exist throughout the read, at most `limit` per page. The caller
    may delete the rows that it has received."""
    while rows := await store.query(table, partition, start=start, end=end, limit=limit):
        yield rows
        if len(rows) < limit:
            return
        start = rows[-1].key.sort + "\x00"
