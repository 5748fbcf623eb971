"""Measure the cost of durability per tool step: transactions, bytes, and the runner's own time with a model that takes no
time.

    python bench/durability.py            prints the table and saves it to bench/results/durability.md

A step is one model answer with one tool call whose result has 1 KB. Times are CPU-bound medians around the named step.
Bytes are the JSON written to the state store; the stream's segments are counted separately. Redis is measured if a
redis-server is installed: on loopback, with an append-only file that is synced every second, which is its default.
"""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, SQLiteStateStore, tool
from helix.adapters.sqlite import Synchronous
from helix.core.steps import AnyStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.ports.model import LLMGenerateInput
from helix.ports.state_store import Key, Operation, Put, Row, StateStore, Table, Update, Value, Watch

STEPS = (1, 10, 100, 1000)
TOTAL = 1010
RESULT = "x" * 1024


class CountingStore:
    """A store that passes everything on and records the writes, by step."""

    def __init__(self, store: StateStore) -> None:
        self.store = store
        self.transactions: list[tuple[str, str, int]] = []

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        return await self.store.get(keys)

    async def query(self, table: Table, partition: str, **options: Any) -> list[Row]:
        return await self.store.query(table, partition, **options)

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await self.store.transact(name, operations)
        values = [o.value for o in operations if isinstance(o, Put)]
        values += [dict(o.set) for o in operations if isinstance(o, Update)]
        size = sum(len(json.dumps(value, separators=(",", ":"))) for value in values)
        self.transactions.append((operations[0].key.table, name, size))

    def watch(self, table: Table, partition: str) -> AbstractContextManager[Watch]:
        return self.store.watch(table, partition)

    async def close(self) -> None:
        await self.store.close()


class Instant:
    """A model that answers at once, and records the time of each call and the position in the store's log."""

    def __init__(self, store: CountingStore | None) -> None:
        self.store = store
        self.asked: list[float] = []
        self.marks: list[int] = []

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        self.asked.append(time.perf_counter())
        self.marks.append(len(self.store.transactions) if self.store else 0)
        n = len(self.asked)
        if n > TOTAL:
            return TextStepResult(content="done")
        return ToolCallsStepResult(tool_calls=[ParsedToolCall(id=f"call_{n:05d}", name="work", arguments={"n": n})])


@tool
async def work(n: int) -> str:
    """Give 1 KB."""
    return RESULT


AGENT = Agent(
    name="bench", system_prompt="Work.", tools=[work], llm_config=LLMConfig(model="instant/none"), max_steps=None
)


async def run(store: StateStore, counting: bool) -> Instant:
    counted = CountingStore(store) if counting else None
    model = Instant(counted)
    async with LocalExecutor(counted or store, model=model) as executor:
        result = await (await executor.execute(AGENT, "go")).result()
        assert result.status == "completed", result
    return model


def around(values: Sequence[float], step: int) -> float:
    window = values[max(0, step - 6) : step + 5]
    return statistics.median(window)


async def overhead(make: Any) -> list[float]:
    asked = (await run(make(), counting=False)).asked
    times = [(b - a) * 1000 for a, b in pairwise(asked)]
    return [around(times, step) for step in STEPS]


async def writes(make: Any) -> list[tuple[float, float, float, float]]:
    model = await run(make(), counting=True)
    assert model.store is not None
    rows = []
    for step in STEPS:
        low, high = max(1, step - 5), step + 5
        log = model.store.transactions[model.marks[low - 1] : model.marks[high - 1]]
        state = [size for table, _, size in log if table == "sessions"]
        stream = [size for table, _, size in log if table == "streams"]
        n = high - low
        rows.append((len(state) / n, sum(state) / n, len(stream) / n, sum(stream) / n))
    return rows


@contextmanager
def redis_server(folder: str) -> Iterator[str | None]:
    """The URL of a server that ends with the block; None if redis-server is not installed."""
    binary = shutil.which("redis-server")
    if binary is None:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "yes"]
    process = subprocess.Popen([binary, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert any("Ready to accept connections" in line for line in process.stdout), "redis-server did not start"
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.communicate()


async def redis_overhead(url: str | None) -> list[str]:
    """Return a column of the table."""
    if url is None:
        return ["not measured"] * len(STEPS)
    from helix.adapters.redis import open_redis

    return [f"{ms:.2f}" for ms in await overhead(lambda: open_redis(url))]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = iter(range(1000))

        def sqlite(synchronous: Synchronous = "FULL") -> SQLiteStateStore:
            return SQLiteStateStore(Path(folder) / f"{next(files)}.db", synchronous=synchronous)

        counted = await writes(sqlite)
        lines = [
            "# Cost of durability, per tool step with a 1 KB result",
            "",
            f"Python {platform.python_version()}, {platform.machine()}; `python bench/durability.py`.",
            "",
            "| step | state transactions | state bytes | appends | stream bytes | memory, ms | SQLite FULL, ms | "
            "SQLite NORMAL, ms | Redis, ms |",
            "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        memory = await overhead(MemoryStateStore)
        full, normal = await overhead(sqlite), await overhead(lambda: sqlite("NORMAL"))
        with redis_server(folder) as url:
            remote = await redis_overhead(url)
        times = zip(memory, full, normal, remote, strict=True)
        for step, (n, size, appends, sent), (fast, synced, quick, far) in zip(STEPS, counted, times, strict=True):
            cells = (
                f"{n:.2f} | {size:.0f} | {appends:.2f} | {sent:.0f} | {fast:.2f} | {synced:.2f} | {quick:.2f} | {far}"
            )
            lines.append(f"| {step} | {cells} |")
        ratio = counted[-1][1] / counted[1][1]
        lines += ["", f"State bytes at step 1,000 over step 10: {ratio:.3f}."]
    table = "\n".join(lines) + "\n"
    print(table)
    target = Path(__file__).parent / "results" / "durability.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text(table)


if __name__ == "__main__":
    asyncio.run(main())
