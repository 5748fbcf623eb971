"""Commands about budgets: show, set, remove, and the alerts they raised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from helix.cli.fleet_looking import moment, print_table
from helix.cli.places import Place, opened
from helix.cli.refusal import COMPLETED, RefusedError
from helix.cli.views import say
from helix.fleet.budgets import BudgetManager

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose budget: one of the three, or everybody's."""

    agent_id: str | None = None
    tenant: str | None = None
    session: str | None = None

    def __str__(self) -> str:
        given = {"agent": self.agent_id, "tenant": self.tenant, "session": self.session}
        return next((f"{kind} {name!r}" for kind, name in given.items() if name is not None), "everybody")


def show(place: Place, scope: Scope, as_json: bool) -> int:
    found = _on(place, lambda budgets: budgets.check_budget(**asdict(scope)))
    if as_json:
        for name, status in found.items():
            print(json.dumps({"name": name, **status}, ensure_ascii=False))
    elif not found:
        say("there are no budgets: helix fleet set-budget 10 day")
    else:
        rows = []
        for status in found.values():
            usd = status["unit"] == "usd"
            used = status["current_usd"] if usd else status["current_tokens"]
            ends = "never" if status["resets_at"] is None else moment(status["resets_at"])
            figures = [_amount(used, usd), _amount(status["budget_limit"], usd), f"{status['utilization']:.1%}"]
            rows.append([status["scope"], status["period"], *figures, status["alert_level"] or "", ends])
        print_table(["scope", "period", "used or set aside", "limit", "part", "level", "ends (UTC)"], rows)
    return COMPLETED


def define(place: Place, scope: Scope, amount: float, period: str, unit: str, on_exceeded: str | None) -> int:
    options: dict[str, Any] = {"unit": unit, "on_exceeded": on_exceeded, **asdict(scope)}
    _on(place, lambda budgets: budgets.set_budget(amount, period, **options))
    say(f"{scope}: at most {_amount(amount, unit == 'usd')} {'in all' if period == 'total' else f'each {period}'}")
    return COMPLETED


def undefine(place: Place, scope: Scope, period: str, unit: str) -> int:
    options: dict[str, Any] = {"unit": unit, **asdict(scope)}
    if not _on(place, lambda budgets: budgets.remove_budget(period, **options)):
        raise RefusedError(f"there is no such budget: {scope}, {period}, {unit} (see helix fleet budgets)")
    say(f"{scope}: no longer bounded {'in all' if period == 'total' else f'per {period}'} in {unit}")
    return COMPLETED


def alerts(place: Place, level: str | None, agent: str | None, limit: int, as_json: bool) -> int:
    if level not in (None, "warning", "critical", "exceeded"):
        raise RefusedError(f"--level is {level!r}; it must be warning, critical or exceeded")
    found = _on(place, lambda budgets: budgets.get_alerts(level, agent, limit))  # type: ignore[arg-type]
    if as_json:
        for alert in found:
            print(json.dumps(alert.model_dump(mode="json"), ensure_ascii=False))
    elif not found:
        say("no budget has raised an alert")
    else:
        print_table(["when (UTC)", "level", "message"], [[moment(a.timestamp), a.level, a.message] for a in found])
    return COMPLETED


def _amount(amount: float, usd: bool) -> str:
    if not usd:
        return f"{amount:,.0f} tokens"
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.6f}".rstrip("0")


def _on(place: Place, act: Callable[[BudgetManager], Awaitable[T]]) -> T:
    async def main() -> T:
        async with opened(place) as store:
            return await act(BudgetManager(store))

    return asyncio.run(main())
