"""Run the long random walks, of which CI plays only the first seeds.

    python -m tests.torture [--times 0.1] [--only protocol]

It prints a row for each job and saves it to the table of bench/results/torture.md, in place of the job's earlier row. So
`--only` repeats a part of the table. The exit status is 1 if a walk failed, and the table then has the test and the line
that repeats it. All of them take about four hours on two processors. `--times` multiplies the number of walks.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "bench" / "results" / "torture.md"
SPREAD = ("-n", "auto", "--dist", "loadgroup", "--max-worker-restart=0")


@dataclass(frozen=True)
class Job:
    """A job. `walks` is the value of HELIX_EXAMPLES. `words` are the arguments of pytest, or of a program (`-m ...`) that
    takes `--count`."""

    name: str
    walks: int
    words: tuple[str, ...]

    def command(self, walks: int) -> list[str]:
        if self.words[0] == "-m":
            return [sys.executable, *self.words, "--count", str(walks)]
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SPREAD, "-m", "", *self.words]


PROPERTIES = "tests/properties"
JOBS = (
    Job("protocol: all verbs, memory, SQLite and packed rows", 1_000, (f"{PROPERTIES}/test_protocol_machine.py",)),
    Job("slots: admissions, ends, limits and deaths", 1_000, (f"{PROPERTIES}/test_slots_properties.py", "-k", "hold")),
    Job("packed rows: a store whoever dies", 1_000, ("tests/contracts/test_packing.py", "-k", "whoever_dies")),
    Job("deletions at any moment, on each store", 2_000, (f"{PROPERTIES}/test_deletion_walks.py", "-k", "many_walks")),
    Job(
        "people who steer, queue, answer and stop while workers are killed, memory",
        1_000,
        ("-m", "tests.properties.people"),
    ),
    Job("people on SQLite", 1_000, ("-m", "tests.properties.people", "--kind", "sqlite")),
    Job("people on the offline stage, whose functions are killed", 20, ("-m", "tests.e2e.people_play")),
    Job("people on DynamoDB (moto)", 20, ("-m", "tests.properties.people", "--kind", "dynamodb")),
    Job(
        "edits, other answers, stops and messages during a run, of useChat 7 and 6 and over WebSocket",
        300,
        ("tests/js/test_walks.py",),
    ),
    Job("hostile networks, both clients", 500, ("tests/js/test_hostile.py",)),
    Job("pages of useChat 7 and 6 that resume", 200, ("tests/js/test_resume_walk.py",)),
    Job("workers of deployed functions killed at every point", 1, ("tests/e2e/test_crashes.py",)),
    Job("hostile values at every edge", 100_000, ("-m", "tests.properties.hostile")),
)


def play(job: Job, walks: int) -> tuple[bool, float, str]:
    """Return whether it passed, the seconds it took, and its last output."""
    begun = time.monotonic()
    variables = {**os.environ, "HELIX_EXAMPLES": str(walks)}
    done = subprocess.run(job.command(walks), cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    lines = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    failed = [line for line in lines if re.match(r"FAILED|ERROR|.*finds it again", line)]
    return done.returncode == 0, time.monotonic() - begun, "; ".join(failed[:3] or lines[-1:])


def played(job: Job, walks: int) -> tuple[bool, str]:
    """Return whether the job passed, and its row of the table."""
    passed, seconds, last = play(job, walks)
    last = re.sub(r"[|=]+", " ", last).strip()[:300]
    cells = (job.name, f"{walks:,}", "passed" if passed else "FAILED", f"{seconds / 60:.1f}", f"{date.today()}", last)
    return passed, f"| {' | '.join(cells)} |"


def save(row: str) -> None:
    """Write the row to the saved table. Rows of other jobs stay as they are, and the order is that of JOBS."""
    lines = [*(RESULT.read_text(encoding="utf-8").splitlines() if RESULT.exists() else ()), row]
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    table = [rows[job.name] for job in JOBS if job.name in rows]
    about = f"Each row is of its own day (`python -m tests.torture`, Python {platform.python_version()})."
    heads = ("| walks of | number | result | minutes | played | last line |", "|---|---:|---|---:|---|---|")
    RESULT.write_text("\n".join(["# Long random walks", "", about, "", *heads, *table, ""]), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=float, default=1.0, help="multiplies the number of walks")
    parser.add_argument("--only", default="", help="a part of the names of jobs")
    given = parser.parse_args()
    jobs = [job for job in JOBS if given.only in job.name]
    wrong = 0
    for job in jobs:
        passed, row = played(job, max(1, round(job.walks * given.times)))
        wrong += not passed
        print(row, flush=True)
        save(row)
    return 1 if wrong or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
