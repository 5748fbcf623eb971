"""Races of the `RowSlots` contract: many concurrent callers, each at the worst moment."""

from __future__ import annotations

import asyncio

from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate

A, B = "agent", "other-agent"
PATIENCE_S = 30.0


def run(n: float, agent: str = A, *, priority: int = 0) -> Candidate:
    """Return the run that was claimed as the n-th."""
    return Candidate(agent, f"run{n:06.1f}", f"session{n}", float(n), priority)


async def runs(slots: RowSlots, agent: str = A) -> tuple[list[float], list[float]]:
    """Return the numbers of the runs that have a slot and of those that wait, after checking that the counters agree."""
    held = sorted(holder.order for holder in await slots.holders(agent))
    line = [ticket.candidate.order for ticket in await slots.queue(agent)]
    counter = (await slots.counters())[agent]
    assert (counter.running, counter.queued) == (len(held), len(line))
    return held, line


async def at_rest(slots: RowSlots) -> bool:
    """Return whether no slot is held, no run waits and the counters agree."""
    for name, counter in (await slots.counters()).items():
        assert (counter.running, counter.queued) == (0, 0), counter
        assert name is None or await runs(slots, name) == ([], [])
    return True


class SlotsRaces:
    async def test_never_more_than_the_limit(self, slots: RowSlots, other: RowSlots) -> None:
        """Many concurrent runs get exactly as many slots as there are. Every other run waits with one ticket."""
        reported = await asyncio.gather(*((slots, other)[n % 2].admit(run(n), default=4) for n in range(16)))
        held, line = await runs(slots)
        assert len(held) == 4 and sorted([*held, *line]) == list(range(16))
        begun = {n for n, admission in enumerate(reported) if admission.state == "held"}
        begun |= {int(heir.order) for admission in reported for heir in admission.granted}
        assert begun == set(held), "each run with a slot is reported to a caller that starts it"

    async def test_one_run_is_admitted_once(self, slots: RowSlots, other: RowSlots) -> None:
        """Concurrent requests for one run yield one slot or one ticket, never both."""
        for n in range(6):
            asks = [(slots, other)[k % 2].admit(run(n), default=3) for k in range(4)]
            assert len({admission.state for admission in await asyncio.gather(*asks)}) == 1
        assert await runs(slots) == ([0, 1, 2], [3, 4, 5])

    async def test_the_account_is_never_exceeded(self, slots: RowSlots, other: RowSlots) -> None:
        await slots.set_limit(None, 3)
        comers = [run(n, (A, B)[n % 2]) for n in range(12)]
        await asyncio.gather(*((slots, other)[n % 2].admit(comer, default=2) for n, comer in enumerate(comers)))
        held = [*await slots.holders(A), *await slots.holders(B)]
        line = [*await slots.queue(A), *await slots.queue(B)]
        assert len(held) == 3 and len(line) == 9
        await asyncio.gather(*((slots, other)[n % 2].release(comer) for n, comer in enumerate(comers)))
        assert await at_rest(slots)

    async def test_no_wake_up_is_lost(self, slots: RowSlots, other: RowSlots) -> None:
        """Runs come, work and end in any order. Never more work than there are slots, and every waiting run is started."""
        begun = {f"{n}": asyncio.Event() for n in range(24)}
        working: set[float] = set()

        def begin(heirs: list[Candidate] | tuple[Candidate, ...]) -> None:
            for heir in heirs:
                begun[f"{heir.order:.0f}"].set()

        async def live(n: int) -> None:
            mine, me = (slots, other)[n % 2], run(n, priority=n % 3)
            await asyncio.sleep(n % 6 * 0.002)
            admission = await mine.admit(me, default=3)
            begin(admission.granted)
            if admission.state != "held":
                await begun[f"{n}"].wait()
            working.add(n)
            assert len(working) <= 3 and await mine.holds(me)
            await asyncio.sleep(n % 4 * 0.001)
            working.discard(n)
            begin(await (other, slots)[n % 2].release(me))

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(live(n) for n in range(24)))
        assert await at_rest(slots)

    async def test_coming_while_the_last_slot_is_freed(self, slots: RowSlots, other: RowSlots) -> None:
        """A run that arrives at that moment gets the slot directly or from the release. It never waits beside a free
        slot."""
        for n in range(12):
            owner, newcomer = run(1, f"agent{n}"), run(2, f"agent{n}")
            await slots.admit(owner, default=1)
            heirs, reported = await asyncio.gather(slots.release(owner), other.admit(newcomer, default=1))
            assert await runs(slots, f"agent{n}") == ([2], [])
            assert reported.state == "held" or newcomer in heirs, "a caller knows that the run must be started"

    async def test_coming_while_the_limit_is_raised(self, slots: RowSlots, other: RowSlots) -> None:
        async def raised(agent: str) -> list[Candidate]:
            await slots.set_limit(agent, 1)
            return await slots.grant()

        for n in range(8):
            agent = f"agent{n}"
            await slots.set_limit(agent, 0)
            heirs, reported = await asyncio.gather(raised(agent), other.admit(run(1, agent), default=1))
            assert await runs(slots, agent) == ([1], [])
            assert reported.state == "held" or run(1, agent) in heirs

    async def test_leaving_and_being_served_at_once(self, slots: RowSlots, other: RowSlots) -> None:
        """A waiting run that ends while it is granted a slot passes the slot on, so it is not lost."""
        for n in range(8):
            owner, leaver, last = (run(k, f"agent{n}") for k in range(3))
            for comer in (owner, leaver, last):
                await slots.admit(comer, default=1)
            heirs = await asyncio.gather(slots.release(owner), other.release(leaver))
            assert await runs(slots, f"agent{n}") == ([2], [])
            assert last in [heir for found in heirs for heir in found]

    async def test_one_that_ends_is_released_once(self, slots: RowSlots, other: RowSlots) -> None:
        """Several workers that finish one run free one slot."""
        for n in range(6):
            await slots.admit(run(n), default=3)
        heirs = await asyncio.gather(*((slots, other)[k % 2].release(run(0)) for k in range(4)))
        assert [heir for found in heirs for heir in found] == [run(3)]
        assert await runs(slots) == ([1, 2, 3], [4, 5])
