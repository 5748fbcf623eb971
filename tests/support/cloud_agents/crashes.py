"""Crash points of deployed workers: the process can be killed around every write to store, stream and executions.

Law: the folder of a session controls it and its sub-agents. `<folder>/<session>/points` counts the points that were
reached. `<folder>/<session>/armed` names the one point at which one worker is killed, once. Sessions without a folder are
not affected. A point is `<verb>.<what>:<before or after>#<n>`: the n-th occurrence (from 0) of this name in the session.
`<folder>/<session>/log` has a line for each start of a tool, a model call or a guard of results (`start ...`), and for each
result that has become durable (`done ...`). What is done must never start again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from helix.core.sequencer import StreamRecord
from helix.core.wire import StreamInfo, StreamMessage
from helix.engine import context
from helix.engine.engine import Engine
from helix.ports.launcher import ExecutionState, Launcher, Part
from helix.ports.state_store import Key, Operation, Put, Row, StateStore, Table, Value, Watch
from helix.ports.streams import StreamManager

CRASHES = "CLOUD_AGENTS_CRASHES"
"""The variable of the functions' environment with the folder. Without it nothing is wrapped."""
HASTE = "CLOUD_AGENTS_HASTE_S"
"""The variable that sets the length of a claim and the time that another step needs, for functions with a timeout of a few
seconds. A model call is cancelled a quarter of that time before the timeout. If it is empty, the deployed values hold."""
T = TypeVar("T")


class Points:
    def __init__(self, folder: Path, verb: str) -> None:
        self._folder, self._verb = folder, verb
        self._waiting: dict[str, str] = {}

    def tell(self, session_id: str, line: str) -> None:
        place = self._folder / session_id
        if session_id and place.is_dir():
            with (place / "log").open("a") as log:
                log.write(line + "\n")

    def waits(self, session_id: str, token: str) -> None:
        self._waiting[token] = session_id

    def waiting(self, token: str) -> str:
        """Return the session whose end this token waits for, if this process has read it."""
        return self._waiting.get(token, "")

    async def around(self, session_id: str, what: str, call: Callable[[], Awaitable[T]]) -> T:
        self._passed(session_id, f"{what}:before")
        result = await call()
        self._passed(session_id, f"{what}:after")
        return result

    def child(self, session_id: str, root: str) -> None:
        """Let a sub-agent's session use the folder of its root."""
        if (self._folder / root).is_dir():
            (self._folder / session_id).symlink_to(self._folder / root)

    def _passed(self, session_id: str, what: str) -> None:
        place = self._folder / session_id
        if not session_id or not place.is_dir():
            return
        name = f"{self._verb}.{what}"
        with (place / "points" / name).open("ab") as count:
            count.write(b".")
            count.flush()
            point = f"{name}#{count.tell() - 1}"
        armed = place / "armed"
        try:
            if armed.read_text() == point:
                armed.rename(place / "fired")  # only one worker can do that
                os.kill(os.getpid(), signal.SIGKILL)
        except FileNotFoundError:
            return


class _Store:
    def __init__(self, inner: StateStore, points: Points) -> None:
        self._inner, self._points = inner, points

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        return await self._inner.get(keys)

    async def query(self, table: Table, partition: str, **options: Any) -> list[Row]:
        rows = await self._inner.query(table, partition, **options)
        for row in rows:
            if "token" in row.value:
                self._points.waits(partition, str(row.value["token"]))
        return rows

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        session_id = next((op.key.partition for op in operations if op.key.table == "sessions"), "")
        for op in operations:
            if (
                isinstance(op, Put)
                and op.key.sort == "session"
                and op.value.get("stream_id")
                and name.startswith("claim_")
            ):
                self._adopt(session_id, str(op.value["stream_id"]))

        async def transact() -> None:
            await self._inner.transact(name, operations)
            for line in _done(operations):
                self._points.tell(session_id, line)

        await self._points.around(session_id, name, transact)

    def _adopt(self, session_id: str, root: str) -> None:
        try:
            self._points.child(session_id, root)
        except FileExistsError:
            return

    async def purge(self, now: float) -> int:
        return await self._inner.purge(now)

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self._inner.watch(table, partition)

    async def close(self) -> None:
        await self._inner.close()


class _Streams:
    coalesces: bool = False  # so that the points of each append are where the scenes expect them

    def __init__(self, inner: StreamManager, points: Points) -> None:
        self._inner, self._points = inner, points

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        last = records[-1]
        what = f"append_{last.mark or last.kind}"
        await self._points.around(stream_id, what, lambda: self._inner.append(stream_id, records))

    async def read(self, stream_id: str, after: int = 0, limit: int = 1000) -> list[StreamMessage]:
        return await self._inner.read(stream_id, after, limit)

    async def wait(self, stream_id: str, after: int, timeout_s: float) -> None:
        await self._inner.wait(stream_id, after, timeout_s)

    async def info(self, stream_id: str) -> StreamInfo | None:
        return await self._inner.info(stream_id)

    async def delete(self, stream_id: str) -> None:
        await self._inner.delete(stream_id)


class _Launcher:
    def __init__(self, inner: Launcher, points: Points) -> None:
        self._inner, self._points = inner, points

    async def start(self, part: Part) -> None:
        await self._points.around(part.session_id, "start", lambda: self._inner.start(part))

    async def state(self, part: Part) -> ExecutionState:
        return await self._inner.state(part)

    async def stop(self, part: Part, reason: str) -> None:
        await self._points.around(part.session_id, "stop", lambda: self._inner.stop(part, reason))

    async def wake(self, token: str) -> None:
        await self._points.around(self._points.waiting(token), "wake", lambda: self._inner.wake(token))


def _done(operations: Sequence[Operation]) -> Iterator[str]:
    """Return the calls, steps and verdicts on results that these writes make final."""
    for op in operations:
        if isinstance(op, Put) and op.value.get("call_id") and op.value.get("state") == "done":
            yield f"done {op.key.partition} call {op.value['call_id']}"
            if op.value.get("verdicts"):
                yield f"done {op.key.partition} guard of {op.value['call_id']}"
        elif isinstance(op, Put) and op.key.sort.startswith("m#") and op.value.get("attempt_id"):
            yield f"done {op.key.partition} step {op.value['step']}"


_points: list[Points] = []


def started(session_id: str, what: str) -> None:
    """Record that a tool, a model or a guard begins: `call <id>`, `step <number>` or `guard of <id>` of a session."""
    for points in _points:
        points.tell(session_id, f"start {session_id} {what}")


def arm_this_process() -> None:
    """Give crash points to every engine that this process makes from now on, if its function's environment asks for
    them."""
    folder = os.environ.get(CRASHES)
    if not folder:
        return
    points = Points(Path(folder), os.environ["POWERTOOLS_SERVICE_NAME"])
    _points.append(points)
    haste = float(os.environ.get(HASTE) or 0)
    if haste:
        context.CANCEL_S = haste / 4  # type: ignore[assignment]
    made = Engine.__post_init__

    def made_with_points(engine: Engine) -> None:
        if haste:
            engine.settings = replace(engine.settings, claim_s=haste, step_time_s=haste)
        engine.store, engine.streams = _Store(engine.store, points), _Streams(engine.streams, points)
        if engine.launcher is not None:
            engine.launcher = _Launcher(engine.launcher, points)
        made(engine)

    Engine.__post_init__ = made_with_points  # type: ignore[assignment, method-assign]
