"""Shards of a limit: older rows, a lower limit, and a process that dies while it lowers the limit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.contracts.slots_races import A, run

from helix import MemoryStateStore
from helix.core.errors import StoreError
from helix.ports.state_store import Operation
from helix.services import slot_rows, slot_shards
from helix.services.row_slots import RowSlots


class Dying(MemoryStateStore):
    """A store whose caller dies before the transaction of that name."""

    def __init__(self) -> None:
        super().__init__()
        self.before = ""

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if name == self.before:
            raise StoreError("the process has died")
        await super().transact(name, operations)


async def held(slots: RowSlots) -> int:
    counter = (await slots.counters())[A]
    assert counter.running == len(await slots.holders(A)) and counter.queued == len(await slots.queue(A))
    return counter.running


async def test_slots_of_an_older_version_are_given_back_to_the_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows name no shard. They count against the limit, as before."""
    store = MemoryStateStore()
    slots = RowSlots(store)
    for n in range(3):
        assert (await slots.admit(run(n), default=2)).state == ("held" if n < 2 else "waits")
    assert await store.query("control", slot_rows.shards(A)) == []
    monkeypatch.setattr(slot_shards, "SLOTS_EACH", 1)
    for n in range(3, 6):
        assert (await slots.admit(run(n), default=4)).state == ("held" if n < 4 else "waits")
    assert await held(slots) == 4 and len(await store.query("control", slot_rows.shards(A))) > 1
    assert [heir.order for heir in await slots.release(run(0))] == [4]
    for n in range(1, 6):
        await slots.release(run(n))
    assert await held(slots) == 0


async def test_a_lower_limit_leaves_nothing_in_the_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_shards, "SLOTS_EACH", 1)
    store = MemoryStateStore()
    slots = RowSlots(store)
    for n in range(3):
        await slots.admit(run(n), default=8)
    assert sum(shard.free for shard in (await slots.counters())[A].shards) == 5
    await slots.set_limit(A, 3)
    assert await store.query("control", slot_rows.shards(A)) == []
    assert (await slots.admit(run(3), default=8)).state == "waits" and await held(slots) == 3
    assert await slots.release(run(0)) == [run(3)]


async def test_who_dies_while_it_lowers_a_limit_leaves_the_merge_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is lower, but the shards still have slots that were lent under the old limit. None of these is granted."""
    monkeypatch.setattr(slot_shards, "SLOTS_EACH", 1)
    store = Dying()
    slots = RowSlots(store)
    for n in range(3):
        await slots.admit(run(n), default=8)
    store.before = "merge_shard"
    with pytest.raises(StoreError):
        await slots.set_limit(A, 3)
    assert sum(shard.free for shard in (await slots.counters())[A].shards) == 5
    store.before = ""
    assert (await slots.admit(run(3), default=8)).state == "waits" and await held(slots) == 3
