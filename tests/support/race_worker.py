"""A process that forks many processes, which all do the same on one SQLite file at once.

A job arrives on standard input: `{"do": ..., "db": ..., "processes": n}`. The answer on standard output has the result of
each process. The forked processes wait for each other at a barrier of files, so that all begin together.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, SQLiteStateStore
from helix.core.budget import BudgetDefinition
from helix.core.errors import AgentAlreadyRunningError, ConditionFailedError
from helix.core.periods import TokenPeriod
from helix.ports.state_store import ABSENT, Key, Put, When
from helix.services.budget_rows import Demand
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.services.slot_rows import Candidate
from helix.testing.contracts.streams import started, text
from helix.testing.invariants import check_session

TALKER = Agent(name="talker", system_prompt="Talk.", llm_config=LLMConfig(model="scripted"))
S = "ses"


def files(folder: Path, kind: str) -> int:
    return len(list(folder.glob(f"{kind}-*")))


def barrier(folder: Path, job: dict[str, Any], me: int) -> None:
    (folder / f"ready-{me}").touch()
    while files(folder, "ready") < job["processes"]:
        time.sleep(0.001)


async def execute(job: dict[str, Any], me: int, folder: Path) -> str:
    """Send a message from every process. The winner's run lasts until all others have been refused."""

    async def answer(request: Any) -> str:
        while files(folder, "told") < job["processes"] - 1:
            await asyncio.sleep(0.005)
        return f"heard {request.messages[-1].content}"

    async with LocalExecutor(job["db"], model=ScriptedModel([answer], repeat=True)) as workers:
        try:
            handle = await workers.execute(TALKER, f"message of {me} in round {job['round']}", session_id=S)
        except AgentAlreadyRunningError:
            (folder / f"told-{me}").touch()
            return "refused"
        result = await handle.result(timeout_s=60)
        return f"{result.status}: {result.output}"


async def increment(job: dict[str, Any], me: int, folder: Path) -> int:
    """Increment one row with compare-and-set, and put one row per number that only one process may put."""
    store, key, won = SQLiteStateStore(job["db"]), Key("sessions", "p", "n"), 0
    for n in range(20):
        while True:
            (value,) = await store.get([key])
            seen = ABSENT if value is None else When(equal={"n": value["n"]})
            try:
                await store.transact("increment", [Put(key, {"n": (value or {"n": 0})["n"] + 1}, seen)])
                break
            except ConditionFailedError:
                continue
        try:
            await store.transact("put", [Put(Key("sessions", "q", f"{n}"), {"by": me}, ABSENT)])
            won += 1
        except ConditionFailedError:
            pass
    await store.close()
    return won


async def append(job: dict[str, Any], me: int, folder: Path) -> int:
    """Append to one stream. Each process writes for its own session."""
    store = SQLiteStateStore(job["db"])
    streams, name = SegmentStreams(store), f"child{me}"
    await streams.append(S, [started(session=name)])
    for n in range(15):
        await streams.append(S, [text(n, f"{me}.{n}", session=name)])
    await store.close()
    return 15


DRAWN = BudgetDefinition(scope="global", period=TokenPeriod.TOTAL, unit="micros", limit=500)


async def draw_from(budgets: RowBudgets, me: int) -> int:
    """Define a budget, open it and draw from it, in every process."""
    name, drawn = DRAWN.window(0)[0], 0
    count = await budgets.define(DRAWN, 0)
    while not await budgets.open(DRAWN, 0, count):
        count += 1
    for n in range(15):
        taken = await budgets.draw(f"run{me}", n, [Demand(name, "micros", 5 + n % 3, 15)])
        drawn += taken[name] if taken is not None else 0
    return drawn


async def draw(job: dict[str, Any], me: int, folder: Path) -> int:
    """Draw from one budget that does not suffice for all."""
    store = SQLiteStateStore(job["db"])
    drawn = await draw_from(RowBudgets(store), me)
    await store.close()
    return drawn


async def slots(job: dict[str, Any], me: int, folder: Path) -> int:
    """Take one of two slots, hold it alone, and pass it on. A waiting process polls until the slot is its own. Return the
    overlaps seen."""
    store = SQLiteStateStore(job["db"])
    mine, crowded = RowSlots(store), 0
    for n in range(4):
        run = Candidate("a", f"run{me}.{n}", f"session{me}", float(n))
        if (await mine.admit(run, default=2)).state != "held":
            with store.watch("control", "admission#slots#a") as watch:
                while not await mine.holds(run):
                    await watch.changed(10)
        held = folder / f"held-{run.run_id}"
        held.touch()
        crowded += files(folder, "held") > 2
        held.unlink()
        await mine.release(run)
    await store.close()
    return crowded


JOBS: dict[str, Callable[[dict[str, Any], int, Path], Awaitable[Any]]] = {
    "execute": execute,
    "increment": increment,
    "append": append,
    "draw": draw,
    "slots": slots,
}


def child(job: dict[str, Any], me: int, folder: Path) -> None:
    code = 1
    try:
        barrier(folder, job, me)
        found = asyncio.run(asyncio.wait_for(_awaited(JOBS[job["do"]](job, me, folder)), 90))
        (folder / f"found-{me}").write_text(json.dumps(found))
        code = 0
    except BaseException:
        (folder / f"found-{me}").write_text(json.dumps(traceback.format_exc()))
    finally:
        os._exit(code)


async def _awaited(waiting: Awaitable[Any]) -> Any:
    return await waiting


async def warm_up() -> None:
    """Build before the first fork what is built at first use."""
    store = MemoryStateStore()
    workers = LocalExecutor(store, model=ScriptedModel(["hello"]))
    await (await workers.execute(TALKER, "hi", session_id=S)).result()
    await check_session(store, workers.streams, S, at_rest=True)


def main() -> None:
    logging.disable(logging.WARNING)
    asyncio.run(warm_up())
    gc.freeze()
    for line in sys.stdin:
        job = json.loads(line)
        folder = Path(tempfile.mkdtemp())
        pids = []
        for me in range(job["processes"]):
            pid = os.fork()
            if pid == 0:
                child(job, me, folder)
            pids.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        found = [json.loads((folder / f"found-{me}").read_text()) for me in range(job["processes"])]
        shutil.rmtree(folder)
        print(json.dumps({"codes": codes, "found": found}), flush=True)


if __name__ == "__main__":
    main()
