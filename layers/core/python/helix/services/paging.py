"""Partitions of the control table that may be long, in pages: nobody reads all of an index at once."""

from __future__ import annotations

from collections.abc import AsyncIterator

from helix.ports.state_store import Row, StateStore

PAGE = 100


async def pages(store: StateStore, partition: str, *, limit: int = PAGE) -> AsyncIterator[list[Row]]:
    """All rows that stay there meanwhile, at most `limit` at once. The caller may delete those it was given."""
    start = ""
    while rows := await store.query("control", partition, start=start, limit=limit):
        yield rows
        if len(rows) < limit:
            return
        start = rows[-1].key.sort + "\x00"
