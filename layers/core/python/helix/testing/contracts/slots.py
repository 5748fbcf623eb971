"""The contract of `Slots`: slot_exact and no_lost_wakeup (PROTOCOL 10)."""

from __future__ import annotations

import asyncio

import pytest

from helix.core.errors import InvalidInputError
from helix.ports.slots import Slots

A = "agent"
PATIENCE_S = 30.0


class SlotsContract:
    """Give a fixture `slots`; and `other`, what a second process would use on the same data, if there can be one."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def other(self, slots: Slots) -> Slots:
        return slots

    async def test_slots_are_given_up_to_the_limit(self, slots: Slots, other: Slots) -> None:
        """The lowest free numbers first; whoever comes later waits."""
        assert await slots.take(A, 2, "r1") and await other.take(A, 2, "r2")
        assert not await slots.take(A, 2, "r3")
        assert await other.owners(A) == {0: "r1", 1: "r2"} and await other.waiting(A) == ["r3"]
        assert await slots.take("another", 1, "r3"), "agents do not share slots"

    async def test_taking_again_changes_nothing(self, slots: Slots) -> None:
        """An owner stays owner of its one slot, a waiter keeps its one ticket."""
        assert await slots.take(A, 1, "r1") and await slots.take(A, 1, "r1")
        assert not await slots.take(A, 1, "r2") and not await slots.take(A, 1, "r2")
        assert await slots.owners(A) == {0: "r1"} and await slots.waiting(A) == ["r2"]

    async def test_a_release_passes_the_slot_on(self, slots: Slots, other: Slots) -> None:
        """The first in line owns it in the same moment, and is named to be started."""
        await slots.take(A, 1, "r1", order="1")
        await slots.take(A, 1, "r2", order="2")
        await other.take(A, 1, "r3", order="3")
        assert await other.release(A, 1, "r1") == "r2"
        assert await slots.owners(A) == {0: "r2"} and await slots.waiting(A) == ["r3"]
        assert await slots.take(A, 1, "r2"), "who was granted a slot has it"
        assert await slots.release(A, 1, "r2") == "r3" and await slots.release(A, 1, "r3") is None
        assert await slots.owners(A) == {} and await slots.waiting(A) == []

    async def test_the_line_is_ordered(self, slots: Slots) -> None:
        """Lower priority numbers first, also below zero; within them lower `order`."""
        await slots.take(A, 1, "owner")
        line = [("late", 0, "9"), ("soon", 0, "1"), ("low", 5, "0"), ("high", -3, "7"), ("higher", -10, "8")]
        for run, priority, order in line:
            assert not await slots.take(A, 1, run, priority=priority, order=order)
        wanted = ["higher", "high", "soon", "late", "low"]
        assert await slots.waiting(A) == wanted
        owner, served = "owner", []
        while (heir := await slots.release(A, 1, owner)) is not None:
            served.append(heir)
            owner = heir
        assert served == wanted

    async def test_nobody_jumps_the_line(self, slots: Slots) -> None:
        """While someone waits, a newcomer gets no slot, however soon it asks."""
        await slots.take(A, 1, "r1")
        await slots.take(A, 1, "waiter", order="1")
        assert await slots.release(A, 1, "r1") == "waiter"
        assert not await slots.take(A, 1, "newcomer", order="2")

    async def test_a_release_by_a_stranger_changes_nothing(self, slots: Slots) -> None:
        """Who holds neither slot nor ticket cannot free those of others; a repeat is such a stranger."""
        await slots.take(A, 1, "r1")
        await slots.take(A, 1, "r2")
        assert await slots.release(A, 1, "stranger") is None
        assert await slots.owners(A) == {0: "r1"} and await slots.waiting(A) == ["r2"]
        assert await slots.release(A, 1, "r1") == "r2"
        assert await slots.release(A, 1, "r1") is None
        assert await slots.owners(A) == {0: "r2"}

    async def test_a_waiter_may_leave_the_line(self, slots: Slots) -> None:
        """Its ticket goes, and nobody else's."""
        await slots.take(A, 1, "r1")
        await slots.take(A, 1, "r2", order="2")
        await slots.take(A, 1, "r3", order="3")
        assert await slots.release(A, 1, "r2") is None
        assert await slots.waiting(A) == ["r3"] and await slots.release(A, 1, "r1") == "r3"

    async def test_a_lower_limit_frees_slots_as_their_owners_end(self, slots: Slots) -> None:
        """Nobody is put out; slots beyond the limit are not passed on."""
        for n in range(3):
            await slots.take(A, 3, f"r{n}")
        await slots.take(A, 3, "waiter")
        assert await slots.release(A, 1, "r1") is None and await slots.release(A, 1, "r2") is None
        assert await slots.owners(A) == {0: "r0"} and await slots.waiting(A) == ["waiter"]
        assert await slots.release(A, 1, "r0") == "waiter"

    async def test_a_higher_limit_serves_the_line(self, slots: Slots) -> None:
        """The next release under the new limit, by whomever, finds the free slot and the first in line."""
        await slots.take(A, 1, "r1")
        await slots.take(A, 1, "r2")
        assert await slots.release(A, 2, "somebody") == "r2"
        assert await slots.owners(A) == {0: "r1", 1: "r2"}

    async def test_wrong_limits_are_refused(self, slots: Slots) -> None:
        """A negative limit raises `InvalidInputError`; with 0 everyone waits."""
        with pytest.raises(InvalidInputError):
            await slots.take(A, -1, "r1")
        assert not await slots.take(A, 0, "r1")
        assert await slots.release(A, 1, "somebody") == "r1"

    async def test_two_never_share_a_slot(self, slots: Slots, other: Slots) -> None:
        """Many at once: exactly as many owners as slots, everyone else in line, each once."""
        taken = await asyncio.gather(*((slots, other)[n % 2].take(A, 4, f"r{n:02d}") for n in range(16)))
        owners, waiting = await slots.owners(A), await slots.waiting(A)
        assert sorted(owners) == [0, 1, 2, 3] and taken.count(True) == 4
        assert sorted([*owners.values(), *waiting]) == [f"r{n:02d}" for n in range(16)]
        assert {f"r{n:02d}" for n, got in enumerate(taken) if got} == set(owners.values())

    async def test_no_wake_up_is_lost(self, slots: Slots, other: Slots) -> None:
        """Runs come, work and end in any order: never more at work than slots, and every waiter is started."""
        granted = {f"r{n:02d}": asyncio.Event() for n in range(24)}
        working: set[str] = set()

        async def live(n: int) -> None:
            run, mine = f"r{n:02d}", (slots, other)[n % 2]
            await asyncio.sleep(n % 6 * 0.002)
            if not await mine.take(A, 3, run, priority=n % 3, order=run):
                await granted[run].wait()
            working.add(run)
            assert len(working) <= 3 and run in (await mine.owners(A)).values()
            await asyncio.sleep(n % 4 * 0.001)
            working.discard(run)
            heir = await (other, slots)[n % 2].release(A, 3, run)
            if heir is not None:
                granted[heir].set()

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(live(n) for n in range(24)))
        assert await slots.owners(A) == {} and await slots.waiting(A) == []

    async def test_coming_while_the_last_slot_is_freed(self, slots: Slots, other: Slots) -> None:
        """Who comes in that moment takes the slot or is passed it: never does one wait beside a free slot."""
        for n in range(12):
            agent = f"agent{n}"
            await slots.take(agent, 1, "owner")
            heir, got = await asyncio.gather(slots.release(agent, 1, "owner"), other.take(agent, 1, "newcomer"))
            assert await slots.owners(agent) == {0: "newcomer"} and await slots.waiting(agent) == []
            assert got or heir == "newcomer"

    async def test_leaving_and_being_served_at_once(self, slots: Slots, other: Slots) -> None:
        """A waiter that leaves while its slot is being granted passes it on: the slot is not lost with it."""
        for n in range(8):
            agent = f"agent{n}"
            for run in ("owner", "leaver", "next"):
                await slots.take(agent, 1, run, order=str(("owner", "leaver", "next").index(run)))
            heirs = await asyncio.gather(slots.release(agent, 1, "owner"), other.release(agent, 1, "leaver"))
            assert await slots.owners(agent) == {0: "next"} and await slots.waiting(agent) == []
            assert "next" in heirs
