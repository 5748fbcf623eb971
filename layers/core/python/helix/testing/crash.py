"""Crash points: tests can crash the process before or after any call to a store or a stream.

    points = CrashPoints(at=("transact:stage:after", 0))
    async with LocalExecutor(points.store(store), model=model) as executor: ...   # ends after its first staged answer

Law: a crash is total. After it, no call through the same `CrashPoints` reaches the store. So tasks that Python keeps
running have no effect, like the tasks of a killed process.

`crash_everywhere` runs a scenario once per crash point, and then a recovery on the state that each crash left behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeAlias, TypeVar, cast

from helix.core.sequencer import StreamRecord
from helix.ports.state_store import StateStore, Table, Watch
from helix.ports.streams import StreamManager
from helix.services.segments import SegmentStreams

T = TypeVar("T")
Point: TypeAlias = tuple[str, int]
_KINDS = {
    "r": "run",
    "m": "message",
    "l": "lineage",
    "c": "checkpoint",
    "x": "stop",
    "h": "hook mark",
    "s": "segment",
    "u": "attempt",
    "q": "head",
}


class Crash(BaseException):
    """A simulated end of the process. It is not an `Exception`, so that ordinary handlers do not catch it."""

    def __init__(self, point: str) -> None:
        self.point = point
        super().__init__(point)


class CrashPoints:
    """Names every call as a crash point, and crashes the process at one of them.

    A name is `<verb>:<what>:before` or `:after`, such as `transact:claim_execute:before`, `get:session:after`,
    `append:attempt:before`. `at` is `(name, n)`, the n-th occurrence (from 0) of this name, or the index of the point among
    all points. With None, points are only recorded.

    how: `raise` raises `Crash` in the caller; `kill` sends SIGKILL to this process.
    skip: name prefixes that do not count as points, such as `("get", "query")` to crash only at writes.
    """

    def __init__(
        self,
        at: Point | int | None = None,
        *,
        how: Literal["raise", "kill"] = "raise",
        skip: Collection[str] = ("transact:heartbeat",),
    ) -> None:
        self._at, self._how, self._skip = at, how, tuple(skip)
        self._counts: Counter[str] = Counter()
        self._over = asyncio.Event()
        self.points: list[Point] = []

    @property
    def crashed(self) -> bool:
        return self._over.is_set()

    def store(self, inner: StateStore) -> StateStore:
        """Return `inner` with every call turned into a crash point."""
        return cast(StateStore, _Crashing(inner, self))

    def streams(self, inner: StreamManager) -> StreamManager:
        """Return `inner` with every call turned into a crash point."""
        return cast(StreamManager, _Crashing(inner, self))

    async def call(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Run `call`, with a point before it and one after it."""
        self.passed(f"{name}:before")
        result = await call()
        self.passed(f"{name}:after")
        return result

    def passed(self, name: str) -> None:
        """Add a crash point of your own, for example between two effects of a tool."""
        if self.crashed:
            raise Crash(name)
        if name.startswith(self._skip):
            return
        point = (name, self._counts[name])
        self._counts[name] += 1
        self.points.append(point)
        if self._at == point or self._at == len(self.points) - 1:
            if self._how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            self._over.set()
            raise Crash(name)

    async def unless_crashed(self, waiting: Awaitable[None]) -> None:
        """Wait, but stop at a crash, because a dead process would not see anything more."""
        over, inner = asyncio.ensure_future(self._over.wait()), asyncio.ensure_future(waiting)
        try:
            await asyncio.wait({over, inner}, return_when=asyncio.FIRST_COMPLETED)
            if self.crashed:
                raise Crash("wait")
            await inner
        finally:
            for task in (over, inner):
                task.cancel()
            await asyncio.gather(over, inner, return_exceptions=True)


def _kind(sort: str) -> str:
    head = sort.partition("#")[0]
    return _KINDS.get(head, head)


def _name_append(_: str, records: Sequence[StreamRecord]) -> str:
    last = records[-1] if records else None
    return f"append:{(last.mark or last.kind) if last else ''}"


_NAMES: dict[str, Callable[..., str]] = {
    "get": lambda keys: f"get:{_kind(keys[0].sort) if keys else ''}",
    "query": lambda table, _, *, start="", end=None, **__: f"query:{_kind(start or end or table)}",
    "transact": lambda name, _: f"transact:{name}",
    "purge": lambda _: "transact:purge",
    "append": _name_append,
    **{verb: lambda *_, verb=verb, **__: verb for verb in ("read", "info", "delete")},
}


class _Crashing:
    """A wrapper of a store, a stream manager or a watch, which adds the crash points of each method."""

    def __init__(self, inner: Any, points: CrashPoints) -> None:
        self._inner, self._points = inner, points

    def __getattr__(self, verb: str) -> Any:
        call, points = getattr(self._inner, verb), self._points
        if verb in _NAMES:
            return lambda *given, **named: points.call(_NAMES[verb](*given, **named), lambda: call(*given, **named))
        if verb in ("wait", "changed"):
            return lambda *given, **named: points.unless_crashed(call(*given, **named))
        if verb in ("close", "coalesces"):
            return call
        raise AttributeError(verb)

    @contextmanager
    def watch(self, table: Table, partition: str) -> Iterator[Watch]:
        with self._inner.watch(table, partition) as watch:
            yield _Crashing(watch, self._points)


Act: TypeAlias = Callable[[StateStore, StreamManager, CrashPoints], Awaitable[object]]
Recover: TypeAlias = Callable[[StateStore, StreamManager, Point], Awaitable[object]]


def writes(points: Sequence[Point]) -> list[Point]:
    """Return the points around writes. A crash at a read leaves the same state as a crash at one of these."""
    return [point for point in points if point[0].startswith(("transact", "append", "delete"))]


async def crash_everywhere(
    make_store: Callable[[], StateStore],
    act: Act,
    recover: Recover,
    *,
    choose: Callable[[Sequence[Point]], Sequence[Point]] = list,
) -> list[Point]:
    """Run `act` once to record its points. Then, for each chosen point, run `act` on a fresh store with a crash there, and
    run `recover` on the state that it left behind, as a new process would. Return the points at which a crash happened.

    `act` receives a store and a stream manager that crash. `recover` receives the unwrapped ones and makes the assertions.
    A scenario with timers may sometimes miss a point. In that case it has run to its end, and must still be recoverable.
    """
    asyncio.get_running_loop().set_exception_handler(_drop_crashes)
    learned, store = CrashPoints(), make_store()
    await act(learned.store(store), learned.streams(SegmentStreams(learned.store(store))), learned)
    await store.close()
    covered = []
    for point in choose(learned.points):
        points, store = CrashPoints(point), make_store()
        with suppress(Crash):
            await act(points.store(store), points.streams(SegmentStreams(points.store(store))), points)
        if points.crashed:
            covered.append(point)
        await _cancel_tasks()
        try:
            await recover(store, SegmentStreams(store), point)
        except BaseException as error:
            error.add_note(f"after a crash at {point}")
            raise
        await store.close()
    return covered


def _drop_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore crashes in tasks that are never awaited."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)


async def _cancel_tasks() -> None:
    """Cancel the tasks that the crashed process left on this event loop."""
    me = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not me and task.get_name().startswith("helix:")]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
