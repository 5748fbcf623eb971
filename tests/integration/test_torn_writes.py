"""The rows that a write depends on may have changed since they were read. Then the write is refused, and its caller reads
again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.torn_store import Torn

from helix.adapters.system import SystemIds
from helix.core.budget import BudgetDefinition
from helix.core.caching import CacheEvictionPolicy
from helix.core.periods import TokenPeriod
from helix.core.row_keys import SESSION
from helix.core.scaling import ScalingDecision
from helix.core.session_row import SessionRow
from helix.core.usage import Usage
from helix.core.usage_parts import Share
from helix.fleet.decisions import DecisionLog
from helix.ports.launcher import Part
from helix.ports.model import Question
from helix.ports.state_store import Key, Put, Value
from helix.services.budget_rows import Demand
from helix.services.row_budgets import RowBudgets
from helix.services.row_cache import Known, RowCache
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate
from helix.services.usage_counters import Counters, read_counts, read_totals
from helix.services.work_queue import WorkQueue
from helix.testing.clocks import SetClock
from helix.testing.crash import Crash, CrashPoints

NOW = 1_795_271_707.0
FIRST, SECOND, THIRD = (Candidate("a", f"run-{n}", f"session-{n}", NOW + n) for n in range(3))


def anything(value: Value) -> bool:
    return True


class TestWork:
    """At most one worker holds an execution at a time."""

    @pytest.fixture
    async def queue(self) -> WorkQueue:
        store = Torn()
        session = SessionRow(
            session_id="s", agent_type="a", stream_id="s", status="running", version=1, run_id="r", turn=1
        )
        await store.transact("begin", [Put(Key("sessions", "s", SESSION), session.dump())])
        queue = WorkQueue(store, SetClock(NOW), lease_s=10)
        await queue.start(Part("default", "s", "r", 1, 1))
        return queue

    def meanwhile(self, queue: WorkQueue, at: str) -> tuple[Torn, WorkQueue, SetClock]:
        """The store, another process's view of it, and the clock of both."""
        assert isinstance(queue.store, Torn) and isinstance(queue.clock, SetClock)
        queue.store.at = at
        return queue.store, WorkQueue(queue.store, queue.clock, lease_s=10), queue.clock

    async def test_of_two_who_see_it_free_one_has_it(self, queue: WorkQueue) -> None:
        store, other, _ = self.meanwhile(queue, "work")
        store.then = lambda: other.claim("w2", anything)
        assert await queue.claim("w1", anything) is None
        [row] = await queue.open_work()
        assert (row.value["owner"], row.value["claims"]) == ("w2", 1)

    async def test_a_holder_that_speaks_up_in_time_keeps_it(self, queue: WorkQueue) -> None:
        store, other, clock = self.meanwhile(queue, "work")
        work = await queue.claim("w1", anything)
        assert work is not None
        clock.advance(11)
        store.then = lambda: other.renew(work)
        assert await queue.claim("w2", anything) is None
        assert await other.finish(work)

    async def test_a_death_that_is_told_while_it_is_claimed_is_counted(self, queue: WorkQueue) -> None:
        store, other, _ = self.meanwhile(queue, "work")
        work = await queue.claim("w1", anything)
        assert work is not None and await queue.give_back(work)
        store.then = lambda: other.release_dead_worker("w1", died=True)
        found = await queue.claim("w2", anything) or await queue.claim("w2", anything)
        assert found is not None and found.deaths == 1
        assert await queue.give_back(found)
        [row] = await queue.open_work()
        assert row.value["deaths"] == 1

    async def test_two_who_tell_of_a_death_at_once_count_it_once(self, queue: WorkQueue) -> None:
        store, other, _ = self.meanwhile(queue, "work")
        work = await queue.claim("w1", anything)
        assert work is not None and await queue.give_back(work)
        store.then = lambda: other.release_dead_worker("w1", died=True)
        await queue.release_dead_worker("w1", died=True)
        [row] = await queue.open_work()
        assert row.value["deaths"] == 1

    async def test_whoever_had_it_in_between_is_the_former_holder(self, queue: WorkQueue) -> None:
        store, other, _ = self.meanwhile(queue, "work")

        async def has_a_look() -> None:
            work = await other.claim("w2", anything)
            assert work is not None and await other.give_back(work)

        store.then = has_a_look
        found = await queue.claim("w1", anything) or await queue.claim("w1", anything)
        assert found is not None and found.former == "w2"
        assert await queue.finish(found)

    async def test_a_late_word_of_a_death_takes_nothing_from_the_next_holder(self, queue: WorkQueue) -> None:
        store, other, _ = self.meanwhile(queue, "work")
        work = await queue.claim("w1", anything)
        assert work is not None

        async def passes_on() -> None:
            assert await other.give_back(work) and await other.claim("w2", anything)

        store.then = passes_on
        assert await queue.release_dead_worker("w1", died=True) == []
        [row] = await queue.open_work()
        assert (row.value["owner"], row.value["deaths"]) == ("w2", 0)

    async def test_who_held_it_before_is_another_holder_than_the_same_worker_now(self, queue: WorkQueue) -> None:
        before = await queue.claim("w1", anything)
        assert before is not None and await queue.give_back(before)
        now = await queue.claim("w1", anything)
        assert now is not None and now.former == "w1"
        assert [await queue.renew(before), await queue.give_back(before), await queue.finish(before)] == [False] * 3
        await queue.release_dead_worker("w1", died=False)
        assert [await queue.renew(now), await queue.give_back(now), await queue.finish(now)] == [False] * 3

    async def test_it_ends_once(self, queue: WorkQueue) -> None:
        part = Part("default", "s", "r", 1, 1)
        store, other, clock = self.meanwhile(queue, "execution#")

        async def ends_first() -> None:
            await other.stop(part, "first")
            clock.advance(1)

        store.then = ends_first
        await queue.stop(part, "second")
        assert len(await store.query("control", "work-ended")) == 1


class TestSlots:
    @pytest.fixture
    async def slots(self) -> RowSlots:
        slots = RowSlots(Torn(), account_limit=None)
        assert (await slots.admit(FIRST, default=1)).state == "held"
        return slots

    def torn(self, slots: RowSlots) -> Torn:
        assert isinstance(slots._store, Torn)
        return slots._store

    async def test_two_callers_for_one_run_put_one_ticket(self, slots: RowSlots) -> None:
        store = self.torn(slots)
        store.at, store.then = "#tickets#", lambda: RowSlots(store, account_limit=None).admit(SECOND, default=1)
        assert (await slots.admit(SECOND, default=1)).state == "waits"
        assert (await slots.counters())["a"].queued == len(await slots.queue("a")) == 1

    async def test_two_callers_for_one_run_take_one_slot(self, slots: RowSlots) -> None:
        store = self.torn(slots)
        assert (await slots.admit(FIRST, default=9)).state == "held"
        store.at, store.then = "#slots#", lambda: RowSlots(store, account_limit=None).admit(SECOND, default=9)
        assert (await slots.admit(SECOND, default=9)).state == "held"
        assert (await slots.counters())["a"].running == len(await slots.holders("a")) == 2

    async def test_two_callers_for_one_run_give_back_one_slot(self, slots: RowSlots) -> None:
        store = self.torn(slots)
        store.at, store.then = "#slots#", lambda: RowSlots(store, account_limit=None).release(FIRST)
        assert await slots.release(FIRST) == []
        assert (await slots.counters())["a"].running == 0

    async def test_the_last_place_in_the_line_is_one_runs(self, slots: RowSlots) -> None:
        store = self.torn(slots)
        short = RowSlots(store, account_limit=None, max_queue=1)
        store.at, store.then = "#tickets#", lambda: RowSlots(store, account_limit=None).admit(SECOND, default=1)
        assert (await short.admit(THIRD, default=1)).state == "full"
        assert [ticket.candidate for ticket in await slots.queue("a")] == [SECOND]

    async def test_nobody_takes_a_slot_before_one_that_came_to_wait_meanwhile(self, slots: RowSlots) -> None:
        """The process that released the slot died before the first run in line got it."""
        store, points = self.torn(slots), CrashPoints(at=("transact:grant_slot:before", 0))
        await slots.release(FIRST)

        async def a_slot_is_left_over() -> None:
            other = RowSlots(store, account_limit=None)
            assert (await other.admit(FIRST, default=1)).state == "held"
            assert (await other.admit(SECOND, default=1)).state == "waits"
            with pytest.raises(Crash):
                await RowSlots(points.store(store), account_limit=None).release(FIRST)

        store.at, store.then = "#tickets#", a_slot_is_left_over
        assert (await slots.admit(THIRD, default=1)).state == "waits"
        assert await slots.holders("a") == [SECOND]

    async def test_a_run_that_has_a_slot_puts_no_ticket(self, slots: RowSlots) -> None:
        store = self.torn(slots)
        other = RowSlots(store, account_limit=None)

        async def takes_its_turn() -> None:
            assert (await other.admit(SECOND, default=1)).state == "waits"
            assert await other.release(FIRST) == [SECOND]

        store.at, store.then = "#tickets#", takes_its_turn
        assert (await slots.admit(SECOND, default=1)).state == "held"
        assert await slots.queue("a") == [] and (await slots.counters())["a"].queued == 0

    async def test_a_limit_is_not_changed_from_what_it_was(self, slots: RowSlots) -> None:
        """Another definition changed it meanwhile, so the process that decided by the old one decides again."""
        store = self.torn(slots)
        store.at, store.then = "admission", lambda: RowSlots(store, account_limit=None).admit(SECOND, default=5)
        assert not await slots.change_limit("a", 1, 2)
        assert (await slots.counters())["a"].bound == 5
        store.then = lambda: RowSlots(store, account_limit=None).set_limit("a", 7)
        assert not await slots.change_limit("a", 5, 6)
        assert (await slots.counters())["a"].bound == 7

    async def test_a_slot_is_taken_below_the_limit_of_now(self, slots: RowSlots) -> None:
        store = self.torn(slots)
        assert (await slots.admit(FIRST, default=2)).state == "held"
        store.at, store.then = "admission", lambda: RowSlots(store, account_limit=None).set_limit("a", 1)
        assert (await slots.admit(SECOND, default=2)).state == "waits"
        assert len(await slots.holders("a")) == 1


async def test_two_callers_for_one_draw_take_it_once() -> None:
    store = Torn()
    budgets, other = RowBudgets(store), RowBudgets(store)
    definition = BudgetDefinition(scope="global", period=TokenPeriod.DAILY, unit="micros", limit=1000)
    assert await budgets.open(definition, NOW, await budgets.define(definition, NOW))
    name, _ = definition.window(NOW)
    wanted = [Demand(name, "micros", 100, 100)]
    store.at, store.then = "run#", lambda: other.draw("r", 1, wanted)
    assert await budgets.draw("r", 1, wanted) == {name: 100}
    [state] = await budgets.get([name])
    assert state is not None and state.remaining == 900


class TestDecisions:
    async def test_of_two_who_decide_at_once_one_does_whatever_was_decided_before(self) -> None:
        log = DecisionLog(Torn(), SetClock(NOW), SystemIds())
        up = ScalingDecision(before=1, after=2, reason="5 wait")
        await log.record("a", up)
        standing = await log.read_standing("a")
        made = [await log.propose("a", standing, up) for _ in range(2)]
        assert made[0] is not None and made[1] is None
        assert (await log.read_standing("a")).pending == made[0]

    async def test_a_change_by_hand_while_a_decision_is_marked_counts(self) -> None:
        store, clock = Torn(), SetClock(NOW)
        log, other = (DecisionLog(store, clock, SystemIds()) for _ in range(2))
        row = await log.propose("a", await log.read_standing("a"), ScalingDecision(before=1, after=2, reason="5 wait"))
        assert row is not None
        by_hand = ScalingDecision(before=3, after=1, rule="operator", reason="somebody said so")
        store.at, store.then = "scaling#", lambda: other.record("a", by_hand)
        assert await log.confirm("a", row)
        standing = await log.read_standing("a")
        assert (standing.state.down_at, standing.state.up_at, standing.pending) == (NOW, NOW, None)


class TestCache:
    """Each answer has one place in the order of eviction."""

    def made(self, policy: CacheEvictionPolicy, clock: SetClock) -> tuple[Torn, RowCache, RowCache]:
        store = Torn()
        cache, other = (RowCache(store, max_size=1, policy=policy, clock=clock) for _ in range(2))
        store.at = "cache#"
        return store, cache, other

    async def test_a_hit_does_not_move_an_answer_that_was_replaced_meanwhile(self) -> None:
        store, cache, other = self.made(CacheEvictionPolicy.COST_BASED, SetClock(NOW))
        await cache.put("t", Question("q"), Known({}, "m", 1, 1, 10), None)
        store.then = lambda: other.put("t", Question("q"), Known({}, "m", 1, 1, 900), None)
        assert await cache.get("t", Question("q")) is not None
        assert (await cache.clear("t"), await cache.entries("t")) == (1, [])

    async def test_of_two_who_replace_an_answer_the_later_finds_its_place(self) -> None:
        clock = SetClock(NOW)
        store, cache, other = self.made(CacheEvictionPolicy.LRU, clock)
        await cache.put("t", Question("q"), Known({}, "m", 1, 1, 10), None)

        async def replaces() -> None:
            clock.advance(1)
            await other.put("t", Question("q"), Known({}, "m", 1, 1, 10), None)

        store.then = replaces
        await cache.put("t", Question("q"), Known({}, "m", 1, 1, 10), None)
        assert (await cache.clear("t"), await cache.entries("t")) == (1, [])

    async def test_what_has_expired_goes_once(self) -> None:
        clock = SetClock(NOW)
        store, cache, other = self.made(CacheEvictionPolicy.LRU, clock)
        await cache.put("t", Question("q"), Known({}, "m", 1, 1, 10), 5)
        clock.advance(6)
        store.then = lambda: other.get("t", Question("q"))
        assert await cache.get("t", Question("q")) is None
        for name in ("one", "two"):
            await cache.put("t", Question(name), Known({}, "m", 1, 1, 10), None)
        assert [entry.key for entry in await cache.entries("t")] == ["two"]


async def test_two_who_begin_a_counter_both_count() -> None:
    store, clock = Torn(), SetClock(NOW)
    whose: dict[str, Any] = {"agent": "a", "tenant": None, "at": NOW}
    used = [Share("m", "completion", Usage(prompt_tokens=7, calls=1))]
    store.at, store.then = "usage#", lambda: Counters(store, clock).count("first", [], used, **whose)
    assert await Counters(store, clock).count("second", [], used, **whose) is None
    for counts in (await read_counts(store, "agent:a"), await read_totals(store)):
        assert [(count.input, count.calls) for count in counts] == [(14, 2)]
