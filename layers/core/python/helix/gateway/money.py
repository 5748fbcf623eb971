"""The client requests about money: the cost of a session, the budgets that apply to it, and the usage of a user.

Law: one request reads a bounded number of rows, and only `change_budget`, an operator's request, writes. Only operators
see what others have spent. If a budget is not the user's own, the user sees only that it applies and whether it has
room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from helix.core.budget import MICROS, BudgetDefinition, scopes_of
from helix.core.fleet_requests import ChangeBudget, GetBudgets, GetUsage
from helix.core.json import JsonObject
from helix.core.session_requests import GetCost
from helix.core.session_row import Block
from helix.gateway.backend import Backend
from helix.gateway.connections import Connection
from helix.services.budget_rows import BudgetState
from helix.services.usage_counters import UsageCount, hour_key, read_counts, read_totals, tenant_scope

MOST_SESSIONS: Final = 25
MOST_ROWS: Final = 20_000
SHARED: Final = ("global", "agent:")
"""Scopes that also count other users' usage."""


async def get_cost(backend: Backend, caller: Connection, request: GetCost) -> JsonObject:
    from helix.sessions.ledger import ledger  # only this request needs the prices

    await backend.get_owned(caller.principal, request.session_id)
    bounds: dict[str, Any] = {"most": MOST_SESSIONS, "most_rows": MOST_ROWS}
    if backend.streaming is not None:
        bounds |= {"deployed": True, "streaming": backend.streaming}
    return (await ledger(backend.executor.store, request.session_id, **bounds)).dump()


async def get_budgets(backend: Backend, caller: Connection, request: GetBudgets) -> JsonObject:
    row = await backend.get_owned(caller.principal, request.session_id)
    budgets, now = backend.executor.engine.budgets, backend.clock.now()
    definitions = await budgets.definitions(scopes_of(row))
    states = await budgets.get([definition.window(now)[0] for definition in definitions])
    running = row.status == "running"
    blocks = row.blocks if running or not row.run_id else (await backend.history.run(row.session_id, row.run_id)).blocks
    drawn = {block.budget: block if running else block.model_copy(update={"drawn": 0}) for block in blocks}
    shown: list[Any] = [
        _budget(definition, state, drawn, now, backend.is_operator(caller))
        for definition, state in zip(definitions, states, strict=True)
    ]
    return {"session_id": row.session_id, "budgets": shown}


def _budget(
    definition: BudgetDefinition, state: BudgetState | None, drawn: Mapping[str, Block], now: float, operates: bool
) -> JsonObject:
    name, window = definition.window(now)
    scale = MICROS if definition.unit == "micros" else 1
    limit = definition.limit if state is None else state.limit
    remaining = limit if state is None else state.remaining
    shared = definition.scope.startswith(SHARED) and not operates
    block = drawn.get(name) or Block(budget=name, unit=definition.unit)
    spent = block.spent + block.assumed
    return {
        "budget": definition.name,
        "scope": definition.scope,
        "period": str(definition.period),
        "unit": "usd" if definition.unit == "micros" else "tokens",
        "window": window.key,
        "resets_at": window.end,
        "limit": None if shared else limit / scale,
        "used": None if shared else (limit - remaining) / scale,
        "exhausted": remaining <= 0,
        "on_exceeded": definition.on_exceeded,
        "run": {"spent": spent / scale, "reserved": max(0, block.drawn - spent) / scale},
    }


async def change_budget(backend: Backend, caller: Connection, request: ChangeBudget) -> JsonObject:
    from helix.fleet.budgets import BudgetManager  # only operators need it

    backend.check_operator(caller)
    declared = backend.executor.engine.budgets.user_budgets
    manager = BudgetManager(backend.executor.store, clock=backend.clock, user_budgets=declared)
    changed = await manager.change_limit(request.budget, request.limit)
    usd = changed.unit == "micros"
    return {
        "budget": changed.name,
        "unit": "usd" if usd else "tokens",
        "limit": changed.limit / MICROS if usd else changed.limit,
    }


async def get_usage(backend: Backend, caller: Connection, request: GetUsage) -> JsonObject:
    user = backend.user(caller.principal, request.user)
    store, scope, now = backend.executor.store, tenant_scope(user), backend.clock.now()
    since = None if request.hours is None else hour_key(now - (request.hours - 1) * 3600)
    counts = await (read_totals(store, scope) if since is None else read_counts(store, scope, since))
    sums: dict[tuple[str, str, str], dict[str, Any]] = {}
    for count in counts:
        line = sums.setdefault((count.agent, count.model, count.operation), {})
        for name, number in _numbers(count).items():
            line[name] = line.get(name, 0) + number
    lines: list[Any] = [
        {"agent": agent, "model": model, "operation": operation, **_priced(line)}
        for (agent, model, operation), line in sorted(sums.items())
    ]
    return {"user": user, "since": since, "usd": sum(line["micros"] for line in sums.values()) / MICROS, "lines": lines}


def _numbers(count: UsageCount) -> dict[str, int]:
    return {name: value for name, value in asdict(count).items() if isinstance(value, int)}


def _priced(line: dict[str, Any]) -> dict[str, Any]:
    shown = {name: number for name, number in line.items() if name not in ("micros", "assumed_micros")}
    return {**shown, "usd": line["micros"] / MICROS, "assumed_usd": line["assumed_micros"] / MICROS}
