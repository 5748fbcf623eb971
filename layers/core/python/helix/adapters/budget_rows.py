"""The rows of budgets in the control table: their keys, and what they hold.

    budgets         / <scope>          definitions   budgets: the definitions of a scope
    budgets         / version          count         n: how often a definition was changed
    budget#<window> / budget           window        unit, limit, remaining; `<level>_at`: when that alert was raised
    run#<run id>    / draw#<n>#<...>   draw          budget, amount, state (open, returned), returned
    alerts          / <time>#<...>     alert         a `TokenAlert`
    alerts#untold   / <time>#<...>     alert         the same, until somebody told it

Law: what grows carries `ttl` (Unix seconds): windows from their end, closed draws, alerts.
"""

from __future__ import annotations

from helix.core.budget import KEPT_S, LEVELS, AlertLevel, BudgetDefinition
from helix.core.periods import Window
from helix.ports.budgets import BudgetState
from helix.ports.state_store import Key, Value

DEFINITIONS = "budgets"
ALERTS, UNTOLD = "alerts", "alerts#untold"
WINDOW = "budget"


def scope_key(scope: str) -> Key:
    return Key("control", DEFINITIONS, scope)


def budget_key(budget: str) -> Key:
    return Key("control", f"budget#{budget}", WINDOW)


def run_draws(run_id: str) -> str:
    return f"run#{run_id}"


def draw_key(run_id: str, n: int, budget: str) -> Key:
    return Key("control", run_draws(run_id), f"draw#{n:010d}#{budget}")


def definitions_in(value: Value | None) -> list[BudgetDefinition]:
    return [] if value is None else [BudgetDefinition.model_validate(item) for item in value["budgets"]]


def window_value(definition: BudgetDefinition, window: Window) -> Value:
    value: Value = {"unit": definition.unit, "limit": definition.limit, "remaining": definition.limit}
    return value if window.end is None else {**value, "ttl": int(window.end + KEPT_S)}


def told_at(level: AlertLevel) -> str:
    return f"{level}_at"


def state_of(budget: str, value: Value | None) -> BudgetState | None:
    if value is None:
        return None
    told: frozenset[AlertLevel] = frozenset(level for level in LEVELS if value.get(told_at(level)) is not None)
    return BudgetState(budget, value["unit"], value["limit"], value["remaining"], told)
