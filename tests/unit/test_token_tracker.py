"""Token usage by agent, model, operation, tenant and period is counted once, and all filters can be combined."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support_measures import says, used
from tests.support_run import World, agent, play

from helix import MemoryStateStore, SQLiteStateStore
from helix.compat.token_tracker import TokenTracker, get_token_tracker
from helix.core.errors import InvalidInputError
from helix.core.periods import TokenPeriod
from helix.fleet.budgets import BudgetManager, bind_token_budget_manager, release_token_budget_manager
from helix.ports.state_store import StateStore
from helix.testing.clocks import SetClock

# a Sunday, in the last hour of ISO week 47 of 2026
SUNDAY = datetime(2026, 11, 22, 23, 30, tzinfo=UTC).timestamp()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    return MemoryStateStore() if request.param == "memory" else SQLiteStateStore(tmp_path / "usage.db")


@pytest.fixture
def clock() -> SetClock:
    return SetClock(SUNDAY)


@pytest.fixture
async def tracker(store: StateStore, clock: SetClock) -> Any:
    """A tracker with two agents, models, operations and tenants. Its two hours are in different weeks of one month."""
    made = TokenTracker(store, clock)
    await made.record_tokens("chat", "gpt-4", 100, 10, metadata={"user_id": "ada"}, cost=0.5)
    await made.record_tokens("chat", "gpt-4o", 200, 20, tenant="bob")
    clock.advance(3600)
    await made.record_tokens("chat", "gpt-4", 1000, 100, operation="embedding", metadata={"user_id": "ada"})
    await made.record_tokens("search", "gpt-4", 2000, 200, metadata={"user_id": "ada"})
    return made


FILTERS: list[tuple[dict[str, Any], int]] = [
    ({}, 3630),
    ({"agent_id": "chat"}, 1430),
    ({"agent_id": "nobody"}, 0),
    ({"model": "gpt-4"}, 3410),
    ({"operation": "embedding"}, 1100),
    ({"tenant": "ada"}, 3410),
    ({"tenant": "bob"}, 220),
    ({"tenant": "ada", "agent_id": "chat"}, 1210),
    ({"tenant": "ada", "agent_id": "chat", "operation": "completion"}, 110),
    ({"agent_id": "chat", "model": "gpt-4"}, 1210),
    ({"period": TokenPeriod.HOURLY}, 3300),
    ({"period": "hourly", "agent_id": "chat"}, 1100),
    ({"period": TokenPeriod.HOURLY, "period_key": "2026-11-22T23"}, 330),
    ({"period": TokenPeriod.HOURLY, "period_key": "2026-11-22-23"}, 330),
    ({"period": TokenPeriod.DAILY}, 3300),
    ({"period": TokenPeriod.DAILY, "period_key": "2026-11-22", "model": "gpt-4o"}, 220),
    ({"period": TokenPeriod.WEEKLY}, 3300),
    ({"period": TokenPeriod.WEEKLY, "period_key": "2026-W47"}, 330),
    ({"period": TokenPeriod.WEEKLY, "period_key": "2026-W47", "tenant": "ada", "model": "gpt-4"}, 110),
    ({"period": TokenPeriod.MONTHLY, "period_key": "2026-11"}, 3630),
    ({"period": TokenPeriod.MONTHLY, "period_key": "2026-10"}, 0),
    ({"period": TokenPeriod.TOTAL, "agent_id": "search"}, 2200),
]


@pytest.mark.parametrize(("filters", "tokens"), FILTERS)
async def test_all_filters_combine(tracker: TokenTracker, filters: dict[str, Any], tokens: int) -> None:
    assert await tracker.get_tokens(**filters) == tokens


@pytest.mark.parametrize(
    ("period", "key"), [("hourly", "2026-11-22"), ("daily", "yesterday"), ("weekly", "2026-47"), ("monthly", "11-2026")]
)
async def test_a_key_that_is_not_the_periods_is_refused(tracker: TokenTracker, period: str, key: str) -> None:
    with pytest.raises(InvalidInputError, match="period_key"):
        await tracker.get_tokens(period=period, period_key=key)
    with pytest.raises(InvalidInputError, match="period is 'fortnight'; it must be one of hourly"):
        await tracker.get_tokens(period="fortnight")
    with pytest.raises(InvalidInputError, match="needs its period"):
        await tracker.get_tokens(period_key=key)


async def test_a_breakdown(tracker: TokenTracker, clock: SetClock) -> None:
    whole = await tracker.get_breakdown(SUNDAY, clock.now())
    assert (whole.total_tokens, whole.input_tokens, whole.output_tokens) == (3630, 3300, 330)
    assert (whole.calls, whole.runs, whole.cost) == (4, 0, 0.5)
    assert whole.by_agent == {"chat": 1430, "search": 2200}
    assert whole.by_model == {"gpt-4": 3410, "gpt-4o": 220}
    assert whole.by_operation == {"completion": 2530, "embedding": 1100}
    assert whole.by_hour == {"2026-11-22T23": 330, "2026-11-23T00": 3300}
    first = await tracker.get_breakdown(datetime(2026, 11, 22, 23), datetime(2026, 11, 23), tenant="ada")
    assert (first.total_tokens, first.by_agent) == (110, {"chat": 110})
    assert (await tracker.get_breakdown()).total_tokens == 3630, "the hours that the last one touches"
    with pytest.raises(InvalidInputError, match="ends"):
        await tracker.get_breakdown(SUNDAY, SUNDAY - 1)


async def test_statistics_and_rates(tracker: TokenTracker) -> None:
    told = await tracker.get_statistics()
    assert (told["total_tokens"], told["by_agent"]) == (3630, {"chat": 1430, "search": 2200})
    assert (told["hourly_tokens"], told["weekly_tokens"], told["monthly_tokens"]) == (3300, 3300, 3630)
    assert await tracker.get_tokens_per_hour() == 3300
    assert await tracker.get_tokens_per_hour("search") == 2200


async def test_a_record_with_a_key_counts_once(store: StateStore, clock: SetClock) -> None:
    tracker = TokenTracker(store, clock)
    told = await asyncio.gather(*(tracker.record_tokens("chat", "m", 10, 1, key="request-1") for _ in range(8)))
    assert sorted(told) == [0] * 7 + [11]
    assert await tracker.record_tokens("chat", "m", 10, 1, key="request-2") == 11
    assert await tracker.get_tokens("chat") == 22


async def test_records_at_once_all_count(store: StateStore, clock: SetClock) -> None:
    trackers = [TokenTracker(store, clock) for _ in range(4)]
    await asyncio.gather(*(t.record_tokens("chat", "m", 1, 0, tenant="ada") for t in trackers for _ in range(16)))
    assert await trackers[0].get_tokens() == await trackers[0].get_tokens(tenant="ada") == 64


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent_id": ""},
        {"model": "x" * 300},
        {"operation": ""},
        {"input_tokens": -1},
        {"input_tokens": 1.5},
        {"output_tokens": True},
        {"output_tokens": 10**30},
        {"cost": -0.1},
        {"cost": float("nan")},
    ],
)
async def test_what_cannot_be_counted_is_refused(store: StateStore, wrong: dict[str, Any]) -> None:
    good = {"agent_id": "a", "model": "m", "input_tokens": 1, "output_tokens": 1, "operation": "completion"}
    with pytest.raises(InvalidInputError):
        await TokenTracker(store).record_tokens(**{**good, **wrong})


async def test_only_an_admin_resets(tracker: TokenTracker) -> None:
    with pytest.raises(InvalidInputError, match="admin=True"):
        await tracker.reset()
    assert await tracker.get_tokens() == 3630
    await tracker.reset("search", admin=True)
    assert await tracker.get_tokens() == 1430
    await tracker.reset(admin=True)
    assert await tracker.get_tokens() == await tracker.get_tokens(tenant="ada") == 0
    assert await tracker.record_tokens("chat", "m", 1, 1) == 2
    assert await tracker.get_tokens() == 2


async def test_what_runs_used_is_in_it(tmp_path: Path) -> None:
    world = World("sqlite", tmp_path)
    executor = world.executor([says("Done.", used(300, 30, 1200))])
    await play(executor, agent("helper"), user_id="ada")
    tracker = TokenTracker(executor.store)
    assert await tracker.get_tokens("helper", "scripted", TokenPeriod.HOURLY, tenant="ada") == 330
    now = await tracker.get_breakdown()
    assert (now.runs, now.calls, now.cost) == (1, 1, 0.0012)
    await world.close()


async def test_a_process_has_one_tracker_on_a_store(tmp_path: Path) -> None:
    path = str(tmp_path / "one.db")
    tracker = get_token_tracker(path)
    assert get_token_tracker(path) is tracker
    await tracker.record_tokens("chat", "gpt-4", 100, 150)
    assert await TokenTracker(SQLiteStateStore(path)).get_tokens(agent_id="chat") == 250


async def test_recorded_tokens_count_against_every_budget_that_binds_them(store: StateStore, clock: SetClock) -> None:
    budgets, tracker = BudgetManager(store, clock=clock), TokenTracker(store, clock)
    await budgets.set_budget(1000, TokenPeriod.DAILY, "chat")
    await budgets.set_budget(500, TokenPeriod.HOURLY)
    await budgets.set_budget(10, TokenPeriod.TOTAL, tenant="ada", unit="usd")
    await budgets.set_budget(50, TokenPeriod.TOTAL, "another")
    await tracker.record_tokens("chat", "gpt-4", 100, 20, key="one", tenant="ada", cost=2.5)
    await tracker.record_tokens("chat", "gpt-4", 100, 20, key="one", tenant="ada", cost=2.5)  # counted once
    await tracker.record_tokens("chat", "gpt-4", 30, 0)
    status = await budgets.check_budget()
    used = {name: found.get("current_tokens", found.get("current_usd")) for name, found in status.items()}
    assert used == {"chat_daily": 150, "global_hourly": 150, "tenant:ada_total_usd": 2.5, "another_total": 0}


async def test_recorded_tokens_hold_back_the_next_call_of_a_run(tmp_path: Path) -> None:
    """Usage above the budget is charged in full and raises an alert. The next call is refused."""
    world = World("sqlite", tmp_path)
    executor = world.executor([says("done", used(1, 1))])
    budgets = BudgetManager(executor.store)
    await budgets.set_budget(100, TokenPeriod.TOTAL)
    await TokenTracker(executor.store).record_tokens("chat", "gpt-4", 150, 0)
    assert (await budgets.check_budget())["global_total"]["current_tokens"] == 150
    assert [alert.level for alert in await budgets.get_alerts()] == ["exceeded", "critical", "warning"]
    _, result, _ = await play(executor, agent())
    assert (result.status, result.error_code) == ("failed", "budget_exceeded")
    await world.close()


async def test_two_who_record_one_key_at_once_charge_it_once(store: StateStore, clock: SetClock) -> None:
    budgets = BudgetManager(store, clock=clock)
    await budgets.set_budget(1000, TokenPeriod.DAILY)
    trackers = [TokenTracker(store, clock) for _ in range(4)]
    counted = await asyncio.gather(*(t.record_tokens("chat", "gpt-4", 10, 0, key="one") for t in trackers))
    assert sorted(counted) == [0, 0, 0, 10]
    assert (await budgets.check_budget())["global_daily"]["current_tokens"] == 10


async def test_the_tracker_of_the_process_is_on_the_store_that_is_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime or a worker process binds its store. The default file is opened only if no store is bound."""
    monkeypatch.chdir(tmp_path)
    store = SQLiteStateStore(tmp_path / "own.db")
    bind_token_budget_manager(store)
    await get_token_tracker().record_tokens("chat", "gpt-4", 10, 5)
    assert await TokenTracker(store).get_tokens("chat") == 15
    assert not (tmp_path / "helix.db").exists()
    release_token_budget_manager(store)
    assert await get_token_tracker().get_tokens("chat") == 0
    assert (tmp_path / "helix.db").exists()
