"""The measures. Each runs its rounds over all contenders in turn, so that load on the machine affects all of them.

A measure returns rows: a name, and a `Cell` for each contender. A ratio is the median over the rounds of peer over Helix,
in the same round.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from aws_counts import AWS_COUNTS, LONG
from contenders import FOLDER, Contender, Failed, finish, last_line, start
from outcomes import CRASHES, after_crash, after_race

from helix.testing.loopback_server import LoopbackServer, RecordedRequest, Responder

HELIX = "helix"
MARKS = (10, 100)
AROUND = 5
WORDS_S = 2
NO_KILL = ["none", 0]
Cells = dict[str, str]
Row = tuple[str, Cells]


@dataclass
class Options:
    rounds: int
    steps: int
    sessions: int
    time_out_s: float


@dataclass
class Samples:
    """One value of each round for each row and contender; None if a round has no value. `reasons` explains missing
    values."""

    digits: int = 1
    values: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, row: str, key: str, value: float | None, reason: str = "") -> None:
        self.values.setdefault(row, {}).setdefault(key, []).append(value)
        if value is None:
            self.reasons[row, key] = reason

    def rows(self) -> Iterator[Row]:
        for row, columns in self.values.items():
            yield row, {key: self._cell(row, key) for key in columns}

    def _cell(self, row: str, key: str) -> str:
        rounds, ours = self.values[row][key], self.values[row].get(HELIX, [])
        known = [value for value in rounds if value is not None]
        if not known:
            return self.reasons[row, key]
        text = f"{statistics.median(known):,.{self.digits}f}"
        pairs = [(a, b) for a, b in zip(rounds, ours, strict=False) if a is not None and b]
        if key == HELIX or not pairs:
            return text
        return f"{text} ({statistics.median(a / b for a, b in pairs):.2g}×)"


def progress(measure: str, about: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {measure}: {about}", file=sys.stderr, flush=True)


def each(measure: str, among: Sequence[Contender], rounds: int) -> Iterator[tuple[Contender, str]]:
    """Iterate over the contenders in turn, round after round, each with the reason why it cannot take part, if any."""
    for number in range(rounds):
        for contender in among:
            progress(measure, f"round {number + 1} of {rounds}, {contender.name}")
            yield contender, contender.broken or contender.without.get(measure, "")


# --- times --------------------------------------------------------------------------------------------------------


def first_words(among: Sequence[Contender], options: Options) -> Iterator[Row]:
    found = Samples(2)
    for contender, reason in each("words", among, options.rounds):
        for rate in (40, 200):
            rows = [f"{rate} a second, p50", f"{rate} a second, p95"]
            try:
                if reason:
                    raise Failed(reason)
                script = {"words": WORDS_S * rate, "rate": rate}
                with tempfile.TemporaryDirectory() as folder:
                    job = {"measure": "words", "place": folder, "script": script}
                    late = contender.run(job, folder, options.time_out_s)["late_ms"]
                if len(late) != WORDS_S * rate:
                    raise Failed(f"{len(late)} of {WORDS_S * rate} words came")
                cuts = statistics.quantiles(late, n=20, method="inclusive")
                values: list[float | None] = [statistics.median(late), cuts[18]]
            except Failed as error:
                values, reason_now = [None, None], str(error)
            else:
                reason_now = ""
            for row, value in zip(rows, values, strict=True):
                found.add(row, contender.key, value, reason_now)
    yield from found.rows()


def durable_steps(among: Sequence[Contender], options: Options) -> Iterator[Row]:
    """Measure several rounds up to step 100, and one longer round up to the last requested step."""
    found = Samples()
    for contender, reason in each("disk", among, options.rounds):
        step_rows(found, contender, "disk", MARKS, options, reason)
    for contender, reason in each("disk", among, 1):
        step_rows(found, contender, "disk", (options.steps,), options, reason)
    for contender, reason in each("memory", among, options.rounds):
        step_rows(found, contender, "memory", MARKS, options, reason)
    order = {"disk": 0, "memory": 1}
    yield from sorted(found.rows(), key=lambda row: order[row[0].split(",")[0]])


def step_rows(
    found: Samples, contender: Contender, place: str, marks: Sequence[int], options: Options, reason: str
) -> None:
    asked: list[list[float]] = []
    if not reason:
        with tempfile.TemporaryDirectory() as folder:
            where = folder if place == "disk" else "memory"
            job = {"measure": "steps", "place": where, "script": {"steps": marks[-1] + AROUND + 1}}
            try:
                asked = contender.run(job, folder, options.time_out_s)["asked"]
            except Failed as error:
                reason = str(error)
    for kind, column in (("CPU", 1), ("wall", 0)):
        times = [1000 * (after[column] - before[column]) for before, after in pairwise(asked)]
        for mark in marks:
            window = times[mark - AROUND - 1 : mark + AROUND]
            value = statistics.median(window) if len(window) > AROUND else None
            found.add(f"{place}, step {mark}, {kind}", contender.key, value, reason or "fewer steps")


def ready(among: Sequence[Contender], options: Options) -> Iterator[Row]:
    """Measure from the start of an interpreter to its first model call, with a client for an OpenAI-compatible endpoint,
    and for Bedrock if the framework can select one in the same way."""
    found = Samples(0)
    with Door() as door:
        for number in range(options.rounds):
            progress("ready", f"round {number + 1} of {options.rounds}")
            bare = door.time(among[0], "bare", options.time_out_s)
            for who, contender, rows in entries(among):
                try:
                    if contender.broken:
                        raise Failed(contender.broken)
                    took = door.time(contender, who, options.time_out_s)
                except Failed as error:
                    for row in rows:
                        found.add(row, contender.key, None, str(error))
                else:
                    for row, value, less in zip(rows, took, bare, strict=True):
                        found.add(row, contender.key, value - less)
    yield from found.rows()


def entries(among: Sequence[Contender]) -> Iterator[tuple[str, Contender, tuple[str, str]]]:
    for contender in among:
        yield contender.key, contender, ("OpenAI client, ms", "OpenAI client, MB")
    for contender in among:
        if contender.key in ("helix", "strands"):
            yield f"{contender.key}_bedrock", contender, ("Bedrock client, ms", "Bedrock client, MB")


class Door(LoopbackServer):
    """A server that records when the first request of a process arrives, and the size of the process at that moment."""

    def __init__(self) -> None:
        super().__init__(self._open)
        self._child = 0
        self._came = threading.Event()
        self._found = (0.0, 0.0)

    async def _open(self, request: RecordedRequest, responder: Responder) -> None:
        if not self._came.is_set():
            status = Path(f"/proc/{self._child}/status").read_text()
            size = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
            self._found = (time.perf_counter(), size / 1024)
            self._came.set()
        await responder.send_json(500, {"error": {"message": "measured"}})

    def time(self, contender: Contender, who: str, time_out_s: float) -> tuple[float, float]:
        """Return milliseconds and MB."""
        self._came.clear()
        url = f"{self.origin}/v1"
        environment = {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url}
        environment |= {"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": self.origin, "AWS_BEDROCK_RUNTIME_ENDPOINT": self.origin}
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            process = start([str(contender.python), str(FOLDER / "ready.py"), who, url], folder, **environment)
            self._child = process.pid
            deadline = begun + time_out_s
            while not self._came.wait(0.05) and process.poll() is None and time.perf_counter() < deadline:
                pass
            process.kill()
            _, complained = process.communicate()
        if not self._came.is_set():
            raise Failed(last_line(complained) or f"no call within {time_out_s:g} s")
        arrived, size = self._found
        return 1000 * (arrived - begun), size


# --- bytes and calls ----------------------------------------------------------------------------------------------


def disk(among: Sequence[Contender], options: Options) -> Iterator[Row]:
    found = Samples(1)
    row = f"KB a session, of {options.sessions:,}"
    for contender, reason in each("sessions", among, 1):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "place"
            place.mkdir()
            job = {"measure": "sessions", "place": str(place), "sessions": options.sessions, "script": {}}
            try:
                if reason:
                    raise Failed(reason)
                contender.run(job, folder, options.time_out_s)
            except Failed as error:
                found.add(row, contender.key, None, str(error))
            else:
                used = sum(512 * path.stat().st_blocks for path in place.rglob("*") if path.is_file())
                found.add(row, contender.key, used / options.sessions / 1024)
    yield from found.rows()


"""Measure steps of 1 KB that exceed one item of 400 KB in total."""
AWS_ROWS = {
    "no tools: write units": ("none", "units"),
    "no tools: read calls": ("none", "reads"),
    "one tool: write units": ("one", "units"),
    "one tool: read calls": ("one", "reads"),
    "step 100: write units": ("step 100", "units"),
    "step 100: KB written": ("step 100", "kb"),
    "step 100: read calls": ("step 100", "reads"),
    "a turn after 100 steps, cold: reads before the model": ("cold", "before"),
    "the same: reads in all": ("cold", "reads"),
    f"of {LONG:,} steps, refused after": ("long", "steps"),
}


def aws(among: Sequence[Contender], options: Options) -> Iterator[Row]:
    counts: dict[str, Any] = {}
    for contender, reason in each("aws", among, 1):
        try:
            if reason:
                raise Failed(reason)
            counts[contender.key] = AWS_COUNTS[contender.key](contender, options.time_out_s)
        except Failed as error:
            counts[contender.key] = str(error)
    for row, (run, what) in AWS_ROWS.items():
        cells = {}
        for key, found in counts.items():
            value = found if isinstance(found, str) else found.get(run, {}).get(what, "-")
            cells[key] = value if isinstance(value, str) else f"{value:,.4g}"
        yield row, cells


# --- outcomes -----------------------------------------------------------------------------------------------------


def crashes(among: Sequence[Contender], options: Options) -> Iterator[Row]:
    """Run two contenders at a time, because nothing is timed."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for name, script in CRASHES.items():
            progress("crash", name)
            done = pool.map(lambda contender, s=script: crash(contender, s, options), among)
            yield name, dict(zip([contender.key for contender in among], done, strict=True))


def crash(contender: Contender, script: dict[str, Any], options: Options) -> str:
    if contender.broken:
        return contender.broken
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        place = {"place": folder}
        try:
            contender.run(
                {"measure": "turn", **place, "script": {**script, "trace": str(trace)}}, folder, options.time_out_s
            )
            before = trace.read_text().splitlines()
            script = {**script, "trace": str(trace)}
            again = {**script, "kill": NO_KILL}
            resumed = contender.run({"measure": "resume", **place, "script": again}, folder, options.time_out_s)
        except (Failed, OSError) as error:
            return f"failed: {error}"
        return after_crash(script, before, trace.read_text().splitlines()[len(before) :], resumed)


def races(among: Sequence[Contender], options: Options) -> Iterator[Row]:
    progress("race", "all")
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = list(pool.map(lambda contender: race(contender, options), among))
    yield "two turns of one session", dict(zip([contender.key for contender in among], found, strict=True))


def race(contender: Contender, options: Options) -> str:
    """Run two processes. The second calls its model, or is refused, while the first waits for its own, and ends after
    it."""
    if reason := contender.broken or contender.without.get("race", ""):
        return reason
    with tempfile.TemporaryDirectory() as folder:
        started: list[subprocess.Popen[str]] = []
        answers = []
        try:
            for message, done in (("one", "A"), ("two", "B")):
                trace = Path(folder) / f"asked-{message}"
                script = {"trace": str(trace), "until": f"{folder}/go-{message}", "done": done}
                job = {"measure": "turn", "place": folder, "message": message, "script": script}
                started.append(contender.start(job, folder))
                deadline = time.monotonic() + options.time_out_s
                while not trace.exists() and started[-1].poll() is None and time.monotonic() < deadline:
                    time.sleep(0.02)
            for message, process in zip(("one", "two"), started, strict=True):
                Path(folder, f"go-{message}").touch()
                answers.append(finish(process, options.time_out_s))
            told = contender.run({"measure": "history", "place": folder, "script": {}}, folder, options.time_out_s)
        except Failed as error:
            return f"failed: {error}"
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
        return after_race(answers[0], answers[1], told["history"])
