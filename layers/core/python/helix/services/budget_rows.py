"""The rows of budgets in the control table: their keys and values.

    budgets         / <scope>          definitions   budgets: the definitions of a scope
    budgets         / version          count         n: how often a definition was changed
    budgets#version / <number>         count         copies of the count, because many steps begin at once
    budget#<window> / budget           window        unit, limit, remaining; reserved: the part of the drawn amount that no
                                                     run has reported as used; `<level>_at`: when that alert was raised;
                                                     shards, moves: where it is divided (`budget_shards`)
    budget#<window>#<number> / shard   shard         remaining: what is left of the amount that the window lent; reserved
    run#<run id>    / draw#<n>#<...>   draw          budget, amount, state (open, returned), returned; part: the number of
                                                     the shard that it was taken from; reserved: its share of the window's
    alerts          / <time>#<...>     alert         a `TokenAlert`
    alerts#untold   / <time>#<...>     alert         the same, until it is published

Law: rows that grow in number carry `ttl` (Unix seconds): windows (counted from their end), closed draws, alerts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from helix.core.budget import KEEP_S, LEVELS, AlertLevel, BudgetDefinition, Unit
from helix.core.periods import Window
from helix.ports.state_store import Key, StateStore, Update, Value, When

DEFINITIONS = "budgets"
ALERTS, UNPUBLISHED = "alerts", "alerts#untold"
WINDOW = "budget"
VERSION = Key("control", "budgets", "version")
"""The row whose `n` counts the changes to definitions. It does not exist before the first definition. A process reads
it first, and reads the definitions only if the count has changed."""
COPIES = 16
"""The number of copies of the count. Each step reads one copy, because a DynamoDB item serves 3,000 reads per second.
Each change writes all copies."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The amount that a run wants to draw from one budget."""

    budget: str
    """The name of the window's budget (`BudgetDefinition.window(now)`)."""
    unit: Unit
    """The unit of the amounts: tokens, or micros (millionths of a US dollar)."""
    estimate: int
    """The minimum amount that the run needs. The draw is refused if the budget has less."""
    wish: int | None = None
    """The amount to draw if the budget has plenty. None for about a hundredth of the remainder."""
    used: int = 0
    """The part of the run's earlier draws that the run has used but not yet reported."""


@dataclass(frozen=True, slots=True)
class BudgetState:
    """One window of a budget, as read."""

    budget: str
    """The name of the window's budget."""
    unit: Unit
    """The unit of the amounts: tokens, or micros (millionths of a US dollar)."""
    limit: int
    """The amount that may be used in the window."""
    remaining: int
    """The amount that runs may still draw. Negative if more was used than drawn, or if the limit was lowered."""
    reported: frozenset[AlertLevel] = frozenset()
    """The levels for which an alert was raised in this window."""
    bound: bool = False
    """Whether `remaining` is only a lower bound because the shards were not read."""
    reserved: int = 0
    """The part of the drawn amount that no run has reported as used."""

    @property
    def spent(self) -> int:
        """The amount that is used, or assumed to be used, as far as runs have reported it. They report at each draw and
        at their end. The amount never decreases while the limit is unchanged."""
        return self.limit - self.remaining - self.reserved


def version_copy(number: int) -> Key:
    return Key("control", "budgets#version", f"{number % COPIES:02d}")


def scope_key(scope: str) -> Key:
    return Key("control", DEFINITIONS, scope)


def budget_key(budget: str) -> Key:
    return Key("control", f"budget#{budget}", WINDOW)


def part_key(budget: str, number: int) -> Key:
    """Return the key of a shard, or of the window itself for 0. Each shard is a partition of its own, because DynamoDB
    limits the writes to one partition."""
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
    """Return the update that changes a window's limit. A higher limit counts as a new definition, so each level raises
    its alert again."""
    cleared = {raised_at(level): None for level in LEVELS} if after > before else {}
    move = after - before
    seen = When(equal={"limit": before})
    return Update(budget_key(budget), set=cleared, add={"limit": move, "remaining": move}, when=seen)


def raised_at(level: AlertLevel) -> str:
    return f"{level}_at"


def state_of(budget: str, value: Value) -> BudgetState:
    """Return the state according to the window's own row, without its shards."""
    reported: frozenset[AlertLevel] = frozenset(level for level in LEVELS if value.get(raised_at(level)) is not None)
    bound, reserved = "shards" in value, value.get("reserved", 0)
    return BudgetState(budget, value["unit"], value["limit"], value["remaining"], reported, bound, reserved)


class BudgetChanges:
    """The number of changes to budget definitions. Each step reads it from a copy of the row.

    A change writes the row and all copies in one transaction (`row_budgets`), so any copy shows whether something
    changed. The copies do not exist until this version has made its first change. A process then reads the row itself,
    once.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._uncopied: int | None = None

    async def read(self, session_id: str, keys: Sequence[Key]) -> tuple[list[Value | None], int]:
        """Return the rows and the count with one read."""
        copy, first = version_copy(crc32(session_id.encode())), self._uncopied is None
        *values, version = await self._store.get([*keys, *([VERSION] if first else []), copy])
        if first:
            self._uncopied = _count(values.pop())
        return values, _count(version) or self._uncopied or 0


def _count(value: Value | None) -> int:
    return int(value["n"]) if value is not None else 0
