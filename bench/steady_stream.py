"""Measure one client on a stream of 1,000 chunks a second for a minute: memory and delay of the Python and the TypeScript
client.

    python bench/steady_stream.py     prints the table and saves it to bench/results/steady_stream.md (three minutes)

The server is a `LoopbackGateway` on SQLite in a separate process, and so is the client. A tool puts the chunks on the
stream, each with its creation time. Needs the packages of `clients/js` (`npm ci` there).
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix import Agent, LLMConfig, LocalExecutor, ScriptedModel, tool
from helix.client import HelixClient
from helix.core.context import ToolContext
from helix.core.registry import AgentRegistry
from helix.gateway.loopback import LoopbackGateway

HERE = Path(__file__).parent
JS = HERE.parent / "clients" / "js"
RATE, SECONDS, EARLY_S = 1_000, 60, 10


@tool(timeout_s=2 * 60)
async def talk(count: int, rate: int, ctx: ToolContext) -> str:
    """Emit so many chunks, so many a second."""
    begun = time.monotonic()
    for n in range(count):
        await asyncio.sleep(max(0.0, begun + n / rate - time.monotonic()))
        ctx.emit("tick", {"n": n, "at": time.time()})
    return "done"


async def serve(path: str, count: int, rate: int) -> None:
    """Print the URL; serve until stdin ends."""
    call = {"name": "talk", "arguments": {"count": count, "rate": rate}}
    registry = AgentRegistry()
    registry.register(Agent(name="talker", system_prompt="Talk.", tools=[talk], llm_config=LLMConfig(model="none")))
    model = ScriptedModel([{"content": "", "tool_calls": [call]}, "Done."])
    async with LocalExecutor(path, model=model, registry=registry) as executor, LoopbackGateway(executor) as gateway:
        print(gateway.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def read(url: str) -> None:
    """Print `[numbers, milliseconds, []]` of all received chunks, in order of arrival."""
    numbers, delays = array("l"), array("d")
    async with HelixClient(url) as client:
        async for chunk in await (await client.run("talker", "go")).stream():
            if chunk.type == "custom":
                data: Any = chunk.data
                numbers.append(data["n"])
                delays.append((time.time() - data["at"]) * 1000)
    print(json.dumps([list(numbers), list(delays), []]))


READ_JS = """
const { HelixClient } = await import(process.argv[2]);
const client = await HelixClient.connect(process.argv[3]);
const count = Number(process.argv[4]);
const [numbers, delays] = [new Int32Array(count), new Float64Array(count)];
const heap = [];
const collect = () => (gc(), heap.push(process.memoryUsage().heapUsed / 1e6));
const timer = setInterval(collect, 10_000);
let seen = 0;
for await (const chunk of (await client.run("talker", "go")).stream())
  if (chunk.type === "custom") {
    numbers[seen] = chunk.data.n;
    delays[seen++] = Date.now() - chunk.data.at * 1000;
  }
clearInterval(timer);
collect();
console.log(JSON.stringify([[...numbers.subarray(0, seen)], [...delays.subarray(0, seen)], heap]));
client.close();
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """`seen`: the numbers of the received chunks, in order of arrival. `delays`: ms. `memory`: RSS in MB of the server
    and the client, at each sampled second. `heap`: MB that the TypeScript client holds after a collection, every 10 s."""

    seen: list[int]
    delays: list[float]
    memory: list[tuple[float, float]]
    heap: list[float]


def rss(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def measure(client: str, count: int, rate: int, sample_at: tuple[float, ...] = ()) -> Measured:
    """Measure one client: `python` or `typescript`."""
    pipe = asyncio.subprocess.PIPE
    with tempfile.TemporaryDirectory() as folder:
        arguments = [__file__, "serve", f"{folder}/helix.db", str(count), str(rate)]
        server = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
        assert server.stdin is not None and server.stdout is not None
        url = (await server.stdout.readline()).decode().strip()
        command = [sys.executable, __file__, "read", url]
        if client == "typescript":
            script = Path(folder) / "read.mjs"
            script.write_text(READ_JS)
            command = [
                str(JS / "node_modules/.bin/node"),
                "--expose-gc",
                str(script),
                (JS / "src/index.ts").as_uri(),
                url,
            ]
            command.append(str(count))
        begun = time.monotonic()
        reader = await asyncio.create_subprocess_exec(*command, stdout=pipe)
        output = asyncio.create_task(reader.communicate())
        memory = []
        for second in sample_at:
            await asyncio.sleep(begun + second - time.monotonic())
            memory.append((rss(server.pid), rss(reader.pid)))
        seen, delays, heap = json.loads((await output)[0])
        server.stdin.close()
        await server.wait()
    return Measured(seen, delays, memory, heap)


async def table() -> list[str]:
    lines = [
        f"# {RATE:,} chunks a second to one client, for {SECONDS} s",
        "",
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} "
        "before; `python bench/steady_stream.py`.",
        "",
        f"| client | chunks | in order | delay p50, ms | p95, ms | server's RSS at {EARLY_S} s, MB | at {SECONDS} s "
        f"| client's at {EARLY_S} s | at {SECONDS} s |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for client in ("python", "typescript"):
        found = await measure(client, RATE * SECONDS, RATE, (EARLY_S, SECONDS - 1))
        missing = sorted(set(range(RATE * SECONDS)) - set(found.seen))
        exact = "yes" if found.seen == list(range(RATE * SECONDS)) else f"**no**, without {missing[:5]}"
        p50, p95 = statistics.median(found.delays), statistics.quantiles(found.delays, n=20)[-1]
        (server, own), (later, own_later) = found.memory
        lines.append(
            f"| {client} | {len(found.seen):,} | {exact} | {p50:.1f} | {p95:.1f} "
            f"| {server:.0f} | {later:.0f} | {own:.0f} | {own_later:.0f} |"
        )
    return [
        *lines,
        "",
        f"The TypeScript client holds {found.heap[0]:.1f} MB after a collection at 10 s, and {found.heap[-1]:.1f} MB at "
        "the end; the rest of",
        "its RSS is memory that Node has not returned. A client's memory includes the measured delays. The machine also",
        "had other load.",
    ]


def main() -> None:
    match sys.argv[1:]:
        case ["serve", path, count, rate]:
            asyncio.run(serve(path, int(count), int(rate)))
        case ["read", url]:
            asyncio.run(read(url))
        case _:
            text = "\n".join(asyncio.run(table())) + "\n"
            print(text)
            (HERE / "results" / "steady_stream.md").write_text(text)


if __name__ == "__main__":
    main()
