"""Plays all cases, in the environment that has `agentdojo`: `python -m injections.inside FILE PROCESSES SUITE...`.

Each line of the file is an `Outcome` as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import cache
from pathlib import Path

from injections import agentdojo_cases
from injections.cases import Configuration
from injections.playing import Table

CONFIGURATIONS = (
    Configuration("nothing", False, False, ""),
    Configuration("approvals, an attentive reviewer", True, False, "attentive"),
    Configuration("approvals, a reviewer who approves all", True, False, "approves all"),
    Configuration("guards, an attentive reviewer", False, True, "attentive"),
    Configuration("guards, a reviewer who approves all", False, True, "approves all"),
    Configuration("guards, no reviewer", False, True, "denied"),
    Configuration("both, an attentive reviewer", True, True, "attentive"),
)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _table(app: str, configuration: Configuration) -> Table:
    return Table(agentdojo_cases.app_of(app), configuration)


async def _play(app: str, task: str) -> list[str]:
    """Play one task of a user, alone and with each injection, in every configuration."""
    lines = []
    for case in agentdojo_cases.cases_of(app, task):
        for configuration in CONFIGURATIONS:
            outcome = await _table(app, configuration).play(*case)
            lines.append(json.dumps(asdict(outcome)))
    return lines


def play(app: str, task: str) -> list[str]:
    warnings.simplefilter("ignore")
    return _loop().run_until_complete(_play(app, task))


def main(file: Path, processes: int, suites: Collection[str]) -> None:
    tasks = [(app, task) for app, task in agentdojo_cases.tasks() if app in suites]
    with ProcessPoolExecutor(processes) as pool, file.open("w", encoding="utf-8") as written:
        for lines in pool.map(play, *zip(*tasks, strict=True)):
            written.writelines(f"{line}\n" for line in lines)
            written.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
