"""A few hours of load through `govern`, real slots and real budgets (`bench/fleet`). With any seed, limits do not
oscillate, no budget is exceeded, and no limit rises while the provider throttles. `bench/fleet_day.py` replays whole
days."""

from __future__ import annotations

from collections import Counter

import pytest
from bench.fleet.judging import oscillations, overruns, percentile, ups_into_throttling
from bench.fleet.load import HOUR, Load, make_day
from bench.fleet.replay import Replay, Ruler, Told
from bench.fleet.rulers import AsInTheSource, Fixed, Governed

from helix.adapters.system import SystemIds
from helix.fleet.decisions import DecisionLog

pytestmark = pytest.mark.slow

# The provider throttles at 10:12 and 16:30, and the crawler runs away from 13:24 to 15:24.
MORNING, AFTERNOON = (9.5, 2.5), (13.0, 4.0)


async def replay(ruler: Ruler, seed: int, hours: tuple[float, float]) -> tuple[Load, Told]:
    load = make_day(seed, start=hours[0] * HOUR, hours=hours[1])
    return load, await Replay(load, ruler, start=hours[0] * HOUR).play()


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("hours", [MORNING, AFTERNOON], ids=["morning", "afternoon"])
async def test_a_day_is_governed(seed: int, hours: tuple[float, float]) -> None:
    load, told = await replay(Governed(), seed, hours)
    assert oscillations(told) == []
    assert overruns(load, told) == []
    assert ups_into_throttling(load, told) == []
    assert told.moves, "the hours have enough runs for a judgment"
    assert sum(told.ends.values()) == len(load.arrivals), "every run has an end"
    assert percentile(told.waits["support"], 0.95) < 900, "three quarters of an hour of throttling among two and a half"


async def test_a_runaway_agent_is_closed_when_its_money_is_spent_and_opened_in_the_next_hour() -> None:
    load, told = await replay(Governed(), 7, AFTERNOON)
    rules = [move.rule for move in told.moves if move.agent == "crawler"]
    stops = [move.at for move in told.moves if move.rule == "budget stop"]
    resets = [move.at for move in told.moves if move.rule == "budget reset"]
    assert {"budget stop", "budget reset"} <= set(rules)
    assert all(any(0 <= reset - hour * HOUR <= 60 for hour in range(24)) for reset in resets), "with the window"
    assert stops[0] < resets[0] < stops[1]
    assert told.spent("crawler") <= 5 * 4, "four hours, and the end of what they began"
    assert told.ends["support", "completed"] > 0.95 * sum(a.agent == "support" for a in load.arrivals)


@pytest.mark.slow
async def test_the_judges_bite() -> None:
    """The checks find the problems of the source's policies in the same hours."""
    load, told = await replay(AsInTheSource(), 7, AFTERNOON)
    assert oscillations(told)
    assert overruns(load, told)
    load, told = await replay(AsInTheSource(), 7, (16.0, 1.5))
    assert ups_into_throttling(load, told)
    load, told = await replay(Fixed(1.0), 7, AFTERNOON)
    assert overruns(load, told)


async def test_the_same_seed_is_the_same_day() -> None:
    first = (await replay(Governed(), 5, (13.0, 1.0)))[1]
    second = (await replay(Governed(), 5, (13.0, 1.0)))[1]
    assert first.moves == second.moves and first.waits == second.waits and first.micros == second.micros


async def test_every_move_is_a_decision_in_the_history() -> None:
    load = make_day(7, start=13 * HOUR, hours=3)
    day = Replay(load, Governed(), start=13 * HOUR)
    told = await day.play()
    log = DecisionLog(day.store, day.clock, SystemIds())
    for agent in ("support", "crawler"):
        rows = [row for row in await log.history(agent, 10_000) if row.applied]
        moves = [(move.before, move.after, move.rule) for move in told.moves if move.agent == agent]
        assert [(row.before, row.after, row.rule) for row in rows] == moves
    assert Counter(move.agent for move in told.moves).keys() == {"support", "crawler"}
