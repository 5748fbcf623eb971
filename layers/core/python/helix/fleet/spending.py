"""The state of agents' budgets, for scaling policies and for the budget gauge.

Law: policies use the amount that is spent or assumed to be spent, as far as runs have reported it. It never decreases
within a window and does not include reservations, so reservations that are later released cannot stop an agent. The gauge
also counts the reservations of running calls. A budget that refused a call at or above its critical share counts as used
up, even if a smaller call would still fit.
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
"""The periods that policies know by name. For other periods, the used share matters."""


@dataclass(frozen=True, slots=True)
class AgentMoney:
    """The budgets that apply to one agent, in their current windows."""

    costs: Mapping[str, float] = field(default_factory=dict)
    """The agent's own budgets in US dollars, by `max_cost_per_hour`, `..._day` and `..._month`."""
    spent: Spending = field(default_factory=Spending)
    """The US dollars spent from `costs`, and the used shares of all other budgets that apply to the agent."""
    worst: float | None = None
    """The largest spent or reserved share of any budget, where 1 is the whole budget. None: no budget applies to the
    agent."""
    used_up: Sequence[tuple[BudgetDefinition, BudgetState]] = ()
    """The budgets with nothing left to spend."""


@dataclass(frozen=True, slots=True)
class _Used:
    """A budget with its used shares. 1 is the whole limit."""

    definition: BudgetDefinition
    """The budget."""
    limit: int
    """The window's limit in the budget's unit."""
    share: float = 0.0
    """The spent share."""
    held: float = 0.0
    """The spent and reserved share."""
    state: BudgetState | None = None
    """The stored state of the window. None: it has not been used yet."""

    @property
    def period(self) -> str | None:
        """The name that policies use for the period. None unless the budget is an agent's own and in dollars."""
        own = self.definition.scope != GLOBAL and self.definition.unit == "micros"
        return PERIODS.get(self.definition.period) if own else None


class BudgetMoney:
    """Reads the current state of agents' budgets and of the global ones. on_alert: the listeners for alerts that are raised
    here."""

    def __init__(self, budgets: RowBudgets, clock: Clock, on_alert: list[AlertListener] | None = None) -> None:
        self.budgets, self.clock, self.on_alert = budgets, clock, on_alert if on_alert is not None else []

    async def agents(self) -> set[str]:
        """Return the agents that have their own budgets."""
        own = await self.budgets.definitions(kind="agent")
        return {definition.scope.removeprefix(AGENT) for definition in own}

    async def read(self, agents: Collection[str]) -> dict[str | None, AgentMoney]:
        """Return the budgets by agent and, under None, the largest share of all budgets read. This takes two reads for any
        number of agents."""
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
        """Raise the alert `exceeded` for each budget that stops the agent, unless its window has already raised it."""
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
    """Record gauges for waiting runs, running runs, limits and used shares of budgets, by agent and for all agents together
    (None). `counts` has a `ConcurrencyLimit` only for limited agents."""
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
