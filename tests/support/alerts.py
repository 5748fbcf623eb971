"""Budget alerts that were raised but not delivered yet."""

from __future__ import annotations

from helix.core.budget import AlertLevel, BudgetDefinition, TokenAlert
from helix.core.periods import TokenPeriod
from helix.ports.state_store import StateStore
from helix.services.row_budgets import RowBudgets

LIMIT = 1000


async def raise_alert(store: StateStore, agent: str, alert_id: str, now: float, level: AlertLevel = "warning") -> None:
    """Raise an alert of the agent's daily budget, of which 80 % is used."""
    budgets = RowBudgets(store)
    budget = BudgetDefinition(scope=f"agent:{agent}", period=TokenPeriod.DAILY, unit="micros", limit=LIMIT)
    window, at = budget.window(now)
    await budgets.open(budget, now, await budgets.define(budget, now))
    alert = TokenAlert(
        alert_id=alert_id,
        level=level,
        message="used up soon",
        scope=budget.scope,
        period=budget.period,
        window=at.key,
        unit=budget.unit,
        current=LIMIT * 8 // 10,
        limit=LIMIT,
        utilization=0.8,
        timestamp=now,
    )
    assert await budgets.alert(window, alert, int(now) + 1000)
