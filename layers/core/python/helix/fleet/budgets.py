"""Management of budgets: defining them, reading their state, and receiving their alerts. The engine enforces budgets.

    budgets = BudgetManager(executor.store)
    await budgets.set_budget(10.0, TokenPeriod.DAILY, unit="usd")
    await budgets.set_budget(200_000, TokenPeriod.HOURLY, "researcher")

Law: budgets are rows of the control table, so every process with the same store sees and changes the same budgets. A change
takes effect with the engine's next model call. US dollars are stored as whole millionths.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any, Literal, TypedDict

from pydantic import ValidationError

from helix._log import get_logger
from helix.adapters.system import SystemClock
from helix.core.budget import (
    CRITICAL,
    GLOBAL,
    LEVELS,
    MICROS,
    WARNING,
    AlertLevel,
    BudgetDefinition,
    OnExceeded,
    TokenAlert,
)
from helix.core.damage import every_problem
from helix.core.errors import InvalidInputError
from helix.core.periods import TokenPeriod, period_of
from helix.core.user_budgets import EACH, TABLE, unit_of, whole_amount
from helix.engine.engine import Engine
from helix.fleet.alerts import mark_published, read_alerts, unpublished_alerts
from helix.ports.clock import Clock
from helix.ports.state_store import StateStore
from helix.services.budget_rows import BudgetState
from helix.services.row_budgets import RowBudgets

AlertCallback = Callable[[TokenAlert], Awaitable[None] | None]
_NO_PATTERN = (
    f"'*' is not a pattern: such a budget would limit no one. For a budget of each user, declare it in pyproject.toml: "
    f"[{TABLE}.user], day = 2.0. For one that all share, name no agent, tenant or session"
)
REMEMBERED = 1000
"""The number of delivered alerts that this process remembers, to skip duplicates. There is one alert per budget, window and
level."""
_log = get_logger("helix")


class _Money(TypedDict, total=False):
    current_tokens: int
    """The used and reserved tokens. Present if the unit is `tokens`."""
    current_usd: float
    """The used and reserved US dollars. Present if the unit is `usd`."""


class BudgetStatus(_Money):
    """The state of one budget in its current window. Depending on the unit, `current_tokens` or `current_usd` is the used
    amount plus the reservations of running calls."""

    budget: str
    """The name of the window, `<scope>/<period>/<unit>/<window>`. Its unit is `micros` for US dollars."""
    scope: str
    """The scope that the budget applies to, such as `global` or `agent:researcher`."""
    period: str
    """The period, such as `day`."""
    unit: Literal["tokens", "usd"]
    """The unit of `budget_limit` and `remaining`."""
    window: str
    """The key of the current window within its period, such as `2026-11-21` for a day."""
    resets_at: float | None
    """The end of the window in Unix seconds. None: the period `total` never ends."""
    budget_limit: float
    """The amount that the window allows, in `unit`."""
    remaining: float
    """The amount that is neither used nor reserved, in `unit`. It is at least 0."""
    utilization: float
    """The current amount divided by the limit. It is above 1 if more was used than allowed."""
    alert_level: AlertLevel | None
    """The highest alert level that the window has reached. None: it has not reached any."""
    on_exceeded: OnExceeded | None
    """The action on a run that would exceed the budget. None: the agent's own setting applies."""


class BudgetManager:
    """Manages the budgets in one store. After `attach`, its callbacks receive the alerts that the engine raises.
    user_budgets: the budgets that the project declares for each user (`helix.core.user_budgets`)."""

    def __init__(
        self, store: StateStore, *, clock: Clock | None = None, user_budgets: Sequence[BudgetDefinition] = ()
    ) -> None:
        self.store, self.clock = store, clock or SystemClock()
        self._budgets = RowBudgets(store, user_budgets=user_budgets)
        self._callbacks: list[AlertCallback] = []
        self._delivered: deque[str] = deque(maxlen=REMEMBERED)

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
        """Allow `amount` (of `unit`) per `period` to all runs, or to those of an agent, a tenant (`user_id`) or a
        session.

        It replaces the budget with the same scope, period and unit, starting with the next model call. Earlier usage in the
        current window counts. on_exceeded determines what happens to a run that would exceed the budget; None leaves it to
        the agent. warning and critical are the shares of the amount at which an alert is raised. Raises
        `InvalidInputError`.
        """
        if EACH in (agent_id, tenant, session):
            raise InvalidInputError(_NO_PATTERN)
        scope, limit = _scope(agent_id, tenant, session) or GLOBAL, whole_amount(amount, unit)
        alerts: dict[str, Any] = {"warning": warning, "critical": critical, "on_exceeded": on_exceeded}
        try:
            definition = BudgetDefinition(
                scope=scope, period=period_of(period), unit=unit_of(unit), limit=limit, **alerts
            )
        except ValidationError as error:
            raise InvalidInputError(every_problem(error, "budget")) from None
        await self._budgets.define(definition, self.clock.now())
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
        """Remove a budget, so that it no longer limits any run. Returns False if there is no such budget."""
        scope = _scope(agent_id, tenant, session) or GLOBAL
        return await self._budgets.undefine(f"{scope}/{period_of(period)}/{unit_of(unit)}")

    async def change_limit(self, name: str, amount: float | Decimal) -> BudgetDefinition:
        """Change the amount of the budget with that name (`<scope>/<period>/<unit>`), and keep its other settings. The new
        amount takes effect with the next model call. Raises `InvalidInputError` if there is no such budget."""
        known = await self._budgets.definitions([name.rsplit("/", 2)[0]])
        found = next((definition for definition in known if definition.name == name), None)
        if found is None:
            raise InvalidInputError(f"there is no budget {name!r}")
        changed = found.model_copy(
            update={"limit": whole_amount(amount, "usd" if found.unit == "micros" else "tokens")}
        )
        await self._budgets.define(changed, self.clock.now())
        return changed

    async def list_budgets(self) -> list[BudgetDefinition]:
        """Return all budgets, ordered by scope."""
        return await self._budgets.definitions()

    # --- reading --------------------------------------------------------------------------------------------------

    async def check_budget(
        self,
        agent_id: str | None = None,
        period: TokenPeriod | str | None = None,
        *,
        tenant: str | None = None,
        session: str | None = None,
    ) -> dict[str, BudgetStatus]:
        """Return the state of budgets. If an agent, tenant or session is named, return its budgets and the global ones,
        otherwise all.

        Keys are `<agent|global>_<hourly|daily|...>`, followed by `_usd` for dollars. Keys of tenants and sessions begin
        with `tenant:<id>_` and `session:<id>_`. Reading does not raise alerts.
        """
        scope = _scope(agent_id, tenant, session)
        found = await self._budgets.definitions(None if scope is None else [scope, GLOBAL])
        if period is not None:
            found = [definition for definition in found if definition.period is period_of(period)]
        now = self.clock.now()
        states = await self._budgets.get([definition.window(now)[0] for definition in found])
        return {_key(d): _status(d, state, now) for d, state in zip(found, states, strict=True)}

    async def get_alerts(
        self, level: AlertLevel | None = None, agent_id: str | None = None, limit: int = 100
    ) -> list[TokenAlert]:
        """Return at most `limit` alerts, newest first, filtered by level and by the agent whose budgets raised them."""
        if level is not None and level not in LEVELS:
            raise InvalidInputError(f"level is {level!r}; it must be one of {', '.join(LEVELS)}")
        return await read_alerts(self.store, level=level, agent_name=agent_id, limit=limit)

    # --- alerts ---------------------------------------------------------------------------------------------------

    def register_alert_callback(self, callback: AlertCallback) -> None:
        """Call `callback` with each alert that an attached engine raises, and with those that `publish_alerts` finds.
        An awaitable result is awaited. An exception is logged, and the other callbacks still run."""
        if not callable(callback):
            raise InvalidInputError(f"callback must be callable, not {callback!r}")
        self._callbacks.append(callback)

    def attach(self, engine: Engine) -> None:
        """Subscribe to the alerts that this engine raises. Idempotent."""
        if self.deliver not in engine.on_alert:
            engine.on_alert.append(self.deliver)

    async def publish_alerts(self, at_most: int = 100) -> int:
        """Call the callbacks with the unpublished alerts of all processes, oldest first, and return their number.

        An `AgentRuntime` calls this every few seconds, because its workers are separate processes. Without callbacks the
        alerts remain unpublished. Delivery is at least once: after a crash before an alert is marked, it is published again
        with the same `alert_id`.
        """
        if not self._callbacks:
            return 0
        alerts = await unpublished_alerts(self.store, at_most)
        for alert in alerts:
            await self.deliver(alert)
            await mark_published(self.store, [alert])
        return len(alerts)

    async def deliver(self, alert: TokenAlert) -> None:
        if alert.alert_id in self._delivered:
            return  # an attached engine has already delivered it here
        self._delivered.append(alert.alert_id)
        for callback in list(self._callbacks):
            try:
                returned = callback(alert)
                if inspect.isawaitable(returned):
                    await returned
            except Exception:
                _log.exception("a callback for budget alerts raised; dropped")


_managers: list[BudgetManager] = []
"""The managers of the stores that are bound in this process. The last is the process-wide manager."""


def bind_token_budget_manager(store: StateStore, *, clock: Clock | None = None) -> BudgetManager:
    """Make the manager of `store` the process-wide manager, until `release_token_budget_manager` is called."""
    known = release_token_budget_manager(store)
    _managers.append(known or BudgetManager(store, clock=clock))
    return _managers[-1]


def release_token_budget_manager(store: StateStore) -> BudgetManager | None:
    """Unbind the manager of a store and return it, or None if it was not bound. The previously bound one takes its
    place."""
    found = next((manager for manager in _managers if manager.store is store), None)
    if found is not None:
        _managers.remove(found)
    return found


def bound_token_budget_manager() -> BudgetManager | None:
    return _managers[-1] if _managers else None


def get_token_budget_manager() -> BudgetManager:
    """Return the process-wide manager. Raises `InvalidInputError` if neither a runtime nor `bind_token_budget_manager` has
    bound a store."""
    manager = bound_token_budget_manager()
    if manager is None:
        raise InvalidInputError("no store is bound: start a runtime, or call bind_token_budget_manager(store)")
    return manager


# --- arguments --------------------------------------------------------------------------------------------------------


def _scope(agent_id: str | None, tenant: str | None, session: str | None) -> str | None:
    given = {"agent": agent_id, "tenant": tenant, "session": session}
    named = [f"{kind}:{name}" for kind, name in given.items() if name is not None]
    if len(named) > 1:
        raise InvalidInputError(f"a budget must have one scope, not {' and '.join(named)}")
    if any(not isinstance(name, str) or not name for name in given.values() if name is not None):
        raise InvalidInputError("agent_id, tenant and session must be non-empty strings")
    return named[0] if named else None


# --- results ----------------------------------------------------------------------------------------------------------


def _key(definition: BudgetDefinition) -> str:
    scope = definition.scope.removeprefix("agent:")
    return f"{scope}_{definition.period.adverb}" + ("_usd" if definition.unit == "micros" else "")


def _status(definition: BudgetDefinition, state: BudgetState | None, now: float) -> BudgetStatus:
    budget, window = definition.window(now)
    limit = definition.limit if state is None else state.limit
    remaining = limit if state is None else state.remaining
    tokens = definition.unit == "tokens"
    scale, used = 1 if tokens else MICROS, limit - remaining
    money: _Money = {"current_tokens": used} if tokens else {"current_usd": used / MICROS}
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
        "alert_level": None if state is None else definition.level(state.limit, state.remaining),
        "on_exceeded": definition.on_exceeded,
    }
