"""Do callers in many processes keep to a provider's limit, use all of it, and all get their turn?

    python bench/shared_limits.py       prints the table and saves it to bench/results/shared_limits.md (6 minutes)

Ten processes have 20 callers each. Every caller has an engine and a connection of its own, and shares only the SQLite file
with the others, like a function with its table. The provider on loopback allows `LIMIT` requests a minute and enforces the
limit for short intervals, as the documents of Anthropic and OpenAI say: a bucket of `BURST` requests that fills
continuously. A request that finds it empty gets a 429 with Retry-After.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from bisect import bisect_left
from pathlib import Path
from typing import Any

from helix import Agent, LLMConfig, LocalExecutor
from helix.adapters.models.adapter import ModelAdapter
from helix.engine.engine import Settings
from helix.testing.openai_server import HttpFailure, ModelAnswer, OpenAIServer

RESULTS = Path(__file__).parent / "results" / "shared_limits.md"
MODEL = "openai/gpt-4o-mini"
PROCESSES, CALLERS = 10, 20
LIMIT, BURST = 50, 5
SECONDS = 330
FIRST = 60


class Provider:
    """A model with a limit. `served` and `refused` are the times of its requests in seconds since the first."""

    def __init__(self) -> None:
        self.begun = 0.0
        self.served: list[float] = []
        self.refused: list[float] = []
        self._left, self._at = float(BURST), 0.0

    def answer(self, _: dict[str, Any]) -> ModelAnswer | HttpFailure:
        now = time.monotonic()
        self.begun = self.begun or now
        self._left = min(BURST, self._left + (now - (self._at or now)) * LIMIT / 60)
        self._at = now
        if self._left < 1:
            self.refused.append(now - self.begun)
            return HttpFailure(status=429, retry_after_s=(1 - self._left) * 60 / LIMIT)
        self._left -= 1
        self.served.append(now - self.begun)
        return ModelAnswer(text="fine")


async def call_often(store: str, number: int, end: float) -> list[tuple[float, float]]:
    """Run the agent again and again until `end` (Unix seconds). Return when each finished run began and how long it
    took."""
    agent = Agent(name="caller", system_prompt="Answer.", llm_config=LLMConfig(model=MODEL, api="chat"))
    took = []
    executor = LocalExecutor(
        store,
        model=PREPARED,
        limits={MODEL: {"requests": LIMIT}},
        settings=Settings(stop_poll_s=5, claim_s=600),  # the callers of a busy machine do nothing but wait
    )
    async with executor:
        while (begun := time.time()) < end:
            try:
                async with asyncio.timeout(end - begun):
                    handle = await executor.execute(agent, "hello", session_id=f"s{number}_{len(took)}")
                    await handle.result()
            except TimeoutError:
                break
            took.append((begun, time.time() - begun))
    return took


PREPARED = ModelAdapter()
"""The model of a process. As in a function, its package is imported before the first call."""


async def work(store: str, process: int, end: float) -> None:
    PREPARED.prepare(LLMConfig(model=MODEL))
    numbers = range(process * CALLERS, (process + 1) * CALLERS)
    found = await asyncio.gather(*(call_often(store, number, end) for number in numbers))
    print(json.dumps(found))


async def measure() -> tuple[Provider, list[list[tuple[float, float]]]]:
    provider = Provider()
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(provider.answer) as server:
        end = time.time() + SECONDS + 30  # the processes need time to start
        arguments = [sys.executable, __file__, "--work", str(Path(folder) / "helix.db")]
        workers = [
            await asyncio.create_subprocess_exec(
                *arguments, str(n), str(end), env={**os.environ, **server.environment()}, stdout=asyncio.subprocess.PIPE
            )
            for n in range(PROCESSES)
        ]
        outputs = await asyncio.gather(*(worker.communicate() for worker in workers))
        print(f"{len(provider.served)} requests, refused at {[round(at) for at in provider.refused]} s")
        assert all(worker.returncode == 0 for worker in workers), "a process failed"
        return provider, [caller for output, _ in outputs for caller in json.loads(output)]


def report(provider: Provider, callers: list[list[tuple[float, float]]]) -> str:
    after = [at for at in provider.served if at >= FIRST]
    minutes = (after[-1] - FIRST) / 60
    used = len(after) / minutes / LIMIT
    refused = [at for at in provider.refused if at >= FIRST]
    most = max(bisect_left(after, at + 60) - n for n, at in enumerate(after))
    served = sum(bool(runs) for runs in callers)
    longest = max(seconds for runs in callers for _, seconds in runs)
    assert not refused, f"{len(refused)} requests were refused after the first minute"
    assert used >= 0.95, f"only {used:.1%} of the limit were used"
    assert served == PROCESSES * CALLERS, f"{PROCESSES * CALLERS - served} callers never had their turn"
    return "\n".join(
        [
            "# A limit that 200 callers share",
            "",
            f"Python {platform.python_version()}, {platform.machine()}; {PROCESSES} processes with {CALLERS} callers "
            f"each, one SQLite file; `python bench/shared_limits.py`. The limit is {LIMIT} requests a "
            f"minute, in bursts of at most {BURST}.",
            "",
            "| | |",
            "|---|---:|",
            f"| requests in {after[-1]:.0f} s | {len(provider.served)} |",
            f"| refused in the first minute | {len(provider.refused) - len(refused)} |",
            f"| refused after it | {len(refused)} |",
            f"| used of the limit, after the first minute | {used:.1%} |",
            f"| most requests in any minute after it | {most} |",
            f"| callers with at least one answer | {served} of {PROCESSES * CALLERS} |",
            f"| longest time to an answer; a fair share is {60 * PROCESSES * CALLERS / LIMIT:.0f} s | {longest:.0f} s |",
            "",
        ]
    )


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        asyncio.run(work(sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
        return
    text = report(*asyncio.run(measure()))
    print(text)
    RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
