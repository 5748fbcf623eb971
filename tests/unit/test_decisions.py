"""Scaling decisions as rows: one at a time, each is written, applied and marked (`helix.fleet.decisions`)."""

from __future__ import annotations

import pytest

from helix.adapters.memory import MemoryStateStore
from helix.adapters.system import SystemIds
from helix.core.scaling import ScalingDecision
from helix.fleet.decisions import KEEP_S, DecisionLog
from helix.testing.clocks import SetClock

UP = ScalingDecision(before=1, after=2, rule="load", reason="5 wait", signals={"queue_depth": 5}, trigger="queue-depth")
HELD = ScalingDecision(before=2, after=2, wanted=3, rule="load", reason="cooldown", blocked_by="cooldown")


class Stage:
    def __init__(self) -> None:
        self.store, self.clock = MemoryStateStore(), SetClock(1_000_000)
        self.log = self.another()

    def another(self) -> DecisionLog:
        """Return the decision log of another process."""
        return DecisionLog(self.store, self.clock, SystemIds())


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_a_decision_is_written_before_it_is_applied_and_marked_after(stage: Stage) -> None:
    row = await stage.log.propose("a", await stage.log.read_standing("a"), UP)
    assert row is not None
    standing = await stage.another().read_standing("a")
    assert standing.pending == row and standing.state.up_at is None
    assert [r.applied for r in await stage.log.history("a")] == [False]
    stage.clock.advance(2)
    assert await stage.another().confirm("a", row)
    standing = await stage.log.read_standing("a")
    assert standing.pending is None and standing.state.up_at == 1_000_002
    [told] = await stage.log.history("a")
    assert told.applied and (told.before, told.after, told.reason, told.trigger) == (1, 2, "5 wait", "queue-depth")
    assert told.metrics == {"queue_depth": 5} and told.at == 1_000_000


async def test_of_two_who_decide_at_once_one_does(stage: Stage) -> None:
    first, second = await stage.log.read_standing("a"), await stage.another().read_standing("a")
    assert await stage.log.propose("a", first, UP) is not None
    assert await stage.another().propose("a", second, UP) is None
    assert len(await stage.log.history("a")) == 1


async def test_a_decision_is_marked_once(stage: Stage) -> None:
    row = await stage.log.propose("a", await stage.log.read_standing("a"), UP)
    assert row is not None
    assert await stage.log.confirm("a", row)
    before = await stage.log.read_standing("a")
    stage.clock.advance(100)
    assert not await stage.another().confirm("a", row)
    assert not await stage.log.give_up("a", row)
    assert await stage.log.read_standing("a") == before


async def test_what_was_given_up_starts_no_cooldown_and_says_so(stage: Stage) -> None:
    row = await stage.log.propose("a", await stage.log.read_standing("a"), UP)
    assert row is not None and await stage.log.give_up("a", row)
    standing = await stage.log.read_standing("a")
    assert standing.pending is None and standing.state.up_at is None
    assert [(r.applied, r.blocked_by) for r in await stage.log.history("a")] == [(False, "operator")]


async def test_machines_that_are_owed_stay_owed_when_the_next_decision_is_given_up(stage: Stage) -> None:
    row = await stage.log.propose("a", await stage.log.read_standing("a"), UP)
    assert row is not None and await stage.log.confirm("a", row, owed=True)
    row = await stage.log.propose("a", await stage.log.read_standing("a"), UP)
    assert row is not None and await stage.log.give_up("a", row)
    standing = await stage.another().read_standing("a")
    assert standing.owed
    assert await stage.log.mark_requested("a", standing) and not (await stage.log.read_standing("a")).owed


async def test_a_blocked_decision_is_told_once_for_as_long_as_it_is_blocked(stage: Stage) -> None:
    async def note(decision: ScalingDecision) -> bool:
        return await stage.log.record_block("a", await stage.log.read_standing("a"), decision) is not None

    quiet = ScalingDecision(before=2, after=2, reason="within the targets")
    assert not await note(quiet), "nothing is written for a quiet minute"
    assert (await stage.log.read_standing("a")).version == 0
    assert await note(HELD)
    assert not await note(HELD)
    assert await note(HELD.model_copy(update={"blocked_by": "throttling"}))
    assert not await note(quiet)
    assert await note(HELD)
    assert [r.blocked_by for r in await stage.log.history("a")] == ["cooldown", "throttling", "cooldown"]
    assert [r.wanted for r in await stage.log.history("a")] == [3, 3, 3]


async def test_a_change_by_hand_is_told_and_counts(stage: Stage) -> None:
    by_hand = ScalingDecision(before=2, after=5, rule="operator", reason="scaled by alice", trigger="cli")
    row = await stage.log.record("a", by_hand)
    assert row.applied and (await stage.log.read_standing("a")).state.up_at == row.at
    assert (await stage.log.read_standing("a")).state.instances is None


async def test_the_history_has_the_last_ones_the_oldest_first_for_a_month(stage: Stage) -> None:
    for after in range(2, 14):
        stage.clock.advance(60)
        await stage.log.record("a", UP.model_copy(update={"before": after - 1, "after": after}))
    assert [row.after for row in await stage.log.history("a")] == list(range(4, 14))
    assert [row.after for row in await stage.log.history("a", 2)] == [12, 13]
    assert await stage.log.history("b") == []
    for row in await stage.store.query("control", "decisions#a"):
        assert row.value["ttl"] == row.value["at"] + KEEP_S


async def test_forgetting_ends_cooldowns_and_keeps_the_history(stage: Stage) -> None:
    await stage.log.record("a", UP)
    await stage.log.forget("a")
    assert (await stage.log.read_standing("a")).state.up_at is None
    assert len(await stage.log.history("a")) == 1


async def test_the_last_triggers_are_known_again(stage: Stage) -> None:
    for number in range(25):
        row = await stage.log.propose("a", await stage.log.read_standing("a"), UP, event=f"m{number}")
        assert row is not None and await stage.log.confirm("a", row)
    seen = (await stage.log.read_standing("a")).seen
    assert seen == tuple(f"m{number}" for number in range(5, 25))
