"""Usage counted up: from runs to their agent and their tenant, per hour and for ever.

Law: a counter is only ever added to, in the transaction whose guard makes it once: a run's, that its effects are open; a
call's, that its row is not there. Counters and the list of scopes are rows of `control`:

    usage#<scope>   <hour>#<model>#<operation>[#<agent>]   one hour, kept for 400 days
    usage#<scope>   total#<model>#<operation>[#<agent>]    all hours; never falls
    usage           <scope>                                which scopes there are

A scope is `agent:<type>` or `tenant:<user id>`; a tenant's rows name the agent too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from helix.core.errors import StoreError
from helix.core.periods import TokenPeriod, window_at, window_key
from helix.core.usage_parts import Share
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Key, Operation, Put, StateStore, Update, Value
from helix.services.committing import refused

SCOPES, TOTAL = "usage", "total"
KEEP_S = 400 * 86_400
TRIES = 5
REMEMBERED = 1_000


@dataclass(frozen=True, slots=True)
class UsageCount:
    """A counter row. `hour`: UTC, `2026-11-21T14`, or `total`. `agent`: the type that ran it. `input` includes `cached`;
    `micros` are millionths of a US dollar, without the `unpriced` calls (all of a sum in which one is); `failed` are the
    `runs` that ended in an error of their own; `assumed_*` is what calls of which nobody heard
    again may have used at most."""

    hour: str
    model: str
    operation: str
    agent: str
    input: int = 0
    output: int = 0
    cached: int = 0
    micros: int = 0
    calls: int = 0
    runs: int = 0
    failed: int = 0
    unpriced: int = 0
    assumed_micros: int = 0
    assumed_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class _Counter:
    """A row that is added to, and what it is made with if it is not there."""

    key: Key
    scope: str
    value: Value
    add: dict[str, int]


def agent_scope(agent: str) -> str:
    return f"agent:{agent}"


def tenant_scope(tenant: str) -> str:
    return f"tenant:{tenant}"


def partition(scope: str) -> str:
    return f"usage#{scope}"


class Counters:
    """Adds to the counters of one store. Remembers which of them are there, so that a process looks once an hour."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._there: set[Key] = set()

    async def count(
        self,
        name: str,
        guard: Sequence[Operation],
        shares: Iterable[Share],
        *,
        agent: str,
        tenant: str | None,
        at: float,
    ) -> int | None:
        """Commit `guard` and add the shares, as used at `at` (Unix seconds), in one transaction. None: written. Otherwise
        the index of the operation of `guard` that was refused; where the store did not answer at first, it may be what this
        call has written itself. Raises `StoreError` if it never answers."""
        counters = _counters(shares, agent, tenant, at)
        updates = [Update(counter.key, add=counter.add) for counter in counters]
        failures = 0
        while True:
            try:
                await self._make_missing(counters)
                index = await refused(self._store, name, [*guard, *updates])
                if index is None or index < len(guard):
                    return index
                self._there.clear()  # a counter went away: reset, or by its age
            except StoreError:
                failures += 1
                if failures == TRIES:
                    raise
                await self._clock.sleep(0.05 * 2**failures)

    async def _make_missing(self, counters: Sequence[_Counter]) -> None:
        """Counters begin at nothing: creating one adds nothing to it, so two creations do not count twice."""
        while unknown := [counter for counter in counters if counter.key not in self._there]:
            values = await self._store.get([counter.key for counter in unknown])
            missing = [counter for counter, value in zip(unknown, values, strict=True) if value is None]
            scopes = sorted({counter.scope for counter in missing})
            begin: list[Operation] = [Put(counter.key, counter.value, ABSENT) for counter in missing]
            begin += [Put(Key("control", SCOPES, scope), {"scope": scope}) for scope in scopes]
            if missing and await refused(self._store, "usage_begin", begin) is not None:
                continue  # somebody else makes them
            if len(self._there) > REMEMBERED:
                self._there.clear()
            self._there |= {counter.key for counter in unknown}


async def read_counts(store: StateStore, scope: str, start: str = "", end: str | None = None) -> list[UsageCount]:
    """The hours `start <= hour < end` (keys such as `2026-11-21T14`) of a scope, in order; without `end`, to the last."""
    rows = await store.query("control", partition(scope), start=start, end=end or TOTAL)
    return [_read(row.value) for row in rows]


async def read_totals(store: StateStore, scope: str | None = None) -> list[UsageCount]:
    """What was ever counted: of the scope, or of all agents."""
    scopes = [scope] if scope is not None else await read_scopes(store, "agent:")
    pages = await asyncio.gather(
        *(store.query("control", partition(s), start=f"{TOTAL}#", end=f"{TOTAL}$") for s in scopes)
    )
    return [_read(row.value) for page in pages for row in page]


async def read_scopes(store: StateStore, prefix: str = "") -> list[str]:
    """Scopes that have counted something, e.g. all with the prefix `agent:`."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None  # there are as many tenants as people
    return [row.key.sort for row in await store.query("control", SCOPES, start=prefix, end=end)]


def _read(value: Value) -> UsageCount:
    empty: dict[str, Any] = {field.name: "" if field.default is MISSING else 0 for field in fields(UsageCount)}
    return UsageCount(**{name: value.get(name) or nothing for name, nothing in empty.items()})


def _counters(shares: Iterable[Share], agent: str, tenant: str | None, at: float) -> list[_Counter]:
    window = window_at(TokenPeriod.HOURLY, at)
    assert window.end is not None
    scopes = [(agent_scope(agent), "")] + ([(tenant_scope(tenant), f"#{agent}")] if tenant else [])
    found: dict[Key, _Counter] = {}
    for share in shares:
        usage = share.usage
        numbers = {
            "input": usage.prompt_tokens,
            "output": usage.completion_tokens,
            "cached": usage.cached_tokens,
            "micros": usage.cost_micros,
            "calls": usage.calls,
            "runs": share.runs,
            "failed": share.failed,
            "unpriced": 0 if usage.priced else max(usage.calls, 1),
            "assumed_micros": share.assumed_micros,
            "assumed_tokens": share.assumed_tokens,
        }
        add = {name: number for name, number in numbers.items() if number}
        for scope, tail in scopes if add else ():
            for hour in (window.key, TOTAL):
                key = Key("control", partition(scope), f"{hour}#{share.model}#{share.operation}{tail}")
                value: Value = {"hour": hour, "model": share.model, "operation": share.operation, "agent": agent}
                if hour != TOTAL:
                    value["ttl"] = int(window.end) + KEEP_S
                found[key] = _Counter(key, scope, value, add)
    return list(found.values())


def hour_key(at: float) -> str:
    return window_key(TokenPeriod.HOURLY, at)
