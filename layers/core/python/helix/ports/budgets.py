"""Budgets: one number per budget, drawn in blocks (PROTOCOL 7a)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Unit = Literal["micros", "tokens"]


@dataclass(frozen=True, slots=True)
class Demand:
    """A run wants at least `estimate` (and if there is plenty, up to `wish`) from `budget`."""

    budget: str
    unit: Unit
    estimate: int
    wish: int


@dataclass(frozen=True, slots=True)
class BudgetState:
    """`limit = remaining + drawn`, where drawn counts open draws and what returned draws have spent."""

    budget: str
    unit: Unit
    limit: int
    remaining: int


class Budgets(Protocol):
    async def set_limit(self, budget: str, unit: Unit, limit: int) -> BudgetState:
        """Make the budget, or move its limit: `remaining` changes by the difference, never below 0."""
        ...

    async def get(self, budget: str) -> BudgetState | None: ...

    async def draw(self, run_id: str, n: int, demands: Sequence[Demand]) -> dict[str, int] | None:
        """Take one block from every budget in one transaction: amounts by budget, or None where one has not even its
        estimate left (nothing is taken). Draw (run, n) happens once: a repeat answers what was drawn then."""
        ...

    async def give_back(self, run_id: str, used: Mapping[str, int]) -> None:
        """Close the open draws of an ended run: all but `used` (spent and assumed, by budget) returns, also of draws that
        the run never learned of. Each draw is closed once, and a repeat changes nothing."""
        ...
