"""Slots, tickets and their counters on any state store (docs/protocol.md#slots; the rows: `slot_rows`).

Law: a row and its counters change in one transaction. `running` grows only in a transaction that finds the limits as they
were read, and room below them. A ticket needs no such condition: who puts it looks for a free slot afterwards.
So do a release and a raised limit: of any two of them the later one sees the other, and no wake-up is lost. A grant is the
row, not the start of the run.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any, Literal

from helix.core.errors import InvalidInputError, StoreError
from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, Put, StateStore, Update, Value, When
from helix.services import slot_rows
from helix.services.committing import refused
from helix.services.slot_rows import MAX_PRIORITY, Admission, Candidate, SlotCounter, Waiting

Counters = dict[str | None, SlotCounter]
Stored = Literal["stored"]
STORED: Stored = "stored"


class RowSlots:
    """account_limit: how many runs of all agents are at work at once, unless a limit was set; None: as many as come;
    STORED: as others on this store say, for who only starts runs. max_queue, queue_timeout_s (seconds): of agents for
    which nothing else was set. Every verb may be repeated, by several callers at once. `StoreError`: unknown whether it
    happened; repeat it."""

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
        self._store, self._account_limit = store, account_limit
        self._max_queue, self._timeout_s = max_queue, queue_timeout_s

    # --- taking and giving back -----------------------------------------------------------------------------------

    async def admit(
        self, run: Candidate, *, default: int | None, alive: Check | None = None, bounded: bool = True
    ) -> Admission:
        """A slot for the run; or where it would exceed a limit, or go before others, a ticket.

        default: the limit that the agent's definition asks for, which holds unless one was set. alive: nothing is written
        unless this holds in that moment. bounded: refuse where the agent's queue is full; otherwise the queue grows.
        """
        _check_number(f"the default limit of agent {run.agent_type!r}", default)
        if not -MAX_PRIORITY <= run.priority <= MAX_PRIORITY:
            raise InvalidInputError(
                f"priority is {run.priority}; it must be between -{MAX_PRIORITY} and {MAX_PRIORITY}"
            )
        guard: list[Operation] = [alive] if alive is not None else []
        while True:
            known = await self._learned(run.agent_type, default)
            if known is None:
                continue  # a row was made or changed: read again
            mine, account = known[run.agent_type], known[None]
            if mine.bound is None and account.bound is None and not mine.queued:
                return Admission("free")
            slot, ticket = await self._store.get([slot_rows.slot_key(run), slot_rows.ticket_key(run)])
            if slot is not None:
                return Admission("held")
            if ticket is not None:
                return await self._in_line(run)
            if _open(known, run.agent_type):
                index = await refused(self._store, "take_slot", [*guard, *_taking(run, mine, account)])
                if index is None:
                    return Admission("held")
            elif bounded and mine.queued >= self._longest(mine):
                if await self._place(run) == (None, None):
                    return Admission("full", queued=mine.queued)
                continue
            else:
                index = await refused(
                    self._store, "take_ticket", [*guard, *self._queueing(run, mine, account, bounded)]
                )
                if index is None:
                    return await self._in_line(run)
            if guard and index == 0:
                return Admission("over")

    async def release(self, run: Candidate) -> list[Candidate]:
        """Give up the slot, or the ticket. Returns the runs that were given a slot, to be begun. A run that holds neither
        changes nothing."""
        if await self._store.get([slot_rows.counter_key(run.agent_type)]) == [None]:
            return []  # never limited: there is nothing to hold
        while True:
            slot, ticket = await self._place(run)
            if slot is not None:
                ops = [_gone(slot_rows.slot_key(run), run), *_less("running", run, slot)]
                if await refused(self._store, "release_slot", ops) is None:
                    break
            elif ticket is None or await self._drop(run, ticket):
                break
        return await self._grant(run.agent_type)

    async def leave(self, run: Candidate) -> bool:
        """Give up the ticket. False where there is none: then the run may hold a slot."""
        while True:
            (ticket,) = await self._store.get([slot_rows.ticket_key(run)])
            if ticket is None:
                return False
            if await self._drop(run, ticket):
                return True

    async def grant(self) -> list[Candidate]:
        """Give free slots to those who wait, first in line first; a ticket that cannot go does not hold up those of other
        agents. Returns the runs that were given one, to be begun. To be called after a limit was raised."""
        return await self._grant(None)

    # --- limits ---------------------------------------------------------------------------------------------------

    async def set_limit(self, agent_type: str | None, limit: int | None) -> None:
        """The limit of an agent, or of the account (None). None as limit: the default holds again; 0: nobody is admitted.
        A lower limit ends nobody: slots are given again once fewer are held."""
        _check_number("the limit of " + ("the account" if agent_type is None else f"agent {agent_type!r}"), limit)
        await self._set(agent_type, {"limit": limit})

    async def change_limit(self, agent_type: str, before: int, after: int, *, alive: Check | None = None) -> bool:
        """`set_limit`, on condition that the limit that holds is `before`, and that `alive` holds. False, and nothing
        changed: it is not, and is not `after` either; or `alive` does not hold. A repeat answers True."""
        _check_number(f"the limit of agent {agent_type!r}", after)
        guard: list[Operation] = [alive] if alive is not None else []
        while True:
            known = (await self.counters()).get(agent_type, SlotCounter(agent_type))
            if known.bound not in (before, after) or known.bound is None:
                return False
            seen = When(equal={"limit": known.limit, "default": known.default})
            update = Update(slot_rows.counter_key(agent_type), set={"limit": after}, when=seen)
            if (index := await refused(self._store, "change_limit", [*guard, update])) is None:
                return True
            if guard and index == 0:
                return False

    async def set_queue(self, agent_type: str, *, max_queue: int | None = None, timeout_s: float | None = None) -> None:
        """How long the agent's queue may get, and how long a run may wait in it; None: the default."""
        _check_number(f"max_queue of agent {agent_type!r}", max_queue)
        if timeout_s is not None and not timeout_s > 0:
            raise InvalidInputError(f"timeout_s of agent {agent_type!r} is {timeout_s}; it must be more than 0")
        await self._set(agent_type, {"max_queue": max_queue, "queue_timeout_s": timeout_s})

    # --- reading --------------------------------------------------------------------------------------------------

    async def counters(self) -> Counters:
        """By agent type; under None the account's. Agents that were never limited have none."""
        rows = await self._store.query("control", slot_rows.COUNTERS)
        return {counter.agent_type: counter for counter in map(slot_rows.counter, rows)}

    async def full(self, agent_type: str, *, default: int | None) -> SlotCounter | None:
        """None, or where a bounded `admit` would now be refused, the agent's counter with `max_queue` as it holds."""
        known = await self._known(agent_type)
        for name, wanted in ((agent_type, default), (None, self._account_default(known))):
            known[name] = replace(known.get(name) or SlotCounter(name), default=wanted)
        mine = known[agent_type]
        free = mine.bound is None and known[None].bound is None and not mine.queued
        if free or mine.queued < self._longest(mine) or _open(known, agent_type):
            return None
        return replace(mine, max_queue=self._longest(mine))

    async def holders(self, agent_type: str) -> list[Candidate]:
        """Runs with slots."""
        return [
            slot_rows.candidate(row.value) for row in await self._store.query("control", slot_rows.slots(agent_type))
        ]

    async def queue(self, agent_type: str) -> list[Waiting]:
        """Runs with tickets, first in line first."""
        return [
            slot_rows.waiting(row.value) for row in await self._store.query("control", slot_rows.tickets(agent_type))
        ]

    async def waiting(self, run: Candidate) -> Waiting | None:
        """The run's ticket."""
        (ticket,) = await self._store.get([slot_rows.ticket_key(run)])
        return None if ticket is None else slot_rows.waiting(ticket)

    async def holds(self, run: Candidate) -> bool:
        """Whether the run has a slot."""
        return await self._store.get([slot_rows.slot_key(run)]) != [None]

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _known(self, agent_type: str) -> Counters:
        """The counters that decide about the agent: its own and the account's, and only where all agents share a limit,
        everybody's: a fleet may have a thousand agents."""
        names = (agent_type, None)
        values = await self._store.get([slot_rows.counter_key(name) for name in names])
        known = {
            name: slot_rows.counted(name, value) for name, value in zip(names, values, strict=True) if value is not None
        }
        default = self._account_default(known)
        account = replace(known.get(None, SlotCounter(None)), default=default)
        return known if account.bound is None else await self.counters()

    def _account_default(self, known: Counters) -> int | None:
        if self._account_limit != STORED:
            return self._account_limit
        return known.get(None, SlotCounter(None)).default

    async def _learned(self, agent_type: str, default: int | None) -> Counters | None:
        """The counters, with the defaults as this process knows them: stored, so that who grants knows them too, and with a
        row each where a limit applies. None: something was written, here or elsewhere."""
        known = await self._known(agent_type)
        wanted = {agent_type: default, None: self._account_default(known)}
        for name, value in wanted.items():
            found = known.get(name)
            if found is not None and found.default != value:
                seen = When(equal={"default": found.default})
                await refused(
                    self._store, "set_default", [Update(slot_rows.counter_key(name), set={"default": value}, when=seen)]
                )
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
        return known

    async def _in_line(self, run: Candidate) -> Admission:
        """Where the run stands, once those who can go have gone."""
        granted = await self._grant(run.agent_type)
        others = tuple(other for other in granted if other != run)
        slot, ticket = await self._place(run)
        if slot is not None:
            return Admission("held", granted=others)
        if ticket is None:
            return Admission("over", granted=others)  # it ended meanwhile
        queued = (await self._known(run.agent_type))[run.agent_type].queued
        return Admission("waits", slot_rows.waiting(ticket), others, queued)

    async def _place(self, run: Candidate) -> tuple[Value | None, Value | None]:
        """The run's slot and ticket. Both are not read at one moment: a ticket that was not there may have become the slot
        just before."""
        slot, ticket = await self._store.get([slot_rows.slot_key(run), slot_rows.ticket_key(run)])
        if slot is None and ticket is None:
            (slot,) = await self._store.get([slot_rows.slot_key(run)])
        return slot, ticket

    async def _grant(self, agent_type: str | None) -> list[Candidate]:
        """Free slots of the agent, or of all, to the first in line. Where the account has a limit, its line is one."""
        granted: list[Candidate] = []
        try:
            while (found := await self._first(agent_type)) is not None:
                heir, ops = found
                try:
                    given = await refused(self._store, "grant_slot", ops) is None
                except StoreError:
                    if not (given := await self.holds(heir)):
                        raise
                if given:
                    granted.append(heir)
        except StoreError:
            if not granted:
                raise  # else those that have a slot are begun, and the others are the next caller's
        return granted

    async def _first(self, agent_type: str | None) -> tuple[Candidate, list[Operation]] | None:
        """Who goes next, and how; None where nobody waits who could."""
        known = await self.counters() if agent_type is None else await self._known(agent_type)
        account = known.get(None, SlotCounter(None))
        alone = agent_type is not None and account.bound is None
        lines = [
            (name, counter)
            for name, counter in (known.items() if account.has_room else ())
            if name is not None and counter.queued and counter.has_room and (not alone or name == agent_type)
        ]
        pages = await asyncio.gather(
            *(self._store.query("control", slot_rows.tickets(name), limit=1) for name, _ in lines)
        )
        firsts = [(row.key.sort, counter, row) for (_, counter), rows in zip(lines, pages, strict=True) for row in rows]
        if not firsts:
            return None
        _, counter, row = min(firsts, key=lambda first: first[0])
        heir = slot_rows.candidate(row.value)
        return heir, [_gone(row.key, heir), *_taking(heir, counter, account, ticket=row.value)]

    async def _drop(self, run: Candidate, ticket: dict[str, Any]) -> bool:
        ops = [_gone(slot_rows.ticket_key(run), run), *_less("queued", run, ticket)]
        return await refused(self._store, "drop_ticket", ops) is None

    def _queueing(self, run: Candidate, mine: SlotCounter, account: SlotCounter, bounded: bool) -> list[Operation]:
        """A ticket. Never beside a slot: a second caller may have been given one for the same run."""
        timeout_s = self._timeout_s if mine.queue_timeout_s is None else mine.queue_timeout_s
        shared = account.bound is not None
        ticket = {**asdict(run), "shared": shared, "expires_at": run.order + timeout_s}
        room = When(below={"queued": self._longest(mine)}) if bounded else None
        ops: list[Operation] = [
            Put(slot_rows.ticket_key(run), ticket, ABSENT),
            Check(slot_rows.slot_key(run), ABSENT),
            Update(slot_rows.counter_key(run.agent_type), add={"queued": 1}, when=room),
        ]
        return [*ops, Update(slot_rows.counter_key(None), add={"queued": 1})] if shared else ops

    def _longest(self, counter: SlotCounter) -> int:
        return self._max_queue if counter.max_queue is None else counter.max_queue

    async def _set(self, agent_type: str | None, changes: dict[str, Any]) -> None:
        key = slot_rows.counter_key(agent_type)
        made = {**slot_rows.fresh(self._account_default({}) if agent_type is None else None), **changes}
        while True:
            there = await self._store.get([key]) != [None]
            if (
                await refused(self._store, "set_limit", [Update(key, set=changes) if there else Put(key, made, ABSENT)])
                is None
            ):
                return


def _open(known: Counters, agent_type: str) -> bool:
    """Whether a newcomer may take a slot: there is one, nobody of its own waits, and where the account has a limit, nobody
    waits who could go. (Who cannot, because its agent is full or stopped, holds up no others.)"""
    mine, account = known[agent_type], known[None]
    if mine.queued or not mine.has_room or not account.has_room:
        return False
    return account.bound is None or not any(c.queued and c.has_room for c in known.values() if c.agent_type is not None)


def _taking(
    run: Candidate, mine: SlotCounter, account: SlotCounter, *, ticket: dict[str, Any] | None = None
) -> list[Operation]:
    """A slot: in the place of the run's ticket, or where nobody waits."""
    shared = account.bound is not None
    took = {"running": 1} if ticket is None else {"running": 1, "queued": -1}
    ops: list[Operation] = [
        Put(slot_rows.slot_key(run), {**asdict(run), "shared": shared}, ABSENT),
        Update(
            slot_rows.counter_key(run.agent_type), add=took, when=_room(mine, {"queued": 0} if ticket is None else {})
        ),
    ]
    common = {"running": 1} if shared else {}
    if ticket is not None and ticket["shared"]:
        common["queued"] = -1
    if common:
        ops.append(Update(slot_rows.counter_key(None), add=common, when=_room(account, {})))
    return ops


def _room(counter: SlotCounter, equal: dict[str, Any]) -> When:
    """The limits are as read, and there is room below them."""
    below = {} if counter.bound is None else {"running": counter.bound}
    return When(equal={"limit": counter.limit, "default": counter.default, **equal}, below=below)


def _less(what: str, run: Candidate, row: dict[str, Any]) -> list[Operation]:
    names = [run.agent_type, None] if row["shared"] else [run.agent_type]
    return [Update(slot_rows.counter_key(name), add={what: -1}) for name in names]


def _gone(key: Key, run: Candidate) -> Operation:
    return Delete(key, When(equal={"run_id": run.run_id}))


def _check_number(what: str, number: int | None) -> None:
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
        raise InvalidInputError(f"{what} is {number!r}; it must be a whole number, 0 or more, or None")
