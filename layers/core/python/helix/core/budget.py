"""Budgets: what is bounded, by how much, per which window; and the arithmetic of blocks.

Law: integers only. A budget's name is `<scope>/<period>/<unit>`, that of one of its windows `<name>/<window key>`. What a
sub-agent uses is on its root's scopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from helix.core.json import JsonValue
from helix.core.messages import Record
from helix.core.periods import TokenPeriod, Window, window_at
from helix.core.rows import SessionRow

Unit = Literal["micros", "tokens"]
"""Micro-dollars (millionths of a US dollar), or tokens."""
AlertLevel = Literal["warning", "critical", "exceeded"]
LEVELS: tuple[AlertLevel, ...] = ("warning", "critical", "exceeded")
OnExceeded = Literal["fail", "pause"]

GLOBAL = "global"
WARNING, CRITICAL = 0.8, 0.95
MICROS = 1_000_000
MOST = 10**15
"""Of tokens and of micro-dollars: what every store adds up exactly."""
KEEP_S = 31 * 24 * 3600
"""How long a window's row is kept after its end."""


class BudgetDefinition(Record):
    """At most `limit` (of `unit`) in each window of `period`, by all runs of `scope`.

    scope: `global`, `agent:<type of the root agent>`, `tenant:<user id>` or `session:<root session id>`. on_exceeded: what
    a run does that finds no room; None: what its agent says (`on_budget`). warning, critical: parts of the limit at which
    an alert is raised.
    """

    scope: str = Field(min_length=1)
    period: TokenPeriod
    unit: Unit
    limit: int = Field(gt=0)
    on_exceeded: OnExceeded | None = None
    warning: float = Field(default=WARNING, gt=0, le=1)
    critical: float = Field(default=CRITICAL, gt=0, le=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.warning > self.critical:
            raise ValueError(f"warning {self.warning} is above critical {self.critical}")
        return self

    @property
    def name(self) -> str:
        return f"{self.scope}/{self.period}/{self.unit}"

    def window(self, now: float) -> tuple[str, Window]:
        """The budget that holds at `now`, by name, and its bounds."""
        window = window_at(self.period, now)
        return f"{self.name}/{window.key}", window

    def level(self, limit: int, remaining: int) -> AlertLevel | None:
        """How far the window is used up. `limit - remaining` is what is used, and what is set aside for calls at work."""
        used = limit - remaining
        if used > limit:
            return "exceeded"
        if used >= self.critical * limit:
            return "critical"
        return "warning" if used >= self.warning * limit else None


class TokenAlert(Record, extra="ignore"):
    """Raised once per window of a budget and level, and again after a raised limit. `alert_id` sorts by time.

    `current` and `limit` are in `unit` and count what is used and what is set aside for calls at work; `scope`, `period`
    and `window` say which budget; `timestamp` is in Unix seconds. `published`: whether it was published.
    """

    alert_id: str
    level: AlertLevel
    message: str
    scope: str
    period: TokenPeriod
    window: str
    unit: Unit
    current: int
    limit: int
    utilization: float
    timestamp: float
    published: bool = Field(default=False, validation_alias=AliasChoices("published", "told"))

    @property
    def agent_id(self) -> str | None:
        """The agent whose budget it is, or None."""
        kind, _, name = self.scope.partition(":")
        return name if kind == "agent" else None

    @property
    def current_tokens(self) -> int | None:
        return self.current if self.unit == "tokens" else None

    @property
    def current_usd(self) -> float | None:
        return self.current / MICROS if self.unit == "micros" else None

    @property
    def budget_limit(self) -> float:
        """In tokens or US dollars."""
        return self.limit / MICROS if self.unit == "micros" else self.limit


def scopes_of(session: SessionRow) -> list[str]:
    """The scopes that bound a session, its root's."""
    root_agent = session.ancestors[0] if session.ancestors else session.agent_type
    tenant = [f"tenant:{session.user_id}"] if session.user_id is not None else []
    return [GLOBAL, f"agent:{root_agent}", *tenant, f"session:{session.stream_id}"]


def packed(definition: BudgetDefinition) -> list[JsonValue]:
    """`[kind/period/unit, limit, on_exceeded, warning, critical]`, no defaults at the end: the session has the rest."""
    kind = definition.scope.partition(":")[0]
    short: list[JsonValue] = [f"{kind}/{definition.period}/{definition.unit}", definition.limit]
    rest: list[JsonValue] = [definition.on_exceeded, definition.warning, definition.critical]
    for at, default in ((2, CRITICAL), (1, WARNING), (0, None)):
        if rest[at] != default:
            return [*short, *rest[: at + 1]]
    return short


def unpacked(short: Sequence[Any], session: SessionRow) -> BudgetDefinition:
    kind, period, unit = short[0].split("/")
    scope = next(scope for scope in scopes_of(session) if scope.partition(":")[0] == kind)
    rest = dict(zip(("on_exceeded", "warning", "critical"), short[2:], strict=False))
    return BudgetDefinition(scope=scope, period=period, unit=unit, limit=short[1], **rest)


def block_size(remaining: int, estimate: int) -> int:
    """How much to draw: about 1 % of what remains, at least the estimate, shrinking to it near the line.

    Never more than `remaining` unless the estimate itself is: then the draw is refused, not cut.
    """
    return max(estimate, min(remaining // 100, remaining))
