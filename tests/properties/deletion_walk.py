"""Random walks with deletions at any moment. Nothing is left of a deleted session, and its id can be used again.

Several processes work on one store. They start, stop, answer, resume, rewind and copy a few sessions, die at any of their
calls, and pause at some. Meanwhile others take over their work, and delete sessions. At the end every session is deleted
and every id is used again, while runs of the deleted sessions still have something to write.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.support.aws_resources import fresh, make_store, make_tables, moto
from tests.support.redis_server import RedisServer
from tests.support_crash import CAREFUL, GATED_SCRIPT, HELPER, LEAD, LONG, asked, call, finish, lead, plain

from helix import Confirmation, LocalExecutor, MemoryStateStore, ScriptedModel, SQLiteStateStore
from helix.adapters.redis import RedisStateStore
from helix.core.errors import HelixError
from helix.core.registry import AgentRegistry
from helix.engine.engine import Settings
from helix.ports.state_store import Key, Operation, StateStore
from helix.services.segments import SegmentStreams
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import Crash, CrashPoints
from helix.testing.invariants import check_session

IDS = ("a", "b", "c")
AGENTS = (lead, lead, plain)
KINDS = ("memory", "tombstones", "sqlite", "redis", "dynamodb")
ACTS = 14
PATIENCE_S = 60.0
SETTINGS = Settings(stop_poll_s=0.005)
ASK = [{"tool_calls": [call("subagent__careful", message="ask"), call("look", topic="y")]}, finish("done", "x")]
TALK = ["one", {"content": "two", "tool_calls": [call("look", topic="x")]}, "three"]
Partitions = set[tuple[Any, str]]


class Place:
    """The place where the processes of a walk store their rows. `open()` returns the store of one more process."""

    def __init__(self, open_store: Callable[[], StateStore], *, tombstones: bool = False) -> None:
        self.open, self.tombstones = open_store, tombstones

    def streams(self, store: StateStore, clock: ShiftedClock) -> SegmentStreams:
        return SegmentStreams(store, clock=clock) if self.tombstones else SegmentStreams(store)


@contextmanager
def places(kind: str) -> Iterator[Callable[[int], Place]]:
    """Return a function that makes a place for each seed."""
    if kind in ("memory", "tombstones"):

        def on_memory(_: int) -> Place:
            store = MemoryStateStore()
            return Place(lambda: store, tombstones=kind == "tombstones")

        yield on_memory
    elif kind == "sqlite":
        base = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        yield lambda seed: Place(lambda: SQLiteStateStore(base / f"{seed}.db", synchronous="NORMAL"))
        shutil.rmtree(base)
    elif kind == "redis":
        with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:

            def on_redis(_: int) -> Place:
                server.ask("FLUSHALL")
                return Place(lambda: RedisStateStore(server.url))

            yield on_redis
    else:
        with moto() as aws:

            def on_dynamodb(seed: int) -> Place:
                prefix = fresh()
                make_tables(aws["dynamodb"], prefix)
                return Place(lambda: make_store(aws["dynamodb"], aws["s3"], prefix), tombstones=bool(seed % 2))

            yield on_dynamodb


class Process:
    """A process with its own clock. Its calls wait now and then, and some pause until the walk lets them continue."""

    def __init__(self, walk: Walk, name: str, *, ahead_s: float = 0.0, dies_at: int | None = None, calm: bool = False):
        self.walk, self.name, self.calm = walk, name, calm
        self.inner = walk.place.open()
        self.clock, self.points = ShiftedClock(ahead_s), CrashPoints(dies_at)
        store = self.points.store(self)
        self.executor = LocalExecutor(
            store,
            streams=walk.place.streams(store, self.clock),
            model=walk.model,
            clock=self.clock,
            settings=SETTINGS,
            registry=AgentRegistry(),
        )

    async def get(self, keys: Sequence[Key]) -> list[Any]:
        await self._pause()
        return await self.inner.get(keys)

    async def query(self, table: Any, partition: str, **options: Any) -> list[Any]:
        await self._pause()
        return list(await self.inner.query(table, partition, **options))

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        self.walk.touched |= {(operation.key.table, operation.key.partition) for operation in operations}
        await self._pause()
        await self.inner.transact(name, operations)
        await self._pause()

    async def _pause(self) -> None:
        if self.calm:
            return
        rng = self.walk.rng
        if rng.random() < self.walk.stalls:
            await self.walk.stand_still()
        for _ in range(rng.choice((0, 0, 1, 2, 5))):
            await asyncio.sleep(0)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.inner, verb)


class Walk:
    def __init__(self, seed: int, place: Place) -> None:
        self.rng, self.place = Random(seed), place
        lead_script: Any = self.rng.choice([LEAD, ASK, GATED_SCRIPT, [*GATED_SCRIPT, *LEAD]])
        scripts = {"lead": lead_script, "helper": HELPER, "careful": CAREFUL, "plain": TALK}
        self.model = ScriptedModel(scripts, by="position", repeat=True)
        self.stalls = self.rng.choice((0.0, 0.005, 0.02))
        self.touched: Partitions = set()
        self.still: list[tuple[asyncio.Task[Any] | None, asyncio.Event]] = []
        self.verbs: set[asyncio.Task[None]] = set()
        self.readers: set[asyncio.Task[None]] = set()
        self.unexpected: list[BaseException] = []
        self.born, self.processes = 0, list[Process]()
        self.retired: list[Process] = []

    # --- acts ---------------------------------------------------------------------------------------------------------

    def begin_process(self) -> Process:
        self.born += 1
        made = Process(
            self,
            f"p{self.born}",
            ahead_s=self.rng.choice((0.0, 0.0, 0.0, 40.0, 80.0)),
            dies_at=self.rng.choice((None, self.rng.randrange(30), self.rng.randrange(400))),
        )
        self.processes.append(made)
        return made

    def process(self) -> Process:
        for process in [process for process in self.processes if process.points.crashed]:
            self.processes.remove(process)
            self.retired.append(process)
        while len(self.processes) < 2:
            self.begin_process()
        return self.rng.choice(self.processes)

    async def stand_still(self) -> None:
        event = asyncio.Event()
        self.still.append((asyncio.current_task(), event))
        await event.wait()

    def let_go(self, share: float = 1.0, only: set[asyncio.Task[None]] | None = None) -> None:
        for one in list(self.still):
            if (only is None or one[0] in only) and self.rng.random() <= share:
                self.still.remove(one)
                one[1].set()

    def spawn(self, work: Coroutine[Any, Any, Any], among: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(self._tried(work))
        among.add(task)

    async def _tried(self, work: Awaitable[Any]) -> None:
        """Run an act. Every refusal must have a type, and a crash ends the process."""
        try:
            await work
        except (HelixError, Crash):
            pass
        except Exception as error:
            self.unexpected.append(error)

    async def _run(self, verb: Callable[[], Awaitable[Any]]) -> None:
        handle = await verb()
        if self.rng.random() < 0.3:
            self.spawn(self._read(handle), self.readers)

    async def _read(self, handle: Any) -> None:
        async for _ in await handle.messages():
            pass

    async def _answer(self, process: Process, agent: Any, session_id: str) -> None:
        call_id = await asked(process.executor.store, session_id)
        if call_id is not None:
            given = Confirmation(call_id, approved=self.rng.random() < 0.7)
            await process.executor.answer(agent, session_id, given)

    async def _rewind(self, process: Process, agent: Any, session_id: str) -> None:
        points = (await process.executor.sessions.list_checkpoints(session_id, limit=50)).items
        if points:  # a session that another process has just started has no checkpoint
            point = self.rng.choice(points)
            await self._run(partial(process.executor.resume, agent, session_id, checkpoint_id=point.id, message="back"))

    def act(self) -> None:
        rng, process, place = self.rng, self.process(), self.rng.randrange(len(IDS))
        executor, sid, agent = process.executor, IDS[place], AGENTS[place]
        other = rng.choice(IDS)
        work: Coroutine[Any, Any, Any]
        match rng.randrange(20):
            case 0 | 1 | 2 | 3 | 4:
                work = self._run(partial(executor.execute, agent, "go", session_id=sid))
            case 5 | 6:
                work = self._answer(process, agent, sid)
            case 7 | 8:
                work = self._run(partial(executor.resume, agent, sid))
            case 9:
                work = self._run(partial(executor.retry, agent, sid))
            case 10:
                work = executor.interrupt(sid)
            case 11:
                work = executor.abort(agent, sid)
            case 12:
                work = self._rewind(process, agent, sid)
            case 13:
                work = executor.clone_session(other, sid, from_message_index=rng.choice((None, 1, 3, 5)))
            case 14:
                work = executor.branch(other, session_id=sid)
            case 15:
                process.clock.ahead_s += rng.choice((20.0, 40.0))
                return
            case _:
                work = executor.delete(sid)
        self.spawn(work, self.verbs)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def play(self) -> None:
        for _ in range(ACTS):
            self.act()
            for _ in range(self.rng.choice((0, 5, 30, 120))):
                await asyncio.sleep(0)
            if self.rng.random() < 0.3:
                self.let_go(0.5)
        self.stalls = 0.0
        while [task for task in self.verbs if not task.done()]:
            self.let_go(only=self.verbs)
            await self._pass_by(self.verbs, 0.5)
            self.let_go(0.2)
        last = Process(self, "last", ahead_s=LONG, calm=True)
        for sid in IDS:
            await last.executor.delete(sid)
        if self.rng.random() < 0.5:
            self.let_go(0.5)
        await self._use_again(last, meanwhile=self.let_go)
        await self._come_to_rest()
        for sid in IDS:
            assert await last.executor.delete(sid)
        assert not (left := await self.left(last)), left
        await self._use_again(last, meanwhile=None)
        for process in (*self.processes, *self.retired, last):
            if process.inner is not last.inner or process is last:
                await process.inner.close()
        assert not self.unexpected, self.unexpected

    async def _use_again(self, last: Process, meanwhile: Callable[[], None] | None) -> None:
        """Play two runs under each id. Runs of the earlier sessions continue at some moment."""
        handles = {}
        for sid in IDS:
            handles[sid] = [await last.executor.execute(plain, "hello", session_id=sid)]
        moment = self.rng.randrange(3)
        if meanwhile is not None and moment == 0:
            meanwhile()
        for sid in IDS:
            read = [message async for message in await handles[sid][0].messages()]
            assert read[0].sequence == 1, read
            await handles[sid][0].result(timeout_s=PATIENCE_S)
        if meanwhile is not None and moment == 1:
            meanwhile()
        for sid in IDS:
            handles[sid].append(await last.executor.execute(plain, "hello again", session_id=sid))
            await handles[sid][1].result(timeout_s=PATIENCE_S)
        if meanwhile is not None:
            meanwhile()
            await self._come_to_rest()
        streams = self.place.streams(last.inner, last.clock)
        for sid in IDS:
            await check_session(last.inner, streams, sid, at_rest=True)
            messages = await streams.read(sid)
            assert [message.sequence for message in messages] == list(range(1, len(messages) + 1))
            assert {message.run_id for message in messages} == {handle.run_id for handle in handles[sid]}
            assert [message.kind for message in messages].count("end") == 2

    async def _come_to_rest(self) -> None:
        """Wait until nothing works any more. Tasks that a dead process left on the event loop end as well."""
        self.let_go()
        runs = self._runs()
        await self._pass_by({*runs, *self.readers}, PATIENCE_S)
        for process in (*self.processes, *self.retired):
            process.points._over.set()  # from here on no leftover of a process writes
        await self._pass_by({*self._runs(), *self.readers}, PATIENCE_S)
        waiting = [task for task in {*self._runs(), *self.readers} if not task.done()]
        assert not waiting, waiting

    def _runs(self) -> set[asyncio.Task[Any]]:
        return {task for process in (*self.processes, *self.retired) for task in process.executor._tasks.values()}

    async def _pass_by(self, tasks: set[asyncio.Task[Any]], seconds: float) -> None:
        left = {task for task in tasks if not task.done()}
        if left:
            await asyncio.wait(left, timeout=seconds)

    async def left(self, last: Process) -> list[Any]:
        """Return all rows except usage counts, shared request heads and tombstones."""
        found: list[Any] = []
        for table, partition in sorted(self.touched):
            if not partition.startswith(("usage", "head#")):
                rows = await last.inner.query(table, partition)
                found += [row.key for row in rows if "buried_at" not in row.value]
        return found


async def _walk(seed: int, place: Place) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: None)  # crashes that no task awaited
    walk = Walk(seed, place)
    try:
        await walk.play()
    finally:
        me = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not me]
        for task in tasks:
            task.cancel()
        with suppress(BaseException):
            await asyncio.gather(*tasks, return_exceptions=True)


def walks(kind: str, seeds: Sequence[int]) -> None:
    logger = logging.getLogger("helix")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # a dead process logs a lot
    try:
        with places(kind) as place:
            for seed in seeds:
                try:
                    asyncio.run(_walk(seed, place(seed)))
                except BaseException as error:
                    error.add_note(f"walks({kind!r}, [{seed}]) finds it again")
                    raise
    finally:
        logger.setLevel(level)
