"""Run the suites of the deployed app on stages without Kinesis (CLOUD_STREAMING=direct).

    python -m tests.direct [WORDS FOR PYTEST]

Prints a table and saves it to bench/results/direct.md. The exit status is 1 if a test failed; the table then names it. Both
suites take about a quarter of an hour on two processors. With arguments, such as `tests/e2e/test_direct.py`, pytest runs
those tests, and the table is printed but not saved.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "bench" / "results" / "direct.md"
SUITES = (("tests/e2e",), ("tests/functions",))
OPTIONS = ("-q", "-m", "", "-n", "auto", "--dist", "loadgroup", "--no-loadscope-reorder", "--max-worker-restart=0")
OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def main(words: Sequence[str]) -> int:
    table, failed = ["| suite | passed | failed | skipped | minutes |", "|---|---:|---:|---:|---:|"], list[str]()
    for suite in (words,) if words else SUITES:
        counts, names, minutes = play(suite)
        numbers = " | ".join(str(counts[outcome]) for outcome in ("passed", "failed", "skipped"))
        table.append(f"| `{shlex.join(suite)}` | {numbers} | {minutes:.1f} |")
        failed += names
    lines = [*table, *(["", "Failed:", "", *(f"- `{name}`" for name in failed)] if failed else [])]
    print("\n".join(lines))
    if not words:
        about = f"{date.today()}, Python {platform.python_version()}; `make direct`."
        RESULT.write_text("\n".join(["# Stages without Kinesis", "", about, "", *lines, ""]), encoding="utf-8")
    return 1 if failed else 0


def play(words: Sequence[str]) -> tuple[Counter[str], list[str], float]:
    """Return the number of tests with each outcome, the names of those that failed, and the minutes."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", *OPTIONS, f"--junitxml={report}", *words]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, "CLOUD_STREAMING": "direct"}, check=False)
        found = list(outcomes(report)) if report.is_file() else []
    failed = [name for name, outcome in found if outcome == "failed"]
    if done.returncode and not failed:
        failed = [f"pytest {shlex.join(words)} (exit status {done.returncode})"]
    counts = Counter(outcome for _, outcome in found)
    return counts, failed, (time.monotonic() - begun) / 60


def outcomes(report: Path) -> Iterator[tuple[str, str]]:
    """Return each test's name and outcome: `passed`, `failed` or `skipped`."""
    for case in ElementTree.parse(report).iter("testcase"):
        found = [OUTCOMES[part.tag] for part in case if part.tag in OUTCOMES]
        yield f"{case.get('classname')}.{case.get('name')}", found[0] if found else "passed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
