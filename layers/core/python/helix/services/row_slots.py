"""Slots, tickets and their counters on any state store (docs/protocol.md#slots; `slot_rows` has the rows).

Law: a row and its counters change in one transaction. `running` grows only in a transaction whose conditions are that
the limits are unchanged and that there is room below them. A ticket needs no such condition: the process that puts it
looks for a free slot afterwards, as does one that releases a slot or raises a limit. The later of any two such
processes sees the other's change, so no wake-up is lost. A slot is granted when its row is written, not when the run
starts.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any
from zlib import crc32

from helix.core.errors import InvalidInputError, StoreError
from helix.ports.state_store import ABSENT, Check, Key, Operation, Put, Row, StateStore, Value
from helix.services import slot_changes, slot_rows, slot_shards
from helix.services.committing import refused
from helix.services.paging import pages
from helix.services.slot_counters import STORED, Counters, SlotCounters, Stored
from helix.services.slot_rows import MAX_PRIORITY, Admission, Candidate, SlotCounter, Waiting

AT_ONCE = 32


class RowSlots:
    """The slots of one store. Any method may be repeated, even by several callers at once. After a `StoreError` it is
    unknown whether the method took effect, so repeat it.

    `account_limit` is the number of runs, over all agents, that may be at work at once, unless a limit was set. None
    means no limit. STORED, for a process that only starts runs, is the limit that other processes on this store have
    written. `max_queue` and `queue_timeout_s` (seconds) apply to agents without settings of their own.
    """

    def __init__(
        self,
        store: StateStore,
        *,
        account_limit: int | Stored | None = None,
        max_queue: int = 1000,
        queue_timeout_s: float = 3600.0,
    ) -> None:
        if account_limit != STORED:
            _check_number("account_limit", account_limit)
        self._store, self._counters = store, SlotCounters(store, account_limit)
        self._max_queue, self._timeout_s = max_queue, queue_timeout_s

    # --- acquiring and releasing ----------------------------------------------------------------------------------

    async def admit(
        self, run: Candidate, *, default: int | None, alive: Check | None = None, bounded: bool = True
    ) -> Admission:
        """Give the run a slot. If that would exceed a limit, or overtake waiting runs, give it a ticket.

        `default` is the limit from the agent's definition, which applies unless one was set. Nothing is written unless
        `alive` holds at that moment. With `bounded`, the run is refused if the agent's queue is full; without it, the
        queue may grow beyond its limit.
        """
        _check_number(f"the default limit of agent {run.agent_type!r}", default)
        if not -MAX_PRIORITY <= run.priority <= MAX_PRIORITY:
            raise InvalidInputError(
                f"priority is {run.priority}; it must be between -{MAX_PRIORITY} and {MAX_PRIORITY}"
            )
        guard: list[Operation] = [alive] if alive is not None else []
        while True:
            known = await self._counters.learn_defaults(run.agent_type, default)
            if known is None:
                continue  # a row was created or changed: read again
            mine, account = known[run.agent_type], known[None]
            if mine.bound is None and account.bound is None and not mine.queued:
                return Admission("free")
            slot, ticket = await self._store.get([slot_rows.slot_key(run), slot_rows.ticket_key(run)])
            if slot is not None:
                return Admission("held")
            if ticket is not None:
                return await self._in_line(run)
            if slot_changes.open_to(known, run.agent_type):
                index = await refused(self._store, "take_slot", [*guard, *slot_changes.taking(run, mine, account)])
                if index is None:
                    return Admission("held")
            elif bounded and mine.queued >= self._longest(mine):
                if await self._place(run) == (None, None):
                    return Admission("full", queued=mine.queued)
                continue
            else:
                ticket_ops = self._queueing(run, mine, account, bounded)
                if not ticket_ops:
                    continue
                if (index := await refused(self._store, "take_ticket", [*guard, *ticket_ops])) is None:
                    return await self._in_line(run)
            if guard and index == 0:
                return Admission("over")

    async def release(self, run: Candidate) -> list[Candidate]:
        """Release the slot or the ticket. Return the runs that got a slot, which the caller must start. Has no effect
        for a run that holds neither."""
        if await self._store.get([slot_rows.counter_key(run.agent_type)]) == [None]:
            return []  # the agent was never limited, so no run holds anything
        while True:
            slot, ticket = await self._place(run)
            if slot is not None:
                if await self._less("release_slot", "running", slot_rows.slot_key(run), slot):
                    break
            elif ticket is None or await self._less("drop_ticket", "queued", slot_rows.ticket_key(run), ticket):
                break
        return await self._grant(run.agent_type, run.run_id)

    async def leave(self, run: Candidate) -> bool:
        """Delete the ticket. False if the run has no ticket; it may then hold a slot."""
        while True:
            (ticket,) = await self._store.get([slot_rows.ticket_key(run)])
            if ticket is None:
                return False
            if await self._less("drop_ticket", "queued", slot_rows.ticket_key(run), ticket):
                return True

    async def grant(self) -> list[Candidate]:
        """Give free slots to the waiting runs, in queue order. A ticket that cannot get a slot does not hold up those
        of other agents. Return the runs that got a slot, which the caller must start. Call this after raising a
        limit."""
        return await self._grant(None)

    # --- limits ---------------------------------------------------------------------------------------------------

    async def set_limit(self, agent_type: str | None, limit: int | None) -> None:
        """Set the limit of an agent, or of the account (None). A limit of None restores the default; 0 admits no runs.
        Lowering the limit ends no runs: new slots are granted once fewer are held."""
        _check_number("the limit of " + ("the account" if agent_type is None else f"agent {agent_type!r}"), limit)
        await self._set(agent_type, {"limit": limit, "stopped_by": None})

    async def change_limit(
        self, agent_type: str, before: int, after: int, *, alive: Check | None = None, stopped_by: str | None = None
    ) -> bool:
        """Set the limit to `after`, on condition that the current limit is `before` and that `alive` holds. A repeat
        returns True.

        False if the limit is neither `before` nor `after`, or if `alive` does not hold; nothing has changed then.
        `stopped_by` names the budget that sets the limit to 0. It is shown for the waiting runs.
        """
        _check_number(f"the limit of agent {agent_type!r}", after)
        guard: list[Operation] = [alive] if alive is not None else []
        while True:
            known = (await self.counters()).get(agent_type, SlotCounter(agent_type))
            if known.bound not in (before, after) or known.bound is None:
                return False
            update = slot_changes.change(known, limit=after, stopped_by=stopped_by)
            if (index := await refused(self._store, "change_limit", [*guard, update])) is None:
                await self._counters.merge_shards(agent_type)
                return True
            if guard and index == 0:
                return False

    async def set_queue(self, agent_type: str, *, max_queue: int | None = None, timeout_s: float | None = None) -> None:
        """Set the maximum length of the agent's queue, and the maximum time that a run may wait in it. None restores
        the default."""
        _check_number(f"max_queue of agent {agent_type!r}", max_queue)
        if timeout_s is not None and not timeout_s > 0:
            raise InvalidInputError(f"timeout_s of agent {agent_type!r} is {timeout_s}; it must be more than 0")
        await self._set(agent_type, {"max_queue": max_queue, "queue_timeout_s": timeout_s})

    # --- reading --------------------------------------------------------------------------------------------------

    async def counters(self) -> Counters:
        """Return the counters by agent type, with the account's under None. Agents that were never limited have no
        counter."""
        return await self._counters.read_all()

    async def full(self, agent_type: str, *, default: int | None) -> SlotCounter | None:
        """Return the agent's counter, with the `max_queue` that applies, if a bounded `admit` would now be refused.
        Otherwise return None."""
        known = await self._counters.read_for(agent_type)
        for name, wanted in ((agent_type, default), (None, self._counters.account_default(known))):
            known[name] = replace(known.get(name) or SlotCounter(name), default=wanted)
        mine = known[agent_type]
        free = mine.bound is None and known[None].bound is None and not mine.queued
        if free or mine.queued < self._longest(mine) or slot_changes.open_to(known, agent_type):
            return None
        return replace(mine, max_queue=self._longest(mine))

    async def holders(self, agent_type: str) -> list[Candidate]:
        """Return the runs with slots."""
        return [
            slot_rows.candidate(row.value) for row in await self._store.query("control", slot_rows.slots(agent_type))
        ]

    async def queue(self, agent_type: str) -> list[Waiting]:
        """Return the runs with tickets, in queue order."""
        line = pages(self._store, slot_rows.tickets(agent_type))
        return [slot_rows.waiting(row.value) async for rows in line for row in rows]

    async def waiting(self, run: Candidate) -> Waiting | None:
        """Return the run's ticket, or None."""
        (ticket,) = await self._store.get([slot_rows.ticket_key(run)])
        return None if ticket is None else slot_rows.waiting(ticket)

    async def holds(self, run: Candidate) -> bool:
        """Return whether the run has a slot."""
        return await self._store.get([slot_rows.slot_key(run)]) != [None]

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _in_line(self, run: Candidate) -> Admission:
        """Grant slots to the runs that can get one, and then return the admission of this run."""
        granted = await self._grant(run.agent_type, run.run_id)
        others = tuple(other for other in granted if other != run)
        slot, ticket = await self._place(run)
        if slot is not None:
            return Admission("held", granted=others)
        if ticket is None:
            return Admission("over", granted=others)  # the run ended in the meantime
        counter = (await self._counters.read_for(run.agent_type))[run.agent_type]
        return Admission("waits", slot_rows.waiting(ticket), others, counter.queued, counter.stopped_by)

    async def _place(self, run: Candidate) -> tuple[Value | None, Value | None]:
        """Return the run's slot and ticket. They are not read atomically: a missing ticket may just have become a slot,
        so the slot is read again."""
        slot, ticket = await self._store.get([slot_rows.slot_key(run), slot_rows.ticket_key(run)])
        if slot is None and ticket is None:
            (slot,) = await self._store.get([slot_rows.slot_key(run)])
        return slot, ticket

    async def _grant(self, agent_type: str | None, giver: str = "") -> list[Candidate]:
        """Give free slots of the agent, or of all agents, to the first in line. If the account has a limit, all agents
        share one line."""
        granted: list[Candidate] = []
        tries = 0
        try:
            while (found := await self._first(agent_type, f"{giver}{tries}" if tries else "")) is not None:
                heir, ops = found
                tries += 1
                try:
                    given = await refused(self._store, "grant_slot", ops) is None
                except StoreError:
                    if not (given := await self.holds(heir)):
                        raise
                if given:
                    granted.append(heir)
                    tries = 0
        except StoreError:
            if not granted:
                raise  # otherwise start the runs that have a slot; the next caller handles the others
        return granted

    async def _first(self, agent_type: str | None, spread: str) -> tuple[Candidate, list[Operation]] | None:
        """Return the run that gets the next slot, and the operations for it. None if no waiting run can get one.
        `spread` is set after another process was faster: then any eligible run is picked, so that many processes do not
        all retry the first ticket."""
        read = self.counters if agent_type is None else partial(self._counters.read_for, agent_type)
        while True:
            known = await read()
            if await self._counters.arrange_shards(known):
                continue
            account = known.get(None, SlotCounter(None))
            firsts = await self._lines(known, account, agent_type, AT_ONCE if spread else 1)
            if firsts:
                break
            if not await self._counters.have_moved(known):
                return None
        _, counter, rows = min(firsts, key=lambda first: first[0])
        row = rows[crc32(spread.encode()) % len(rows)]
        heir = slot_rows.candidate(row.value)
        return heir, [slot_changes.gone(row.key, heir), *slot_changes.taking(heir, counter, account, ticket=row.value)]

    async def _lines(
        self, known: Counters, account: SlotCounter, agent_type: str | None, most: int
    ) -> list[tuple[str, SlotCounter, list[Row]]]:
        """Return, for each agent whose first ticket is eligible for a slot, the ticket's sort key, the counter, and up
        to `most` such tickets."""
        alone = agent_type is not None and account.bound is None
        lines = [
            (name, counter)
            for name, counter in (known.items() if account.has_room else ())
            if name is not None and counter.queued and counter.has_room and (not alone or name == agent_type)
        ]
        limits = [int(min(counter.room, account.room, most)) if counter.divided else 1 for _, counter in lines]
        tickets = await asyncio.gather(
            *(
                self._store.query("control", slot_rows.tickets(name), limit=limit)
                for (name, _), limit in zip(lines, limits, strict=True)
            )
        )
        return [(rows[0].key.sort, counter, rows) for (_, counter), rows in zip(lines, tickets, strict=True) if rows]

    async def _less(self, name: str, what: str, key: Key, row: dict[str, Any]) -> bool:
        """Delete a slot (`running`) or a ticket (`queued`), and decrement its counter. False if it is already gone."""
        run, lost = slot_rows.candidate(row), set[Key]()
        while True:
            ops = [slot_changes.gone(key, run)]
            for owner, number in zip((run.agent_type, None), slot_changes.shards_of(row), strict=False):
                shard = number is None or slot_rows.shard_key(owner, number) in lost
                ops.append(slot_shards.give(owner, what, None if shard else number))
            index = await refused(self._store, name, ops)
            if index is None or index == 0:
                return index is None
            lost.add(ops[index].key)  # it was merged into the counter

    def _queueing(self, run: Candidate, mine: SlotCounter, account: SlotCounter, bounded: bool) -> list[Operation]:
        timeout_s = self._timeout_s if mine.queue_timeout_s is None else mine.queue_timeout_s
        return slot_changes.queueing(run, mine, account, self._longest(mine) if bounded else None, timeout_s)

    def _longest(self, counter: SlotCounter) -> int:
        return self._max_queue if counter.max_queue is None else counter.max_queue

    async def _set(self, agent_type: str | None, changes: dict[str, Any]) -> None:
        key = slot_rows.counter_key(agent_type)
        made = {**slot_rows.fresh(self._counters.account_default({}) if agent_type is None else None), **changes}
        while True:
            (value,) = await self._store.get([key])
            there = None if value is None else slot_changes.change(slot_rows.counted(agent_type, value), **changes)
            if await refused(self._store, "set_limit", [there or Put(key, made, ABSENT)]) is None:
                return await self._counters.merge_shards(agent_type)


def _check_number(what: str, number: int | None) -> None:
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
        raise InvalidInputError(f"{what} is {number!r}; it must be a whole number, 0 or more, or None")
