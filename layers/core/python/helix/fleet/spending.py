"""What the budgets say of agents: for policies, and for the gauge.

Law: policies go by what is spent, or assumed to be, as far as runs have reported it: that never falls within a window, so
no agent is stopped by reservations that come back. The gauge also counts what is set aside for calls at work. A budget that
refused a call within sight of its line is used up, even where a smaller call would fit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from helix.core.budget import GLOBAL, MICROS, BudgetDefinition
from helix.core.cost_status import Spending
from helix.core.measures import Measures
from helix.core.periods import TokenPeriod
from helix.engine.engine import AlertListener
from helix.engine.money.bounds import raise_alerts
from helix.ports.clock import Clock
from helix.ports.metrics import Metrics
from helix.services.budget_rows import BudgetState
from helix.services.row_budgets import RowBudgets

AGENT = "agent:"
PERIODS: Mapping[TokenPeriod, str] = {
    TokenPeriod.HOURLY: "hour",
    TokenPeriod.DAILY: "day",
    TokenPeriod.MONTHLY: "month",
}
"""Those that policies know by name; the others count by their share."""


@dataclass(frozen=True, slots=True)
class AgentMoney:
    """costs: its own budgets in US dollars, as `max_cost_per_hour`, `..._day`, `..._month`. spent: of them, and the shares
    used of all others that bind it. worst: the largest share that is used or set aside; None without budgets. used_up: the
    budgets with nothing left to spend."""

    costs: Mapping[str, float] = field(default_factory=dict)
    spent: Spending = field(default_factory=Spending)
    worst: float | None = None
    used_up: Sequence[tuple[BudgetDefinition, BudgetState]] = ()


@dataclass(frozen=True, slots=True)
class _Used:
    """share: that is spent. held: that is spent or set aside."""

    definition: BudgetDefinition
    limit: int
    share: float = 0.0
    held: float = 0.0
    state: BudgetState | None = None

    @property
    def period(self) -> str | None:
        """As policies name it, of an agent's own dollars."""
        own = self.definition.scope != GLOBAL and self.definition.unit == "micros"
        return PERIODS.get(self.definition.period) if own else None


class BudgetMoney:
    """The budgets of agents, and everybody's, as they are now. on_alert: receive the alerts that are raised here."""

    def __init__(self, budgets: RowBudgets, clock: Clock, on_alert: list[AlertListener] | None = None) -> None:
        self.budgets, self.clock, self.on_alert = budgets, clock, on_alert if on_alert is not None else []

    async def agents(self) -> set[str]:
        """Those that have budgets of their own."""
        own = await self.budgets.definitions(kind="agent")
        return {definition.scope.removeprefix(AGENT) for definition in own}

    async def read(self, agents: Collection[str]) -> dict[str | None, AgentMoney]:
        """By agent; under None the worst of all that were read. Two reads, however many agents."""
        scopes = [GLOBAL, *(AGENT + agent for agent in sorted(agents))]
        definitions = await self.budgets.definitions(scopes)
        now = self.clock.now()
        states = await self.budgets.get([definition.window(now)[0] for definition in definitions])
        used = [_used(definition, state) for definition, state in zip(definitions, states, strict=True)]
        by_agent: dict[str | None, AgentMoney] = {
            agent: _money([one for one in used if one.definition.scope in (GLOBAL, AGENT + agent)]) for agent in agents
        }
        return {**by_agent, None: AgentMoney(worst=max((one.held for one in used), default=None))}

    async def raise_stop(self, money: AgentMoney, agent: str) -> None:
        """Raise `exceeded` for each budget that stops the agent, unless its window has raised it."""
        for definition, state in money.used_up:
            await raise_alerts(self, definition, state, because=f"agent {agent!r} accepts no more runs")


def _used(definition: BudgetDefinition, state: BudgetState | None) -> _Used:
    if state is None or state.limit <= 0:
        return _Used(definition, definition.limit)
    share, held = (amount / state.limit for amount in (state.spent, state.limit - state.remaining))
    if "exceeded" in state.reported:
        share, held = (max(part, 1.0) if part >= definition.critical else part for part in (share, held))
    return _Used(definition, state.limit, share, held, state)


def _money(used: Collection[_Used]) -> AgentMoney:
    own = {one.period: one for one in used if one.period is not None}
    shares = {one.definition.name: one.share for one in used if one.period is None}
    spent = {period: one.share * one.limit / MICROS for period, one in own.items()}
    return AgentMoney(
        costs={f"max_cost_per_{period}": one.limit / MICROS for period, one in own.items()},
        spent=Spending.model_validate({**spent, "shares": shares}),
        worst=max((one.held for one in used), default=None),
        used_up=[(one.definition, one.state) for one in used if one.share >= 1 and one.state is not None],
    )


def record_gauges(
    metrics: Metrics, counts: Mapping[str | None, Mapping[str, float]], money: Mapping[str | None, AgentMoney]
) -> None:
    """Who waits, who works, what is allowed, how much of the money is used: by agent, and under None of all. `counts` have
    a `ConcurrencyLimit` only where there is one."""
    limits = [values["ConcurrencyLimit"] for agent, values in counts.items() if agent and "ConcurrencyLimit" in values]
    for agent in [*sorted(name for name in counts.keys() | money.keys() if name is not None), None]:
        values = dict(counts.get(agent, {}))
        if agent is None and limits:
            values.setdefault("ConcurrencyLimit", sum(limits))
        worst = money[agent].worst if agent in money else None
        if worst is not None:
            values["BudgetUtilization"] = worst * 100
        if values:
            metrics.record(Measures(values, agent=agent))
