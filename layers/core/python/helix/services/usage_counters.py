"""Counters that add up the usage of runs by agent and by tenant, per hour and in total.

Law: counters only change by addition, in a transaction whose guard holds only once. The guard for a run is that its
effects are open. The guard for a call is that its row is absent. Counters and the list of scopes are rows of `control`:

    usage#<scope>   total#<model>#<operation>[#<agent>]    all hours; never falls. `now`: the hour that is added to, and
                                                           `now_*` what was used in it
    usage#<scope>   <hour>#<model>#<operation>[#<agent>]   an earlier hour, kept for 400 days
    usage           <scope>                                one row for each scope

So a run adds to one row. The first addition in a later hour writes the row of the previous hour in the same
transaction. A scope is `agent:<type>` or `tenant:<user id>`; a tenant's rows name the agent too.

Rows have shards: `total#~<shard>#...`, `<hour>#~<shard>#...`; shard 0 is the row without a number. A process adds to
one shard of each row, which is determined by the first session that it counts. Readers sum the shards. Hours have fewer
shards, because each shard of the totals adds to an hour only once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from datetime import datetime
from typing import Any
from zlib import crc32

from helix.core.errors import StoreError
from helix.core.periods import TokenPeriod, window_key
from helix.core.usage_parts import Share
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, Key, Operation, Put, Row, StateStore, Update, Value, When
from helix.services.committing import refused
from helix.services.paging import pages

SCOPES, TOTAL = "usage", "total"
KEEP_S = 400 * 86_400
TRIES = 5
REMEMBERED = 1_000
SHARDS = 32
"""The number of shards of each row that deliveries add to. If 1,000 runs end per second, each shard gets 31 writes per
second."""
HOUR_SHARDS = 4


@dataclass(frozen=True, slots=True)
class UsageCount:
    """A counter, as read and summed over its shards."""

    hour: str
    """The UTC hour, such as `2026-11-21T14`, or `total`."""
    model: str
    """The model that was called. `-` if it is unknown, and for usage inside tools."""
    operation: str
    """The kind of work, such as `completion` for model calls or `tool` for usage inside tools."""
    agent: str
    """The agent whose usage is counted, also in the counters of a tenant."""
    input: int = 0
    """The input tokens, including `cached`."""
    output: int = 0
    """The output tokens."""
    cached: int = 0
    """The input tokens that the provider read from its prompt cache."""
    lost: int = 0
    """The input tokens that the provider's prompt cache should have had, and that were not read from it."""
    micros: int = 0
    """The cost in millionths of a US dollar, excluding `unpriced` calls."""
    calls: int = 0
    """The number of model calls."""
    runs: int = 0
    """The number of runs that ended."""
    failed: int = 0
    """The number of these runs that ended with an error of their own rather than an abort."""
    unpriced: int = 0
    """The number of calls without a known price. If one call in a sum has no price, all calls in that sum count."""
    assumed_micros: int = 0
    """The maximum cost that is assumed for calls that never reported their usage, in millionths of a US dollar."""
    assumed_tokens: int = 0
    """The maximum number of tokens that is assumed for those calls."""

    @property
    def tokens(self) -> int:
        return self.input + self.output


NUMBERS = tuple(field.name for field in fields(UsageCount) if field.default is not MISSING)


@dataclass(frozen=True, slots=True)
class _Counter:
    """The numbers to add to a row of totals, for usage in `hour`."""

    scope: str
    """The scope that is counted: `agent:<type>` or `tenant:<user id>`."""
    tail: str
    """The end of the row's sort key: `#<model>#<operation>`, and for a tenant `#<agent>`."""
    shard: int
    """The shard of this process."""
    hour: str
    """The UTC hour in which the usage happened."""
    value: Value
    """The initial fields of a new row: model, operation and agent."""
    add: dict[str, int]
    """The numbers to add, by field of `UsageCount`. Zeros are omitted."""

    @property
    def key(self) -> Key:
        return self._row(TOTAL, self.shard)

    def row_of(self, hour: str) -> Key:
        return self._row(hour, self.shard % HOUR_SHARDS)

    def _row(self, hour: str, shard: int) -> Key:
        return Key("control", partition(self.scope), hour + (f"#~{shard}" if shard else "") + self.tail)

    def put(self) -> Operation:
        added = {**self.add, **_now(self.add), "now": self.hour}
        return Put(self.key, {**self.value, "hour": TOTAL, **added}, ABSENT)

    def update(self) -> Operation:
        return Update(self.key, add={**self.add, **_now(self.add)}, when=When(equal={"now": self.hour}))

    def update_late(self, now: str, there: bool) -> list[Operation]:
        """Return the operations for a row that already counts a later hour, `now`. `there`: whether the counter's own
        hour has a row."""
        late = self._hour_row(self.hour, self.add, there)
        return [Update(self.key, add=self.add, when=When(equal={"now": now})), late]

    def begin_hour(self, value: Value, there: bool) -> list[Operation]:
        """Return the operations for a row that, with this value, still counts an earlier hour. That hour gets its own
        row. `there`: whether the earlier hour already has one."""
        now, before = value.get("now"), {name: value.get(f"now_{name}") for name in NUMBERS}
        unchanged = When(equal={"now": now, **_now(before)})
        begun = {**dict.fromkeys(_now(before), 0), **_now(self.add), "now": self.hour}
        begin = Update(self.key, set=begun, add=self.add, when=unchanged)
        # A row from an earlier version has no `now`: its hours all have rows of their own.
        return [begin] if now is None else [begin, self._hour_row(now, {k: n for k, n in before.items() if n}, there)]

    def _hour_row(self, hour: str, numbers: dict[str, int], there: bool) -> Operation:
        if there:
            return Update(self.row_of(hour), add=numbers)
        return Put(self.row_of(hour), {**self.value, "hour": hour, "ttl": _end_of(hour) + KEEP_S, **numbers}, ABSENT)


def _now(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {f"now_{name}": number for name, number in numbers.items()}


def agent_scope(agent: str) -> str:
    return f"agent:{agent}"


def tenant_scope(tenant: str) -> str:
    return f"tenant:{tenant}"


def partition(scope: str) -> str:
    return f"usage#{scope}"


class Counters:
    """The writer of the counters of one store. It remembers the current hour of each counter, so that a process reads a
    counter only once an hour. `shards` is the number of rows that share the additions of all processes."""

    def __init__(self, store: StateStore, clock: Clock, *, shards: int = 1) -> None:
        self._store, self._clock, self._shards = store, clock, shards
        self._shard: int | None = None
        self._hours: dict[Key, str] = {}

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
        """Commit `guard` and add the shares, for usage at `at` (Unix seconds), in one transaction. Return None if it
        was written, otherwise the index of the refused operation in `guard`. If the store did not respond at first,
        this call may have written that operation itself. Raises `StoreError` if the store never responds."""
        if self._shard is None:  # not earlier, because a snapshot of a process is started many times
            self._shard = crc32(guard[0].key.partition.encode()) % self._shards if guard else 0
        counters = _counters(shares, agent, tenant, at, self._shard)
        failures = 0
        while True:
            try:
                index = await refused(self._store, name, [*guard, *await self._additions(counters)])
                if index is None or index < len(guard):
                    return index
                self._hours.clear()  # another hour has begun, or a counter was reset
            except StoreError:
                failures += 1
                if failures == TRIES:
                    raise
                await self._clock.sleep(0.05 * 2**failures)

    async def _additions(self, counters: Sequence[_Counter]) -> list[Operation]:
        unknown = [counter for counter in counters if self._hours.get(counter.key) != counter.hour]
        found = [counter.update() for counter in counters if counter not in unknown]
        if not unknown:
            return found
        scopes = list(dict.fromkeys(_scope_key(counter) for counter in unknown))
        values = await self._store.get([*(counter.key for counter in unknown), *scopes])
        found += [
            Put(key, {"scope": key.sort})
            for key, value in zip(scopes, values[len(unknown) :], strict=True)
            if value is None
        ]
        for counter, value in zip(unknown, values, strict=False):
            now = counter.hour if value is None else value.get("now")
            if value is None:
                found.append(counter.put())
            elif now == counter.hour:
                found.append(counter.update())
            else:
                (row,) = await self._store.get([counter.row_of(min(now or counter.hour, counter.hour))])
                if now is not None and now > counter.hour:
                    found += counter.update_late(now, row is not None)
                    continue
                found += counter.begin_hour(value, row is not None)
            if len(self._hours) > REMEMBERED:
                self._hours.clear()
            self._hours[counter.key] = counter.hour  # if this transaction fails, the next addition is refused
        return found


def _scope_key(counter: _Counter) -> Key:
    return Key("control", SCOPES, counter.scope)


async def read_counts(store: StateStore, scope: str, start: str = "", end: str | None = None) -> list[UsageCount]:
    """Return the hours `start <= hour < end` (keys such as `2026-11-21T14`) of a scope, in order. Without `end`, read
    up to the last hour."""
    while True:
        totals = await _total_rows(store, scope)
        stored = [
            _read(row.value) for row in await store.query("control", partition(scope), start=start, end=end or TOTAL)
        ]
        current = [
            _read({**value, "hour": now, **{name: value.get(f"now_{name}") for name in NUMBERS}})
            for _, value in totals
            if (now := value.get("now")) is not None and now >= start and (end is None or now < end)
        ]
        # The hour's row may have been written between the two reads. A row that late counts created earlier is part of
        # the sum.
        twice = not {_name(count) for count in stored}.isdisjoint(_name(count) for count in current)
        if not twice or _hours(await _total_rows(store, scope)) == _hours(totals):
            return _summed([*stored, *current])


def _hours(rows: Sequence[Row]) -> list[Any]:
    return [(row.key.sort, row.value.get("now")) for row in rows]


async def _total_rows(store: StateStore, scope: str) -> list[Row]:
    return await store.query("control", partition(scope), start=f"{TOTAL}#", end=f"{TOTAL}$")


def _name(count: UsageCount) -> tuple[str, str, str, str]:
    return count.hour, count.model, count.operation, count.agent


def _summed(counts: Iterable[UsageCount]) -> list[UsageCount]:
    """Add up the counts with the same name, and return them in the order of their names."""
    found: dict[tuple[str, str, str, str], UsageCount] = {}
    for count in counts:
        known = found.get(_name(count))
        found[_name(count)] = count if known is None else _sum(known, count)
    return [found[name] for name in sorted(found)]


def _sum(one: UsageCount, other: UsageCount) -> UsageCount:
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in NUMBERS})


async def read_totals(store: StateStore, scope: str | None = None) -> list[UsageCount]:
    """Return the totals of the scope, or of all agents."""
    scopes = [scope] if scope is not None else await read_scopes(store, "agent:")
    totals = await asyncio.gather(*(_total_rows(store, one) for one in scopes))
    return [count for page in totals for count in _summed(_read(row.value) for row in page)]


async def read_scopes(store: StateStore, prefix: str = "") -> list[str]:
    """Return the scopes that have counted anything, for example all with the prefix `agent:`."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None  # there are as many tenants as users
    return [row.key.sort async for rows in pages(store, SCOPES, start=prefix, end=end) for row in rows]


def _read(value: Value) -> UsageCount:
    empty: dict[str, Any] = {field.name: "" if field.default is MISSING else 0 for field in fields(UsageCount)}
    return UsageCount(**{name: value.get(name) or nothing for name, nothing in empty.items()})


def _counters(shares: Iterable[Share], agent: str, tenant: str | None, at: float, shard: int) -> list[_Counter]:
    scopes = [(agent_scope(agent), "")] + ([(tenant_scope(tenant), f"#{agent}")] if tenant else [])
    found: dict[Key, _Counter] = {}
    for share in shares:
        usage = share.usage
        numbers = {
            "input": usage.prompt_tokens,
            "output": usage.completion_tokens,
            "cached": usage.cached_tokens,
            "lost": usage.lost_tokens,
            "micros": usage.cost_micros,
            "calls": usage.calls,
            "runs": share.runs,
            "failed": share.failed,
            "unpriced": 0 if usage.priced else max(usage.calls, 1),
            "assumed_micros": share.assumed_micros,
            "assumed_tokens": share.assumed_tokens,
        }
        add = {name: number for name, number in numbers.items() if number}
        for scope, whose in scopes if add else ():
            value: Value = {"model": share.model, "operation": share.operation, "agent": agent}
            tail = f"#{share.model}#{share.operation}{whose}"
            counter = _Counter(scope, tail, shard, hour_key(at), value, add)
            found[counter.key] = counter
    return list(found.values())


def _end_of(hour: str) -> int:
    return int(datetime.fromisoformat(f"{hour}:00:00+00:00").timestamp()) + 3600


def hour_key(at: float) -> str:
    return window_key(TokenPeriod.HOURLY, at)
