"""`govern` over real slots and budgets. Load moves the limit, an exhausted budget closes it, and an operator's limit
stays."""

from __future__ import annotations

import pytest
from tests.support.governing_stage import AGENT, HOUR, World

from helix.core.budget import GLOBAL
from helix.core.errors import StoreError
from helix.core.llm_metrics import LLMMetrics
from helix.core.periods import TokenPeriod
from helix.fleet.alerts import unpublished_alerts
from helix.fleet.governing import Trigger

ALARM = Trigger("queue-depth", frozenset({AGENT}), "m1")


@pytest.fixture
def world() -> World:
    return World()


async def test_a_queue_raises_the_limit_and_those_who_waited_go_in_order(world: World) -> None:
    await world.limit(2)
    await world.ask(7)
    assert await world.govern(ALARM) == {"up": 1}
    assert await world.bound() == 3
    assert world.begun == ["r0003"], "the first in line"
    [row] = await world.governor().log.history(AGENT)
    assert (row.before, row.after, row.applied, row.trigger) == (2, 3, True, "queue-depth")
    assert row.reason == "5 runs wait, and the threshold is 5" and row.metrics["queue_depth"] == 5
    assert world.kept == [3]
    [told] = world.heard
    assert (told.agent, told.values, told.details["after"]) == (AGENT, {"ScalingDecisions": 1}, 3)


async def test_a_full_queue_takes_two_steps_a_minute_until_nobody_waits(world: World) -> None:
    await world.limit(1)
    await world.ask(14)
    for _ in range(4):
        await world.govern()
        world.clock.advance(60)
    assert world.begun == [f"r{n:04d}" for n in range(2, 8)], "1 > 3 > 5 > 6 > 7, in their order"
    assert await world.bound() == 7


@pytest.mark.parametrize("jitter", [(0.0, -3.0, 2.0, -8.0), (9.0, 0.0, 9.0, 0.0), (-1.0, -1.0, -1.0, -1.0)])
async def test_each_look_by_the_schedule_may_take_a_step_up(
    world: World, monkeypatch: pytest.MonkeyPatch, jitter: tuple[float, ...]
) -> None:
    """The cooldown of 60 s equals the interval of the schedule. Looks come some seconds early or late, and a step takes a
    second."""

    async def slow(agent: str, instances: int) -> None:
        world.clock.advance(1.5)

    monkeypatch.setattr(world, "set_instances", slow)
    await world.limit(1)
    await world.ask(9)
    found, start = [], world.clock.now() + 20
    for minute, late in enumerate(jitter):
        world.clock.advance(start + 60 * minute + late - world.clock.now())
        await world.govern()
        found.append(await world.bound())
    assert found == [2, 3, 4, 5]


async def test_an_alarm_takes_no_step_before_the_cooldown_is_over(world: World) -> None:
    await world.limit(1)
    await world.ask(9)
    await world.govern()
    world.clock.advance(50)
    assert await world.govern(ALARM) == {"held by cooldown": 1}
    world.clock.advance(5)
    assert await world.govern() == {"up": 1}, "the check by the schedule"


async def test_quiet_minutes_bring_the_limit_down_to_the_minimum(world: World) -> None:
    await world.ask(1)
    await world.end_all()
    assert await world.bound() == 8, "the limit of the definition"
    for _ in range(7):
        assert await world.govern() == {"down": 1}
        world.clock.advance(300)
    assert await world.bound() == 1
    assert await world.govern() == {"at rest": 1}


async def test_nobody_is_asked_about_an_agent_at_rest_unless_an_alarm_names_it(world: World) -> None:
    await world.limit(1)
    assert await world.govern() == {"at rest": 1}
    assert world.asked == []
    await world.govern(ALARM)
    assert world.asked == [AGENT]


async def test_a_lower_limit_ends_nobody(world: World) -> None:
    await world.limit(4)
    await world.ask(4)
    await world.spend(await world.budget(10), 9.6)
    assert await world.govern() == {"down": 1}
    assert await world.bound() == 3 and len(await world.slots.holders(AGENT)) == 4


async def test_nothing_goes_up_into_provider_throttling_and_the_history_says_so_once(world: World) -> None:
    await world.limit(2)
    await world.ask(8)
    world.calls = LLMMetrics(throttles=4, p95_latency_ms=9000)
    assert await world.govern() == {"held by throttling": 1}
    for _ in range(5):
        world.clock.advance(60)
        assert await world.govern() == {"held": 1}
    assert await world.bound() == 2
    [row] = await world.governor().log.history(AGENT)
    assert (row.blocked_by, row.wanted, row.applied) == ("throttling", 3, False)


async def test_spent_money_closes_the_intake_and_a_new_hour_reopens_it(world: World) -> None:
    budget = await world.budget(10)
    await world.limit(4)
    await world.ask(6)
    await world.spend(budget, 10)
    assert await world.govern() == {"down": 1}
    assert await world.bound() == 0 and world.kept == [0]
    await world.ask(1)
    assert len(await world.slots.queue(AGENT)) == 3
    world.clock.advance(60)
    assert await world.govern() == {"at rest": 1}, "a check could not change anything"
    await world.end_all()
    world.clock.advance(3600 - 60)
    assert await world.govern() == {"up": 1}
    assert await world.bound() == 1, "the minimum, and from there by load"
    assert world.begun == ["r0005"]
    rules = [row.rule for row in await world.governor().log.history(AGENT)]
    assert rules == ["budget stop", "budget reset"]


async def test_a_raised_budget_reopens_too(world: World) -> None:
    budget = await world.budget(10)
    await world.limit(4)
    await world.ask(1)
    await world.spend(budget, 10)
    await world.govern()
    world.clock.advance(60)
    await world.budget(20)
    assert await world.govern() == {"up": 1}
    assert await world.stopped_by() is None


async def test_a_stop_has_its_notice_and_its_name(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The notice comes in the same look, once for each window. The counter names the budget until an operator sets a
    limit."""
    await world.budget(100, TokenPeriod.DAILY)
    budget = await world.budget(10)
    await world.limit(4)
    await world.ask(1)
    await world.spend(budget, 10)
    assert await world.govern() == {"down": 1}
    assert await world.stopped_by() == f"budget {budget.name}"
    assert [alert.level for alert in await unpublished_alerts(world.store)] == ["warning", "critical", "exceeded"]
    assert [alert.level for alert in world.alerts] == ["warning", "critical", "exceeded"]
    assert world.alerts[-1].message.endswith(
        "10 USD of 10 USD are used or set aside; agent 'worker' accepts no more runs"
    )
    assert any("from 4 to 0" in record.message and record.levelname == "WARNING" for record in caplog.records)
    [row] = await world.governor().log.history(AGENT)
    assert row.budget == budget.name

    await world.limit(2)
    assert await world.stopped_by() is None, "an operator admits runs again"
    world.clock.advance(60)
    assert await world.govern() == {"down": 1} and await world.stopped_by() == f"budget {budget.name}"
    assert len(world.alerts) == 3, "this window has raised them already"
    await world.slots.set_limit(AGENT, 0)
    assert await world.stopped_by() is None, "an operator's stop"


async def test_a_stop_after_a_raised_limit_is_announced_again(world: World) -> None:
    budget = await world.budget(10)
    await world.limit(4)
    await world.ask(1)
    await world.spend(budget, 10)
    await world.govern()
    world.clock.advance(60)
    budget = await world.budget(20)
    await world.govern()
    world.alerts.clear()
    await world.spend(budget, 10)
    world.clock.advance(60)
    assert await world.govern() == {"down": 1}
    assert [(alert.level, alert.limit) for alert in world.alerts] == [
        (level, 20_000_000) for level in ("warning", "critical", "exceeded")
    ]


async def test_what_calls_at_work_have_set_aside_stops_nobody(world: World) -> None:
    """Four concurrent runs reserve all that is left, use some of it, and return the rest. The limit falls once, when the
    money is spent, and stays."""
    budget = await world.budget(10)
    await world.limit(4)
    await world.ask(4)
    await world.spend(budget, 8.5)
    found = []
    for minute in range(10):
        runs = [f"run{minute}-{n}" for n in range(4)]
        for run in runs:
            await world.hold(budget, run, 1.0)
        await world.govern()
        found.append(await world.bound())
        world.clock.advance(50)
        for run in runs:
            await world.end(budget, run, 0.05 if minute < 7 else 0.025)
        await world.govern()
        found.append(await world.bound())
        world.clock.advance(10)
    assert found == sorted(found, key=lambda limit: -(limit or 0)), "down, and never up again"
    assert found[0] == 4 and found[-1] == 0
    rules = [row.rule for row in await world.governor().log.history(AGENT, 50) if row.action != "hold"]
    assert rules.count("budget stop") == 1 and "budget reset" not in rules


async def test_a_budget_that_refused_a_call_in_sight_of_its_line_is_used_up(world: World) -> None:
    from helix.core.budget import TokenAlert

    budget = await world.budget(10)
    await world.limit(4)
    await world.ask(1)
    await world.spend(budget, 9.7)
    window = budget.window(world.clock.now())[0]
    told = {
        "scope": budget.scope,
        "period": budget.period,
        "window": window,
        "unit": "micros",
        "current": 1,
        "limit": 1,
    }
    alert = TokenAlert(alert_id="a", level="exceeded", message="", utilization=1, timestamp=world.clock.now(), **told)
    from helix.services.row_budgets import RowBudgets

    assert await RowBudgets(world.store).alert(window, alert, 0)
    await world.govern()
    assert await world.bound() == 0


@pytest.mark.parametrize(
    ("scope", "period"),
    [
        (f"agent:{AGENT}", TokenPeriod.DAILY),
        (f"agent:{AGENT}", TokenPeriod.MONTHLY),
        (f"agent:{AGENT}", TokenPeriod.WEEKLY),
        (f"agent:{AGENT}", TokenPeriod.TOTAL),
        (GLOBAL, TokenPeriod.HOURLY),
    ],
)
async def test_every_budget_that_binds_the_agent_counts(world: World, scope: str, period: TokenPeriod) -> None:
    budget = await world.budget(10, period, scope)
    await world.limit(4)
    await world.ask(1)
    await world.spend(budget, 9.6)
    assert await world.govern() == {"down": 1}
    assert await world.bound() == 3
    await world.spend(budget, 0.4)
    assert await world.govern() == {"down": 1}
    assert await world.bound() == 0


async def test_critical_takes_one_a_minute_whatever_the_cooldown(world: World) -> None:
    budget = await world.budget(10)
    await world.limit(4)
    await world.ask(1)
    await world.spend(budget, 9.6)
    found = []
    for _ in range(4):
        await world.govern()
        found.append(await world.bound())
        world.clock.advance(60)
    assert found == [3, 2, 1, 1]


async def test_what_an_operator_closed_stays_closed(world: World) -> None:
    await world.limit(0)
    await world.ask(20)
    assert await world.govern(ALARM) == {"closed by an operator": 1}
    assert await world.bound() == 0
    await world.limit(2)
    assert await world.govern(ALARM) == {"up": 1}
    world.stopped = True
    world.clock.advance(600)
    assert await world.govern() == {"closed by an operator": 1}


async def test_one_run_may_always_begin_also_where_no_machine_is_kept(world: World) -> None:
    world.resources = {"min": 0, "max": 8}
    await world.limit(2)
    assert await world.govern() == {"down": 1}
    assert await world.bound() == 1 and world.kept == [0]
    world.clock.advance(600)
    assert await world.govern() == {"at rest": 1}
    await world.ask(7)
    assert await world.govern() == {"up": 1}
    assert world.kept == [0, 2]


async def test_equal_bounds_fix_the_limit(world: World) -> None:
    world.resources = {"min": 4, "max": 4}
    await world.limit(4)
    await world.ask(30)
    assert await world.govern(ALARM) == {"held": 1}
    assert await world.bound() == 4


async def test_options_of_the_policy_come_with_the_resources(world: World) -> None:
    world.resources = {"min": 1, "max": 8, "scaling": {"queue_depth_threshold": 2, "scale_up_step": 3}}
    await world.limit(2)
    await world.ask(4)
    await world.govern(ALARM)
    assert await world.bound() == 5


async def test_strangers_and_agents_without_limits_are_left_alone(world: World) -> None:
    await world.slots.set_limit("stranger", 3)
    assert await world.govern() == {"not limited": 1}
    assert await world.govern(Trigger("alarm", frozenset({"nobody"}))) == {}
    assert await world.govern(Trigger("alarm", frozenset())) == {}


@pytest.mark.parametrize("error", [StoreError("no metrics now"), ZeroDivisionError()])
async def test_one_that_cannot_be_looked_at_keeps_no_other_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def fail(agent: str, window_s: float) -> LLMMetrics:
        raise error

    monkeypatch.setattr(world, "read", fail)
    await world.limit(2)
    await world.ask(9)
    await world.slots.set_limit("other", 1)
    assert await world.govern() == {"failed": 1, "not limited": 1}


async def test_machines_that_could_not_be_asked_for_are_asked_for_at_the_next_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit holds without them, because no run waits for a warm function."""

    async def fail(agent: str, instances: int) -> None:
        raise StoreError("no machines now")

    await world.limit(2)
    await world.ask(8)
    with monkeypatch.context() as patch:
        patch.setattr(world, "set_instances", fail)
        assert await world.govern(ALARM) == {"up": 1}
    assert await world.bound() == 3 and world.kept == []
    world.clock.advance(10)
    await world.govern()
    await world.govern()
    assert world.kept == [3], "once"


async def test_what_there_is_no_time_for_is_first_a_minute_later(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.slots.set_limit(name, 1)
    governor = world.governor()
    assert dict(await governor.govern(Trigger(), world.delivery(left_s=1))) == {"left for the next look": 1}
    counters = await governor.slots.counters()
    firsts = []
    for _ in range(3):
        firsts.append(governor._order(counters, Trigger())[0])
        world.clock.advance(60)
    assert sorted(firsts) == ["a", "b", "c"]


def test_the_hour_is_full() -> None:
    assert HOUR % 3600 == 0
