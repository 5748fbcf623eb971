"""The process dies at every call to the store while money is drawn, settled and returned, and alerts are raised.

Whichever worker continues, the books are exact, all billed tokens are counted, and each alert was raised at most once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.support.delivery_stage import Stage, event_of
from tests.support.torn_store import Torn
from tests.support_budgets import asks, found, says
from tests.support_crash import LONG, quiet, settle
from tests.support_run import Gate, Text, a_tool, agent, call, gated

from helix import LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel
from helix.core.delivery import Delivery
from helix.core.periods import TokenPeriod
from helix.core.run_row import RunRow
from helix.core.tools import create_sub_agent_tool
from helix.engine.engine import Settings, Worst
from helix.engine.runs.ends import abort
from helix.fleet.alerts import mark_published, unpublished_alerts
from helix.fleet.budgets import BudgetManager
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.services.row_budgets import RowBudgets
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import Crash, CrashPoints, Point, crash_everywhere, writes
from helix.testing.invariants import check_session

S = "ses"
WORST, EACH = 100, 60
TOTAL = TokenPeriod.TOTAL
CONFIG = LLMConfig(model="scripted", max_retries=0)


class Billing:
    """A model that records the tokens that it billed."""

    def __init__(self, script: Any) -> None:
        self._inner, self.billed = ScriptedModel(script, by="position"), 0

    async def generate_step(self, request: Any) -> Any:
        result = await self._inner.generate_step(request)
        self.billed += result.usage.total_tokens
        return result


def looking() -> Any:
    return a_tool("look", lambda given, ctx: "seen")


KID = agent("kid", tools=[looking()], output_schema=Text, llm_config=CONFIG)
BOSS = agent("boss", tools=[looking(), create_sub_agent_tool(KID)], llm_config=CONFIG)
SCRIPT = {
    "boss": [asks(EACH, call("look")), asks(EACH, call("subagent__kid", message="go")), says("done", EACH)],
    "kid": [asks(EACH, call("look")), found(EACH)],
}


def choose(points: Sequence[Point]) -> list[Point]:
    """Choose the crash points: every write, and every ninth read, because reads leave the same rows."""
    changes = writes(points)
    return changes + [point for point in points if point not in changes][::9]


def executor(store: StateStore, streams: StreamManager, model: Billing, ahead_s: float = 0) -> LocalExecutor:
    settings = Settings(stop_poll_s=0.02)
    made = LocalExecutor(store, streams=streams, model=model, clock=ShiftedClock(ahead_s), settings=settings)
    made.engine.worst_case = lambda request: Worst(WORST, WORST)
    for who in (BOSS, KID):
        made.agents.know(who)
    return made


async def books(store: MemoryStateStore) -> tuple[dict[str, tuple[int, int, int]], int]:
    """Return the windows (limit, remaining, reserved by draws), none of which may be open, and the tokens that all runs
    spent or are assumed to have spent."""
    keys = list(store._rows)
    rows = dict(zip(keys, await store.get(keys), strict=True))
    kept: dict[str, int] = {}
    spent = 0
    for key, value in rows.items():
        assert value is not None
        if key.table == "control" and key.sort.startswith("draw#"):
            assert value["state"] == "returned", f"open: {key}"
            kept[value["budget"]] = kept.get(value["budget"], 0) + value["amount"] - value["returned"]
        if key.table == "sessions" and key.sort.startswith("r#"):
            run = RunRow.at(key.partition, key.sort, value)
            blocks = [block for block in run.blocks if block.unit == "tokens"]
            spent += sum(block.spent + block.assumed for block in blocks)
            spent += run.claim.tokens if run.claim is not None and blocks else 0
    windows = {
        name: (value["limit"], value["remaining"], kept.get(name, 0))
        for key, value in rows.items()
        if key.sort == "budget" and value is not None and (name := key.partition.removeprefix("budget#"))
    }
    return windows, spent


async def recovered(
    store: StateStore, streams: StreamManager, model: Billing, limit: int
) -> tuple[dict[str, tuple[int, int, int]], int]:
    """Return the books after another worker, with that total, has brought the run to its end."""
    assert isinstance(store, MemoryStateStore)
    await BudgetManager(store).set_budget(limit, TOTAL)
    workers = executor(store, streams, model, LONG)
    if not await workers.sessions.exists(S):
        await (await workers.execute(BOSS, "go", session_id=S)).result(timeout_s=20)
    assert await settle(workers, BOSS, S) == "completed"
    await quiet(workers)
    await check_session(store, streams, S, at_rest=True)
    return await books(store)


async def alerts_once(store: StateStore) -> int:
    """Return the number of alerts."""
    rows = await store.query("control", "alerts")
    named = [(row.value["scope"], row.value["unit"], row.value["window"], row.value["level"]) for row in rows]
    assert len(named) == len(set(named)), named
    return len(named)


@pytest.mark.slow
async def test_a_run_with_plenty() -> None:
    """A parent and its sub-agent have budgets in tokens and dollars."""
    model = Billing(SCRIPT)

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        model.billed = 0
        budgets = BudgetManager(store)
        await budgets.set_budget(100_000, TOTAL)
        await budgets.set_budget(1.0, TokenPeriod.DAILY, "boss", unit="usd")
        workers = executor(store, streams, model)
        await (await workers.execute(BOSS, "go", session_id=S)).result()

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        windows, spent = await recovered(store, streams, model, 100_000)
        assert windows and spent >= max(5 * EACH, model.billed)
        for name, (limit, remaining, kept) in windows.items():
            assert limit == remaining + kept, name
            assert kept == spent or "/tokens/" not in name

    assert await crash_everywhere(MemoryStateStore, act, recover, choose=choose)


@pytest.mark.slow
async def test_a_run_that_meets_the_line() -> None:
    """The run is refused at its third call, continues after a raise, and buys nothing again except what a dead worker
    bought."""
    model = Billing({"boss": [asks(EACH, call("look")), asks(EACH, call("look")), says("done", EACH)]})
    alerts: list[int] = []

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        model.billed = 0
        budgets = BudgetManager(store)
        await budgets.set_budget(190, TOTAL)
        workers = executor(store, streams, model)
        result = await (await workers.execute(BOSS, "go", session_id=S)).result()
        assert result.error_code == "budget_exceeded"
        await budgets.set_budget(1000, TOTAL)
        assert (await (await workers.retry(BOSS, S)).result()).status == "completed"

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        windows, spent = await recovered(store, streams, model, 1000)
        ((limit, remaining, kept),) = windows.values()
        assert (limit, kept) == (1000, spent) and remaining == limit - kept
        assert kept >= model.billed, "all billed tokens are counted, including those of dead workers"
        alerts.append(await alerts_once(store))

    assert await crash_everywhere(MemoryStateStore, act, recover, choose=choose)
    assert any(alerts), "there were alerts to judge"


async def test_telling_alerts() -> None:
    """Each alert is published at least once, wherever its publisher dies."""
    told: list[str] = []

    async def tell(store: StateStore) -> None:
        for alert in await unpublished_alerts(store):
            told.append(alert.alert_id)
            await mark_published(store, [alert])

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        told.clear()
        await BudgetManager(store).set_budget(104, TOTAL)
        workers = executor(store, streams, Billing({"boss": [says("done", 100)]}))
        await (await workers.execute(BOSS, "go", session_id=S)).result()
        await tell(store)

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        await tell(store)
        rows = await store.query("control", "alerts")
        assert {row.key.sort for row in rows} <= set(told)
        assert all(row.value["published"] for row in rows) and await unpublished_alerts(store) == []

    covered = await crash_everywhere(MemoryStateStore, act, recover, choose=writes)
    assert any("alert_told" in name for name, _ in covered)


async def test_what_a_late_answer_used_beyond_what_was_set_aside_is_spent_too() -> None:
    """The run was aborted, and its effects wait for a sweep. The call is assumed to have spent its reservation, and then
    the answer reports more."""
    gate, who = Gate(), agent("helper", llm_config=CONFIG)
    stage = Stage([gated(gate, says("late", 3 * WORST))], who, stop_poll_s=1e6)  # this delivery does not see the stop
    stage.engine.worst_case = lambda request: Worst(WORST, WORST)
    budgets = BudgetManager(stage.store)
    await budgets.set_budget(10 * WORST, TOTAL)
    event = await stage.begin(who)
    thinking = asyncio.create_task(stage.deliver("call_model", event))
    await gate.reached()
    points = CrashPoints(at=("transact:return_draw:before", 0))
    with pytest.raises(Crash):
        dying = replace(stage.engine, store=points.store(stage.store), budgets=RowBudgets(points.store(stage.store)))
        await abort(dying, who, event["session_id"], "no", Delivery("a", 1e12))
    gate.open()
    await thinking
    await stage.deliver("finish_run", event)
    assert (await budgets.check_budget())["global_total"]["current_tokens"] == 3 * WORST


async def test_a_repeat_sets_aside_what_the_draws_of_the_dead_lack() -> None:
    """The worker died between its draw and its claim, and a later deployment made the call more expensive."""
    gate, who = Gate(), agent("helper", llm_config=CONFIG)
    stage = Stage([gated(gate, says("done", WORST))], who)
    stage.engine.worst_case = lambda request: Worst(WORST, WORST)
    budgets = BudgetManager(stage.store)
    await budgets.set_budget(10 * WORST, TOTAL)
    event = await stage.begin(who)
    whole, points = stage.engine, CrashPoints(at=("transact:claim_step:before", 0))
    stage.engine = replace(whole, store=points.store(stage.store))
    with pytest.raises(Crash):
        await stage.deliver("call_model", event)
    stage.engine = replace(whole, worst_case=lambda request: Worst(3 * WORST, 3 * WORST))
    thinking = asyncio.create_task(stage.deliver("call_model", event))
    await gate.reached()
    assert (await budgets.check_budget())["global_total"]["current_tokens"] == 3 * WORST
    gate.open()
    await stage.deliver("finish_run", await thinking)
    assert (await budgets.check_budget())["global_total"]["current_tokens"] == WORST


async def test_what_a_delivery_draws_after_the_end_of_its_run_is_returned_with_the_next_run() -> None:
    """The delivery read its session before the abort, drew after the abort had returned all draws, and died before its
    claim."""
    store, who = Torn(), agent("helper", llm_config=CONFIG)
    stage = Stage([says("done", EACH)], who, store=store)
    stage.engine.worst_case = lambda request: Worst(WORST, WORST)
    budgets = BudgetManager(store)
    await budgets.set_budget(10 * WORST, TOTAL)
    event = await stage.begin(who)
    whole, points = stage.engine, CrashPoints(at=("transact:claim_step:before", 0))
    store.at, store.then = "budget#", partial(abort, whole, who, event["session_id"], "no", Delivery("a", 1e12))
    stage.engine = replace(whole, store=points.store(store))
    with pytest.raises(Crash):
        await stage.deliver("call_model", event)
    stage.engine = whole
    assert (await stage.run(event)).effects == "done"
    assert (await budgets.check_budget())["global_total"]["current_tokens"] == WORST
    await stage.executor.execute(who, "again", session_id=event["session_id"])
    await stage.end(event_of(stage.held.starts[-1]))
    assert (await budgets.check_budget())["global_total"]["current_tokens"] == EACH
    await books(store)
