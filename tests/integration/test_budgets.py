"""Budgets are enforced: no run exceeds a limit, and after a raise it continues where it stopped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support_budgets import Counted, asks, bounded_executor, found, left, manager, says, worker
from tests.support_run import Text, World, a_tool, call, play, result_of

from helix.core.periods import TokenPeriod
from helix.core.tools import create_sub_agent_tool
from helix.core.usage import Usage
from helix.engine.history import session_key
from helix.fleet.budgets import BudgetManager
from helix.ports.model import BaseAdapter

TOTAL, HOURLY, DAILY = TokenPeriod.TOTAL, TokenPeriod.HOURLY, TokenPeriod.DAILY
RUNS, FOR = 64, 10


def looking() -> Any:
    return a_tool("look", lambda given, ctx: "seen")


async def test_64_runs_at_once_against_a_budget_for_10(world: World) -> None:
    """Each call uses its worst case. Exactly ten are allowed, and the limit is not exceeded."""
    executor = bounded_executor(world, [says("done", 100)] * RUNS, metrics=(metrics := Counted()))
    budgets = manager(executor)
    await budgets.set_budget(FOR * 100, TOTAL)
    handles = await asyncio.gather(*(executor.execute(worker(), "go") for _ in range(RUNS)))
    results = await asyncio.gather(*(handle.result(timeout_s=30) for handle in handles))
    done = [r for r in results if r.status == "completed"]
    refused = [r for r in results if r.error_code == "budget_exceeded" and r.recoverable]
    assert (len(done), len(refused)) == (FOR, RUNS - FOR)
    status = (await budgets.check_budget())["global_total"]
    assert (status["current_tokens"], status["remaining"], status["utilization"]) == (1000, 0, 1.0)
    assert metrics.total("BudgetRefusals") == RUNS - FOR


async def test_what_was_set_aside_and_not_used_comes_back(world: World) -> None:
    """Many small calls fit, although only ten worst cases would."""
    executor = bounded_executor(world, [says("done", 7)] * RUNS)
    budget = await manager(executor).set_budget(1000, TOTAL)
    for _ in range(RUNS):
        handle = await executor.execute(worker(), "go")
        assert (await handle.result(timeout_s=10)).status == "completed"
    assert await left(executor, budget) == (1000, 1000 - 7 * RUNS)


async def test_a_run_reports_what_it_used_while_it_goes_on(world: World) -> None:
    """Its usage is reported with each draw, so the budget is one call behind, not one run. At the run's end it is exact."""
    script = [asks(90, call("look")), asks(80, call("look")), asks(70, call("look")), says("done", 60)]
    executor = bounded_executor(world, script)
    budget = await manager(executor).set_budget(1000, TOTAL)
    window, seen = budget.window(0)[0], list[tuple[int, int]]()

    async def state(given: Any = None, ctx: Any = None) -> str:
        (found,) = await executor.engine.budgets.get([window])
        assert found is not None
        seen.append((found.spent, found.limit - found.remaining))
        return "seen"

    await play(executor, worker(tools=[a_tool("look", state)]))
    await state()
    assert [spent for spent, _ in seen] == [0, 90, 170, 300]
    assert all(spent < held for spent, held in seen[:-1]) and seen[-1] == (300, 300)


@pytest.mark.parametrize(
    ("scope", "who"),
    [
        ({}, "everybody"),
        ({"agent_id": "worker"}, "its agent"),
        ({"tenant": "ada"}, "its user"),
        ({"session": "ses"}, "its session"),
        ({"agent_id": "other"}, "nobody here"),
        ({"tenant": "bob"}, "nobody here"),
        ({"session": "other"}, "nobody here"),
    ],
)
@pytest.mark.parametrize("unit", ["tokens", "usd"])
async def test_every_scope_binds_its_own(quick_world: World, scope: dict[str, Any], who: str, unit: Any) -> None:
    executor = bounded_executor(quick_world, [says("done", 100)])
    await manager(executor).set_budget(1_000_000, DAILY)
    await manager(executor).set_budget(0.00005 if unit == "usd" else 50, HOURLY, unit=unit, **scope)
    handle = await executor.execute(worker(), "go", session_id="ses", user_id="ada")
    result = await handle.result(timeout_s=10)
    assert result.status == ("completed" if who == "nobody here" else "failed")


async def test_scopes_combine_and_the_tightest_decides(quick_world: World) -> None:
    """A call is drawn from all scopes or from none."""
    executor = bounded_executor(quick_world, [says("done", 60)] * 3)
    budgets = manager(executor)
    wide = await budgets.set_budget(1000, DAILY)
    own = await budgets.set_budget(500, HOURLY, "worker")
    dollars = await budgets.set_budget(0.000150, TOTAL, tenant="ada", unit="usd")
    seen = [(await (await executor.execute(worker(), "go", user_id="ada")).result()).status for _ in range(2)]
    assert seen == ["completed", "failed"]
    assert await left(executor, wide) == (1000, 940)
    assert await left(executor, own) == (500, 440)
    assert await left(executor, dollars) == (150, 90)
    assert (await (await executor.execute(worker(), "go", user_id="bob")).result()).status == "completed"


async def test_sub_agents_bill_their_root(world: World) -> None:
    """The root's agent, user and session are charged. A budget of the sub-agent's own type does not apply there."""
    script = {
        "boss": [asks(30, call("subagent__kid", message="help")), says("done", 30)],
        "kid": [asks(20, call("look")), found(20)],
    }
    executor = bounded_executor(world, script)
    budgets = manager(executor)
    kid = worker("kid", tools=[looking()], output_schema=Text)
    boss = worker("boss", tools=[create_sub_agent_tool(kid)])
    paying = [
        await budgets.set_budget(1000, TOTAL, "boss"),
        await budgets.set_budget(1000, TOTAL, tenant="ada"),
        await budgets.set_budget(1000, TOTAL, session="ses"),
    ]
    idle = await budgets.set_budget(1, TOTAL, "kid")
    handle = await executor.execute(boss, "go", session_id="ses", user_id="ada")
    assert (await handle.result(timeout_s=10)).output == "done"
    assert [await left(executor, budget) for budget in paying] == [(1000, 900)] * 3
    assert await left(executor, idle) == (1, 1)


async def test_a_raise_lets_a_failed_run_go_on_where_it_stopped(world: World) -> None:
    """Nothing is bought again: the first answer and its tool's result are stored."""
    started: list[str] = []
    executor = bounded_executor(world, [asks(90, call("look")), says("done", 90)])
    budgets = manager(executor)
    who = worker(tools=[a_tool("look", lambda given, ctx: started.append(ctx.tool_call_id) or "seen")])
    budget = await budgets.set_budget(150, TOTAL)
    handle, result, _ = await play(executor, who)
    assert (result.status, result.error_code, result.steps) == ("failed", "budget_exceeded", 1)
    assert budget.name in (result.error or "")
    await budgets.set_budget(250, TOTAL)
    again = await result_of(await handle.retry())
    assert (again.status, again.output) == ("completed", "done")
    assert len(started) == 1
    model = executor.agents.model_of(who)
    assert len(model.requests) == 2  # type: ignore[attr-defined]
    assert await left(executor, budget) == (250, 70)


@pytest.mark.parametrize(
    ("of_budget", "of_agent", "status"), [("pause", "fail", "paused"), ("fail", "pause", "failed")]
)
async def test_a_budget_says_what_happens_else_the_agent_does(
    quick_world: World, of_budget: Any, of_agent: Any, status: str
) -> None:
    executor = bounded_executor(quick_world, [says("done", 10)] * 2)
    budgets = manager(executor)
    await budgets.set_budget(50, TOTAL, on_exceeded=of_budget)
    handle, result, _ = await play(executor, worker(on_budget=of_agent))
    assert result.status == status and "budget_exceeded" in (result.completion_reason, result.error_code)
    await budgets.set_budget(50, TOTAL)
    handle, result, _ = await play(executor, worker(on_budget=of_agent))
    assert result.status == ("paused" if of_agent == "pause" else "failed")
    await budgets.set_budget(200, TOTAL)
    again = await (handle.resume() if result.status == "paused" else handle.retry())
    assert (await result_of(again)).output == "done"


async def test_a_run_pauses_only_where_all_that_refuse_say_so(quick_world: World) -> None:
    executor = bounded_executor(quick_world, [says("done", 10)])
    await manager(executor).set_budget(50, TOTAL, on_exceeded="pause")
    await manager(executor).set_budget(50, HOURLY, "worker", on_exceeded="fail")
    _, result, _ = await play(executor, worker())
    assert result.status == "failed"


async def test_a_sub_agent_that_a_budget_paused_goes_on_with_its_parent(world: World) -> None:
    script = {
        "boss": [asks(30, call("subagent__kid", message="help")), says("done", 30)],
        "kid": [found(30)],
    }
    executor = bounded_executor(world, script)
    budgets = manager(executor)
    boss = worker("boss", tools=[create_sub_agent_tool(worker("kid", output_schema=Text))])
    budget = await budgets.set_budget(120, TOTAL, on_exceeded="pause")
    handle, result, _ = await play(executor, boss)
    assert (result.status, [p.kind for p in result.pending]) == ("paused", ["child"])
    assert (await result_of(await handle.resume())).status == "paused", "the budget was not raised yet"
    await budgets.set_budget(1000, TOTAL)
    assert (await result_of(await handle.resume())).output == "done"
    assert await left(executor, budget) == (1000, 910)


async def test_a_budget_binds_a_run_that_began_before_it(quick_world: World) -> None:
    """It applies from the run's next call on. When the budget is removed, the run continues."""
    executor = bounded_executor(quick_world, [asks(10, call("set")), says("done", 10)])
    budgets = manager(executor)

    async def define(given: Any, ctx: Any) -> str:
        await budgets.set_budget(50, TOTAL)
        return "set"

    handle, result, _ = await play(executor, worker(tools=[a_tool("set", define)]))
    assert (result.status, result.steps) == ("failed", 1)
    assert await budgets.remove_budget(TOTAL)
    assert (await result_of(await handle.retry())).output == "done"


async def test_what_was_used_beyond_the_reservation_is_charged(world: World) -> None:
    """The call is settled in full and deducted from the remaining amount, which may become negative. Then no call may
    draw."""
    executor = bounded_executor(world, [says("done", 260), says("late", 1)])
    budgets = manager(executor)
    budget = await budgets.set_budget(200, TOTAL)
    assert (await play(executor, worker()))[1].status == "completed"
    assert await left(executor, budget) == (200, -60)
    status = (await budgets.check_budget())["global_total"]
    assert (status["current_tokens"], status["remaining"], status["alert_level"]) == (260, 0, "exceeded")
    assert (await play(executor, worker()))[1].error_code == "budget_exceeded"


async def test_what_one_call_used_beyond_its_reservation_is_drawn_by_the_next(quick_world: World) -> None:
    executor = bounded_executor(quick_world, [asks(250, call("look")), says("done", 10)])
    budget = await manager(executor).set_budget(1000, TOTAL)
    seen: list[tuple[int, int]] = []

    class Looking(BaseAdapter):
        async def generate_step(self, request: Any) -> Any:
            seen.append(await left(executor, budget))
            return await inner.generate_step(request)

    who = worker(tools=[looking()])
    inner = executor.agents.model_of(who)
    executor.engine.models = lambda agent: Looking()
    assert (await play(executor, who))[1].status == "completed"
    assert seen == [(1000, 900), (1000, 650)], "100 reserved, then 250 used and 100 reserved"
    assert await left(executor, budget) == (1000, 740)


@pytest.mark.parametrize(
    ("usage", "tokens", "micros"),
    [
        (Usage(prompt_tokens=10, cost_micros=10, calls=1), 10, 10),
        (Usage(prompt_tokens=10, calls=1, priced=False), 10, 50),  # the ceiling's 100 micros per token are more
        (Usage(calls=1, priced=False), 50, 50),
        (Usage(prompt_tokens=10, cost_micros=10, calls=2, unknown_calls=1), 50, 50),
        (Usage(prompt_tokens=70, cost_micros=70, calls=2, unknown_calls=1), 70, 70),
        (Usage(), 0, 0),
    ],
    ids=["known", "unpriced", "untold", "one of two untold", "more than reserved", "free"],
)
async def test_what_nobody_knows_is_charged_as_the_worst(
    quick_world: World, usage: Usage, tokens: int, micros: int
) -> None:
    executor = bounded_executor(quick_world, [{"content": "done", "usage": usage.model_dump()}], worst=50)
    counted = await manager(executor).set_budget(1000, TOTAL)
    dollars = await manager(executor).set_budget(0.001, TOTAL, unit="usd")
    assert (await play(executor, worker()))[1].status == "completed"
    assert await left(executor, counted) == (1000, 1000 - tokens)
    assert await left(executor, dollars) == (1000, 1000 - micros)


async def test_a_model_that_raises_may_have_used_its_worst(quick_world: World) -> None:
    executor = bounded_executor(quick_world, [RuntimeError("down")])
    budget = await manager(executor).set_budget(1000, TOTAL)
    assert (await play(executor, worker()))[1].error_code == "adapter_failed"
    assert await left(executor, budget) == (1000, 900)


async def test_a_session_without_budgets_carries_nothing(quick_world: World) -> None:
    """Nothing is written about budgets either. If budgets exist that do not apply to it, only their check is recorded."""
    executor = bounded_executor(quick_world, [says("done", 10), says("done", 10)])
    handle, _, _ = await play(executor, worker())
    (row,) = await executor.store.get([session_key(handle.session_id)])
    assert row is not None and not {"bounds", "blocks"} & row.keys()
    assert await executor.store.query("control", f"run#{handle.run_id}") == []
    await BudgetManager(executor.store).set_budget(10, TOTAL, "another")
    handle, _, _ = await play(executor, worker())
    (row,) = await executor.store.get([session_key(handle.session_id)])
    assert row is not None and row["bounds"] == {"version": 1}


async def test_a_clone_is_bound_by_its_own_scopes(quick_world: World) -> None:
    executor = bounded_executor(quick_world, [says("done", 90), says("more", 90), says("clone", 90)])
    await manager(executor).set_budget(150, TOTAL, session="ses")
    handle = await executor.execute(worker(), "go", session_id="ses")
    assert (await handle.result()).status == "completed"
    assert (await (await executor.execute(worker(), "again", session_id="ses")).result()).status == "failed"
    await executor.clone_session("ses", "copy")
    assert (await (await executor.execute(worker(), "again", session_id="copy")).result()).status == "completed"
