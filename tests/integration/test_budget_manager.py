"""`BudgetManager`: what it accepts and shows. Every manager on one store shows the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from tests.support_budgets import bounded_executor, manager, says, worker
from tests.support_run import World, play

from helix import MemoryStateStore
from helix.core.errors import InvalidInputError
from helix.core.periods import TokenPeriod
from helix.fleet import budgets as module
from helix.fleet.budgets import (
    BudgetManager,
    bind_token_budget_manager,
    get_token_budget_manager,
)
from helix.ports.state_store import Key, Value
from helix.testing.clocks import SetClock

NOW = 1_795_271_707.0  # 2026-11-21T14:35:07Z
HOURLY, DAILY, TOTAL = TokenPeriod.HOURLY, TokenPeriod.DAILY, TokenPeriod.TOTAL


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


@pytest.fixture
def budgets(clock: SetClock) -> BudgetManager:
    return BudgetManager(MemoryStateStore(), clock=clock)


@pytest.mark.parametrize(
    ("amount", "unit", "limit"),
    [
        (1000, "tokens", 1000),
        (2000.0, "tokens", 2000),
        (Decimal("12"), "tokens", 12),
        (10, "usd", 10_000_000),
        (0.1, "usd", 100_000),
        (2.675, "usd", 2_675_000),
        (Decimal("0.000001"), "usd", 1),
        (0.1 + 0.2, "usd", 300_000),
    ],
)
async def test_amounts_become_whole_units(budgets: BudgetManager, amount: Any, unit: Any, limit: int) -> None:
    definition = await budgets.set_budget(amount, HOURLY, unit=unit)
    assert (definition.limit, definition.unit) == (limit, "micros" if unit == "usd" else "tokens")


@pytest.mark.parametrize(
    "given",
    [
        {"amount": 0},
        {"amount": -5},
        {"amount": 0.5},
        {"amount": 10.5},
        {"amount": 0.0000001, "unit": "usd"},
        {"amount": float("nan")},
        {"amount": float("inf")},
        {"amount": True},
        {"amount": "many"},
        {"amount": "5"},
        {"amount": 10**15 + 1},
        {"amount": 1e300},
        {"amount": 1_000_000_001, "unit": "usd"},
        {"period": "yearly"},
        {"unit": "euro"},
        {"on_exceeded": "warn"},
        {"warning": 0},
        {"warning": 1.5},
        {"critical": 0.5, "warning": 0.8},
        {"agent_id": ""},
        {"agent_id": "one", "tenant": "ada"},
        {"tenant": "ada", "session": "ses"},
    ],
    ids=str,
)
async def test_what_is_no_budget_is_refused(budgets: BudgetManager, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        await budgets.set_budget(**{"amount": 10, "period": HOURLY, **given})
    assert await budgets.list_budgets() == []


async def test_what_is_no_level_and_no_callback_is_refused(budgets: BudgetManager) -> None:
    with pytest.raises(InvalidInputError, match="level is 'loud'; it must be one of warning, critical, exceeded"):
        await budgets.get_alerts(level="loud")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="callable"):
        budgets.register_alert_callback("print")  # type: ignore[arg-type]


async def test_budgets_are_kept_by_scope_period_and_unit(budgets: BudgetManager) -> None:
    await budgets.set_budget(100, HOURLY)
    await budgets.set_budget(200, "hourly")
    await budgets.set_budget(5, DAILY, "one", unit="usd", on_exceeded="pause")
    await budgets.set_budget(7, TOTAL, tenant="a/b")
    found = await BudgetManager(budgets.store).list_budgets()
    assert [(d.name, d.limit) for d in found] == [
        ("agent:one/day/micros", 5_000_000),
        ("global/hour/tokens", 200),
        ("tenant:a/b/total/tokens", 7),
    ]
    assert await budgets.remove_budget("daily", "one", unit="usd")
    assert not await budgets.remove_budget("daily", "one", unit="usd")
    assert await budgets.remove_budget(TOTAL, tenant="a/b")
    assert [d.name for d in await budgets.list_budgets()] == ["global/hour/tokens"]


async def test_a_budget_nobody_used_is_full(budgets: BudgetManager) -> None:
    await budgets.set_budget(100, HOURLY)
    await budgets.set_budget(2.5, TOTAL, "one", unit="usd", on_exceeded="pause")
    assert await budgets.check_budget() == {
        "global_hourly": {
            "budget": "global/hour/tokens/2026-11-21T14",
            "scope": "global",
            "period": "hour",
            "unit": "tokens",
            "window": "2026-11-21T14",
            "resets_at": NOW - 2107 + 3600,
            "budget_limit": 100,
            "current_tokens": 0,
            "remaining": 100,
            "utilization": 0.0,
            "alert_level": None,
            "on_exceeded": None,
        },
        "one_total_usd": {
            "budget": "agent:one/total/micros/total",
            "scope": "agent:one",
            "period": "total",
            "unit": "usd",
            "window": "total",
            "resets_at": None,
            "budget_limit": 2.5,
            "current_usd": 0.0,
            "remaining": 2.5,
            "utilization": 0.0,
            "alert_level": None,
            "on_exceeded": "pause",
        },
    }


async def test_an_agent_is_bound_by_its_own_and_by_everybodys(budgets: BudgetManager) -> None:
    scopes: list[dict[str, Any]] = [{}, {"agent_id": "one"}, {"agent_id": "two"}, {"tenant": "ada"}, {"session": "ses"}]
    for scope in scopes:
        await budgets.set_budget(100, HOURLY, **scope)
        await budgets.set_budget(100, DAILY, **scope)
    assert set(await budgets.check_budget("one", HOURLY)) == {"one_hourly", "global_hourly"}
    assert set(await budgets.check_budget(tenant="ada", period="hourly")) == {"tenant:ada_hourly", "global_hourly"}
    assert set(await budgets.check_budget(session="ses", period=DAILY)) == {"session:ses_daily", "global_daily"}
    assert len(await budgets.check_budget()) == 10
    assert set(await budgets.check_budget(period=DAILY)) == {
        "one_daily",
        "two_daily",
        "global_daily",
        "session:ses_daily",
        "tenant:ada_daily",
    }


async def test_it_shows_what_the_engine_drew(world: World) -> None:
    """Another manager on the same store shows the same, whichever process drew."""
    executor = bounded_executor(world, [says("done", 85)])
    await manager(executor).set_budget(100, TOTAL, "worker")
    await play(executor, worker())
    other = bounded_executor(world, [])
    status = (await manager(other).check_budget("worker"))["worker_total"]
    assert (status["current_tokens"], status["remaining"], status["utilization"]) == (85, 15, 0.85)
    assert status["alert_level"] == "warning"


async def test_a_lower_limit_than_what_is_used_leaves_nothing(quick_world: World) -> None:
    executor = bounded_executor(quick_world, [says("done", 80), says("never", 1)])
    budgets = manager(executor)
    await budgets.set_budget(1000, TOTAL)
    await play(executor, worker())
    await budgets.set_budget(40, TOTAL)
    status = (await budgets.check_budget())["global_total"]
    assert (status["remaining"], status["utilization"], status["alert_level"]) == (0, 2.0, "exceeded")
    assert (await play(executor, worker()))[1].error_code == "budget_exceeded"


# --- this process's manager -------------------------------------------------------------------------------------------


@pytest.fixture
def unbound() -> Iterator[None]:
    before = module._managers[:]
    module._managers.clear()
    yield
    module._managers[:] = before


@pytest.mark.usefixtures("unbound")
async def test_a_process_has_one_manager_bound_to_its_store() -> None:
    with pytest.raises(InvalidInputError):
        get_token_budget_manager()
    store = MemoryStateStore()
    bound = bind_token_budget_manager(store)
    assert get_token_budget_manager() is bound is bind_token_budget_manager(store)
    assert bind_token_budget_manager(MemoryStateStore()) is not bound


class Torn(MemoryStateStore):
    """A store in which something happens between the reads of one `get`, because no store reads several rows at one
    moment."""

    def __init__(self) -> None:
        super().__init__()
        self.between: Callable[[], Awaitable[Any]] | None = None

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        values = []
        for key in keys:
            values += await super().get([key])
            if key.partition == "budgets" and (then := self.between) is not None:
                self.between = None
                await then()
        return values


@pytest.mark.parametrize("remove", [False, True])
async def test_a_definition_that_comes_between_two_reads_is_not_lost(remove: bool) -> None:
    store = Torn()
    budgets = BudgetManager(store)
    await budgets.set_budget(1, "hour", "a")
    store.between = lambda: budgets.set_budget(2, "day", "a")
    if remove:
        await budgets.remove_budget("hour", "a")
    else:
        await budgets.set_budget(3, "week", "a")
    expected = {"day"} if remove else {"hour", "day", "week"}
    assert {definition.period.value for definition in await budgets.list_budgets()} == expected
