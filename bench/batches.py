"""Run 1,000 runs of two steps in OpenAI's batches, on a server that executes and expires requests as the provider does,
while their processes are killed. Count what was bought, and what waits.

    python bench/batches.py                saves bench/results/batches.md (some five minutes)
    python bench/batches.py --runs 100     fewer runs, not saved

Each process works on the same SQLite file. It ends at a random moment, as by SIGKILL, and the next one goes on. Every tenth
request expires in its first batch, and of every third batch the client never learns that the provider has it. The exit
status is 1 if a request was executed twice, or a run did not complete.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.batch_servers import EXPIRES, OpenAIBatchServer  # noqa: E402
from tests.support_processes import Worker  # noqa: E402

from helix.testing.openai_server import ModelAnswer, ModelToolCall  # noqa: E402

KILLS, RUNS, IDLE_S = 20, 1_000, 10.0


class Provider(OpenAIBatchServer):
    """A provider that loses the reply to every third batch, and lets every tenth request expire once."""

    def __init__(self) -> None:
        super().__init__(self._play, looks=10**9)
        self.seen: set[str] = set()
        self.expired = self.lost = 0

    def _play(self, body: dict[str, Any]) -> ModelAnswer | str:
        key = json.dumps(body["messages"])
        first, number = key not in self.seen, len(self.seen)
        self.seen.add(key)
        if first and number % 10 == 0:
            self.expired += 1
            return EXPIRES
        if len(body["messages"]) == 2:
            return ModelAnswer(tool_calls=[ModelToolCall("add", {"a": 1, "b": 2})])
        return ModelAnswer(text="three")

    def _lost(self) -> bool:
        is_lost = len(self.batches) % 3 == 0
        self.lost += is_lost
        return is_lost


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--runs", type=int, default=RUNS)
    runs = options.parse_args().runs
    dice, begun = random.Random(7), time.monotonic()
    with Provider() as server, tempfile.TemporaryDirectory() as folder:
        worker = Worker("batch_worker", {**os.environ, **server.environment()})
        job = {"db": str(Path(folder) / "batches.db"), "runs": runs, "settings": {"batch_poll_s": 0.5}}
        idle = worker.ask(**{**job, "settings": {"batch_poll_s": 60}}, idle_s=IDLE_S)
        server.looks = 2
        killed = 0
        for _ in range(KILLS):
            killed += worker.ask(**job, dies_after_s=dice.uniform(1.0, 6.0))["signal"] != 0
        last = worker.ask(**job)
        worker.close()
    took, found = time.monotonic() - begun, last.get("found", [])
    completed = sum(status == "completed" for status, *_ in found)
    bought, twice = sum(server.executed.values()), sum(n > 1 for n in server.executed.values())
    wrong = bool(completed != runs or bought != 2 * runs or twice or last.get("problems") or "error" in last)
    lines = [
        "# Batches",
        "",
        f"Python {platform.python_version()}; `python bench/batches.py`, {took:.0f} s.",
        f"{runs:,} runs of two steps and a tool, on one SQLite file.",
        "",
        "| | |",
        "|---|---:|",
        f"| runs that completed | {completed:,} |",
        f"| requests that the provider executed (two for each run) | {bought:,} |",
        f"| requests that it executed more than once | {twice} |",
        f"| batches | {len(server.batches)} |",
        f"| batches whose sender never learned that they were made | {server.lost} |",
        f"| requests that expired, and went into another batch | {server.expired} |",
        f"| processes that were killed | {killed} |",
        f"| problems of rows and streams (`check_session`) | {len(last.get('problems', []))} |",
        f"| tasks of runs while all of them wait | {idle.get('tasks')} |",
        f"| CPU time of the process in {IDLE_S:.0f} s of waiting | {idle.get('cpu_s', 0):.2f} s |",
    ]
    text = "\n".join(lines) + "\n"
    print(text, *[last[name] for name in ("error", "problems") if last.get(name)])
    if runs == RUNS and not wrong:
        (ROOT / "bench" / "results" / "batches.md").write_text(text, encoding="utf-8")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
