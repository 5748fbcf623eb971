"""Budgets as their owner sees them: define, look, and hear of alerts. The engine enforces them, whoever defined them.

    budgets = BudgetManager(executor.store)
    await budgets.set_budget(10.0, TokenPeriod.DAILY, unit="usd")
    await budgets.set_budget(200_000, TokenPeriod.HOURLY, "researcher")

Law: everything is a row of the control table, so any process with the same store sees and changes the same budgets: the
engine's next model call goes by them. US dollars are kept as whole millionths.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from decimal import Decimal, InvalidOperation
from typing import Literal, TypedDict

from helix.adapters.row_budgets import RowBudgets
from helix.adapters.system import SystemClock
from helix.core.budget import (
    CRITICAL,
    GLOBAL,
    LEVELS,
    MICROS,
    MOST,
    WARNING,
    AlertLevel,
    BudgetDefinition,
    OnExceeded,
    TokenAlert,
    Unit,
)
from helix.core.errors import InvalidInputError
from helix.core.periods import TokenPeriod, period_of
from helix.engine.engine import Engine
from helix.fleet.alerts import mark_told, read_alerts, untold_alerts
from helix.ports.budgets import BudgetState
from helix.ports.clock import Clock
from helix.ports.state_store import StateStore

__all__ = [
    "BudgetManager",
    "BudgetStatus",
    "TokenAlert",
    "TokenPeriod",
    "bind_token_budget_manager",
    "get_token_budget_manager",
]

AlertCallback = Callable[[TokenAlert], Awaitable[None] | None]
_UNITS: dict[str, Unit] = {"tokens": "tokens", "usd": "micros"}
KEPT_HEARD = 1000
"""Alerts that are known to have been heard here: there is one per budget, window and level."""
_log = logging.getLogger("helix")


class _Money(TypedDict, total=False):
    current_tokens: int
    current_usd: float


class BudgetStatus(_Money):
    """One budget in its present window. `budget_limit`, `remaining` and `current_tokens` or `current_usd` are in `unit`
    (`tokens` or `usd`); current counts what is used and what running calls have set aside. `utilization` is current by
    limit, above 1 where more was used than allowed. `resets_at`: when the window ends (Unix seconds), None for `total`."""

    budget: str
    scope: str
    period: str
    unit: Literal["tokens", "usd"]
    window: str
    resets_at: float | None
    budget_limit: float
    remaining: float
    utilization: float
    alert_level: AlertLevel | None
    on_exceeded: OnExceeded | None


class BudgetManager:
    """The budgets of one store. `attach` it to an engine, and its callbacks hear of the alerts that this process raises."""

    def __init__(self, store: StateStore, *, clock: Clock | None = None) -> None:
        self.store, self._clock = store, clock or SystemClock()
        self._budgets = RowBudgets(store)
        self._callbacks: list[AlertCallback] = []
        self._heard: deque[str] = deque(maxlen=KEPT_HEARD)

    # --- defining -------------------------------------------------------------------------------------------------

    async def set_budget(
        self,
        amount: float | Decimal,
        period: TokenPeriod | str,
        agent_id: str | None = None,
        *,
        tenant: str | None = None,
        session: str | None = None,
        unit: Literal["tokens", "usd"] = "tokens",
        on_exceeded: OnExceeded | None = None,
        warning: float = WARNING,
        critical: float = CRITICAL,
    ) -> BudgetDefinition:
        """Allow `amount` (of `unit`) per `period`: to everybody, to all runs of an agent, of a tenant (`user_id`), or of a
        session. It replaces the budget of that scope, period and unit, and holds from the next model call on: what the
        present window has used counts. on_exceeded: what a run without room does; None: what its agent says. warning,
        critical: at which part of it an alert is raised. Raises `InvalidInputError`."""
        definition = BudgetDefinition(
            scope=_scope(agent_id, tenant, session) or GLOBAL,
            period=period_of(period),
            unit=_unit(unit),
            limit=_whole(amount, unit),
            on_exceeded=_on_exceeded(on_exceeded),
            warning=_part("warning", warning),
            critical=_part("critical", critical, least=warning),
        )
        await self._budgets.define(definition, self._clock.now())
        return definition

    async def remove_budget(
        self,
        period: TokenPeriod | str,
        agent_id: str | None = None,
        *,
        tenant: str | None = None,
        session: str | None = None,
        unit: Literal["tokens", "usd"] = "tokens",
    ) -> bool:
        """No longer bound by it; False where there is no such budget."""
        scope = _scope(agent_id, tenant, session) or GLOBAL
        return await self._budgets.undefine(f"{scope}/{period_of(period)}/{_unit(unit)}")

    async def list_budgets(self) -> list[BudgetDefinition]:
        """All there are, by scope."""
        return await self._budgets.definitions()

    # --- looking --------------------------------------------------------------------------------------------------

    async def check_budget(
        self,
        agent_id: str | None = None,
        period: TokenPeriod | str | None = None,
        *,
        tenant: str | None = None,
        session: str | None = None,
    ) -> dict[str, BudgetStatus]:
        """Where the budgets stand: those of the agent, tenant or session that is named, and the global ones; all there are
        where none is named. Keys are `<agent|global>_<hourly|daily|...>`, with `_usd` behind it for dollars; of tenants and
        sessions `tenant:<id>_...`, `session:<id>_...`. Looking raises no alert."""
        scope = _scope(agent_id, tenant, session)
        found = await self._budgets.definitions(None if scope is None else [scope, GLOBAL])
        if period is not None:
            found = [definition for definition in found if definition.period is period_of(period)]
        now = self._clock.now()
        states = await self._budgets.get([definition.window(now)[0] for definition in found])
        return {_key(d): _status(d, state, now) for d, state in zip(found, states, strict=True)}

    async def get_alerts(
        self, level: AlertLevel | None = None, agent_id: str | None = None, limit: int = 100
    ) -> list[TokenAlert]:
        """The newest alerts first, at most `limit`: of this level, of this agent's budgets, if given."""
        if level is not None and level not in LEVELS:
            raise InvalidInputError(f"level {level!r} is none of {', '.join(LEVELS)}")
        return await read_alerts(self.store, level=level, agent_id=agent_id, limit=limit)

    # --- hearing --------------------------------------------------------------------------------------------------

    def register_alert_callback(self, callback: AlertCallback) -> None:
        """Called with each alert that an attached engine raises, and with those that `tell_alerts` finds; awaited if it
        returns an awaitable. One that raises is logged, and stops nobody."""
        if not callable(callback):
            raise InvalidInputError(f"callback must be callable, not {callback!r}")
        self._callbacks.append(callback)

    def attach(self, engine: Engine) -> None:
        """Listen to the alerts that this engine raises; again changes nothing."""
        if self._hear not in engine.on_alert:
            engine.on_alert.append(self._hear)

    async def tell_alerts(self, at_most: int = 100) -> int:
        """Call the callbacks with the alerts that nobody told yet, whatever process raised them, the oldest first; how many
        they were. An `AgentRuntime` does so every few seconds: its workers are other processes. Without callbacks they stay
        untold. At least once: a crash before an alert is marked tells it again, with the same `alert_id`."""
        if not self._callbacks:
            return 0
        alerts = await untold_alerts(self.store, at_most)
        for alert in alerts:
            await self._hear(alert)
            await mark_told(self.store, [alert])
        return len(alerts)

    async def _hear(self, alert: TokenAlert) -> None:
        if alert.alert_id in self._heard:
            return  # an attached engine raised it here
        self._heard.append(alert.alert_id)
        for callback in list(self._callbacks):
            try:
                told = callback(alert)
                if inspect.isawaitable(told):
                    await told
            except Exception:
                _log.exception("a callback for budget alerts raised; dropped")


_managers: list[BudgetManager] = []


def bind_token_budget_manager(store: StateStore, *, clock: Clock | None = None) -> BudgetManager:
    """Make the manager of `store` this process's; the one it has stays if it is of the same store."""
    if not _managers or _managers[-1].store is not store:
        _managers[:] = [BudgetManager(store, clock=clock)]
    return _managers[-1]


def get_token_budget_manager() -> BudgetManager:
    """This process's manager. Raises `InvalidInputError` before a runtime or `bind_token_budget_manager` gave a store."""
    if not _managers:
        raise InvalidInputError("no store is bound: start a runtime, or call bind_token_budget_manager(store)")
    return _managers[-1]


# --- what is asked ----------------------------------------------------------------------------------------------------


def _scope(agent_id: str | None, tenant: str | None, session: str | None) -> str | None:
    given = {"agent": agent_id, "tenant": tenant, "session": session}
    named = [f"{kind}:{name}" for kind, name in given.items() if name is not None]
    if len(named) > 1:
        raise InvalidInputError(f"a budget has one scope, not {' and '.join(named)}")
    if any(not isinstance(name, str) or not name for name in given.values() if name is not None):
        raise InvalidInputError("agent_id, tenant and session must be texts that are not empty")
    return named[0] if named else None


def _unit(unit: str) -> Unit:
    if unit not in _UNITS:
        raise InvalidInputError(f"unit {unit!r} must be 'tokens' or 'usd'")
    return _UNITS[unit]


def _whole(amount: float | Decimal, unit: str) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
        raise InvalidInputError(f"amount {amount!r} is not a number")
    try:
        exact = Decimal(str(amount)) * (MICROS if unit == "usd" else 1)
        whole = int(exact)
    except (InvalidOperation, ValueError, OverflowError):
        raise InvalidInputError(f"amount {amount!r} is not a number") from None
    if whole < 1 or (unit == "tokens" and whole != exact):
        least = "0.000001 USD" if unit == "usd" else "1 token, and a whole number of them"
        raise InvalidInputError(f"amount {amount!r} must be at least {least}")
    if whole > MOST:
        most = f"{MOST // MICROS:,} USD" if unit == "usd" else f"{MOST:,} tokens"
        raise InvalidInputError(f"a budget is at most {most}: more is not added up exactly in every store")
    return whole


def _part(name: str, part: float, *, least: float = 0) -> float:
    if isinstance(part, bool) or not isinstance(part, int | float) or not 0 < part <= 1 or part < least:
        raise InvalidInputError(
            f"{name} {part!r} must be a part of the budget, above 0 and at most 1, warning <= critical"
        )
    return float(part)


def _on_exceeded(word: OnExceeded | None) -> OnExceeded | None:
    if word not in (None, "fail", "pause"):
        raise InvalidInputError(f"on_exceeded {word!r} must be 'fail', 'pause' or None")
    return word


# --- what is shown ----------------------------------------------------------------------------------------------------


def _key(definition: BudgetDefinition) -> str:
    scope = definition.scope.removeprefix("agent:")
    return f"{scope}_{definition.period.adverb}" + ("_usd" if definition.unit == "micros" else "")


def _status(definition: BudgetDefinition, state: BudgetState | None, now: float) -> BudgetStatus:
    budget, window = definition.window(now)
    limit = definition.limit if state is None else state.limit
    remaining = limit if state is None else state.remaining
    money: _Money = (
        {"current_tokens": limit - remaining}
        if definition.unit == "tokens"
        else {"current_usd": (limit - remaining) / MICROS}
    )
    scale = 1 if definition.unit == "tokens" else MICROS
    return {
        **money,
        "budget": budget,
        "scope": definition.scope,
        "period": str(definition.period),
        "unit": "tokens" if definition.unit == "tokens" else "usd",
        "window": window.key,
        "resets_at": window.end,
        "budget_limit": limit / scale if scale > 1 else limit,
        "remaining": max(0, remaining) / scale if scale > 1 else max(0, remaining),
        "utilization": (limit - remaining) / limit,
        "alert_level": _level(definition, state),
        "on_exceeded": definition.on_exceeded,
    }


def _level(definition: BudgetDefinition, state: BudgetState | None) -> AlertLevel | None:
    return None if state is None else definition.level(state.limit, state.remaining)
