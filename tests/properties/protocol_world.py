"""A world with one loop, one manually controlled clock, and a gate before every store call.

Law: nothing happens unless the machine allows it. A delivery is an `Actor` with all tasks that it started. Each of its
store calls, model calls and tools waits at a gate until the machine opens it with a fate. So a schedule is a list of
choices, and the same choices give the same schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Literal

from helix.core.errors import StoreError
from helix.ports.state_store import (
    Check,
    Delete,
    Key,
    Operation,
    Put,
    Row,
    StateStore,
    Table,
    Update,
    Value,
    Watch,
    updated,
)

# go: execute it. lost: not executed, StoreError. unanswered: executed, StoreError. die_before, die_after: the process dies.
Fate = Literal["go", "lost", "unanswered", "die_before", "die_after"]
Change = tuple[Key, Value | None, Value | None]
START = 1_000_860.0
"""The start time, small enough that float seconds are exact to the nanosecond. It is a minute past an hour, so that no
budget window ends in a walk: the checks do not know what a run has spent of earlier windows."""
SPINS = 20_000


class Violation(AssertionError):
    """An invariant of docs/protocol.md#invariants does not hold."""


class SimClock:
    """The `Clock` port. The loop's timers use the same time, so `asyncio.sleep` and timeouts obey the machine as well. Each
    actor reads its own clock, which may be wrong, and `time` is the true time."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        actor = ACTOR.get()
        return self.time + (actor.skew if actor is not None else 0.0)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SimIds:
    def __init__(self) -> None:
        self._n = 0

    def new(self, prefix: str) -> str:
        self._n += 1
        return f"{prefix}_{self._n:026d}"


class SimLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: SimClock) -> None:
        super().__init__()
        self._sim = clock

    def time(self) -> float:
        return self._sim.time

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Schedule a timer. A timer of a paused actor fires when that actor continues."""

        def fire() -> None:
            actor = ACTOR.get()
            if actor is not None and actor.frozen:
                actor.missed.append(handle)
            else:
                callback(*args)

        handle = super().call_at(when, fire, context=context)
        return handle

    def quiet(self) -> bool:
        return not self._ready  # type: ignore[attr-defined]

    def next_timer(self) -> float | None:
        times = [t.when() for t in self._scheduled if not t.cancelled()]  # type: ignore[attr-defined]
        return min(times, default=None)


class InlineExecutor(Executor):
    """Executes work on the calling thread, so that SQLite's calls take no time that the machine does not see."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


@dataclass(eq=False)
class Actor:
    """A process (`deadline` is None) or one Lambda delivery. `frozen` means paused, with its timers. `silent`
    means that its heartbeats are lost. `skew` is the difference between its clock and the true time, in seconds."""

    name: str
    deadline: float | None = None
    dead: bool = False
    frozen: bool = False
    stood: bool = False  # it paused once, so its tools may overlap with those of the process that took over
    silent: bool = False
    skew: float = 0.0
    owner: str | None = None  # of this worker's deliveries
    holds: str = ""  # the prefix of its attempts' ids
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    missed: list[asyncio.TimerHandle] = field(default_factory=list)

    def busy(self) -> bool:
        return any(not task.done() for task in self.tasks)


@dataclass(eq=False)
class Call:
    """One call that waits at the gate."""

    actor: Actor
    kind: Literal["read", "write", "model", "tool"]
    name: str
    opened: asyncio.Future[Fate]


ACTOR: ContextVar[Actor | None] = ContextVar("ACTOR", default=None)
Observer = Callable[[str, list[Change]], None]


class World:
    def __init__(self, store: StateStore) -> None:
        self.clock, self.ids = SimClock(), SimIds()
        self.loop = SimLoop(self.clock)
        self.inner = store
        self.store = GatedStore(self)
        self.pending: list[Call] = []
        self.held: list[Call] = []  # calls that are held back for the moment
        self.actors: list[Actor] = []
        self.mirror: dict[Key, Value] = {}
        self.observers: list[Observer] = []
        self.violations: list[str] = []
        self.far = False  # clocks differ by more than the protocol allows
        self.calls_at_once = 80  # a step with more calls is wide
        self.writes = 0
        self.trace: list[str] = []
        self.loop.set_task_factory(self._make_task)
        self.loop.set_exception_handler(self._lost_exception)

    # --- actors ---------------------------------------------------------------------------------------------------

    def actor(self, name: str, deadline: float | None = None) -> Actor:
        actor = Actor(name, deadline)
        self.actors.append(actor)
        return actor

    def spawn(self, actor: Actor, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        context = copy_context()
        context.run(ACTOR.set, actor)
        task = self.loop.create_task(work, context=context)
        self.settle()
        return task

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
        actor = (context or copy_context()).get(ACTOR)
        if actor is not None:
            actor.tasks.add(task)
            task.add_done_callback(actor.tasks.discard)
        return task

    def _lost_exception(self, loop: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
        error = told.get("exception")
        if not isinstance(error, (StoreError, asyncio.CancelledError, GeneratorExit)):
            self.violations.append(f"unexpected: {told.get('message')}: {error!r}")

    def kill(self, actor: Actor) -> None:
        """Let the process die, so that it does nothing more."""
        actor.dead = True
        for task in list(actor.tasks):
            task.cancel()
        self.settle()

    # --- the gate -------------------------------------------------------------------------------------------------

    async def gate(self, kind: Literal["read", "write", "model", "tool"], name: str) -> Fate:
        actor = ACTOR.get()
        if actor is None:
            return "go"
        if actor.dead:
            raise asyncio.CancelledError
        if actor.silent and name == "heartbeat":
            return "lost"
        call = Call(actor, kind, name, self.loop.create_future())
        self.pending.append(call)
        try:
            return await call.opened
        finally:
            self.pending.remove(call)

    def choices(self) -> list[Call]:
        return [call for call in self.pending if not call.actor.frozen and call not in self.held]

    def open(self, call: Call, fate: Fate = "go") -> None:
        if fate != "go":
            self.trace.append(f"    {fate} {call.actor.name} {call.kind} {call.name}")
        else:
            self.trace.append(f"    {call.actor.name} {call.kind} {call.name}")
        if fate == "die_before":
            self.kill(call.actor)
        else:
            call.opened.set_result(fate)
            self.settle()
            if fate == "die_after":
                self.kill(call.actor)
        self.check()

    def wake(self, actor: Actor) -> None:
        """Let it continue. Timers that came due meanwhile fire now, in order."""
        actor.frozen, missed, actor.missed = False, actor.missed, []
        for handle in missed:
            if not handle.cancelled():
                self.loop.call_soon(handle._run)  # within the loop, as a timer that fires
        self.settle()

    def settle(self) -> None:
        self.loop.run_until_complete(self._settle())

    async def _settle(self) -> None:
        idle = 0
        for _ in range(SPINS):
            await asyncio.sleep(0)
            idle = idle + 1 if self.loop.quiet() else 0
            if idle == 3:
                return
        self.violations.append("livelock: a delivery goes round without a store call")
        raise Violation(self.violations[-1])

    def advance(self, seconds: float) -> None:
        """Let time pass. The platform kills Lambda deliveries at their deadlines."""
        target = self.clock.time + seconds
        while self.clock.time < target:
            when = self.loop.next_timer()
            deadlines = [a.deadline for a in self.actors if a.deadline is not None and not a.dead and a.busy()]
            stops = [t for t in [when, *deadlines] if t is not None and t > self.clock.time]
            self.clock.time = min([target, *stops])
            for actor in list(self.actors):
                if actor.deadline is not None and not actor.dead and actor.busy() and actor.deadline <= self.clock.time:
                    self.kill(actor)
            self.settle()
        self.check()

    def check(self) -> None:
        if self.violations:
            raise Violation("; ".join(self.violations))

    # --- the record ---------------------------------------------------------------------------------------------------

    def committed(self, name: str, operations: Sequence[Operation]) -> None:
        self.writes += 1
        changes: list[Change] = []
        for operation in operations:
            before = self.mirror.get(operation.key)
            match operation:
                case Put():
                    after: Value | None = json.loads(json.dumps(operation.value))
                case Update():
                    after = json.loads(json.dumps(updated(before or {}, operation)))
                case Delete():
                    after = None
                case Check():
                    continue
            if after is None:
                self.mirror.pop(operation.key, None)
            else:
                self.mirror[operation.key] = after
            changes.append((operation.key, before, after))
        for observer in self.observers:
            observer(name, changes)

    def rows(self, table: str, partition: str, prefix: str = "") -> Iterator[tuple[str, Value]]:
        found = [(k.sort, v) for k, v in self.mirror.items() if (k.table, k.partition) == (table, partition)]
        return iter(sorted((sort, value) for sort, value in found if sort.startswith(prefix)))

    def close(self) -> None:
        for actor in self.actors:
            actor.dead = True
            for task in list(actor.tasks):
                task.cancel()
        with contextlib.suppress(Violation):
            self.settle()
        self.loop.run_until_complete(self.inner.close())
        self.loop.close()


class GatedStore:
    """The real store behind the gate. A fate may lose a call or its answer, or kill its caller."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        await self._reading("get " + " ".join(k.sort for k in keys))
        return await self._world.inner.get(keys)

    async def query(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        end: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        known_head: bool = False,
    ) -> list[Row]:
        await self._reading(f"query {table} {start}")
        return await self._world.inner.query(
            table, partition, start=start, end=end, limit=limit, reverse=reverse, known_head=known_head
        )

    async def _reading(self, name: str) -> None:
        if await self._world.gate("read", name) in ("lost", "unanswered"):
            raise StoreError("the read was lost")

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        fate = await self._world.gate("write", name)
        if fate == "lost":
            raise StoreError("the write was lost")
        await self._world.inner.transact(name, operations)
        self._world.clock.time += 1e-6  # no two writes at one moment, since real clocks move on
        self._world.committed(name, operations)
        if fate == "unanswered":
            raise StoreError("the answer was lost")
        if fate == "die_after":
            actor = ACTOR.get()
            assert actor is not None
            actor.dead = True
            raise asyncio.CancelledError

    async def purge(self, now: float) -> int:
        return await self._world.inner.purge(now)

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self._world.inner.watch(table, partition)

    async def close(self) -> None:
        return None
