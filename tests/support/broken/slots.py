"""Slots that break one law each: another part of `broken`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.support.broken.stores import ChecksThenWrites

from helix.adapters.memory import MemoryStateStore
from helix.ports.state_store import Check, Delete, Key, Operation, StateStore, Update, Value, When
from helix.services.row_slots import RowSlots
from helix.services.slot_counters import Counters, SlotCounters
from helix.services.slot_rows import Admission, Candidate


class _Changed(MemoryStateStore):
    """A store that writes something other than it was asked to."""

    def __init__(self, change: Callable[[str, Sequence[Operation]], Sequence[Operation]]) -> None:
        super().__init__()
        self._change = change

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if changed := self._change(name, operations):
            await super().transact(name, changed)


class _Broken(RowSlots):
    def __init__(self, store: StateStore | None = None) -> None:
        super().__init__(store or MemoryStateStore())


class TakesWithoutCondition(_Broken):
    """Checks for a free slot before the write, instead of in it."""

    def __init__(self) -> None:
        super().__init__(ChecksThenWrites())


class QueuesWithoutLooking(_Broken):
    """Puts a ticket as decided a moment ago, without checking whether a slot was released meanwhile."""

    def __init__(self) -> None:
        super().__init__(_Slow())

    async def _in_line(self, run: Candidate) -> Admission:
        return Admission("waits", await self.waiting(run), queued=1)


class _Slow(MemoryStateStore):
    """A store that lets all other tasks go before a ticket is written."""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        await asyncio.sleep(0)
        return await super().get(keys)

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        for _ in range(12 if name == "take_ticket" else 1):
            await asyncio.sleep(0)
        await super().transact(name, operations)


class ForgetsTheHeir(_Broken):
    """Releases the slot without looking for a waiting run."""

    async def release(self, run: Candidate) -> list[Candidate]:
        limits = {name: counter.limit for name, counter in (await self.counters()).items()}
        await self.set_limit(run.agent_type, 0)
        await super().release(run)
        await self.set_limit(run.agent_type, limits.get(run.agent_type))
        return []


class ServesInAnyOrder(_Broken):
    """Orders the line by run id alone."""

    async def admit(
        self, run: Candidate, *, default: int | None, alive: Check | None = None, bounded: bool = True
    ) -> Admission:
        return await super().admit(replace(run, order=0.0, priority=0), default=default, alive=alive, bounded=bounded)


class ServesTheLowFirst(_Broken):
    """Takes low priorities for urgent."""

    async def admit(
        self, run: Candidate, *, default: int | None, alive: Check | None = None, bounded: bool = True
    ) -> Admission:
        turned = replace(run, priority=-run.priority)
        return await super().admit(turned, default=default, alive=alive, bounded=bounded)


class LetsThemJumpTheLine(_Broken):
    """Gives a free slot to a newcomer, whichever runs wait."""

    def __init__(self) -> None:
        super().__init__(_Changed(_whoever_waits))
        self._counters = self._line = _Line(self._store, None)

    async def admit(
        self, run: Candidate, *, default: int | None, alive: Check | None = None, bounded: bool = True
    ) -> Admission:
        self._line.unseen = True
        try:
            return await super().admit(run, default=default, alive=alive, bounded=bounded)
        finally:
            self._line.unseen = False


class _Line(SlotCounters):
    unseen = False

    async def read_for(self, agent_type: str) -> Counters:
        found = await super().read_for(agent_type)
        return {name: replace(c, queued=0) if self.unseen and c.has_room else c for name, c in found.items()}


def _whoever_waits(name: str, operations: Sequence[Operation]) -> Sequence[Operation]:
    return [replace(o, when=None) if name == "take_slot" and isinstance(o, Update) else o for o in operations]


class FreesForAnybody(_Broken):
    """Lets one run release the slot of another."""

    async def release(self, run: Candidate) -> list[Candidate]:
        holders = await self.holders(run.agent_type)
        if holders and run not in holders and await self.waiting(run) is None:
            run = holders[0]
        return await super().release(run)


class TakesTwice(_Broken):
    """Takes a repeated request for that of another run."""

    def __init__(self) -> None:
        super().__init__()
        self._times: Counter[str] = Counter()

    async def admit(
        self, run: Candidate, *, default: int | None, alive: Check | None = None, bounded: bool = True
    ) -> Admission:
        self._times[run.run_id] += 1
        again = replace(run, run_id=f"{run.run_id}/{self._times[run.run_id]}")
        return await super().admit(again, default=default, alive=alive, bounded=bounded)


class LeavesTicketsBehind(_Broken):
    """Leaves a run's ticket in the line when the run leaves it."""

    async def leave(self, run: Candidate) -> bool:
        return await self.waiting(run) is not None


class GivesUpSlotsToo(_Broken):
    """Releases the slot of a run that was granted one when it leaves the line."""

    async def leave(self, run: Candidate) -> bool:
        await self.release(run)
        return True


class ForgetsToCountDown(_Broken):
    """Keeps counting a released slot, so that it is never granted again."""

    def __init__(self) -> None:
        super().__init__(_Changed(lambda name, ops: ops[:1] if name == "release_slot" else ops))


class IgnoresALowerLimit(_Broken):
    """Passes a slot on, however many others are held."""

    async def release(self, run: Candidate) -> list[Candidate]:
        limit = (await self.counters())[run.agent_type].limit
        await self.set_limit(run.agent_type, None)
        heirs = await super().release(run)
        await self.set_limit(run.agent_type, limit)
        return heirs


class KnowsOnlyTheDefault(_Broken):
    """Ignores a limit that was set."""

    async def set_limit(self, agent_type: str | None, limit: int | None) -> None:
        await super().set_limit(agent_type, limit)
        await super().set_limit(agent_type, None)


class ChangesWhateverWasSet(_Broken):
    """Changes a limit without checking the current one."""

    async def change_limit(
        self, agent_type: str, before: int, after: int, *, alive: Check | None = None, stopped_by: str | None = None
    ) -> bool:
        await self.set_limit(agent_type, after)
        return True


class AdmitsTheDead(_Broken):
    """Does not check whether the run is still running."""

    async def admit(
        self, run: Candidate, *, default: int | None, alive: Check | None = None, bounded: bool = True
    ) -> Admission:
        return await super().admit(run, default=default, bounded=bounded)


class QueuesWithoutBound(_Broken):
    async def admit(
        self, run: Candidate, *, default: int | None, alive: Check | None = None, bounded: bool = True
    ) -> Admission:
        return await super().admit(run, default=default, alive=alive, bounded=False)


class RefusesWhoGoesOn(_Broken):
    """Applies the bound of the queue also to runs that continue."""

    async def admit(
        self, run: Candidate, *, default: int | None, alive: Check | None = None, bounded: bool = True
    ) -> Admission:
        return await super().admit(run, default=default, alive=alive, bounded=True)


class ForgetsTheAccount(_Broken):
    def __init__(self) -> None:
        super().__init__()
        self._counters = _OfAgents(self._store, None)


class _OfAgents(SlotCounters):
    async def read_all(self) -> Counters:
        return {name: counter for name, counter in (await super().read_all()).items() if name is not None}


class LetsOneHoldUpAll(_Broken):
    """Looks only at the first ticket of all, whether its agent may start or not."""

    async def _grant(self, agent_type: str | None, giver: str = "") -> list[Candidate]:
        known = await self.counters()
        firsts = [ticket.candidate for name in known if name is not None for ticket in (await self.queue(name))[:1]]
        first = min(firsts, key=lambda run: run.order, default=None)
        if None in known and first is not None and not known[first.agent_type].has_room:
            return []
        return await super()._grant(agent_type, giver)


class CountsWhatWasNotCounted(_Broken):
    """Returns slots from before the account limit to that limit."""

    def __init__(self) -> None:
        super().__init__(_Changed(self._also))

    def _also(self, name: str, operations: Sequence[Operation]) -> Sequence[Operation]:
        account = [o for o in operations if isinstance(o, Update) and o.key.sort == "account"]
        if name != "release_slot" or account:
            return operations
        return [*operations, Update(operations[1].key._replace(sort="account"), add={"running": -1})]


class LeavesSlotsWhereTicketsAre(_Broken):
    """Keeps the ticket after a grant, so that the run both waits and works."""

    def __init__(self) -> None:
        super().__init__(_Changed(_keeping))


def _keeping(name: str, operations: Sequence[Operation]) -> Sequence[Operation]:
    if name != "grant_slot":
        return operations
    return [Check(o.key, o.when or When()) if isinstance(o, Delete) else o for o in operations]
