"""The work of Helix and of every peer: one scripted model, one tool, one trace. It uses only the standard library.

A contender is a file of this folder with a class that has the methods of `Contender`, and ends with `main(TheClass)`. The
bench starts it in a separate process with one job, a JSON object, and reads one JSON line from its standard output.

Law: the script decides by the number of tool results in the model's input, never by a counter. So a process that resumes
shows what the framework really requests again. The trace is written with O_APPEND and survives SIGKILL.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
RESULT_BYTES = 1024
SESSION = "session"
RUN: ContextVar[int] = ContextVar("RUN", default=0)
"""The index of this run among many."""
DONE = "Done: the work is finished, and here is what came of it."
QUESTION = "Do the work, please, and say when it is done."


def text(seed: int) -> str:
    """Text of 1 KB that packing hardly shortens."""
    return "".join(random.Random(seed).choices(LETTERS, k=RESULT_BYTES))


@dataclass(frozen=True)
class Call:
    id: str
    n: int
    branch: int


@dataclass(frozen=True)
class Answer:
    """The model's answer: text, or calls of the tool `work(n, branch)`."""

    text: str
    calls: list[Call]


@dataclass
class Script:
    """A script of `steps` answers with `width` calls each, then a text. `kill` is [place, step], where the process ends
    by SIGKILL. The places are `tool`, `tools` (in the second of two, after the first has ended), `stream`, and `model`
    (called, but not answered yet). With `words` at `rate` a second, each word is the time at which it was sent. `until`:
    a file that ends the model's thinking when it appears. `pause_s`: how long the model thinks. `marks`: an address that
    is notified when the model is called."""

    steps: int = 0
    width: int = 1
    kill: list[Any] | None = None
    words: int = 0
    rate: float = 0
    until: str | None = None
    pause_s: float = 0
    done: str = DONE
    trace: str | None = None
    marks: str | None = None
    asked: list[tuple[float, float]] = field(default_factory=list)
    of_run: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def streams(self) -> bool:
        return self.words > 0 or self.kill is not None

    def note(self, line: str) -> None:
        if self.trace is not None:
            file = os.open(self.trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(file, f"{line}\n".encode())
            os.close(file)

    def ask(self, results: int) -> Answer:
        """Return the answer after this many results of the turn. The model is paid when it answers, which `answered`
        records."""
        self.asked.append((time.perf_counter(), time.process_time()))
        self.of_run[RUN.get()].append(time.perf_counter())
        step = results // self.width + 1
        self.note(f"asked {step}")
        if self.marks is not None:
            urllib.request.urlopen(f"{self.marks}/mark/{step}").read()
        self._maybe_die("model", step)
        if step > self.steps:
            return Answer(self.done, [])
        calls = [Call(f"call_{step:05d}_{branch}", step, branch) for branch in range(self.width)]
        return Answer("", calls)

    def answered(self, answer: Answer) -> None:
        self.note(f"model {answer.calls[0].n if answer.calls else 'done'}")

    async def think(self, results: int) -> Answer:
        """Return an answer as a whole."""
        answer = self.ask(results)
        while self.until is not None and not os.path.exists(self.until):  # noqa: ASYNC110, another process makes it
            await asyncio.sleep(0.02)
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        self.answered(answer)
        return answer

    async def deltas(self, answer: Answer) -> AsyncIterator[str]:
        """Iterate over the streamed text of an answer; empty for calls."""
        step = answer.calls[0].n if answer.calls else self.steps + 1
        begun = time.perf_counter()
        for n in range(self.words):
            await asyncio.sleep(max(0.0, begun + n / self.rate - time.perf_counter()))
            yield f"{time.perf_counter():.7f} "
        if self.kill is not None and self.kill[0] == "stream" and self.kill[1] == step:
            for word in ("a ", "few ", "words "):
                yield word
                await asyncio.sleep(0.2)
            self._maybe_die("stream", step)
        if not self.words and answer.text:
            yield answer.text
        self.answered(answer)

    def work(self, n: int, branch: int = 0) -> str:
        """The tool."""
        self.note(f"tool {n}.{branch}")
        self._maybe_die("tool", n)
        if branch == 1 and self.kill is not None and self.kill[0] == "tools":
            time.sleep(0.7)  # the other call has ended, and the framework had time to record it
            self._maybe_die("tools", n)
        return text(1000 * n + branch)

    def _maybe_die(self, place: str, step: int) -> None:
        if self.kill is not None and [place, step] == list(self.kill):
            self.note("killed")
            os.kill(os.getpid(), signal.SIGKILL)


class Refused(Exception):
    """The error by which the framework tells the caller that another turn is at work."""


class Contender(Protocol):
    """`place`: `memory`, a folder, or the URL of an emulator of AWS. A history is a list of ["user", text],
    ["assistant", text, [ids of calls]] and ["tool", id of the call]."""

    PACKAGES: tuple[str, ...]

    def __init__(self, place: str, script: Script) -> None: ...
    async def open(self) -> None: ...
    async def turn(self, session: str, message: str) -> None: ...
    async def resume(self, session: str) -> None: ...
    def stream(self, session: str, message: str) -> AsyncIterator[str]: ...
    async def history(self, session: str) -> list[list[Any]]: ...
    async def close(self) -> None: ...


# --- measures -----------------------------------------------------------------------------------------------------


async def words(contender: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Return the milliseconds from each delta to its reader. The first turn, of a few words, warms up."""
    late: list[float] = []
    wanted = contender.script.words
    for number, contender.script.words in enumerate((5, wanted)):
        late = []
        async for piece in contender.stream(f"{SESSION}-{number}", QUESTION):
            now = time.perf_counter()
            late += [1000 * (now - float(sent)) for sent in piece.split()]
    return {"late_ms": late}


async def steps(contender: Any, job: dict[str, Any]) -> dict[str, Any]:
    await contender.turn(SESSION, QUESTION)
    return {"asked": contender.script.asked}


async def sessions(contender: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Execute one-turn sessions one after the other, and return the CPU seconds of all."""
    begun = time.process_time()
    for number in range(job["sessions"]):
        await contender.turn(f"{SESSION}-{number:05d}", QUESTION)
    return {"cpu_s": time.process_time() - begun}


async def crowd(contender: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Execute `runs` turns at once, in threads if the contender is `sync`. Return the errors of those that did not
    complete. One turn alone warms up."""
    turn = contender.turn
    if job.get("sync"):
        pool, loop = ThreadPoolExecutor(job["runs"]), asyncio.get_running_loop()

        async def turn(session: str, message: str) -> None:
            number = RUN.get()

            def work() -> None:
                RUN.set(number)
                contender.turn_here(session, message)

            await loop.run_in_executor(pool, work)

    async def one(number: int) -> None:
        RUN.set(number)
        await turn(f"{SESSION}-{number:05d}", QUESTION)

    await idle(contender, job.get("idle", 0))
    await asyncio.create_task(one(-1 - job.get("first", 0)))
    contender.script.of_run.clear()
    begun, cpu = time.perf_counter(), time.process_time()
    first = job.get("first", 0) + 1
    tasks = [asyncio.create_task(one(number)) for number in range(first, first + job["runs"])]
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    wrong = [f"{type(error).__name__}: {error}"[:200] for error in ended if error is not None]
    between = [b - a for times in contender.script.of_run.values() for a, b in pairwise(times)]
    return {"wall_s": wall, "cpu_s": cpu, "wrong": wrong, "between_s": between}


async def idle(contender: Any, sessions: int) -> None:
    """Create this many sessions of one short turn each."""
    script = contender.script
    steps, pause_s = script.steps, script.pause_s
    script.steps, script.pause_s = 0, 0
    for first in range(0, sessions, 100):
        await asyncio.gather(*(contender.turn(f"idle-{n}", QUESTION) for n in range(first, min(sessions, first + 100))))
    script.steps, script.pause_s = steps, pause_s


async def turn(contender: Any, job: dict[str, Any]) -> dict[str, Any]:
    try:
        await contender.turn(SESSION, job.get("message", QUESTION))
    except Refused as error:
        return {"refused": str(error)}
    return {}


async def resume(contender: Any, job: dict[str, Any]) -> dict[str, Any]:
    try:
        await contender.resume(SESSION)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"history": await contender.history(SESSION)}


async def history(contender: Any, job: dict[str, Any]) -> dict[str, Any]:
    return {"history": await contender.history(SESSION)}


async def nothing(contender: Any, job: dict[str, Any]) -> dict[str, Any]:
    return {}


MEASURES = {made.__name__: made for made in (words, steps, sessions, crowd, turn, resume, history, nothing)}


def synchronous(setting: str) -> None:
    """Make every SQLite connection of this process use WAL and this setting, so that a power loss has the same effect on
    all contenders. Helix has its own setting, whose "FULL" shares the syncs of the log."""
    connect = sqlite3.connect

    def connected(database: Any, *given: Any, **named: Any) -> Any:
        made = connect(database, *given, **named)
        if str(database) not in ("", ":memory:"):
            made.execute("PRAGMA journal_mode = WAL")
            made.execute(f"PRAGMA synchronous = {setting}")
        return made

    sqlite3.connect = sqlite3.dbapi2.connect = connected  # type: ignore[assignment, attr-defined]


async def run(kind: Any, job: dict[str, Any]) -> dict[str, Any]:
    if "synchronous" in job and not hasattr(kind, "synchronous"):
        synchronous(job["synchronous"])
    contender = kind(job["place"], Script(**job.get("script", {})))
    if "synchronous" in job and hasattr(kind, "synchronous"):
        contender.synchronous, contender.max_runs = job["synchronous"], job.get("max_runs")
    await contender.open()
    try:
        answer = await MEASURES[job["measure"]](contender, job)
        return {**answer, "counted": getattr(contender, "counted", None)}
    finally:
        await contender.close()


def main(kind: Any) -> None:
    """Print the result as the last line of standard output; the process then ends without waiting for a framework's
    threads."""
    answer = asyncio.run(run(kind, json.loads(sys.argv[1])))
    print("\n" + json.dumps(answer), flush=True)
    os._exit(0)


def database(place: str) -> Path:
    return Path(place) / "sessions.db"
