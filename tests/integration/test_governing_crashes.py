"""`govern` runs twice, concurrently, late, or is cut off anywhere. It makes one decision, which is in force at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.governing_stage import AGENT, World

from helix.core.scaling import ScalingDecision
from helix.fleet.alerts import unpublished_alerts
from helix.fleet.governing import QUIET_S, Trigger
from helix.ports.state_store import Operation, StateStore
from helix.testing.crash import Crash, CrashPoints

ALARM = Trigger("queue-depth", frozenset({AGENT}), "message-1")
READS = ("get", "query")


async def crowded() -> World:
    world = World()
    await world.limit(2)
    await world.ask(9)
    return world


async def points_of_one_look() -> list[tuple[str, int]]:
    world, points = await crowded(), CrashPoints(skip=READS)
    await world.govern(ALARM, points.store(world.store))
    return points.points


async def test_a_look_cut_off_anywhere_is_completed_by_the_next() -> None:
    """It is cut off between writing, applying, granting and marking. There is one step in all, marked once, and the first
    run in line has its slot."""
    points = await points_of_one_look()
    assert {name.split(":")[1] for name, _ in points} >= {"decide_scaling", "change_limit", "confirm_scaling"}
    for point in points:
        world = await crowded()
        with pytest.raises(Crash):
            await world.govern(ALARM, CrashPoints(at=point, skip=READS).store(world.store))
        await world.govern(ALARM)  # the platform delivers it again
        world.clock.advance(QUIET_S - 1)
        await world.govern()  # and the schedule runs
        assert await world.bound() == 3, point
        assert len(await world.slots.holders(AGENT)) == 3, point
        rows = [row for row in await world.governor().log.history(AGENT) if row.action != "hold"]
        assert [(row.before, row.after, row.applied) for row in rows] == [(2, 3, True)], point
        standing = await world.governor().log.read_standing(AGENT)
        assert standing.pending is None and standing.state.instances == 3, point
        assert world.kept[-1] == 3, point


async def test_a_stop_cut_off_anywhere_is_announced_once() -> None:
    """The alert comes between the limit and the mark. No crash loses it, and no repeat raises it again."""

    async def spent() -> World:
        world = await crowded()
        await world.spend(await world.budget(10), 10)
        return world

    world, points = await spent(), CrashPoints(skip=READS)
    await world.govern(store=points.store(world.store))
    assert "alert" in {name.split(":")[1] for name, _ in points.points}
    for point in points.points:
        world = await spent()
        with pytest.raises(Crash):
            await world.govern(store=CrashPoints(at=point, skip=READS).store(world.store))
        await world.govern()
        assert await world.bound() == 0, point
        assert (await world.stopped_by() or "").startswith("budget agent:worker/hour"), point
        raised = [alert.level for alert in await unpublished_alerts(world.store)]
        assert raised == ["warning", "critical", "exceeded"], point


async def test_the_same_message_twice_steps_once() -> None:
    world = await crowded()
    assert await world.govern(ALARM) == {"up": 1}
    assert await world.govern(ALARM) == {"seen before": 1}
    world.clock.advance(120)
    assert await world.govern(ALARM) == {"seen before": 1}, "also after the cooldown"
    assert await world.govern() == {"up": 1}


async def test_an_alarm_and_the_schedule_within_seconds_step_once_even_at_critical_cost() -> None:
    world = await crowded()
    await world.limit(4)
    await world.spend(await world.budget(10), 9.6)
    assert await world.govern(Trigger("cost-critical", frozenset({AGENT}), "m1")) == {"down": 1}
    world.clock.advance(1)
    assert await world.govern() == {"unsettled": 1}
    assert await world.govern(Trigger("cost-warning", frozenset({AGENT}), "m2")) == {"unsettled": 1}
    assert await world.bound() == 3
    assert len(await world.governor().log.history(AGENT)) == 1
    world.clock.advance(QUIET_S)
    assert await world.govern() == {"down": 1}


async def test_spent_money_does_not_wait_for_a_change_to_settle() -> None:
    world = await crowded()
    await world.govern(ALARM)
    world.clock.advance(1)
    await world.spend(await world.budget(10), 10)
    await world.govern()
    assert await world.bound() == 0


async def test_many_who_look_at_once_make_one_step() -> None:
    """Their store calls interleave at every point."""
    for count in (2, 3, 8):
        world = await crowded()
        outcomes = await asyncio.gather(
            *(world.govern(Trigger("alarm", frozenset({AGENT}), f"m{n}"), Yielding(world.store)) for n in range(count))
        )
        assert await world.bound() == 3
        assert len(await world.slots.holders(AGENT)) == 3
        rows = await world.governor().log.history(AGENT)
        assert [(row.after, row.applied) for row in rows] == [(3, True)]
        assert sum(outcome.get("up", 0) for outcome in outcomes) == 1
        assert len(world.heard) == 1


async def test_who_stood_still_does_not_undo_what_came_after() -> None:
    """It decided 2 > 3 and paused before applying it. Another one applied it, and meanwhile an operator has set the limit
    to 2 again."""
    world = await crowded()
    stood = Standing(world.store, "change_limit")
    late = asyncio.create_task(world.govern(ALARM, stood))
    await stood.reached.wait()
    assert await world.govern() == {"up": 1}
    assert await world.bound() == 3
    await world.limit(2)
    stood.go_on.set()
    assert await late == {"decided elsewhere": 1}
    assert await world.bound() == 2


async def test_a_step_does_not_undo_an_operators_stop_that_came_between() -> None:
    world = await crowded()
    governor = world.governor()
    decision = ScalingDecision(before=2, after=3, rule="load", reason="9 wait")
    await governor.log.propose(AGENT, await governor.log.read_standing(AGENT), decision)
    await world.limit(0)
    assert await world.govern() == {"given up": 1}
    assert await world.bound() == 0
    assert [row.applied for row in await governor.log.history(AGENT)] == [False]
    assert await world.govern() == {"closed by an operator": 1}


class Standing:
    """A store that pauses before a transaction of this name, until the test releases it."""

    def __init__(self, inner: StateStore, name: str) -> None:
        self._inner, self._name = inner, name
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if name == self._name:
            self.reached.set()
            await self.go_on.wait()
        await self._inner.transact(name, operations)


class Yielding:
    """A store that lets other tasks run before and after each call."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)

        async def call(*arguments: object, **named: object) -> object:
            await asyncio.sleep(0)
            result = await verb(*arguments, **named)
            await asyncio.sleep(0)
            return result

        return call
