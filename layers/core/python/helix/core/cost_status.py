"""The use of an agent's budgets so far, and at the end of the hour if the present cost goes on.

Law: pure; US dollars. Spent and expected money are kept apart: only spent money closes or shrinks an agent, expected
money keeps it from growing. If the cost of the hour was not counted, the present hourly rate takes its place.
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
    """The US dollars spent in the current hour, day and month (UTC). None if they were not counted."""

    hour: float | None = None
    """US dollars spent in the current hour."""
    day: float | None = None
    """US dollars spent on the current day."""
    month: float | None = None
    """US dollars spent in the current month."""
    shares: dict[str, float] = Field(default_factory=dict)
    """The used share of the agent's other budgets (tokens, weeks, budgets of all agents) by the budget's name. 1 is all
    of it."""


class CostLine(Record, frozen=True):
    """The use of one budget, in US dollars."""

    limit: float
    """The most that may be spent in the window."""
    current: float
    """The money spent so far. For an hour that was not counted, the present cost per hour."""
    utilization: float
    """`current` as a share of `limit`. It may exceed 1."""
    remaining: float
    """The money that is left. Negative if the limit was exceeded."""


class CostStatus(Record, frozen=True):
    """The use of all budgets of an agent."""

    current_cost_per_hour: float
    """The present cost in US dollars an hour."""
    budgets: dict[str, CostLine]
    """The agent's own budgets in US dollars, by `hourly`, `daily` and `monthly`. Windows without a limit or a count are
    left out."""
    spent: float
    """The largest used share of any budget. 1 is all of it."""
    expected: float
    """The share of the hour's budget that will be used at the end of the hour if the present cost goes on. 0 without
    such a budget or a count."""
    level: CostLevel
    """The level by the thresholds. `over` and `critical` go by `spent`, `warning` by both `spent` and `expected`."""
    warnings: list[str]
    """Texts for people about the budgets at or above the warning threshold, the most used first."""


class CostThresholds(BaseModel):
    """The shares of a budget at which an agent's scaling changes."""

    model_config = FIXED

    cost_warning_threshold: float = Field(default=0.8, gt=0, le=1)
    """The share, spent or expected, from which an agent does not grow."""
    cost_critical_threshold: float = Field(default=0.95, gt=0, le=1)
    """The spent share from which an agent shrinks. At least `cost_warning_threshold`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.cost_warning_threshold > self.cost_critical_threshold:
            raise ValueError("cost_warning_threshold is above cost_critical_threshold: a warning comes first")
        return self

    def status(self, limits: Mapping[str, float | None], rate: float, spent: Spending, now: float) -> CostStatus:
        """Return the use of the budgets. `limits` has a limit in US dollars by `hourly`, `daily` and `monthly`; `rate`
        is the present cost per hour."""
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
    """Return the rest of the hour that `now` is in, from 0 to 1."""
    end = window_at(TokenPeriod.HOURLY, now).end
    assert end is not None, "hours end"
    return (end - now) / 3600
