"""Tokens by agent, model, operation, tenant and time: counted by every run, and by whoever records more.

Law: the counters are rows that runs, processes and functions share (`engine.rollup`), so what is read here is what the
fleet used; a record with a key is counted once, however often it is made. All filters combine. Times are UTC.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic import Field

from helix.adapters.models.token_count import TokenCount, TokenCounter
from helix.adapters.system import SystemClock
from helix.core.budget import MOST
from helix.core.checks import is_int, is_number
from helix.core.errors import InvalidInputError
from helix.core.json import size
from helix.core.messages import Record
from helix.core.periods import TokenPeriod, Window, period_of, window_at, window_key
from helix.core.usage import Usage
from helix.core.usage_parts import COMPLETION, Share
from helix.engine.rollup import (
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
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Delete, Key, Operation, Put, StateStore

__all__ = ["TokenBreakdown", "TokenCount", "TokenCounter", "TokenTracker", "get_token_tracker"]

KEYS = "usage-keys"
KEYS_KEPT_S = 31 * 86_400
MAX_NAME_BYTES = 256
PAGE = 50


class TokenBreakdown(Record):
    """Tokens from `period_start` to `period_end`, Unix seconds, in whole hours. `cost`: US dollars."""

    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    calls: int = 0
    runs: int = 0
    cost: float = 0
    by_agent: dict[str, int] = Field(default_factory=dict)
    by_model: dict[str, int] = Field(default_factory=dict)
    by_operation: dict[str, int] = Field(default_factory=dict)
    by_hour: dict[str, int] = Field(default_factory=dict)
    period_start: float = 0
    period_end: float = 0


class TokenTracker:
    def __init__(self, store: StateStore, clock: Clock | None = None) -> None:
        self._store, self._clock = store, clock or SystemClock()
        self._counters = Counters(store, self._clock)

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
        """Count tokens that no run counts: the tokens recorded now, which is 0 where `key` was counted in the last 31 days.
        `cost` in US dollars. `metadata` is kept beside the key; its `user_id` is the tenant unless one is given.
        Without a key a `StoreError` leaves open whether it was counted."""
        told = dict(metadata or {})
        tenant = tenant or (str(told["user_id"]) if told.get("user_id") else None)
        _check(agent_id, model, operation, tenant or "-", input_tokens, output_tokens, cost)
        usage = Usage(
            prompt_tokens=input_tokens, completion_tokens=output_tokens, cost_micros=round(cost * 1_000_000), calls=1
        )
        now = self._clock.now()
        guard: list[Operation] = []
        if key is not None:
            size(told)
            value = {"at": now, "agent": agent_id, "metadata": told, "ttl": int(now) + KEYS_KEPT_S}
            guard.append(Put(Key("control", KEYS, key), value, ABSENT))
        shares = [Share(model, operation, usage)]
        done = await self._counters.count("record_tokens", guard, shares, agent=agent_id, tenant=tenant, at=now)
        return input_tokens + output_tokens if done is None else 0

    async def get_tokens(
        self,
        agent_id: str | None = None,
        model: str | None = None,
        period: TokenPeriod | str | None = None,
        period_key: str | None = None,
        tenant: str | None = None,
        operation: str | None = None,
    ) -> int:
        """Tokens that fit all that is given. `period` without a key is the window that is open now; neither is all time.
        Keys: hour `2026-11-21T14` (or `2026-11-21-14`), day `2026-11-21`, ISO week `2026-W47`, month `2026-11`. Hours are
        kept for 400 days, totals for ever."""
        if period is None and period_key is not None:
            raise InvalidInputError(f"period_key {period_key!r} needs its period")
        window = None if period is None else _window(period_of(period), period_key, self._clock.now())
        if window is None or window.end is None:
            counts = await self._totals(agent_id, tenant)
        else:
            counts = await self._counts(agent_id, tenant, window.start, window.end)
        return sum(found.tokens for found in _fitting(counts, agent_id, model, operation))

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
        """What was used from `start` (default: an hour ago) to `end` (default: now). The hours that these are in count as
        a whole. Moments are Unix seconds, or datetimes; a naive one is UTC."""
        now = self._clock.now()
        until = now if end is None else _seconds(end)
        since = until - 3600 if start is None else _seconds(start)
        if since > until:
            raise InvalidInputError(f"the breakdown ends ({until}) before it starts ({since})")
        counts = _fitting(await self._counts(agent_id, tenant, since, until), agent_id, model, operation)
        return _breakdown(counts, since, until)

    async def get_tokens_per_hour(self, agent_id: str | None = None) -> int:
        """Tokens of the hour that is open now."""
        return await self.get_tokens(agent_id, period=TokenPeriod.HOURLY)

    async def get_statistics(self) -> dict[str, Any]:
        """All time, over all agents, and the open windows."""
        counts = await self._totals(None, None)
        whole = _breakdown(counts, 0, self._clock.now())
        told = whole.model_dump(exclude={"by_hour", "period_start", "period_end"})
        for period in (TokenPeriod.HOURLY, TokenPeriod.DAILY, TokenPeriod.WEEKLY, TokenPeriod.MONTHLY):
            told[f"{period.adverb}_tokens"] = await self.get_tokens(period=period)
        return told

    async def reset(self, agent_id: str | None = None, *, admin: bool = False) -> None:
        """Forget what was counted, of the agent or of all and their tenants. Budgets and sessions keep what they know.
        Raises `InvalidInputError` unless `admin`: only whoever runs the fleet may want this."""
        if not admin:
            raise InvalidInputError("reset forgets the usage of the fleet: say admin=True")
        scopes = [agent_scope(agent_id)] if agent_id is not None else await read_scopes(self._store)
        for scope in scopes:
            while rows := await self._store.query("control", partition(scope), limit=PAGE):
                await self._store.transact("usage_reset", [Delete(row.key) for row in rows])

    async def _totals(self, agent_id: str | None, tenant: str | None) -> list[UsageCount]:
        scope = _scope(agent_id, tenant)
        return await read_totals(self._store, scope)

    async def _counts(self, agent_id: str | None, tenant: str | None, since: float, until: float) -> list[UsageCount]:
        scope = _scope(agent_id, tenant)
        scopes = [scope] if scope is not None else await read_scopes(self._store, "agent:")
        # The hour that `until` is in the middle of belongs to the range.
        start, end = hour_key(since), hour_key(until - 1e-3) + "$"
        pages = await asyncio.gather(*(read_counts(self._store, one, start, end) for one in scopes))
        return [found for page in pages for found in page]


def _scope(agent_id: str | None, tenant: str | None) -> str | None:
    """Where to look: a tenant's rows name the agents too."""
    if tenant is not None:
        return tenant_scope(tenant)
    return agent_scope(agent_id) if agent_id is not None else None


def _fitting(
    counts: Iterable[UsageCount], agent_id: str | None, model: str | None, operation: str | None
) -> list[UsageCount]:
    return [
        found
        for found in counts
        if agent_id in (None, found.agent) and model in (None, found.model) and operation in (None, found.operation)
    ]


def _breakdown(counts: Iterable[UsageCount], since: float, until: float) -> TokenBreakdown:
    tables: dict[str, Counter[str]] = {name: Counter() for name in ("agent", "model", "operation", "hour")}
    whole = TokenBreakdown(period_start=since, period_end=until)
    micros = 0
    for found in counts:
        whole.input_tokens += found.input
        whole.output_tokens += found.output
        whole.cached_tokens += found.cached
        whole.calls += found.calls
        whole.runs += found.runs
        micros += found.micros
        for name, table in tables.items():
            table[getattr(found, name)] += found.tokens
    whole.total_tokens, whole.cost = whole.input_tokens + whole.output_tokens, micros / 1_000_000
    return whole.model_copy(update={f"by_{name}": dict(table) for name, table in tables.items()})


def _window(period: TokenPeriod, key: str | None, now: float) -> Window:
    """The window with that key. Raises `InvalidInputError` for a key that is not the period's."""
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
        raise InvalidInputError(f"period_key {key!r} is no {period.adverb} key: they are like {example!r}") from None
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
            raise InvalidInputError(f"{name} {text!r} must be a text of 1 to {MAX_NAME_BYTES} bytes")
    figures = (input_tokens, output_tokens, cost)
    if not is_int(input_tokens) or not is_int(output_tokens) or not is_number(cost):
        raise InvalidInputError(f"tokens must be whole numbers, and cost a number: {figures}")
    if not all(0 <= figure <= MOST for figure in figures):
        raise InvalidInputError(f"tokens and cost cannot be negative, or above {MOST:,}: {figures}")


@lru_cache(maxsize=16)
def get_token_tracker(store: str = "helix.db") -> TokenTracker:
    """This process's tracker, on the store that `LocalExecutor` opens by that path or address."""
    from helix.runtime.local import open_store

    return TokenTracker(open_store(store))
