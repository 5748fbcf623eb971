"""Alerts of budgets: raised where money is drawn, so that every process does it, deployed or not.

Law: one alert per window of a budget and level, whoever meets the level first; who listens hears of it from that process,
and a listener that raises is logged.
"""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

from helix.core.budget import LEVELS, MICROS, AlertLevel, BudgetDefinition, TokenAlert, Unit
from helix.engine.engine import Engine, logger
from helix.ports.budgets import BudgetState

KEPT_S = 90 * 24 * 3600


async def raise_alerts(
    engine: Engine, definition: BudgetDefinition, state: BudgetState, *, refused: bool = False
) -> AlertLevel | None:
    """Raise what is due for this window, and say how far it is used up. `refused`: a call found no room in it, which is
    `exceeded`, however much of it is used."""
    reached = definition.level(state.limit, state.remaining)
    due = list(LEVELS[: LEVELS.index(reached) + 1]) if reached is not None else []
    if refused and reached != "exceeded":
        due.append("exceeded")
    for level in due:
        if level in state.told:
            continue
        now = engine.clock.now()
        alert = _alert(definition, state, level, now, "; a call was refused" if refused and level == "exceeded" else "")
        if await engine.budgets.alert(state.budget, alert, int(now + KEPT_S)):
            await _tell(engine, alert)
    return due[-1] if due else None


async def _tell(engine: Engine, alert: TokenAlert) -> None:
    logger.warning("%s", alert.message)
    for listener in list(engine.on_alert):
        try:
            told = listener(alert)
            if inspect.isawaitable(told):
                await told
        except Exception:
            logger.exception("a listener to budget alerts raised; dropped")


def _alert(
    definition: BudgetDefinition, state: BudgetState, level: AlertLevel, now: float, more: str = ""
) -> TokenAlert:
    window = state.budget.rpartition("/")[2]  # perhaps not the one of now: a run's windows never go back
    current = state.limit - state.remaining
    used = f"{amount(definition.unit, current)} of {amount(definition.unit, state.limit)} are used or set aside"
    said = f"budget {definition.name!r}, window {window}: {level}: {used}{more}"
    moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return TokenAlert(
        alert_id=f"{moment}#{state.budget}#{LEVELS.index(level)}{level}",
        level=level,
        message=said,
        scope=definition.scope,
        period=definition.period,
        window=window,
        unit=definition.unit,
        current=current,
        limit=state.limit,
        utilization=current / state.limit if state.limit > 0 else 1.0,
        timestamp=now,
    )


def amount(unit: Unit, value: int) -> str:
    """For people: dollars, or tokens."""
    return f"{value / MICROS:.6f}".rstrip("0").rstrip(".") + " USD" if unit == "micros" else f"{value} tokens"
