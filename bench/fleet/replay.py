"""A replay of the day: real admission and real budgets on a memory store, with a clock that jumps from event to event.

Law: the bench judges the deployed code. `RowSlots` admits, `RowBudgets` holds the money, and a `Ruler` is passed in to move
the limits. Only runs and the provider are simulated.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from helix.adapters.memory import MemoryStateStore
from helix.core.budget import BudgetDefinition
from helix.core.llm_metrics import CallSample, LLMMetrics, Tally, metrics_of
from helix.core.periods import TokenPeriod
from helix.services.budget_rows import VERSION
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate

from .load import Arrival, Call, Kind, Load
from .purse import Purse

MIDNIGHT = 1_795_219_200.0
"""A Saturday, UTC: the hours and days of budgets begin with those of the replay."""
TRIES = 6
WINDOW_S = 300.0

Act = Callable[[], Awaitable[None]]


class ReplayClock:
    """A clock that stands at the replay's time; nothing sleeps."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a replay does not wait")


class Ruler(Protocol):
    """A policy that moves the limits. `enforced`: whether budgets refuse calls."""

    enforced: bool

    async def begin(self, replay: Replay) -> None: ...

    async def tick(self, replay: Replay) -> None:
        """Act every 30 seconds."""
        ...

    async def queued(self, replay: Replay, agent: str, depth: int) -> None:
        """React to a run that was put into the queue."""
        ...


@dataclass(slots=True)
class Run:
    arrival: Arrival
    candidate: Candidate
    purse: Purse | None
    begun: float | None = None
    step: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    at: float
    agent: str
    before: int
    after: int
    rule: str


@dataclass(slots=True)
class Told:
    """The results of a day. ends: how runs ended, by agent. micros: cost of the calls that began in a minute, by agent
    and minute. refused_at: calls that the provider throttled, with their agents. Times are since midnight."""

    waits: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    micros: defaultdict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    refused_at: list[tuple[float, str]] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    busy_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    allowed_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    looks: list[tuple[float, str, int, int, int]] = field(default_factory=list)
    """(time, agent, limit, running, queued), every 30 s."""

    def spent(self, agent: str) -> float:
        """Spending on that day, in US dollars."""
        return sum(micros for (name, minute), micros in self.micros.items() if name == agent and minute < 1440) / 1e6


class Replay:
    def __init__(self, load: Load, ruler: Ruler, *, start: float = 0) -> None:
        self.load, self.ruler, self.start = load, ruler, start
        self.clock = ReplayClock(MIDNIGHT + start)
        self.store = MemoryStateStore()
        self.slots, self.budgets = RowSlots(self.store, max_queue=400), RowBudgets(self.store)
        self.kinds: dict[str, Kind] = {kind.name: kind for kind in load.kinds}
        self.told = Told()
        self.definitions: dict[str, list[BudgetDefinition]] = {}
        self.version = 0
        self._events: list[tuple[float, int, Act]] = []
        self._serial = itertools.count()
        self._runs: dict[str, Run] = {}
        self._flying = 0
        self._samples: dict[str, deque[CallSample]] = {kind.name: deque() for kind in load.kinds}

    @property
    def time(self) -> float:
        return self.clock.at - MIDNIGHT

    async def play(self) -> Told:
        for kind in self.load.kinds:
            await self._define(kind)
        [count] = await self.store.get([VERSION])
        self.version = count["n"] if count is not None else 0
        await self.ruler.begin(self)
        for arrival in self.load.arrivals:
            self.at(arrival.at, partial(self._arrive, arrival))
        moment = self.start
        while (moment := moment + 30) <= self.load.length_s:
            self.at(moment, self._tick)
        while self._events:
            moment, _, act = heapq.heappop(self._events)
            self.clock.at = MIDNIGHT + moment
            await act()
        return self.told

    def at(self, moment: float, act: Act) -> None:
        heapq.heappush(self._events, (moment, next(self._serial), act))

    async def metrics(self, agent: str) -> LLMMetrics:
        samples, now = self._samples[agent], self.clock.now()
        while samples and samples[0].at < now - WINDOW_S:
            samples.popleft()
        tally = Tally()
        for sample in samples:
            tally.count(sample)
        counter = (await self.slots.counters())[agent]
        return metrics_of(
            tally,
            WINDOW_S,
            now,
            queue_depth=counter.queued,
            concurrent=counter.running,
            max_concurrent=counter.bound or 0,
        )

    async def set_limit(self, agent: str, limit: int, rule: str) -> None:
        before = (await self.slots.counters())[agent].bound or 0
        await self.slots.set_limit(agent, limit)
        self.moved(agent, before, limit, rule)
        await self.grant()

    def moved(self, agent: str, before: int, after: int, rule: str) -> None:
        if before != after:
            self.told.moves.append(Move(self.time, agent, before, after, rule))

    async def grant(self) -> None:
        for heir in await self.slots.grant():
            self._begin(self._runs[heir.run_id])

    # --- runs -----------------------------------------------------------------------------------------------------

    async def _define(self, kind: Kind) -> None:
        self.definitions[kind.name] = [
            BudgetDefinition(scope=f"agent:{kind.name}", period=period, unit="micros", limit=round(usd * 1e6))
            for period, usd in ((TokenPeriod.HOURLY, kind.hour_usd), (TokenPeriod.DAILY, kind.day_usd))
        ]
        for definition in self.definitions[kind.name]:
            await self.budgets.define(definition, self.clock.now())

    async def _arrive(self, arrival: Arrival) -> None:
        candidate = Candidate(arrival.agent, arrival.run_id, f"of-{arrival.run_id}", self.clock.now())
        purse = Purse(self, arrival) if self.ruler.enforced else None
        run = self._runs[arrival.run_id] = Run(arrival, candidate, purse)
        most = self.kinds[arrival.agent].resources["max"]
        admission = await self.slots.admit(candidate, default=most)
        if admission.state == "held":
            self._begin(run)
        elif admission.state == "waits":
            await self.ruler.queued(self, arrival.agent, admission.queued)
        else:
            self._over(run, "refused: the queue is full")

    def _begin(self, run: Run) -> None:
        run.begun = self.time
        self.told.waits[run.arrival.agent].append(max(0.0, run.begun - run.arrival.at))
        self.at(self.time, lambda: self._call(run, 1))

    async def _call(self, run: Run, attempt: int) -> None:
        call = run.arrival.calls[run.step]
        if attempt == 1 and run.purse is not None and not await run.purse.reserve(call.worst_micros):
            return await self._end(run, "stopped: budget")
        at_once, slower = self._provider()
        if self._flying >= at_once:
            self.told.refused_at.append((self.time, run.arrival.agent))
            self._count(run, call, attempt, throttled=True, error=attempt == TRIES, seconds=0.4)
            if attempt == TRIES:
                return await self._end(run, "failed: throttled")
            return self.at(self.time + 0.4 + 1.5 * 2**attempt, lambda: self._call(run, attempt + 1))
        self._flying += 1
        self.told.micros[run.arrival.agent, int(self.time // 60)] += call.micros
        seconds = call.seconds * slower
        return self.at(self.time + seconds, lambda: self._answered(run, call, seconds))

    async def _answered(self, run: Run, call: Call, seconds: float) -> None:
        self._flying -= 1
        self._count(run, call, 1, throttled=False, error=False, seconds=seconds)
        if run.purse is not None:
            run.purse.settle(call.worst_micros, call.micros)
        run.step += 1
        if run.step == len(run.arrival.calls):
            return await self._end(run, "completed")
        return self.at(self.time + call.tools_s, lambda: self._call(run, 1))

    def _count(self, run: Run, call: Call, attempt: int, *, throttled: bool, error: bool, seconds: float) -> None:
        used = not throttled
        self._samples[run.arrival.agent].append(
            CallSample(
                at=self.clock.now(),
                input_tokens=call.input_tokens * used,
                output_tokens=call.output_tokens * used,
                latency_ms=seconds * 1000,
                cost=call.micros / 1e6 * used,
                error=error,
                throttled=throttled,
            )
        )

    async def _end(self, run: Run, how: str) -> None:
        if run.purse is not None:
            await run.purse.give_back()
        assert run.begun is not None
        self.told.busy_s[run.arrival.agent] += self.time - run.begun
        self._over(run, how)
        for heir in await self.slots.release(run.candidate):
            self._begin(self._runs[heir.run_id])

    def _over(self, run: Run, how: str) -> None:
        self.told.ends[run.arrival.agent, how] += 1

    def _provider(self) -> tuple[int, float]:
        for window in self.load.throttled:
            if window.start <= self.time < window.end:
                return window.at_once, window.slower
        return self.load.at_once, 1.0

    async def _tick(self) -> None:
        for agent, counter in (await self.slots.counters()).items():
            if agent is None:
                continue
            limit = counter.bound or 0
            self.told.looks.append((self.time, agent, limit, counter.running, counter.queued))
            self.told.allowed_s[agent] += max(limit, counter.running) * 30
            for waiting in await self.slots.queue(agent) if counter.queued else ():
                if waiting.expires_at <= self.clock.now() and await self.slots.leave(waiting.candidate):
                    run = self._runs[waiting.candidate.run_id]
                    self.told.waits[agent].append(self.time - run.arrival.at)
                    self._over(run, "refused: waited too long")
        await self.ruler.tick(self)
