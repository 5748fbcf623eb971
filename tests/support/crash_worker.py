"""A process that forks processes. Each job runs or resumes an agent on a SQLite file, and may be killed on the way.

Jobs arrive as JSON lines on standard input, and answers go as JSON lines to standard output. Everything is imported before
the first fork, so that a job has no start-up cost.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tests import support_crash
from tests.support.journal import Journal
from tests.support_crash import bought, executor, lead, model, settle

from helix import LocalExecutor, MemoryStateStore, Sessions, SQLiteStateStore
from helix.adapters.sqlite import UNSYNCED
from helix.core.errors import AgentAlreadyRunningError
from helix.engine.engine import Settings
from helix.ports.state_store import Delete, Key, Operation, Put, StateStore
from helix.services.segments import SegmentStreams
from helix.testing.crash import CrashPoints
from helix.testing.invariants import check_session, read_tree

S = "ses"
SETTINGS = Settings(claim_s=3, stop_poll_s=0.05)  # a busy machine delays a live worker


def opened(job: dict[str, Any]) -> StateStore:
    return SQLiteStateStore(job["db"], synchronous=job.get("synchronous", "FULL"))


class Told:
    """The job's store, which records the rows that it has acknowledged."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._store = opened(job)
        self._told = os.open(told_of(job), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._store, verb)

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        self._note("-", [operation.key for operation in operations if isinstance(operation, Delete)])
        await self._store.transact(name, operations)
        if name not in UNSYNCED:
            self._note("+", [operation.key for operation in operations if isinstance(operation, Put)])

    def _note(self, sign: str, keys: Sequence[Key]) -> None:
        os.write(self._told, "".join(f"{json.dumps([sign, *key])}\n" for key in keys).encode())


def told_of(job: dict[str, Any]) -> str:
    return f"{job['db']}.told"


async def lost(job: dict[str, Any], store: StateStore) -> list[Key]:
    """Return the rows that a process had acknowledged and that are missing."""
    keys: dict[Key, None] = {}
    for line in Path(told_of(job)).read_text().splitlines() if Path(told_of(job)).exists() else []:
        sign, table, partition, sort = json.loads(line)
        if sign == "+":
            keys[Key(table, partition, sort)] = None
        else:
            keys.pop(Key(table, partition, sort), None)
    return [key for key, row in zip(keys, await store.get([*keys]), strict=True) if row is None]


async def run(job: dict[str, Any]) -> dict[str, Any]:
    """Play the first process: execute, and die at `at` if it is given. `synchronous` is a setting of its store."""
    at = job.get("at")
    points = CrashPoints((at[0], at[1]) if at else None, how="kill")
    store = points.store(cast(StateStore, Told(job)))
    async with executor(store, points.streams(SegmentStreams(store)), model(), settings=SETTINGS) as workers:
        handle = await workers.execute(lead, "begin", session_id=S)
        await handle.result(timeout_s=30)
    return {"points": points.points}


async def resume(job: dict[str, Any]) -> dict[str, Any]:
    """Play the next process, so late that the claims of the earlier ones (`deaths`, default one) have expired. It checks
    what they left, brings the run to its end, and checks again. It may be killed, too."""
    bare = opened(job)
    assert not (gone := await lost(job, bare)), f"answered, and gone: {gone}"
    bare_streams, journal = SegmentStreams(bare), Journal()
    await journal.check(bare, bare_streams, S)
    had, mark = await bought(bare, S), len(lines(job))
    at = job.get("at")
    points = CrashPoints((at[0], at[1]) if at else None, how="kill")
    store = points.store(cast(StateStore, Told(job)))
    ahead_s = (SETTINGS.claim_s + 0.1) * job.get("deaths", 1)
    streams = points.streams(SegmentStreams(store))
    async with executor(store, streams, model(), ahead_s, settings=SETTINGS) as workers:
        while not await settled(workers, bare):
            await asyncio.sleep(await wait_for_lease(workers))
        told: list[int] = []
        first = (await workers.sessions.list_runs(S)).runs[-1]
        for run in reversed((await workers.sessions.list_runs(S)).runs):
            handle = await workers.get_handle(lead, S, run.run_id)
            told += [message.sequence async for message in await handle.messages(after=told[-1] if told else 0)]
        assert told == list(range(1, told[-1] + 1)), f"the handles of all runs since {first.run_id} tell {told}"
    await journal.check(bare, bare_streams, S, at_rest=True)
    again = had & set(lines(job)[mark:])
    assert not again, f"done again: {again}"
    answer = {"transcript": await transcript(bare), "points": points.points}
    await bare.close()
    return answer


async def wait_for_lease(workers: LocalExecutor) -> float:
    """Return the seconds until no process can hold the session or its sub-agents' sessions any more."""
    state = await workers.sessions.load(S)
    left = state.lease_expires - workers.engine.clock.now() if state is not None and state.status == "running" else 0
    return max(0.01, min(left, SETTINGS.claim_s)) + 0.005


async def settled(workers: LocalExecutor, store: StateStore) -> bool:
    """Return whether the session is completed and its effects are done. A dead process's lease must expire first."""
    try:
        if not await workers.sessions.exists(S):
            await (await workers.execute(lead, "begin", session_id=S)).result(timeout_s=30)
        if await settle(workers, lead, S) != "completed":
            return False
    except AgentAlreadyRunningError:
        return False
    runs = [run for rows in await read_tree(store, S) for run in rows.runs.values()]
    return all(run.effects == "done" for run in runs)


async def transcript(store: StateStore) -> list[Any]:
    """Return what must not depend on crashes: messages, state and output of the session and of its sub-agents, in order."""
    found: list[Any] = []
    for rows in await read_tree(store, S):
        state = await Sessions(store).get(rows.session_id)
        messages = (await Sessions(store).get_messages(rows.session_id, limit=1000)).messages
        unlike = {"run_id", "created_at", "metadata"}
        found.append([state.status, state.custom_state, state.output, state.step_count, state.agent_type])
        found.append([message.model_dump(mode="json", exclude=unlike) for message in messages])
    return found


def lines(job: dict[str, Any]) -> list[str]:
    path = Path(job["db"] + ".log")
    return path.read_text().splitlines() if path.exists() else []


def log_to(path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    support_crash.SINK[0] = lambda line: (os.write(file, f"{line}\n".encode()), None)[1]


def forked(job: dict[str, Any]) -> int:
    """Run the job in its own process, which writes its answer to a file. Return how the process ended."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    code = 1
    try:
        faulthandler.dump_traceback_later(45, exit=True)  # if a process hangs, this shows where
        log_to(job["db"] + ".log")
        verb = {"run": run, "resume": resume}[job["do"]]
        answer = asyncio.run(asyncio.wait_for(verb(job), 30))
        Path(job["db"] + ".answer").write_text(json.dumps(answer))
        code = 0
    except BaseException:
        Path(job["db"] + ".answer").write_text(json.dumps({"error": traceback.format_exc()}))
    finally:
        os._exit(code)
    return 0


async def warm_up() -> None:
    """Build what is built at first use with one run in memory. It starts no thread."""
    store = MemoryStateStore()
    workers = executor(store, SegmentStreams(store), model(), settings=SETTINGS)
    await (await workers.execute(lead, "begin", session_id=S)).result()
    await check_session(store, workers.streams, S, at_rest=True)
    await transcript(store)


def main() -> None:
    logging.disable(logging.WARNING)
    support_crash.SINK[0] = lambda line: None
    asyncio.run(warm_up())
    assert threading.active_count() == 1
    gc.freeze()
    for line in sys.stdin:
        job = json.loads(line)
        answer_path = Path(job["db"] + ".answer")
        answer_path.unlink(missing_ok=True)
        began = time.monotonic()
        ended = forked(job)
        answer = {"signal": os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else 0, "s": time.monotonic() - began}
        if answer_path.exists():
            answer |= json.loads(answer_path.read_text())
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
