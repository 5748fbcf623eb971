"""How far the budgets of an agent are used, and how far the present cost will take them.

Law: pure; US dollars. What is spent and what is expected are kept apart: only spent money closes or shrinks an agent, what
is expected keeps it from growing. Where nobody counted what the hour has cost, its rate stands for it.
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
    """US dollars spent in the current hour, day and month (UTC); None where nobody counted. `shares`: how much of its other
    budgets (tokens, weeks, everybody's) is used, by the budget's name; 1 is all."""

    hour: float | None = None
    day: float | None = None
    month: float | None = None
    shares: dict[str, float] = Field(default_factory=dict)


class CostLine(Record, frozen=True):
    """One budget, in US dollars."""

    limit: float
    current: float
    utilization: float
    remaining: float


class CostStatus(Record, frozen=True):
    """`spent`: the largest share used of any budget. `expected`: the share of the hour's budget that will be used at its
    end, if it goes on as it does. `level`, by the thresholds: `over` and `critical` by what is spent, `warning` by both."""

    current_cost_per_hour: float
    budgets: dict[str, CostLine]
    spent: float
    expected: float
    level: CostLevel
    warnings: list[str]


class CostThresholds(BaseModel):
    """Shares of a budget."""

    model_config = FIXED

    cost_warning_threshold: float = Field(default=0.8, gt=0, le=1)
    cost_critical_threshold: float = Field(default=0.95, gt=0, le=1)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.cost_warning_threshold > self.cost_critical_threshold:
            raise ValueError("cost_warning_threshold is above cost_critical_threshold: a warning comes first")
        return self

    def status(self, limits: Mapping[str, float | None], rate: float, spent: Spending, now: float) -> CostStatus:
        """`limits`: by `hourly`, `daily`, `monthly`; `rate`: the present cost per hour."""
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
    """Of the hour that `now` is in."""
    end = window_at(TokenPeriod.HOURLY, now).end
    assert end is not None, "hours end"
    return (end - now) / 3600
