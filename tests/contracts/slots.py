"""Contract of `RowSlots`: slot_exact and no_lost_wakeup (docs/protocol.md#slots). The races are in `slots_races`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contracts.slots_races import A, B, SlotsRaces, at_rest, run, runs

from helix.core.errors import InvalidInputError
from helix.ports.state_store import ABSENT, Check, Key, When
from helix.services.row_slots import RowSlots

NOWHERE = Key("control", "nothing", "is here")


class SlotsContract(SlotsRaces):
    """Expects the fixture `slots` without an account limit. The fixture `other` is a second process's access to the same
    data, where that exists."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def other(self, slots: RowSlots) -> RowSlots:
        return slots

    async def test_without_a_limit_nothing_is_written(self, slots: RowSlots) -> None:
        """Without a limit every run may work, and no run is counted."""
        for n in range(3):
            assert (await slots.admit(run(n), default=None)).state == "free"
        assert await slots.counters() == {} and await slots.release(run(0)) == []
        assert await slots.holders(A) == [] and await slots.full(A, default=None) is None

    async def test_slots_are_given_up_to_the_limit(self, slots: RowSlots, other: RowSlots) -> None:
        """Runs beyond the limit wait. Agents do not share slots."""
        assert (await slots.admit(run(1), default=2)).state == "held"
        assert (await other.admit(run(2), default=2)).state == "held"
        waits = await slots.admit(run(3), default=2)
        assert (waits.state, waits.queued) == ("waits", 1)
        assert waits.waiting is not None and waits.waiting.candidate == run(3)
        assert await runs(slots) == ([1, 2], [3])
        assert (await slots.admit(run(4, B), default=1)).state == "held"
        assert await slots.holds(run(1)) and not await slots.holds(run(3))
        assert await slots.waiting(run(1)) is None and await slots.waiting(run(3)) == waits.waiting

    async def test_asking_again_changes_nothing(self, slots: RowSlots) -> None:
        """Asking again leaves a working run its slot and a waiting run its one ticket."""
        for _ in range(2):
            assert (await slots.admit(run(1), default=1)).state == "held"
            assert (await slots.admit(run(2), default=1)).state == "waits"
        assert await runs(slots) == ([1], [2])

    async def test_a_release_passes_the_slot_on(self, slots: RowSlots, other: RowSlots) -> None:
        """A release grants the slot to the first in line in the same transaction and returns that run so that it can be
        started."""
        for n in range(1, 4):
            await slots.admit(run(n), default=1)
        assert await other.release(run(1)) == [run(2)]
        assert await runs(slots) == ([2], [3])
        assert (await slots.admit(run(2), default=1)).state == "held", "each run that was granted a slot has it"
        assert await slots.release(run(2)) == [run(3)] and await slots.release(run(3)) == []
        assert await at_rest(slots)

    async def test_the_line_is_ordered(self, slots: RowSlots) -> None:
        """Higher priorities come first, and negative ones last. Runs of one priority are ordered by their claim, not by
        when they asked."""
        line = [
            run(9),
            run(1),
            run(0, priority=-5),
            run(7, priority=3),
            run(8, priority=10),
            run(8.5),
            run(6, priority=-5),
        ]
        await slots.set_limit(A, 0)
        for waiter in line:
            assert (await slots.admit(waiter, default=1)).state == "waits"
        wanted = [8, 7, 1, 8.5, 9, 0, 6]
        assert [ticket.candidate.order for ticket in await slots.queue(A)] == wanted
        await slots.set_limit(A, 1)
        served = []
        heirs = await slots.grant()
        while heirs:
            assert len(heirs) == 1
            served.append(heirs[0].order)
            heirs = await slots.release(heirs[0])
        assert served == wanted and await at_rest(slots)

    async def test_nobody_jumps_the_line(self, slots: RowSlots) -> None:
        """While a run waits, a newcomer does not get a slot, even if the limit was raised a moment ago."""
        await slots.admit(run(1), default=1)
        await slots.admit(run(2), default=1)
        assert await slots.release(run(1)) == [run(2)]
        assert (await slots.admit(run(3), default=1)).state == "waits"
        await slots.set_limit(A, 2)
        newcomer = await slots.admit(run(4), default=1)
        assert (newcomer.state, newcomer.granted) == ("waits", (run(3),)), "a newcomer first serves the runs before it"
        assert await runs(slots) == ([2, 3], [4])

    async def test_a_release_by_a_stranger_changes_nothing(self, slots: RowSlots) -> None:
        """A run that holds neither slot nor ticket cannot free those of others. A repeated release is such a case."""
        await slots.admit(run(1), default=1)
        await slots.admit(run(2), default=1)
        assert await slots.release(run(9)) == [] and not await slots.leave(run(9))
        assert await runs(slots) == ([1], [2])
        assert await slots.release(run(1)) == [run(2)]
        assert await slots.release(run(1)) == [] and await runs(slots) == ([2], [])

    async def test_a_waiter_may_leave_the_line(self, slots: RowSlots) -> None:
        """Leaving removes only the run's own ticket. It does not give up a slot."""
        for n in range(1, 5):
            await slots.admit(run(n), default=1)
        assert await slots.leave(run(2)) and not await slots.leave(run(2)) and not await slots.leave(run(1))
        assert await slots.release(run(3)) == []
        assert await runs(slots) == ([1], [4]) and await slots.release(run(1)) == [run(4)]

    async def test_a_lower_limit_ends_nobody(self, slots: RowSlots) -> None:
        """Runs keep their slots. New slots are granted when fewer than the new limit are held."""
        for n in range(1, 5):
            await slots.admit(run(n), default=3)
        await slots.set_limit(A, 1)
        assert await slots.grant() == [] and await slots.release(run(2)) == [] and await slots.release(run(3)) == []
        assert await runs(slots) == ([1], [4])
        assert await slots.release(run(1)) == [run(4)]

    async def test_a_limit_of_nothing_stops_the_intake(self, slots: RowSlots) -> None:
        """A limit of 0 makes every run wait. After it is raised, as many runs start as fit, in their order."""
        await slots.set_limit(A, 0)
        for n in range(1, 5):
            assert (await slots.admit(run(n), default=9)).state == "waits"
        assert await slots.grant() == []
        await slots.set_limit(A, 3)
        assert await slots.grant() == [run(1), run(2), run(3)] and await slots.grant() == []
        assert await slots.release(run(2)) == [run(4)]

    async def test_what_was_set_stands_over_the_default(self, slots: RowSlots, other: RowSlots) -> None:
        """A limit that was set overrides the default until it is removed. Then the newest default applies to grants."""
        await slots.admit(run(1), default=1)
        await slots.set_limit(A, 2)
        assert (await other.admit(run(2), default=1)).state == "held"
        await other.set_limit(A, None)
        assert (await slots.admit(run(3), default=1)).state == "waits"
        assert (await slots.admit(run(4), default=4)).granted == (run(3),)
        counter = (await other.counters())[A]
        assert (counter.limit, counter.default, counter.bound, counter.running) == (None, 4, 4, 4)
        assert (await slots.admit(run(5), default=None)).state == "free", "the definition no longer applies"
        for n in range(1, 5):
            assert await slots.release(run(n)) == []
        assert await at_rest(slots)

    async def test_a_limit_is_changed_from_what_was_seen(self, slots: RowSlots, other: RowSlots) -> None:
        """A change fails if the limit was set to another value meanwhile or `alive` no longer holds. Repeating it
        succeeds."""
        assert not await slots.change_limit(A, 1, 2), "no limit is set yet"
        await slots.admit(run(1), default=1)
        assert not await slots.change_limit(A, 1, 2, alive=Check(NOWHERE, When(equal={"status": "open"})))
        assert await slots.change_limit(A, 1, 2) and await other.change_limit(A, 1, 2)
        assert (await other.admit(run(2), default=1)).state == "held"
        await other.set_limit(A, 5)
        assert not await slots.change_limit(A, 2, 1) and (await slots.counters())[A].bound == 5

    async def test_wrong_numbers_are_refused(self, slots: RowSlots) -> None:
        wrong: list[Any] = [-1, 1.5, "2", True]
        for number in wrong:
            with pytest.raises(InvalidInputError):
                await slots.set_limit(A, number)
            with pytest.raises(InvalidInputError):
                await slots.set_queue(A, max_queue=number)
            with pytest.raises(InvalidInputError):
                await slots.admit(run(1), default=number)
        with pytest.raises(InvalidInputError):
            await slots.set_queue(A, timeout_s=0)
        with pytest.raises(InvalidInputError):
            await slots.admit(run(1, priority=1000), default=1)
        assert await slots.counters() == {}

    async def test_nothing_is_written_for_a_run_that_is_over(self, slots: RowSlots) -> None:
        """If `alive` does not hold, neither a slot nor a ticket is written."""
        dead = Check(NOWHERE, When(equal={"status": "running"}))
        assert (await slots.admit(run(1), default=1, alive=dead)).state == "over"
        assert (await slots.admit(run(1), default=1, alive=Check(NOWHERE, ABSENT))).state == "held"
        assert (await slots.admit(run(2), default=1, alive=dead)).state == "over"
        assert await runs(slots) == ([1], [])

    async def test_a_full_queue_refuses(self, slots: RowSlots) -> None:
        """A full queue refuses bounded runs. Unbounded runs, which were accepted earlier, may exceed it."""
        await slots.set_queue(A, max_queue=2)
        for n in range(1, 4):
            assert await slots.full(A, default=1) is None
            await slots.admit(run(n), default=1)
        refused = await slots.admit(run(4), default=1)
        assert (refused.state, refused.queued) == ("full", 2)
        full = await slots.full(A, default=1)
        assert full is not None and (full.queued, full.max_queue) == (2, 2)
        assert (await slots.admit(run(5), default=1, bounded=False)).state == "waits"
        assert await runs(slots) == ([1], [2, 3, 5])
        await slots.set_queue(A)
        assert (await slots.admit(run(4), default=1)).state == "waits", "the default bound is longer"

    async def test_without_a_queue_there_is_still_room(self, slots: RowSlots) -> None:
        await slots.set_queue(A, max_queue=0)
        assert (await slots.admit(run(1), default=1)).state == "held"
        assert (await slots.admit(run(2), default=1)).state == "full"
        assert await slots.release(run(1)) == [] and await slots.full(A, default=1) is None
        assert (await slots.admit(run(2), default=1)).state == "held"

    async def test_a_ticket_says_how_long_it_is_good(self, slots: RowSlots) -> None:
        """A ticket's deadline counts from the claim, and asking again does not extend it. Passing the deadline changes
        nothing by itself."""
        await slots.set_limit(A, 0)
        await slots.set_queue(A, timeout_s=2.5)
        for _ in range(2):
            waits = await slots.admit(run(10), default=None)
            assert waits.waiting is not None and waits.waiting.expires_at == 12.5
        assert [ticket.expires_at for ticket in await slots.queue(A)] == [12.5]

    async def test_the_account_bounds_all_agents(self, slots: RowSlots) -> None:
        """The account limit also bounds agents without a limit of their own. They share one line in the order of their
        claims."""
        await slots.set_limit(None, 2)
        comers = [run(1), run(2, B), run(3, B), run(4), run(5, B, priority=1)]
        states = [(await slots.admit(comer, default=None)).state for comer in comers]
        assert states == ["held", "held", "waits", "waits", "waits"]
        account = (await slots.counters())[None]
        assert (account.agent_type, account.running, account.queued) == (None, 2, 3)
        assert await slots.release(run(1)) == [run(5, B, priority=1)]
        assert await slots.release(run(2, B)) == [run(3, B)]
        assert await slots.release(run(3, B)) == [run(4)]
        assert await slots.release(run(4)) == [] and await slots.release(run(5, B, priority=1)) == []
        assert await at_rest(slots)

    async def test_who_cannot_go_holds_up_no_other_agent(self, slots: RowSlots) -> None:
        """The line of a stopped agent waits. Newcomers and waiting runs of other agents pass it."""
        await slots.set_limit(None, 1)
        await slots.set_limit(A, 0)
        assert (await slots.admit(run(1), default=None)).state == "waits"
        assert (await slots.admit(run(2, B), default=None)).state == "held"
        assert (await slots.admit(run(3, B), default=None)).state == "waits"
        assert await slots.release(run(2, B)) == [run(3, B)] and await slots.release(run(3, B)) == []
        await slots.set_limit(A, None)
        assert (await slots.admit(run(4, B), default=None)).granted == (run(1),), "it was first, and may start again"
        assert await runs(slots, B) == ([], [4])

    async def test_who_worked_before_there_was_an_account_limit_is_not_counted(self, slots: RowSlots) -> None:
        """A run releases slots and tickets only in the counters that counted it."""
        await slots.admit(run(1), default=1)
        await slots.admit(run(2), default=1)
        await slots.set_limit(None, 1)
        assert await slots.release(run(1)) == [run(2)]
        account = (await slots.counters())[None]
        assert (account.running, account.queued) == (1, 0)
        assert (await slots.admit(run(3, B), default=None)).state == "waits"
        await slots.set_limit(None, None)
        assert await slots.grant() == [run(3, B)]
        assert await slots.release(run(2)) == [] and await slots.release(run(3, B)) == []
        assert await at_rest(slots)
