"""The rules of `StateStore` for keys. Every store refuses the same keys as a deployed stage."""

from __future__ import annotations

import pytest

from helix.core.errors import InvalidInputError
from helix.ports.state_store import MAX_PARTITION_BYTES, MAX_SORT_BYTES, Check, Delete, Key, Put, StateStore, When

LONGEST = Key("sessions", "p" * MAX_PARTITION_BYTES, "\u00e9" * (MAX_SORT_BYTES // 2))
REFUSED = {
    "long partition": LONGEST._replace(partition=LONGEST.partition + "p"),
    "long sort": LONGEST._replace(sort=LONGEST.sort + "s"),
    "many bytes": LONGEST._replace(sort="\U0001f600" * (MAX_SORT_BYTES // 4) + "s"),
    "empty partition": LONGEST._replace(partition=""),
    "empty sort": LONGEST._replace(sort=""),
    "lone surrogate": LONGEST._replace(sort="\ud800"),
}


class StateStoreKeys:
    async def test_the_longest_keys_are_taken(self, store: StateStore) -> None:
        """A row with a key of the maximum length can be written, read, queried and deleted."""
        await store.transact("put", [Put(LONGEST, {"n": 1})])
        assert await store.get([LONGEST]) == [{"n": 1}]
        assert [row.key for row in await store.query("sessions", LONGEST.partition, start=LONGEST.sort)] == [LONGEST]
        await store.transact("delete", [Delete(LONGEST)])
        assert await store.get([LONGEST]) == [None]

    @pytest.mark.parametrize("which", REFUSED)
    async def test_other_keys_are_refused(self, store: StateStore, which: str) -> None:
        """Each method refuses a key that is empty, too long or not valid UTF-8, regardless of what is stored. The other
        keys of the same call are neither written nor read."""
        key, fine = REFUSED[which], Key("sessions", "p", "s")
        with pytest.raises(InvalidInputError):
            await store.get([fine, key])
        for operation in (Put(key, {"n": 1}), Delete(key), Check(key, When(absent=True))):
            with pytest.raises(InvalidInputError):
                await store.transact("refused", [Put(fine, {"n": 1}), operation])
        assert await store.get([fine]) == [None]
        if key.sort:
            with pytest.raises(InvalidInputError):
                await store.query("sessions", key.partition, start=key.sort)
            with pytest.raises(InvalidInputError):
                await store.query("sessions", key.partition, start="a", end=key.sort)
