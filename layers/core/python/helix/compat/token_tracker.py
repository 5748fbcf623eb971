"""Token usage by agent, model, operation, tenant and time. Every run counts its tokens, and other code can record
additional ones.

Law: the counters are rows that runs, processes and functions share (`services.usage_counters`), so the numbers are
fleet-wide. A record with a key is counted once, however often it is sent. All filters combine. Times are UTC.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic import Field

from helix.adapters.models.token_count import TokenCount, TokenCounter
from helix.adapters.system import SystemClock
from helix.core.budget import GLOBAL, MICROS, MOST, BudgetDefinition
from helix.core.checks import is_int, is_number
from helix.core.errors import InvalidInputError
from helix.core.json import size
from helix.core.messages import Record
from helix.core.periods import TokenPeriod, Window, period_of, window_at, window_key
from helix.core.usage import Usage
from helix.core.usage_parts import COMPLETION, Share
from helix.engine.engine import AlertListener
from helix.engine.money.bounds import budget_states, raise_alerts
from helix.fleet.budgets import BudgetManager, bound_token_budget_manager
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Delete, Key, Operation, Put, StateStore
from helix.services.row_budgets import RowBudgets
from helix.services.usage_counters import (
    Counters,
    UsageCount,
    agent_scope,
    hour_key,
    partition,
    read_counts,
    read_scopes,
    read_totals,
    tenant_scope,
)

__all__ = ["TokenBreakdown", "TokenCount", "TokenCounter", "TokenTracker", "get_token_tracker"]

KEYS = "usage-keys"
KEYS_KEEP_S = 31 * 86_400
MAX_NAME_BYTES = 256
PAGE = 50


class TokenBreakdown(Record):
    """The usage in a span of whole hours, with totals by agent, model, operation and hour."""

    total_tokens: int = 0
    """The sum of input and output tokens."""
    input_tokens: int = 0
    """The prompt tokens, including cached ones."""
    output_tokens: int = 0
    """The completion tokens."""
    cached_tokens: int = 0
    """The part of the input tokens that the provider read from its cache."""
    calls: int = 0
    """The number of model calls."""
    runs: int = 0
    """The number of runs that ended."""
    cost: float = 0
    """The cost in US dollars."""
    by_agent: dict[str, int] = Field(default_factory=dict)
    """The total tokens by agent."""
    by_model: dict[str, int] = Field(default_factory=dict)
    """The total tokens by model."""
    by_operation: dict[str, int] = Field(default_factory=dict)
    """The total tokens by operation, such as `completion`."""
    by_hour: dict[str, int] = Field(default_factory=dict)
    """The total tokens by hour, with keys as `2026-11-21T14`."""
    period_start: float = 0
    """The start of the span, in Unix seconds. Its hour counts in full."""
    period_end: float = 0
    """The end of the span, in Unix seconds. Its hour counts in full."""


class TokenTracker:
    """A tracker on the counters of a store. on_alert: called with each budget alert that the recorded tokens cause."""

    def __init__(
        self, store: StateStore, clock: Clock | None = None, *, on_alert: Sequence[AlertListener] = ()
    ) -> None:
        self._store, self.clock = store, clock or SystemClock()
        self.budgets, self.on_alert = RowBudgets(store), list(on_alert)
        self._counters = Counters(store, self.clock)

    async def record_tokens(
        self,
        agent_id: str,
        model: str,
        input_tokens: int,
        output_tokens: int,
        operation: str = COMPLETION,
        metadata: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        tenant: str | None = None,
        cost: float = 0,
    ) -> int:
        """Count tokens that were used outside of runs, and charge them to the budgets of the fleet, the agent and the
        tenant, in one transaction. An exhausted budget blocks the next call of each run to which it applies. Returns the
        number of tokens recorded now: 0 if `key` was counted in the last 31 days. `cost` is in US dollars. `metadata` is
        stored with the key; its `user_id` is the default for `tenant`. Without a key, it is unknown after a `StoreError`
        whether the tokens were counted."""
        details = dict(metadata or {})
        tenant = tenant or (str(details["user_id"]) if details.get("user_id") else None)
        _check(agent_id, model, operation, tenant or "-", input_tokens, output_tokens, cost)
        micros, tokens, now = round(cost * MICROS), input_tokens + output_tokens, self.clock.now()
        usage = Usage(prompt_tokens=input_tokens, completion_tokens=output_tokens, cost_micros=micros, calls=1)
        once: list[Operation] = []
        if key is not None:
            size(details)
            value = {"at": now, "agent": agent_id, "metadata": details, "ttl": int(now) + KEYS_KEEP_S}
            once.append(Put(Key("control", KEYS, key), value, ABSENT))
        scopes = [GLOBAL, agent_scope(agent_id), *([tenant_scope(tenant)] if tenant else [])]
        shares = [Share(model, operation, usage)]
        while True:
            charges = await self.budgets.charges(scopes, tokens, micros, now)
            operations = [*once, *(charge for _, charge in charges)]
            refused = await self._counters.count(
                "record_tokens", operations, shares, agent=agent_id, tenant=tenant, at=now
            )
            if refused is None:
                await self._raise_alerts([definition for definition, _ in charges], now)
                return tokens
            if refused < len(once):
                return 0

    async def _raise_alerts(self, definitions: Sequence[BudgetDefinition], now: float) -> None:
        names = [definition.window(now)[0] for definition in definitions]
        states = await budget_states(self, definitions, names)
        for definition, state in zip(definitions, states, strict=True):
            if state is not None:
                await raise_alerts(self, definition, state)

    async def get_tokens(
        self,
        agent_id: str | None = None,
        model: str | None = None,
        period: TokenPeriod | str | None = None,
        period_key: str | None = None,
        tenant: str | None = None,
        operation: str | None = None,
    ) -> int:
        """Return the number of tokens that match all filters. `period` without `period_key` means the current window;
        without either, all time. Keys: hour `2026-11-21T14` (or `2026-11-21-14`), day `2026-11-21`, ISO week `2026-W47`,
        month `2026-11`. Hourly counts are kept for 400 days, totals forever."""
        if period is None and period_key is not None:
            raise InvalidInputError(f"period_key {period_key!r} needs its period: give both")
        window = _window(period_of(period or TokenPeriod.TOTAL), period_key, self.clock.now())
        filters = {"agent": agent_id, "model": model, "operation": operation}
        return sum(found.tokens for found in await self._used(window.start, window.end, tenant, filters))

    async def get_breakdown(
        self,
        start: datetime | float | None = None,
        end: datetime | float | None = None,
        *,
        agent_id: str | None = None,
        model: str | None = None,
        tenant: str | None = None,
        operation: str | None = None,
    ) -> TokenBreakdown:
        """Return the usage from `start` (by default an hour ago) to `end` (by default now). The hours that contain these
        times count in full. Times are Unix seconds or datetimes; a naive datetime is UTC."""
        now = self.clock.now()
        until = now if end is None else _seconds(end)
        since = until - 3600 if start is None else _seconds(start)
        if since > until:
            raise InvalidInputError(f"the breakdown ends ({until}) before it starts ({since})")
        filters = {"agent": agent_id, "model": model, "operation": operation}
        return _breakdown(await self._used(since, until, tenant, filters), since, until)

    async def get_tokens_per_hour(self, agent_id: str | None = None) -> int:
        """Return the number of tokens in the current hour."""
        return await self.get_tokens(agent_id, period=TokenPeriod.HOURLY)

    async def get_statistics(self) -> dict[str, Any]:
        """Return the usage of all agents, for all time and for the current windows."""
        whole = _breakdown(await read_totals(self._store), 0, self.clock.now())
        statistics = whole.model_dump(exclude={"by_hour", "period_start", "period_end"})
        for period in (TokenPeriod.HOURLY, TokenPeriod.DAILY, TokenPeriod.WEEKLY, TokenPeriod.MONTHLY):
            statistics[f"{period.adverb}_tokens"] = await self.get_tokens(period=period)
        return statistics

    async def reset(self, agent_id: str | None = None, *, admin: bool = False) -> None:
        """Delete the counters of the agent, or those of all agents and their tenants. Budgets and sessions keep their
        numbers. Raises `InvalidInputError` unless `admin` is set, because only the fleet's operator should do this."""
        if not admin:
            raise InvalidInputError("reset deletes the usage of the whole fleet: pass admin=True to confirm")
        scopes = [agent_scope(agent_id)] if agent_id is not None else await read_scopes(self._store)
        for scope in scopes:
            while rows := await self._store.query("control", partition(scope), limit=PAGE):
                await self._store.transact("usage_reset", [Delete(row.key) for row in rows])

    async def _used(
        self, since: float, until: float | None, tenant: str | None, filters: Mapping[str, str | None]
    ) -> list[UsageCount]:
        """Return the counters from `since` to `until` (None: all time) that match the filters. A tenant's rows also contain
        the agents."""
        agent_id = filters["agent"]
        scope = agent_scope(agent_id) if agent_id is not None else None
        scope = tenant_scope(tenant) if tenant is not None else scope
        if until is None:
            pages = [await read_totals(self._store, scope)]
        else:
            scopes = [scope] if scope is not None else await read_scopes(self._store, "agent:")
            # The hour that contains `until` belongs to the range.
            start, end = hour_key(since), hour_key(until - 1e-3) + "$"
            pages = await asyncio.gather(*(read_counts(self._store, one, start, end) for one in scopes))
        wanted = [(name, value) for name, value in filters.items() if value is not None]
        found = [count for page in pages for count in page]
        return [count for count in found if all(getattr(count, name) == value for name, value in wanted)]


def _breakdown(counts: Sequence[UsageCount], since: float, until: float) -> TokenBreakdown:
    tables: dict[str, Counter[str]] = {name: Counter() for name in ("agent", "model", "operation", "hour")}
    sums: Counter[str] = Counter()
    for found in counts:
        sums.update({name: getattr(found, name) for name in ("input", "output", "cached", "calls", "runs", "micros")})
        for name, table in tables.items():
            table[getattr(found, name)] += found.tokens
    return TokenBreakdown(
        total_tokens=sums["input"] + sums["output"],
        **{f"{name}_tokens": sums[name] for name in ("input", "output", "cached")},
        **{name: sums[name] for name in ("calls", "runs")},
        **{f"by_{name}": dict(table) for name, table in tables.items()},
        cost=sums["micros"] / MICROS,
        period_start=since,
        period_end=until,
    )


def _window(period: TokenPeriod, key: str | None, now: float) -> Window:
    """Return the window with that key. Raises `InvalidInputError` if the key does not belong to the period."""
    if key is None or period is TokenPeriod.TOTAL:
        return window_at(period, now)
    if period is TokenPeriod.HOURLY and len(key) == 13:
        key = f"{key[:10]}T{key[11:]}"
    formats = {TokenPeriod.HOURLY: "%Y-%m-%dT%H", TokenPeriod.DAILY: "%Y-%m-%d", TokenPeriod.MONTHLY: "%Y-%m"}
    try:
        if period is TokenPeriod.WEEKLY:
            moment = datetime.strptime(f"{key}-1", "%G-W%V-%u")
        else:
            moment = datetime.strptime(key, formats[period])
    except ValueError:
        example = window_key(period, now)
        raise InvalidInputError(
            f"period_key {key!r} is not a {period.adverb} key, which looks like {example!r}"
        ) from None
    return window_at(period, moment.replace(tzinfo=UTC).timestamp())


def _seconds(moment: datetime | float) -> float:
    if isinstance(moment, datetime):
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    return float(moment)


def _check(
    agent_id: str, model: str, operation: str, tenant: str, input_tokens: int, output_tokens: int, cost: float
) -> None:
    named = {"agent_id": agent_id, "model": model, "operation": operation, "tenant": tenant}
    for name, text in named.items():
        if not isinstance(text, str) or not 1 <= len(text.encode("utf-8", "replace")) <= MAX_NAME_BYTES:
            raise InvalidInputError(f"{name} {text!r} must be a string of 1 to {MAX_NAME_BYTES} bytes")
    figures = (input_tokens, output_tokens, cost)
    if not is_int(input_tokens) or not is_int(output_tokens) or not is_number(cost):
        raise InvalidInputError(f"tokens must be whole numbers, and cost a number: {figures}")
    if not all(0 <= figure <= MOST for figure in figures):
        raise InvalidInputError(f"tokens and cost cannot be negative, or above {MOST:,}: {figures}")


def get_token_tracker(store: str | None = None) -> TokenTracker:
    """Return the process-wide tracker. It uses the store of the running runtime or worker process, or else `helix.db`. With
    `store`, it uses the store that `LocalExecutor` opens for that path or URL."""
    return _tracker(bound_token_budget_manager() if store is None else None, store or "helix.db")


@lru_cache(maxsize=16)
def _tracker(manager: BudgetManager | None, store: str) -> TokenTracker:
    from helix.runtime.stores import open_store

    if manager is None:
        return TokenTracker(open_store(store))
    return TokenTracker(manager.store, manager.clock, on_alert=[manager.deliver])
