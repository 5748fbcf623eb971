"""A process that forks processes. Each job runs agents whose steps go into batches, on a SQLite file, and may be killed.

Jobs arrive as JSON lines on standard input, and answers go as JSON lines to standard output. Everything is imported before
the first fork. A job starts the runs that its file lacks, continues the others, and ends once all have ended.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import openai.resources.batches
import openai.resources.files  # noqa: F401

from helix import Agent, LLMConfig, LocalExecutor, SQLiteStateStore, tool
from helix.adapters.models.adapter import ModelAdapter
from helix.core.claim_plan import lapsed
from helix.core.handles import AgentResult
from helix.core.registry import AgentRegistry
from helix.engine.engine import Settings
from helix.testing.crash import CrashPoints
from helix.testing.invariants import InvariantViolation, check_session

SETTINGS = {"claim_s": 2, "skew_s": 0.2, "stop_poll_s": 0.5, "batch_gather_s": 0.1, "batch_poll_s": 0.05}
GPT = "openai/gpt-4o-mini"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def agent_of(model: str) -> Agent[Any, Any]:
    return Agent(name="adder", system_prompt="Add.", tools=[add], llm_config=LLMConfig(model=model), batch=True)


class CrashingBatches:
    """The provider's batches, whose calls are crash points."""

    def __init__(self, batches: Any, points: CrashPoints) -> None:
        self._batches, self._points = batches, points

    def __getattr__(self, verb: str) -> Any:
        called: Callable[..., Awaitable[Any]] = getattr(self._batches, verb)

        async def point(*given: Any, **options: Any) -> Any:
            return await self._points.call(f"provider:{verb}", lambda: called(*given, **options))

        return point if verb in ("send", "look", "find") else called

    async def answers(self, *given: Any) -> AsyncIterator[Any]:
        self._points.passed("provider:answers:before")
        async for answer in self._batches.answers(*given):
            yield answer
            self._points.passed("provider:answer:after")


async def ended(executor: LocalExecutor, who: Agent[Any, Any], session_id: str) -> AgentResult[Any]:
    """Return the result of the session's run. A run whose worker died outside of a batch is resumed. A reader of the stream
    completes the effects of one whose worker died after the run's end."""
    while True:
        if lapsed(await executor.sessions.get(session_id), executor.engine.clock.now()):
            await executor.resume(who, session_id)
        try:
            handle = await executor.get_handle(who, session_id)
            result = await handle.result(1.0)
            async for _ in await handle.stream():
                pass
            return result
        except TimeoutError:
            continue


async def waiting(executor: LocalExecutor, seconds: float) -> dict[str, Any]:
    """Wait until each run waits for a batch. Return the tasks of runs and the CPU time of this process in the seconds
    after that."""
    while executor._tasks:
        await asyncio.sleep(0.05)
    begun, most = time.process_time(), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        most = max(most, len(executor._tasks))
        await asyncio.sleep(0.1)
    return {"tasks": most, "cpu_s": time.process_time() - begun}


async def checked(executor: LocalExecutor, session_id: str) -> str:
    """Return the problems of the session's rows and stream. Empty if there are none."""
    try:
        await check_session(executor.store, executor.streams, session_id, at_rest=True)
    except InvariantViolation as problem:
        return str(problem)
    return ""


async def batches_left(executor: LocalExecutor) -> list[str]:
    """Return the keys of the batches that are stored."""
    return [row.key.sort for row in await executor.store.query("control", "batches") if "/" in row.key.sort]


async def run(job: dict[str, Any]) -> dict[str, Any]:
    at = job.get("at")
    if job.get("dies_after_s"):
        signal.setitimer(signal.ITIMER_REAL, job["dies_after_s"])  # SIGALRM ends the process as SIGKILL does
    points = CrashPoints(
        at if not isinstance(at, list) else (str(at[0]), int(at[1])),
        how="kill",
        skip=("transact:heartbeat", "get", "query", "append"),
    )
    model = ModelAdapter()
    model.batches = CrashingBatches(model.batches, points)
    who, store = agent_of(job.get("model", GPT)), points.store(SQLiteStateStore(job["db"]))
    settings = Settings(**{**SETTINGS, **job.get("settings", {})})
    executor = LocalExecutor(store, model=model, registry=AgentRegistry(), settings=settings)
    executor.agents.know(who)
    async with executor:
        for n in range(job["runs"]):
            await executor.execute(who, f"go {n}", session_id=f"s{n}", key=f"k{n}")
        if job.get("idle_s"):
            return await waiting(executor, job["idle_s"])
        found = []
        for n in range(job["runs"]):
            result = await ended(executor, who, f"s{n}")
            found.append([result.status, result.text, result.error_code])
        while executor._tasks:  # they apply the effects of ended runs
            await asyncio.sleep(0.01)
        problems = [problem for n in range(job["runs"]) if (problem := await checked(executor, f"s{n}"))]
        rows, until = await batches_left(executor), time.monotonic() + 20
        while rows and time.monotonic() < until:  # the next look deletes a batch whose answers are stored
            await asyncio.sleep(0.05)
            rows = await batches_left(executor)
    return {"found": found, "points": points.points, "problems": problems, "batches": rows}


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job in a fork. Return its answer, with the signal that ended it."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reader)
        try:
            told = asyncio.run(run(job))
        except BaseException:
            told = {"error": traceback.format_exc()}
        with os.fdopen(writer, "w") as pipe:
            pipe.write(json.dumps(told))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return {**(json.loads(text) if text else {}), "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}


if __name__ == "__main__":
    logging.getLogger("helix").setLevel(logging.ERROR)
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
