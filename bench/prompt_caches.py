"""Measure the share of the input that is read from the provider's prompt cache, with 12 parallel calls in each step.

    python bench/prompt_caches.py [--steps N] [--before CHECKOUT]

Two sessions of one agent run at the same time, through the providers' own packages, against servers on loopback that keep
a cache by each provider's rules (`tests/support/prompt_cache_servers.py`). Each session takes a step every six seconds of
the servers' clocks. `--before` also measures the code of another checkout. The prices are those of litellm's table.
It takes five minutes. With 100 steps and `--before`, it saves bench/results/prompt_caches.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from tests.support.prompt_cache_servers import (  # noqa: E402
    CALLS,
    CLAUDE,
    CONVERSE,
    NOVA,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    CachingServer,
    Provider,
    desk,
    looking,
)

from helix import LocalExecutor, MemoryStateStore, ModelAdapter  # noqa: E402

SESSIONS, STEPS = 2, 100
SECONDS = 6
"""The time of a step, by the servers' clocks. Two sessions make 20 requests a minute."""
PROVIDERS = (CLAUDE, CONVERSE, NOVA, OPENAI_RESPONSES, OPENAI_CHAT)


async def measure(provider: Provider, cache: Any, steps: int) -> dict[str, Any]:
    """Return the counts of the runs, as Helix recorded them."""
    with CachingServer(provider, looking(steps), SECONDS / SESSIONS) as server:
        agent = desk(server, **({} if cache is None else {"cache": cache}))
        async with LocalExecutor(MemoryStateStore(), model=ModelAdapter()) as executor:
            handles = [await executor.execute(agent, f"Look up all orders of customer {n}.") for n in range(SESSIONS)]
            results = [await handle.result() for handle in handles]
        assert all(result.status == "completed" for result in results), [result.error for result in results]
        usages = [result.usage for result in results]
        total, read = sum(u.prompt_tokens for u in usages), sum(u.cached_tokens for u in usages)
        assert (len(server.counts), read) == (SESSIONS * steps, sum(counts.read for counts in server.counts))
        output = sum(u.completion_tokens for u in usages)
        return {"total": total, "read": read, "output": output, "usd": sum(u.cost_micros for u in usages) / 1e6}


async def rows(label: str, caches: Sequence[Any], steps: int) -> list[str]:
    """Return a row for each interface and value of `cache`. OpenAI's caches have no lifetime that could be chosen."""
    made = []
    for provider in PROVIDERS:
        for cache in caches[:1] if provider in (OPENAI_RESPONSES, OPENAI_CHAT) else caches:
            found = await measure(provider, cache, steps)
            shown = "not set" if cache is None else json.dumps(cache).replace("true", "True").replace("false", "False")
            made.append(
                f"| {provider.name} | `{provider.dialect.model}` | {label} | {shown} | {found['total']:,} "
                f"| {found['read'] / found['total']:.1%} | {found['usd']:.2f} |"
            )
            print(made[-1], flush=True)
    return made


def rows_before(checkout: Path, steps: int) -> list[str]:
    """Return the rows of another checkout's code, measured in a process that imports it."""
    environment = {**os.environ, "PYTHONPATH": str((checkout / "layers" / "core" / "python").resolve())}
    command = [sys.executable, __file__, "--steps", str(steps), "--as-before"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return [line for line in done.stdout.splitlines() if line.startswith("| ")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--as-before", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_before:
        asyncio.run(rows("before", [False, True], asked.steps))
        return
    made = rows_before(asked.before, asked.steps) if asked.before else []
    made += asyncio.run(rows("now", [None, "1h"], asked.steps))
    lines = [
        f"# The prompt cache in {SESSIONS} concurrent runs of {asked.steps} steps with {CALLS} calls each",
        "",
        f"Python {platform.python_version()}; `python bench/prompt_caches.py`. A token is four characters.",
        "",
        "| interface | model | code | `cache` | input tokens | read from the cache | US dollars |",
        "|---|---|---|---|---:|---:|---:|",
        *sorted(made, key=lambda row: [p.dialect.model in row for p in PROVIDERS], reverse=True),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.steps == STEPS and asked.before:
        (Path(__file__).parent / "results" / "prompt_caches.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
