"""Measure many runs in one process: Helix and other frameworks, with the same durability.

    python bench/concurrency.py                       prints the tables, saves them to bench/results/concurrency.md
    python bench/concurrency.py --rounds 1 --runs 100 --only memory        prints a part, saves nothing

A run is 10 model calls of 50 ms with 9 tools of 1 KB between them. On disk every contender uses SQLite in WAL mode, once
with `synchronous=FULL` and once with `NORMAL`. Each round runs all contenders in turn, so ratios are valid on a busy
machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent
sys.path.insert(0, str(BENCH / "peers"))

from contenders import Contender, Failed, chosen, finish  # noqa: E402
from durability import redis_server  # noqa: E402
from measures import Samples, progress  # noqa: E402

CALLS = 10
SCRIPT = {"steps": CALLS - 1, "pause_s": 0.05}
PEERS = ("langgraph", "openai", "pydantic", "dbos")
RUNS = (1, 10, 100, 1000)
PLACES = ("FULL", "NORMAL", "memory", "redis", "two processes", "idle sessions")
IDLE = 10_000
"""The number of idle sessions that are already in the store."""
OF_ALL = ("FULL", "NORMAL", "memory")


@dataclass(frozen=True)
class Column:
    """A contender. `sync`: it runs in threads. `max_runs`: the limit of Helix's executor."""

    key: str
    name: str
    contender: Contender
    sync: bool = False
    max_runs: int | str | None = None


def columns(peers: list[str]) -> Iterator[Column]:
    for made in chosen(peers or PEERS):
        made.install()
        if made.key == "helix":
            yield Column("helix", "Helix, any number of runs", made)
            yield Column("bounded", "Helix, `max_runs` by default", made, max_runs="default")
            continue
        yield Column(made.key, made.name, made)
        if made.key == "langgraph":
            yield Column("langgraph sync", "LangGraph, in threads", made, sync=True)


def play(column: Column, place: str, runs: int, time_out_s: float, redis: str | None) -> dict[str, Any]:
    """Steps a second, CPU milliseconds for each step, and the median and 99th percentile of a step's time beyond the
    model's 50 ms."""
    with tempfile.TemporaryDirectory(dir=BENCH.parent / "build") as folder:
        where = {"memory": "memory", "redis": redis}.get(place, folder)
        job: dict[str, Any] = {"measure": "crowd", "place": where, "script": SCRIPT, "runs": runs, "sync": column.sync}
        job |= {"synchronous": "NORMAL" if place == "NORMAL" else "FULL", "max_runs": column.max_runs}
        job |= {"idle": IDLE} if place == "idle sessions" else {}
        found = column.contender.run(job, folder, time_out_s)
    if found["wrong"]:
        raise Failed(f"{len(found['wrong'])} of {runs} stopped: {found['wrong'][0]}")
    steps = runs * CALLS
    between = sorted(1000 * (seconds - SCRIPT["pause_s"]) for seconds in found["between_s"])  # type: ignore[operator]
    of_steps = {"p50": statistics.median(between), "p99": between[int(len(between) * 0.99)]} if between else {}
    return {"steps/s": steps / found["wall_s"], "CPU ms a step": 1000 * found["cpu_s"] / steps, **of_steps}


def play_two(column: Column, runs: int, time_out_s: float) -> dict[str, Any]:
    """Measure two processes on one file, each with half of the runs."""
    with tempfile.TemporaryDirectory(dir=BENCH.parent / "build") as folder:
        job = {"measure": "crowd", "place": folder, "script": SCRIPT, "runs": runs // 2, "synchronous": "FULL"}
        begun = [column.contender.start({**job, "first": n * runs}, folder) for n in range(2)]
        found = [finish(process, time_out_s) for process in begun]
    if wrong := [line for each in found for line in each["wrong"]]:
        raise Failed(f"{len(wrong)} stopped: {wrong[0]}")
    return {"steps/s": runs * CALLS / max(each["wall_s"] for each in found)}


def section(
    place: str, among: list[Column], runs: list[int], rounds: int, time_out_s: float, redis: str | None
) -> list[str]:
    takes_part = [column for column in among if column.contender.key == "helix" or place in OF_ALL]
    if place == "redis" and not redis:
        return ["", f"## {place}", "", "No redis-server is installed."]
    found = Samples(1)
    for number in range(rounds):
        for many in runs:
            for column in takes_part:
                about = f"round {number + 1} of {rounds}, {many} runs, {column.name}"
                try:
                    if reason := column.contender.broken or column.contender.without.get(place, ""):
                        raise Failed(reason)
                    if place not in OF_ALL and many < 100:
                        continue
                    if place == "two processes":
                        values = play_two(column, many, time_out_s)
                    else:
                        values = play(column, place, many, time_out_s, redis)
                except Failed as error:
                    progress(place, f"{about}: {error}")
                    found.add(f"{many:,} runs: steps/s", column.key, None, str(error))
                    continue
                progress(place, f"{about}: {', '.join(f'{what} {value:.1f}' for what, value in values.items())}")
                for what, value in values.items():
                    found.add(f"{many:,} runs: {what}", column.key, value)
    names = " | ".join(column.name for column in takes_part)
    lines = ["", f"## {place}", "", f"| | {names} |", "|---|" + "---:|" * len(takes_part)]
    for row, cells in found.rows():
        texts = " | ".join(cells.get(column.key, "").replace("|", "/") for column in takes_part)
        lines.append(f"| {row} | {texts} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Many runs in one process.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", default=",".join(map(str, RUNS)))
    parser.add_argument("--peers", default="")
    parser.add_argument("--only", default="", help=f"places, with commas between: {', '.join(PLACES)}")
    parser.add_argument("--time-out", type=float, default=300, help="seconds for each process (default 300)")
    given = parser.parse_args()
    (BENCH.parent / "build").mkdir(exist_ok=True)
    among = list(columns([word for word in given.peers.split(",") if word]))
    versions = "; ".join(dict.fromkeys(column.contender.versions() for column in among))
    command = " ".join(["python bench/concurrency.py", *sys.argv[1:]])
    lines = [
        "# Many runs in one process",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} "
        f"before; {given.rounds} rounds; `{command}`. {versions}.",
        "",
        "Values in brackets are the ratio of the column to the first, as the median over the rounds. p50 and p99 are the "
        "milliseconds of a step beyond the 50 of its model.",
    ]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder, redis_server(folder) as redis:
        for place in [word for word in given.only.split(",") if word] or PLACES:
            runs = [int(word) for word in given.runs.split(",")]
            rows = section(place, among, runs, given.rounds, given.time_out, redis)
            print("\n".join(rows), flush=True)
            lines += rows
    if not given.only and not given.peers:
        (BENCH / "results" / "concurrency.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
