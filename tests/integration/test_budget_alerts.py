"""Alerts of budgets. Each is raised once per window and level, by the first run that reaches it. It is heard in process,
and stored until it was delivered."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.support_budgets import bounded_executor, manager, says, worker
from tests.support_run import World, play

from helix.core.budget import TokenAlert
from helix.core.periods import TokenPeriod
from helix.fleet.alerts import mark_published, unpublished_alerts
from helix.fleet.budgets import BudgetManager
from helix.testing.clocks import SetClock

TOTAL, HOURLY = TokenPeriod.TOTAL, TokenPeriod.HOURLY


def levels(alerts: list[TokenAlert]) -> list[tuple[str, str]]:
    return [(alert.scope, alert.level) for alert in alerts]


async def spend(executor: Any, *tokens: int, name: str = "worker", **options: Any) -> list[str]:
    """Start runs of that many tokens each, one after the other."""
    seen: list[str] = []
    for _ in tokens:
        _, result, _ = await play(executor, worker(name), **options)
        seen.append(result.status)
    return seen


async def test_each_level_is_raised_once(world: World) -> None:
    """Levels are raised as money is drawn, and the refusal is the last one. Reading the budget raises none."""
    executor = bounded_executor(world, [says("done", 100)] * 20)
    budgets = manager(executor)
    await budgets.set_budget(1000, TOTAL)
    assert await spend(executor, *[100] * 7) == ["completed"] * 7
    assert await budgets.get_alerts() == []
    await spend(executor, 100)
    assert levels(await budgets.get_alerts()) == [("global", "warning")]
    await spend(executor, 100, 100)
    await budgets.check_budget()
    assert levels(await budgets.get_alerts()) == [("global", "critical"), ("global", "warning")]
    assert await spend(executor, 100, 100) == ["failed", "failed"]
    await budgets.check_budget()
    found = await budgets.get_alerts()
    assert levels(found) == [("global", "exceeded"), ("global", "critical"), ("global", "warning")]
    assert [(a.current_tokens, a.budget_limit, a.utilization) for a in reversed(found)] == [
        (800, 1000, 0.8),
        (1000, 1000, 1.0),
        (1000, 1000, 1.0),
    ]
    assert "800 tokens of 1000 tokens" in found[-1].message and found[-1].window == "total"


async def test_a_refusal_raises_what_is_reached_and_that_it_refused(quick_world: World) -> None:
    """This holds however little is used, because the next call may need more than is left."""
    executor = bounded_executor(quick_world, [says("done", 210)])
    budgets = manager(executor)
    await budgets.set_budget(50, TOTAL)
    await spend(executor, 1)
    (alert,) = await budgets.get_alerts()
    assert (alert.level, alert.current) == ("exceeded", 0) and "refused" in alert.message
    await budgets.set_budget(250, TOTAL, "worker")
    await budgets.remove_budget(TOTAL)
    await spend(executor, 1, 1)
    found = [a for a in await budgets.get_alerts() if a.agent_id == "worker"]
    assert [a.level for a in found] == ["exceeded", "warning"]


async def test_what_a_last_call_used_beyond_its_reservation_is_alerted(quick_world: World) -> None:
    """The remaining amount decreases although no later call draws."""
    executor = bounded_executor(quick_world, [says("done", 500)])
    await manager(executor).set_budget(400, TOTAL)
    assert await spend(executor, 500) == ["completed"]
    assert [a.level for a in await manager(executor).get_alerts()] == ["exceeded", "critical", "warning"]


async def test_many_at_once_raise_one(world: World) -> None:
    """64 runs in two processes reach the same levels at the same time."""
    both = [bounded_executor(world, [says("done", 100)] * 64) for _ in range(2)]
    heard: list[TokenAlert] = []
    for executor in both:
        made = manager(executor)
        made.register_alert_callback(heard.append)
        made.attach(executor.engine)
    await manager(both[0]).set_budget(1000, TOTAL)
    handles = await asyncio.gather(*(both[n % 2].execute(worker(), "go") for n in range(64)))
    await asyncio.gather(*(handle.result(timeout_s=30) for handle in handles))
    assert sorted(a.level for a in await manager(both[1]).get_alerts()) == ["critical", "exceeded", "warning"]
    assert sorted(a.level for a in heard) == ["critical", "exceeded", "warning"]


async def test_a_new_window_is_warned_of_anew(quick_world: World) -> None:
    clock = SetClock(1_800_000_000)
    executor = bounded_executor(quick_world, [says("done", 100)] * 4, clock=clock)
    budgets = manager(executor)
    await budgets.set_budget(110, HOURLY)
    for _ in range(2):
        handle = await executor.execute(worker(), "go")
        assert (await handle.result()).status == "completed"
        clock.advance(3600)
    found = await budgets.get_alerts(level="warning")
    assert [a.level for a in found] == ["warning", "warning"]
    assert found[0].window > found[1].window and found[0].timestamp - found[1].timestamp == 3600


async def test_levels_are_the_budgets_own(quick_world: World) -> None:
    executor = bounded_executor(quick_world, [says("done", 100)] * 4)
    budgets = manager(executor)
    await budgets.set_budget(1000, TOTAL, warning=0.1, critical=0.3)
    await spend(executor, 100)
    assert [a.level for a in await budgets.get_alerts()] == ["warning"]
    await spend(executor, 100, 100)
    assert [a.level for a in await budgets.get_alerts()] == ["critical", "warning"]


async def test_each_level_is_raised_again_after_the_limit_was_raised(quick_world: World) -> None:
    """A new limit is a new definition, also within the same window. Setting the same limit again is not."""
    executor = bounded_executor(quick_world, [says("done", 100)] * 30)
    budgets = manager(executor)
    await budgets.set_budget(100, TOTAL)
    await spend(executor, 100)
    assert [a.level for a in await budgets.get_alerts()] == ["critical", "warning"]
    await budgets.set_budget(1000, TOTAL)
    await spend(executor, *[100] * 6)
    assert len(await budgets.get_alerts()) == 2
    await spend(executor, 100, 100, 100)
    found = [(a.level, a.limit) for a in await budgets.get_alerts()]
    assert found == [("critical", 1000), ("warning", 1000), ("critical", 100), ("warning", 100)]
    await budgets.set_budget(1000, TOTAL)
    await spend(executor, 100)
    assert [a.level for a in await budgets.get_alerts()][:2] == ["exceeded", "critical"]


async def test_callbacks_of_both_kinds_hear_and_none_stops_another(
    quick_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    executor = bounded_executor(quick_world, [says("done", 100)])
    budgets = manager(executor)
    heard: list[str] = []

    def broken(alert: TokenAlert) -> None:
        raise RuntimeError("no ears")

    async def later(alert: TokenAlert) -> None:
        await asyncio.sleep(0)
        heard.append(f"later {alert.level}")

    for callback in (broken, lambda alert: heard.append(f"now {alert.level}"), later):
        budgets.register_alert_callback(callback)
    budgets.attach(executor.engine)
    budgets.attach(executor.engine)
    await budgets.set_budget(110, TOTAL)
    with caplog.at_level(logging.ERROR, "helix"):
        assert await spend(executor, 100) == ["completed"]
    assert heard == ["now warning", "later warning"]
    assert "raised; dropped (RuntimeError" in caplog.text


async def test_a_listener_of_the_engine_that_raises_is_logged(
    quick_world: World, caplog: pytest.LogCaptureFixture
) -> None:
    executor = bounded_executor(quick_world, [says("done", 100)])

    def broken(alert: TokenAlert) -> None:
        raise RuntimeError("no ears")

    executor.engine.on_alert.append(broken)
    await manager(executor).set_budget(110, TOTAL)
    assert await spend(executor, 100) == ["completed"]
    assert "raised; dropped (RuntimeError" in caplog.text


async def test_alerts_wait_until_somebody_told_them(world: World) -> None:
    """The oldest comes first. Each is delivered at least once, and marking one twice changes nothing."""
    executor = bounded_executor(world, [says("done", 100)] * 3)
    budgets = manager(executor)
    await budgets.set_budget(104, TOTAL)
    await spend(executor, 100, 100)
    store = executor.store
    waiting = await unpublished_alerts(store)
    assert [a.level for a in waiting] == ["warning", "critical", "exceeded"]
    assert await unpublished_alerts(store, limit=1) == waiting[:1]
    await mark_published(store, waiting[:1])
    await mark_published(store, waiting[:1])
    assert await unpublished_alerts(store) == waiting[1:]
    assert [(a.level, a.published) for a in await budgets.get_alerts()] == [
        ("exceeded", False),
        ("critical", False),
        ("warning", True),
    ]
    await mark_published(store, waiting)
    assert await unpublished_alerts(store) == []


async def test_alerts_of_other_processes_are_told_to_callbacks(world: World) -> None:
    """Each callback receives each alert once, oldest first, except those that an attached engine raised here. Without
    callbacks none is delivered."""
    executor, other = (bounded_executor(world, [says("done", 100)] * 2) for _ in range(2))
    await manager(executor).set_budget(210, TOTAL)
    await spend(other, 100, 100)
    deaf, hearing = BudgetManager(executor.store), BudgetManager(executor.store)
    assert await deaf.publish_alerts() == 0 and len(await unpublished_alerts(executor.store)) == 2
    heard: list[str] = []
    hearing.register_alert_callback(lambda alert: heard.append(alert.level))
    hearing.attach(executor.engine)
    await spend(executor, 100)
    assert heard == ["exceeded"]
    assert await hearing.publish_alerts() == 3
    assert await hearing.publish_alerts() == 0
    assert heard == ["exceeded", "warning", "critical"]
    assert [alert.published for alert in await hearing.get_alerts()] == [True] * 3


async def test_alerts_are_found_by_level_and_agent(quick_world: World) -> None:
    executor = bounded_executor(quick_world, {"one": [says("done", 100)] * 2, "two": [says("done", 100)] * 2})
    budgets = manager(executor)
    for name in ("one", "two"):
        await budgets.set_budget(110, TOTAL, name)
        await spend(executor, 1, 1, name=name)
    await budgets.set_budget(0.000110, TOTAL, tenant="ada", unit="usd")
    await budgets.remove_budget(TOTAL, "one")
    await spend(executor, 1, name="one", user_id="ada")
    assert len(await budgets.get_alerts()) == 5
    assert {a.agent_id for a in await budgets.get_alerts(agent_id="two")} == {"two"}
    assert [a.scope for a in await budgets.get_alerts("exceeded")] == ["agent:two", "agent:one"]
    assert len(await budgets.get_alerts(limit=2)) == 2
    (dollars,) = [a for a in await budgets.get_alerts("warning") if a.scope == "tenant:ada"]
    assert (dollars.current_usd, dollars.current_tokens, dollars.agent_id) == (0.0001, None, None)
    assert "0.0001 USD of 0.00011 USD" in dollars.message


async def test_an_alert_has_its_time_to_live(quick_world: World) -> None:
    executor = bounded_executor(quick_world, [says("done", 100)])
    await BudgetManager(executor.store).set_budget(110, TOTAL)
    await spend(executor, 100)
    for partition in ("alerts", "alerts#untold"):
        (row,) = await executor.store.query("control", partition)
        assert row.value["ttl"] > executor.engine.clock.now() + 30 * 24 * 3600
