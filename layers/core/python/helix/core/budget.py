"""Budgets: the scope, window and limit of spending, and the size of the blocks that runs draw from them.

Law: amounts are integers. A budget is named `<scope>/<period>/<unit>`, and one of its windows `<name>/<window key>`. A
sub-agent's usage counts toward its root's scopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from helix.core.json import JsonValue
from helix.core.messages import Record
from helix.core.periods import TokenPeriod, Window, window_at
from helix.core.session_row import SessionRow

Unit = Literal["micros", "tokens"]
"""Micro-dollars (millionths of a US dollar), or tokens."""
AlertLevel = Literal["warning", "critical", "exceeded"]
LEVELS: tuple[AlertLevel, ...] = ("warning", "critical", "exceeded")
OnExceeded = Literal["fail", "pause"]

GLOBAL = "global"
WARNING, CRITICAL = 0.8, 0.95
MICROS = 1_000_000
MOST = 10**15
"""The largest limit, in tokens or micro-dollars. Every store adds amounts up to this size exactly."""
KEEP_S = 31 * 24 * 3600
"""The retention of a window's row after the window ends, in seconds."""


class BudgetDefinition(Record):
    """A limit on the spending of all runs of a scope in each window of a period."""

    scope: str = Field(min_length=1)
    """The runs that the budget limits: `global`, `agent:<type of the root agent>`, `tenant:<user id>` or `session:<root
    session id>`."""
    period: TokenPeriod
    """The length of a window."""
    unit: Unit
    """The unit of `limit`."""
    limit: int = Field(gt=0)
    """The maximum spending in a window, in `unit`."""
    on_exceeded: OnExceeded | None = None
    """Whether a run fails or pauses when the budget has no room for its next call. None defers to the agent's
    `on_budget`."""
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
        """Return the name and the bounds of the window that contains `now`."""
        window = window_at(self.period, now)
        return f"{self.name}/{window.key}", window

    def level(self, limit: int, remaining: int) -> AlertLevel | None:
        """Return the alert level that the window has reached, or None below the first level. `limit - remaining` is the
        amount used or reserved for calls in progress."""
        used = limit - remaining
        if used > limit:
            return "exceeded"
        if used >= self.critical * limit:
            return "critical"
        return "warning" if used >= self.warning * limit else None


class TokenAlert(Record, extra="ignore"):
    """A budget alert. The engine raises it once per window and level, and again after the limit was raised."""

    alert_id: str
    """The id of the alert. Ids sort by time."""
    level: AlertLevel
    """The level that the window has reached."""
    message: str
    """The human-readable alert text."""
    scope: str
    """The scope of the budget."""
    period: TokenPeriod
    """The period of the budget."""
    window: str
    """The key of the window, such as `2026-11-21`."""
    unit: Unit
    """The unit of `current` and `limit`."""
    current: int
    """The amount used or reserved for calls in progress."""
    limit: int
    """The limit of the window."""
    utilization: float
    """`current` as a fraction of `limit`. It is 1 when the limit is reached."""
    timestamp: float
    """The time of the alert in Unix seconds."""
    published: bool = Field(default=False, validation_alias=AliasChoices("published", "told"))
    """Whether the alert was delivered to the callbacks or notices. Rows of older versions call this field `told`."""

    @property
    def agent_id(self) -> str | None:
        """The agent that the budget limits. None for other scopes."""
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
    """Return the scopes whose budgets limit a session. A sub-agent has the scopes of its root."""
    root_agent = session.ancestors[0] if session.ancestors else session.agent_type
    tenant = [f"tenant:{session.user_id}"] if session.user_id is not None else []
    return [GLOBAL, f"agent:{root_agent}", *tenant, f"session:{session.stream_id}"]


def packed(definition: BudgetDefinition) -> list[JsonValue]:
    """Return `[kind/period/unit, limit, on_exceeded, warning, critical]` without trailing defaults. `unpacked` derives
    the full scope from the session."""
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
    """Return the amount to draw: 1 % of the remaining budget, or the estimate if that is larger. Near the limit the
    block shrinks to the estimate.

    The result exceeds `remaining` only if the estimate does. Such a draw is refused rather than cut.
    """
    return max(estimate, min(remaining // 100, remaining))
