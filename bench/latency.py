"""Measure the time from a token to the client, and between two model calls of a run, in the app deployed offline.

    python bench/latency.py        prints the table and saves it to bench/results/latency.md (two minutes and a half)

The app is deployed into the emulator on this machine, with IAM enforced, and one client is connected by WebSocket. The
model answers on a timer (`bench/offline/latency_agents.py`), and its text contains the time of the first token. The
measured time ends when the client's iterator returns that chunk. All clocks are this machine's one. Kinesis' own arrival
time and the start of `project_stream`, from its metrics, divide the path.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from helix.client import HelixClient
from helix.core.log_records import unpack
from helix.local.cloud import OfflineCloud

ROOT = Path(__file__).parents[1]
AGENTS = Path(__file__).parent / "offline"
WARM, RUNS, CHAINS = 4, 32, 3
PATIENCE_S = 60.0
CLOCK_S = 0.002
"""Kinesis and the log report milliseconds."""


class Invocations:
    """Return the start of each invocation of `project_stream`, from the end and the duration in its log."""

    def __init__(self, cloud: OfflineCloud) -> None:
        self._function = cloud.function("project_stream")
        self.begun: list[float] = []
        cloud.listen(self._hear)

    def _hear(self, line: dict[str, Any]) -> None:
        if line["function"] == self._function and '"took_ms"' in line["line"]:
            told = json.loads(line["line"])
            ended = datetime.strptime(told["timestamp"], "%Y-%m-%d %H:%M:%S,%f%z").timestamp()
            self.begun.append(ended - told["took_ms"] / 1000)

    def after(self, moment: float) -> float:
        return min(begun for begun in self.begun if begun >= moment - CLOCK_S)


def arrivals(cloud: OfflineCloud) -> dict[str, float]:
    """Return by run the time at which Kinesis had its first text."""
    kinesis, found = cloud.client("kinesis"), dict[str, float]()
    name = f"helix-{cloud.stage}-chunks"
    for shard in kinesis.list_shards(StreamName=name)["Shards"]:
        place = {"StreamName": name, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.get_shard_iterator(**place)["ShardIterator"]
        while records := (page := kinesis.get_records(ShardIterator=iterator))["Records"]:
            for record in records:
                for said in unpack(record["Data"])[1]:
                    if any(chunk["type"] == "text_delta" for chunk in said.chunks):
                        found.setdefault(said.run_id, record["ApproximateArrivalTimestamp"].timestamp())
            iterator = page["NextShardIterator"]
    return found


async def first_token(client: HelixClient) -> tuple[str, float, float] | None:
    """Return (run, time of the model's first token, time at which the client had it). None if, on a busy machine, the
    model was faster than the client's subscription; that token was replayed, not pushed."""
    handle = await client.run("talker", "Talk.")
    chunks = await handle.stream()
    subscribed = time.time()
    async for chunk in chunks:
        if chunk.type == "text_delta":
            arrived = time.time()
            break
    given = float(chunk.delta.split()[0])
    await handle.result(PATIENCE_S)
    return (handle.run_id, given, arrived) if subscribed < given else None


async def waits(client: HelixClient, agent: str) -> list[tuple[float, float, int]]:
    """Return the seconds from each answer of the model to its next call in one run, those of them in which the calling
    process waited for AWS, and the number of calls."""
    result = await (await client.run(agent, "Look around.")).result(PATIENCE_S)
    steps = json.loads(result.text or "")
    return [(asked - answered, waited, calls) for (_, answered, *_), (asked, _, waited, calls) in pairwise(steps)]


Seen = list[tuple[str, float, float]]


async def first_tokens(client: HelixClient) -> Seen:
    for _ in range(WARM):
        await first_token(client)
    tried = [await first_token(client) for _ in range(RUNS)]
    return [found for found in tried if found is not None]


async def measure_direct(cloud: OfflineCloud) -> dict[str, list[float]]:
    async with HelixClient(cloud.url, cloud.create_key("bench")) as client:
        return {DIRECT: [arrived - given for _, given, arrived in await first_tokens(client)]}


async def measure(cloud: OfflineCloud) -> dict[str, list[float]]:
    """Return the seconds by part of the path."""
    invocations = Invocations(cloud)
    async with HelixClient(cloud.url, cloud.create_key("bench")) as client:
        seen = await first_tokens(client)
        steps: dict[str, list[tuple[float, float, int]]] = {}
        for agent in ("plain", "inline"):
            await waits(client, agent)
            steps[agent] = [wait for _ in range(CHAINS) for wait in await waits(client, agent)]
    on_kinesis = arrivals(cloud)
    rows = []
    for run, given, arrived in seen:
        put = on_kinesis[run]
        begun = invocations.after(put)
        rows.append((arrived - given, put - given, begun - put, arrived - begun))
    names = (TOTAL, "model to Kinesis", "Kinesis to the projector's begin", "projector's begin to the client")
    found = {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    total, waited, calls = map(list, zip(*steps["inline"], strict=True))
    own = [step - wait for step, wait in zip(total, waited, strict=True)]
    found |= {PLAIN: [step for step, *_ in steps["plain"]], INLINE: total}
    return {**found, f"- of it, {statistics.median(calls):.0f} calls of MiniStack": waited, OWN: own}


TOTAL = "**model's first token to client's first chunk**"
DIRECT = "**the same with `streaming=direct`**"
PLAIN, INLINE = "a tool: model's answer to its next call", "an inline tool: the same"
OWN = "- **of it, the runner's own**"
LIMITS_MS = {TOTAL: 150, OWN: 15}
MOST_TIMES = 2
"""The maximum ratio for a first chunk without Kinesis."""
NOTES = """\
The model's first token arrives 0.4 s after its call begins; by then the client is subscribed, and functions are warm.
`call_model` puts the chunk on Kinesis at once. The put wakes MiniStack's poller, which invokes `project_stream` (one batch
at a time). `project_stream` appends the segment to DynamoDB and then posts to the socket. With `streaming=direct`,
`call_model` appends the segment, which wakes the poller, and `project_stream` posts. A tool step has two invocations and
three transitions. Steps with an inline tool share an invocation. Between two model calls, they take the time of one read
and three writes to DynamoDB and of a put to Kinesis, which MiniStack executes on the same CPUs, and the runner's own time.
The runner's own time is the time not spent waiting for a response of MiniStack. The tools themselves take no time."""


def percentile(values: Sequence[float], share: float) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]


def table(found: dict[str, list[float]], load: float) -> Iterator[str]:
    yield "# Latency of the deployed app, offline"
    yield ""
    yield (
        f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f} before; "
        "IAM enforced; `python bench/latency.py`."
    )
    yield ""
    yield "| ms | p50 | p95 | least | n | at most | |"
    yield "|---|---:|---:|---:|---:|---|---|"
    for name, seconds in found.items():
        middle, high = (1000 * percentile(seconds, share) for share in (0.5, 0.95))
        limit = LIMITS_MS.get(name)
        bound = "|" if limit is None else f"p50 {limit} | {'met' if middle <= limit else 'MISSED'}"
        yield f"| {name} | {middle:.0f} | {high:.0f} | {round(1000 * min(seconds))} | {len(seconds)} | {bound} |"
    ratio = percentile(found[DIRECT], 0.5) / percentile(found[TOTAL], 0.5)
    yield ""
    yield (
        f"Without Kinesis the first chunk takes {ratio:.1f} times as long (p50; at most {MOST_TIMES}: "
        f"{'met' if ratio <= MOST_TIMES else 'MISSED'})."
    )
    yield ""
    yield NOTES


def main() -> None:
    load = os.getloadavg()[0]
    context = {"stage": "bench", "agents": "latency_agents", "model": "import:latency_agents:model"}
    found: dict[str, list[float]] = {}
    for streaming, measured in (("kinesis", measure), ("direct", measure_direct)):
        with tempfile.TemporaryDirectory() as folder:
            kept, given = ROOT / "build" / "assemblies", {**context, "streaming": streaming}
            cloud = OfflineCloud(ROOT, folder=Path(folder), assemblies=kept, context=given, paths=[AGENTS])
            with cloud:
                cloud.warm()
                found |= asyncio.run(measured(cloud))
    text = "\n".join(table(found, load)) + "\n"
    print(text)
    (Path(__file__).parent / "results" / "latency.md").write_text(text)


if __name__ == "__main__":
    main()
