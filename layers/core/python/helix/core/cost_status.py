"""The used share of an agent's budgets, and the projected use at the end of the hour.

Law: pure; amounts are in US dollars. Spent and projected costs are kept apart: only spent money stops or shrinks an
agent, while projected cost only keeps it from growing. If the hour's cost was not measured, the current hourly rate is
used instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from helix.core.messages import Record
from helix.core.periods import TokenPeriod, window_at
from helix.core.scaling import FIXED

CostLevel = Literal["ok", "warning", "critical", "over"]
NAMES = {
    "hourly": "the hour's budget",
    "daily": "the day's budget",
    "monthly": "the month's budget",
    "expected": "the hour's budget, at the present cost",
}


class Spending(Record, frozen=True):
    """The US dollars spent in the current hour, day and month (UTC). None if not measured."""

    hour: float | None = None
    """US dollars spent in the current hour."""
    day: float | None = None
    """US dollars spent on the current day."""
    month: float | None = None
    """US dollars spent in the current month."""
    shares: dict[str, float] = Field(default_factory=dict)
    """The used fraction of the agent's other budgets (tokens, weeks, budgets of all agents), by budget name. 1 means
    fully used."""


class CostLine(Record, frozen=True):
    """The usage of one budget, in US dollars."""

    limit: float
    """The spending limit of the window."""
    current: float
    """The amount spent so far. If the hour's cost was not measured, the current cost per hour."""
    utilization: float
    """`current` as a fraction of `limit`. It may exceed 1."""
    remaining: float
    """The remaining amount. Negative if the limit was exceeded."""


class CostStatus(Record, frozen=True):
    """The usage of all budgets of an agent."""

    current_cost_per_hour: float
    """The current cost in US dollars per hour."""
    budgets: dict[str, CostLine]
    """The agent's own budgets in US dollars, under `hourly`, `daily` and `monthly`. Windows without a limit or a
    measurement are omitted."""
    spent: float
    """The largest used fraction of any budget. 1 means fully used."""
    expected: float
    """The projected used fraction of the hourly budget at the end of the hour, at the current cost. 0 without an hourly
    budget or a measurement."""
    level: CostLevel
    """The alert level. `over` and `critical` depend on `spent`, `warning` on the larger of `spent` and `expected`."""
    warnings: list[str]
    """Human-readable warnings about the budgets at or above the warning threshold, most used first."""


class CostThresholds(BaseModel):
    """The used fractions of a budget at which an agent's scaling changes."""

    model_config = FIXED

    cost_warning_threshold: float = Field(default=0.8, gt=0, le=1)
    """The spent or projected fraction at which an agent stops scaling up."""
    cost_critical_threshold: float = Field(default=0.95, gt=0, le=1)
    """The spent fraction at which an agent scales down. At least `cost_warning_threshold`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.cost_warning_threshold > self.cost_critical_threshold:
            raise ValueError("cost_warning_threshold is above cost_critical_threshold: a warning comes first")
        return self

    def status(self, limits: Mapping[str, float | None], rate: float, spent: Spending, now: float) -> CostStatus:
        """Return the usage of the budgets. `limits` has the limits in US dollars under `hourly`, `daily` and `monthly`;
        `rate` is the current cost per hour."""
        costs = {"hourly": rate if spent.hour is None else spent.hour, "daily": spent.day, "monthly": spent.month}
        lines = {
            name: CostLine(limit=limit, current=cost, utilization=cost / limit, remaining=limit - cost)
            for name, cost in costs.items()
            if (limit := limits.get(name)) is not None and cost is not None
        }
        shares = {name: line.utilization for name, line in lines.items()} | spent.shares
        used = max(shares.values(), default=0.0)
        hourly = limits.get("hourly")
        expected = 0.0 if hourly is None or spent.hour is None else (spent.hour + rate * hours_left(now)) / hourly
        return CostStatus(
            current_cost_per_hour=rate,
            budgets=lines,
            spent=used,
            expected=expected,
            level=self._level(used, expected),
            warnings=self._warnings(shares | {"expected": expected}),
        )

    def _level(self, used: float, expected: float) -> CostLevel:
        if used >= 1:
            return "over"
        if used >= self.cost_critical_threshold:
            return "critical"
        return "warning" if max(used, expected) >= self.cost_warning_threshold else "ok"

    def _warnings(self, shares: Mapping[str, float]) -> list[str]:
        return [
            f"{NAMES.get(name, name)}: {share:.0%} used"
            for name, share in sorted(shares.items(), key=lambda item: -item[1])
            if share >= self.cost_warning_threshold
        ]


def hours_left(now: float) -> float:
    """Return the remaining fraction of the hour that contains `now`, from 0 to 1."""
    end = window_at(TokenPeriod.HOURLY, now).end
    assert end is not None, "hours end"
    return (end - now) / 3600
