"""Budgets: one number per window of a budget, drawn in blocks (PROTOCOL 7a); and what is bounded by how much.

Law: `limit = remaining + drawn` at every moment, where drawn counts open draws and what returned draws have used. A draw
never takes what is not there; `remaining` is below 0 only where more was used than was drawn, or a limit was lowered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from helix.core.budget import AlertLevel, BudgetDefinition, TokenAlert, Unit
from helix.ports.state_store import Key

__all__ = ["VERSION", "AlertLevel", "BudgetState", "Budgets", "Demand", "Unit"]

VERSION = Key("control", "budgets", "version")
"""A row whose `n` counts every change of a definition; missing where none was ever made. Whoever reads the store anyway
takes it along, and asks for definitions only where it has moved."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A run wants at least `estimate` from `budget`, and if there is plenty up to `wish` (None: about a hundredth of what
    remains)."""

    budget: str
    unit: Unit
    estimate: int
    wish: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetState:
    """One window of a budget. `told`: the levels that an alert was raised for."""

    budget: str
    unit: Unit
    limit: int
    remaining: int
    told: frozenset[AlertLevel] = frozenset()


class Budgets(Protocol):
    """`budget` is the name of a window's budget, `BudgetDefinition.window(now)`."""

    # --- what is bounded ---

    async def definitions(
        self, scopes: Sequence[str] | None = None, *, kind: str | None = None
    ) -> list[BudgetDefinition]:
        """Those of these scopes, in their order; None: all there are, or all of a kind of scope (`agent`, `session`)."""
        ...

    async def define(self, definition: BudgetDefinition, now: float) -> int:
        """Make the budget, or put this in its place. The window of `now` has the new limit at once: its `remaining` moves
        by the difference, below 0 where more is drawn already; other windows keep theirs. Returns the count of changes."""
        ...

    async def undefine(self, name: str) -> bool:
        """Nothing is bounded by it any more; False where there is none. What was drawn from it can be returned."""
        ...

    async def forget(self, scope: str) -> None:
        """The scope is gone for good, and nothing draws on it any more: neither its definitions nor what they have used
        are kept. Harmless where there are none."""
        ...

    # --- a window ---

    async def open(self, definition: BudgetDefinition, now: float, version: int) -> bool:
        """Make the window of `now` with the definition's limit, unless it is there. False, and nothing is made: definitions
        have changed since `version`, read them again."""
        ...

    async def get(self, budgets: Sequence[str]) -> list[BudgetState | None]:
        """As they are now; None for what was never opened."""
        ...

    async def draw(self, run_id: str, n: int, demands: Sequence[Demand]) -> dict[str, int] | None:
        """Take one block from every budget in one transaction: amounts by budget, or None where one has not even its
        estimate left (nothing is taken). Draw (run, n) happens once: a repeat answers what was drawn then."""
        ...

    async def give_back(
        self, run_id: str, used: Mapping[str, int], *, part: bool = False, expires: int | None = None
    ) -> None:
        """Close the open draws of an ended run: all but `used` (spent and assumed, by budget) returns, also of draws that
        the run never learned of. What was used beyond the draws is taken from what remains. Each draw is closed once, and
        a repeat changes nothing. part: the run goes on, and only the budgets in `used` are meant, which it draws from no
        more. `expires` (Unix seconds): when nobody asks for the closed draws any more."""
        ...

    # --- alerts ---

    async def alert(self, budget: str, alert: TokenAlert, expires: int) -> bool:
        """Raise it, unless one of its level was raised for this window. True for the one caller who did. `expires` (Unix
        seconds): when the record of it may go."""
        ...
