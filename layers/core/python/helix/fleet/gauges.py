"""The gauges that are told once a minute: who waits, who works, what is allowed, how much of the money is used.

Law: each is told for its agent and, by a measure of its own, as the total of all (of shares, the worst): whoever reads the
stage's metric takes its maximum, which is that total.
"""

from __future__ import annotations

from collections.abc import Mapping

from helix.core.measures import Measures
from helix.fleet.spending import AgentMoney
from helix.ports.metrics import Metrics

UTILIZATION = "BudgetUtilization"


def tell_gauges(
    metrics: Metrics, counts: Mapping[str | None, Mapping[str, float]], money: Mapping[str | None, AgentMoney]
) -> None:
    """By agent, and under None of all. `counts` have a `ConcurrencyLimit` only where there is one."""
    limits = [values["ConcurrencyLimit"] for agent, values in counts.items() if agent and "ConcurrencyLimit" in values]
    for agent in [*sorted(name for name in counts.keys() | money.keys() if name is not None), None]:
        values = dict(counts.get(agent, {}))
        if agent is None and limits:
            values.setdefault("ConcurrencyLimit", sum(limits))
        worst = money[agent].worst if agent in money else None
        if worst is not None:
            values[UTILIZATION] = worst * 100
        if values:
            metrics.record(Measures(values, agent=agent))
