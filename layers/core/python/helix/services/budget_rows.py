"""The rows of budgets in the control table: their keys, and what they hold.

    budgets         / <scope>          definitions   budgets: the definitions of a scope
    budgets         / version          count         n: how often a definition was changed
    budgets#version / <number>         count         the same, for readers: many steps begin at once
    budget#<window> / budget           window        unit, limit, remaining; reserved: of what is drawn, the amount that no
                                                     run has reported as used; `<level>_at`: when that alert was raised;
                                                     shards, moves: where it is divided (`budget_shards`)
    budget#<window>#<number> / shard   shard         remaining: of what the window lent it; reserved
    run#<run id>    / draw#<n>#<...>   draw          budget, amount, state (open, returned), returned; part: the number of
                                                     the shard that it was taken from; reserved: its share of the window's
    alerts          / <time>#<...>     alert         a `TokenAlert`
    alerts#untold   / <time>#<...>     alert         the same, until it is published

Law: what grows carries `ttl` (Unix seconds): windows from their end, closed draws, alerts.
"""

from __future__ import annotations

from dataclasses import dataclass

from helix.core.budget import KEEP_S, LEVELS, AlertLevel, BudgetDefinition, Unit
from helix.core.periods import Window
from helix.ports.state_store import Key, Update, Value, When

DEFINITIONS = "budgets"
ALERTS, UNPUBLISHED = "alerts", "alerts#untold"
WINDOW = "budget"
VERSION = Key("control", "budgets", "version")
"""A row whose `n` counts every change of a definition; missing where none was ever made. Whoever reads the store anyway
takes it along, and asks for definitions only where it has moved."""
COPIES = 16
"""Of the count, for those who read it in each step: an item takes 3,000 reads a second. Each change writes them all."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A run wants at least `estimate` from `budget`, and if there is plenty up to `wish` (None: about a hundredth of what
    remains). `used`: of its draws before, the amount that it has not reported yet."""

    budget: str
    unit: Unit
    estimate: int
    wish: int | None = None
    used: int = 0


@dataclass(frozen=True, slots=True)
class BudgetState:
    """One window of a budget. `reported`: the levels that an alert was raised for. `bound`: not all shards were read, and
    more than `remaining` may remain. `reserved`: of what is drawn, the amount that no run has reported as used."""

    budget: str
    unit: Unit
    limit: int
    remaining: int
    reported: frozenset[AlertLevel] = frozenset()
    bound: bool = False
    reserved: int = 0

    @property
    def spent(self) -> int:
        """Used, or assumed to be used, as far as runs have reported it: at each draw, and at their end. It never falls
        while the limit stays."""
        return self.limit - self.remaining - self.reserved


def version_copy(number: int) -> Key:
    return Key("control", "budgets#version", f"{number % COPIES:02d}")


def scope_key(scope: str) -> Key:
    return Key("control", DEFINITIONS, scope)


def budget_key(budget: str) -> Key:
    return Key("control", f"budget#{budget}", WINDOW)


def part_key(budget: str, number: int) -> Key:
    """Of a shard; 0: of the window itself. Each shard is a partition of its own: DynamoDB bounds the writes of one."""
    return Key("control", f"budget#{budget}#{number:02d}", "shard") if number else budget_key(budget)


def run_draws(run_id: str) -> str:
    return f"run#{run_id}"


def draw_key(run_id: str, n: int, budget: str) -> Key:
    return Key("control", run_draws(run_id), f"draw#{n:010d}#{budget}")


def definitions_in(value: Value | None) -> list[BudgetDefinition]:
    return [] if value is None else [BudgetDefinition.model_validate(item) for item in value["budgets"]]


def window_value(definition: BudgetDefinition, window: Window) -> Value:
    value: Value = {"unit": definition.unit, "limit": definition.limit, "remaining": definition.limit}
    return value if window.end is None else {**value, "ttl": int(window.end + KEEP_S)}


def limit_change(budget: str, before: int, after: int) -> Update:
    """Another limit for a window. A raise makes a new definition: each level raises its alert anew."""
    cleared = {raised_at(level): None for level in LEVELS} if after > before else {}
    move = after - before
    seen = When(equal={"limit": before})
    return Update(budget_key(budget), set=cleared, add={"limit": move, "remaining": move}, when=seen)


def raised_at(level: AlertLevel) -> str:
    return f"{level}_at"


def state_of(budget: str, value: Value) -> BudgetState:
    """As far as the window's own row says."""
    reported: frozenset[AlertLevel] = frozenset(level for level in LEVELS if value.get(raised_at(level)) is not None)
    bound, reserved = "shards" in value, value.get("reserved", 0)
    return BudgetState(budget, value["unit"], value["limit"], value["remaining"], reported, bound, reserved)
