"""The rules of `StateStore` for rows that expire."""

from __future__ import annotations

from helix.ports.state_store import ABSENT, Key, Put, StateStore, Table, Update, Value
from helix.testing.contracts.state_store_rows import P, get, key, put, sorts

LATER = 4_000_000_000
"""A time in the far future, so that no store deletes a row of these tests before `purge`."""


class StateStoreExpiry:
    purges = True

    async def test_purge_deletes_what_has_expired(self, store: StateStore) -> None:
        """`purge` deletes the rows of every table whose `ttl` is below the given time, and returns their number."""
        rows: list[tuple[Table, str]] = [("sessions", "a"), ("streams", "a"), ("control", "a"), ("control", "b")]
        ttls = (LATER - 1, LATER - 60, 1, -1)
        for (table, sort), ttl in zip(rows, ttls, strict=True):
            await store.transact("put", [Put(Key(table, P, sort), {"ttl": ttl, "n": 1})])
        gone = await store.purge(LATER)
        assert gone <= len(rows)  # a store may have deleted the oldest by its own clock
        if self.purges:
            assert await store.get([Key(table, P, sort) for table, sort in rows]) == [None] * len(rows)
            assert gone >= 2 and await store.purge(LATER) == 0
            assert [row for table, _ in rows for row in await store.query(table, P)] == []

    async def test_purge_leaves_what_has_not_expired(self, store: StateStore) -> None:
        """A row stays if its `ttl` is in the future, is not a number, is nested, or is missing."""
        values: list[Value] = [{"ttl": LATER}, {"ttl": LATER + 1}, {"ttl": None}, {"ttl": "1"}, {"ttl": True}]
        values += [{"ttl": [1]}, {"ttl": {"ttl": 1}}, {"other": {"ttl": 1}}, {"text": '"ttl":1'}, {}]
        for place, value in enumerate(values):
            await put(store, str(place), value)
        assert await store.purge(LATER) == 0
        assert [row.value for row in await store.query("sessions", P)] == values

    async def test_a_renewed_row_does_not_expire(self, store: StateStore) -> None:
        """Only the current `ttl` counts. A later one, or its removal, keeps the row. An update may also set one."""
        for sort in "abc":
            await put(store, sort, {"ttl": LATER - 1})
        await put(store, "a", {"ttl": LATER + 1})
        await store.transact("renew", [Update(key("b"), set={"ttl": LATER + 1})])
        await put(store, "c", {"n": 1})
        assert await store.purge(LATER) == 0 and await sorts(store) == ["a", "b", "c"]
        await store.transact("expire", [Update(key("c"), set={"ttl": LATER - 1})])
        assert await store.purge(LATER) == self.purges
        assert await sorts(store) == (["a", "b"] if self.purges else ["a", "b", "c"])

    async def test_purge_deletes_any_number(self, store: StateStore) -> None:
        """One call deletes several pages of expired rows, and keeps the rows between them."""
        for first in range(0, 1_200, 100):
            puts = [Put(key(f"{i:04d}"), {"ttl": LATER - 1 if i % 8 else LATER + 1}) for i in range(first, first + 100)]
            await store.transact("put", puts)
        assert await store.purge(LATER) == (1_050 if self.purges else 0)
        assert len(await sorts(store)) == (150 if self.purges else 1_200)

    async def test_a_purged_row_is_absent(self, store: StateStore) -> None:
        """A later write with the same key creates a new row."""
        await put(store, "a", {"ttl": LATER - 1, "old": 1})
        await store.purge(LATER)
        if self.purges:
            await store.transact("again", [Put(key("a"), {"new": 1}, ABSENT)])
            assert await get(store, "a") == {"new": 1}
