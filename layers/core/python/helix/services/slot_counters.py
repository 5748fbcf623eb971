"""Reads the slot counters with their shards, and keeps their defaults and shards up to date.

Law: each counter with a limit has a row, and the row has the default that applies, so every process that grants slots
knows the limits. Slots that were lent to a shard before a limit was lowered are merged before any slot is granted.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Literal

from helix.core.errors import StoreError
from helix.ports.state_store import ABSENT, Put, StateStore, Update
from helix.services import slot_changes, slot_rows, slot_shards
from helix.services.committing import refused
from helix.services.slot_rows import SlotCounter

Counters = dict[str | None, SlotCounter]
Stored = Literal["stored"]
STORED: Stored = "stored"


class SlotCounters:
    """The slot counters of one store. `account_limit` is the same as in `RowSlots`."""

    def __init__(self, store: StateStore, account_limit: int | Stored | None) -> None:
        self._store, self._account_limit = store, account_limit

    async def read_all(self) -> Counters:
        """Return the counters by agent type, with the account's under None. Agents that were never limited have no
        counter."""
        rows = await self._store.query("control", slot_rows.COUNTERS)
        return await self._with_shards({counter.agent_type: counter for counter in map(slot_rows.counter, rows)})

    async def read_for(self, agent_type: str) -> Counters:
        """Return the counters that matter for the agent: its own and the account's. The counters of all agents, of
        which a fleet may have a thousand, are returned only if all agents share a limit."""
        names = (agent_type, None)
        values = await self._store.get([slot_rows.counter_key(name) for name in names])
        known = {
            name: slot_rows.counted(name, value) for name, value in zip(names, values, strict=True) if value is not None
        }
        default = self.account_default(known)
        account = replace(known.get(None, SlotCounter(None)), default=default)
        return await self._with_shards(known) if account.bound is None else await self.read_all()

    async def learn_defaults(self, agent_type: str, default: int | None) -> Counters | None:
        """Return the counters with the defaults that this process knows. The defaults are stored, so that every process
        that grants slots knows them, and each counter with a limit has a row. None if this process or another one wrote
        something."""
        known = await self.read_for(agent_type)
        if await self.arrange_shards(known):
            return None
        wanted = {agent_type: default, None: self.account_default(known)}
        for name, value in wanted.items():
            found = known.get(name)
            if found is not None and found.default != value:
                await refused(self._store, "set_default", [slot_changes.change(found, default=value)])
                return None
        missing = [name for name in wanted if name not in known]
        for name in missing:
            known[name] = SlotCounter(name, default=wanted[name])
        if known[agent_type].bound is None and known[None].bound is None:
            return known
        for name in missing:
            if name is not None or known[None].bound is not None:
                await refused(
                    self._store,
                    "make_counter",
                    [Put(slot_rows.counter_key(name), slot_rows.fresh(wanted[name]), ABSENT)],
                )
                return None
        for name, counter in ((agent_type, known[agent_type]), (None, known[None])):
            if name in known and not counter.divided and slot_shards.width(counter, known[None]) > 1:
                divide = Update(slot_rows.counter_key(name), set={"divided": True})
                await refused(self._store, "divide_counter", [divide])
                return None
        return known

    async def arrange_shards(self, known: Counters) -> bool:
        """Merge shards, or lend slots to them. Return whether the counters must be read again."""
        if transactions := slot_shards.stale(known.values()):
            for operations in transactions:
                await refused(self._store, "merge_shard", operations)
            return True
        account = known.get(None, SlotCounter(None))
        for counter in known.values():
            if operations := slot_shards.lend(counter, slot_changes.among(counter, account)):
                with contextlib.suppress(StoreError):  # other processes lend too, and a slot is available anyway
                    await refused(self._store, "lend_slots", operations)
                    return True
        return False

    async def merge_shards(self, agent_type: str | None) -> None:
        """Merge the slots that were lent before the limit was lowered, so that no run takes them any longer."""
        key = slot_rows.counter_key(agent_type)
        while True:
            (value,) = await self._store.get([key])
            known = await self._with_shards({agent_type: slot_rows.counted(agent_type, value or {})})
            if not slot_shards.stale(known.values()):
                return
            await self.arrange_shards(known)

    async def have_moved(self, known: Counters) -> bool:
        """Return whether anything has moved between a counter and its shards since the counters were read."""
        divided = [counter for counter in known.values() if counter.divided]
        if not divided:
            return False
        values = await self._store.get([slot_rows.counter_key(counter.agent_type) for counter in divided])
        return any((value or {}).get("moves", 0) != c.moves for value, c in zip(values, divided, strict=True))

    def account_default(self, known: Counters) -> int | None:
        if self._account_limit != STORED:
            return self._account_limit
        return known.get(None, SlotCounter(None)).default

    async def _with_shards(self, known: Counters) -> Counters:
        names = [name for name, counter in known.items() if counter.divided]
        shards = await asyncio.gather(*(self._store.query("control", slot_rows.shards(name)) for name in names))
        return known | {
            name: slot_rows.with_shards(known[name], rows) for name, rows in zip(names, shards, strict=True)
        }
