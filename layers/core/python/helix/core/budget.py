"""Budgets: the scope, the window and the limit of spending; and the arithmetic of blocks.

Law: integers only. The name of a budget is `<scope>/<period>/<unit>`, that of one of its windows `<name>/<window key>`.
The usage of a sub-agent counts on its root's scopes.
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
"""The most tokens or micro-dollars of a limit. Every store adds amounts up to it exactly."""
KEEP_S = 31 * 24 * 3600
"""The seconds for which the row of a window is stored after its end."""


class BudgetDefinition(Record):
    """A limit on the spending of all runs of a scope in each window of a period."""

    scope: str = Field(min_length=1)
    """The runs that the budget bounds: `global`, `agent:<type of the root agent>`, `tenant:<user id>` or `session:<root
    session id>`."""
    period: TokenPeriod
    """The length of a window."""
    unit: Unit
    """The unit of `limit`."""
    limit: int = Field(gt=0)
    """The most that may be spent in a window, in `unit`."""
    on_exceeded: OnExceeded | None = None
    """Whether a run that finds no room fails or pauses. None leaves it to its agent (`on_budget`)."""
    warning: float = Field(default=WARNING, gt=0, le=1)
    """The share of the limit at which a warning is raised."""
    critical: float = Field(default=CRITICAL, gt=0, le=1)
    """The share of the limit at which a critical alert is raised. At least `warning`."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.warning > self.critical:
            raise ValueError(f"warning {self.warning} is above critical {self.critical}")
        return self

    @property
    def name(self) -> str:
        return f"{self.scope}/{self.period}/{self.unit}"

    def window(self, now: float) -> tuple[str, Window]:
        """Return the name and the bounds of the window that `now` is in."""
        window = window_at(self.period, now)
        return f"{self.name}/{window.key}", window

    def level(self, limit: int, remaining: int) -> AlertLevel | None:
        """Return the level that the window has reached, or None below the first. `limit - remaining` is the amount that
        is used, or set aside for calls at work."""
        used = limit - remaining
        if used > limit:
            return "exceeded"
        if used >= self.critical * limit:
            return "critical"
        return "warning" if used >= self.warning * limit else None


class TokenAlert(Record, extra="ignore"):
    """An alert of a budget. The engine raises it once per window of a budget and level, and again after a raised
    limit."""

    alert_id: str
    """The id of the alert. Ids sort by time."""
    level: AlertLevel
    """The level that the window has reached."""
    message: str
    """The text for people."""
    scope: str
    """The scope of the budget."""
    period: TokenPeriod
    """The period of the budget."""
    window: str
    """The key of the window, such as `2026-11-21`."""
    unit: Unit
    """The unit of `current` and `limit`."""
    current: int
    """The amount that is used, or set aside for calls at work."""
    limit: int
    """The limit of the window."""
    utilization: float
    """`current` as a share of `limit`; 1 is all of it."""
    timestamp: float
    """The time of the alert in Unix seconds."""
    published: bool = Field(default=False, validation_alias=AliasChoices("published", "told"))
    """Whether the alert was passed on to the callbacks or notices. Rows of older versions call it `told`."""

    @property
    def agent_id(self) -> str | None:
        """The agent that the budget bounds. None for other scopes."""
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
        """The limit in tokens or US dollars."""
        return self.limit / MICROS if self.unit == "micros" else self.limit


def scopes_of(session: SessionRow) -> list[str]:
    """Return the scopes that bound a session. For a sub-agent they are its root's."""
    root_agent = session.ancestors[0] if session.ancestors else session.agent_type
    tenant = [f"tenant:{session.user_id}"] if session.user_id is not None else []
    return [GLOBAL, f"agent:{root_agent}", *tenant, f"session:{session.stream_id}"]


def packed(definition: BudgetDefinition) -> list[JsonValue]:
    """Return `[kind/period/unit, limit, on_exceeded, warning, critical]` without defaults at the end. The rest of the
    definition follows from the session."""
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
    """Return the amount to draw: about 1 % of what remains, but at least the estimate, so it shrinks to the estimate
    near the limit.

    It is never more than `remaining` unless the estimate itself is: then the draw is refused, not cut.
    """
    return max(estimate, min(remaining // 100, remaining))
