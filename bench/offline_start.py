"""Measure the time until `helix dev` serves the deployed app on this machine.

    python bench/offline_start.py        prints the table and saves it to bench/results/offline_start.md

It runs the real command in a copy of the project, like a fresh clone after `make setup`. The first start synthesizes the
template, and later ones reuse it. `ready` is the moment when the command prints where to connect. `answers` is the end of a
client's first run, during which its functions are still starting. A reload counts from the saved file.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helix.client import HelixClient

ROOT = Path(__file__).parents[1]
ROUNDS = 2
FIRST_S, LATER_S = 30.0, 6.0
PATIENCE_S = 100.0


def project(folder: Path) -> Path:
    agents = "layers/agents"
    shutil.copytree(ROOT / agents, folder / agents, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


class Started:
    """A `helix dev` that has printed where to connect; `ready` is the number of seconds until then."""

    def __init__(self, root: Path) -> None:
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "helix.cli", "dev", "--port", "0", "--model", "demo"],
            cwd=root,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        text = self.read_until(r"^  state ")
        self.ready = time.perf_counter() - begun
        self.url, self.key = (re.findall(rf"^  {name} +(\S+)", text, re.MULTILINE)[0] for name in ("url", "key"))

    def read_until(self, pattern: str) -> str:
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if re.search(pattern, line):
                return "".join(lines)
        raise AssertionError(f"helix dev ended without {pattern!r}:\n{''.join(lines)}")


@contextmanager
def started(root: Path) -> Iterator[Started]:
    dev = Started(root)
    try:
        yield dev
    finally:
        dev.process.send_signal(signal.SIGINT)
        dev.process.communicate(timeout=PATIENCE_S)


async def run(dev: Started) -> None:
    async with HelixClient(dev.url, dev.key) as client:
        handle = await client.run("desk", "What about the warranty?")
        assert (await handle.result(PATIENCE_S)).status == "completed"


def reload(dev: Started, root: Path) -> float:
    file = root / "layers" / "agents" / "python" / "agents" / "__init__.py"
    text = file.read_text(encoding="utf-8")
    begun = time.perf_counter()
    file.write_text(text + "\n", encoding="utf-8")
    hurry = threading.Timer(PATIENCE_S, dev.process.kill)
    hurry.start()
    dev.read_until("^helix: reloaded ")
    hurry.cancel()
    return time.perf_counter() - begun


def main() -> None:
    ready: dict[str, list[float]] = {"first start": [], "later start": []}
    answers: dict[str, list[float]] = {"first start": [], "later start": []}
    reloads = []
    with tempfile.TemporaryDirectory(prefix="helix-bench-") as place:
        for number in range(ROUNDS):
            root = project(Path(place) / str(number))
            for kind in ready:
                with started(root) as dev:
                    begun = time.perf_counter()
                    asyncio.run(run(dev))
                    ready[kind].append(dev.ready)
                    answers[kind].append(dev.ready + time.perf_counter() - begun)
                    if kind == "later start":
                        reloads.append(reload(dev, root))
    lines = [
        "# Offline: how long `helix dev` takes",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; "
        f"best (median) of {ROUNDS}; `python bench/offline_start.py`.",
        "",
        "| | ready, s | at most | | a client's first run is done, s |",
        "|---|---:|---:|---|---:|",
    ]
    for kind, most in (("first start", FIRST_S), ("later start", LATER_S)):
        met = "met" if min(ready[kind]) <= most else "MISSED"
        lines.append(f"| {kind} | {told(ready[kind])} | {most:.0f} s | {met} | {told(answers[kind])} |")
    lines.append(f"| an agent's file is saved, and reloaded | {told(reloads)} | | | |")
    table = "\n".join(lines) + "\n"
    print(table)
    (ROOT / "bench" / "results" / "offline_start.md").write_text(table, encoding="utf-8")


def told(seconds: list[float]) -> str:
    return f"{min(seconds):.1f} ({statistics.median(seconds):.1f})"


if __name__ == "__main__":
    main()
