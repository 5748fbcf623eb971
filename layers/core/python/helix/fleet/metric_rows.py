"""Metrics for the model calls made by processes on this machine, stored in rows that all of them and the runtime can read.

Law: a row contains one process's counts for ten seconds, and only that process writes it, always as a whole. Rewriting it
is therefore idempotent, and readers add up the rows. A killed process loses at most the ten seconds that it had not yet
written.

    metrics#<agent>   <Unix seconds, 12 digits>#<process>   {tally, ttl}
    metrics           <agent>                               the agents that were measured
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Hashable

from helix._log import get_logger
from helix.core.errors import HelixError
from helix.core.llm_metrics import CallSample, LLMMetrics, Tally, from_json, metrics_of, to_json, total
from helix.core.measures import Measures
from helix.ports.clock import Clock
from helix.ports.state_store import Key, Operation, Put, StateStore

BUCKET_S = 10
KEEP_S = 86_400
AGENTS = "metrics"
MOST_OPERATIONS = 50
MOST_BUCKETS = 1_000
"""The maximum number of rows that are kept in memory while the store is unavailable. The oldest are dropped first."""

logger = get_logger("helix")


class StoreMetrics:
    """A metrics sink that counts model calls and admission waits per agent. It writes the counts every `BUCKET_S` seconds
    between `start` and `stop`, and at `flush`."""

    def __init__(self, store: StateStore, clock: Clock, process_id: str) -> None:
        self._store, self._clock, self._process = store, clock, process_id
        self._tallies: defaultdict[tuple[int, str], Tally] = defaultdict(Tally)
        self._changed: set[tuple[int, str]] = set()
        self._listed: set[str] = set()
        self._seen: dict[object, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    def record(self, measures: Measures) -> None:
        agent = measures.agent
        if agent is None or not {"ModelCalls", "QueueWait"} & measures.values.keys():
            return
        now = self._clock.now()
        place = (_bucket(now), agent)
        if "ModelCalls" in measures.values:
            key = key_of(measures)
            if key is not None and key in self._seen:
                return
            if key is not None:
                self._seen[key] = place[0]
            self._tallies[place].count(sample_of(measures, now))
        if "QueueWait" in measures.values:
            self._tallies[place].wait(measures.values["QueueWait"])
        self._changed.add(place)

    async def flush(self) -> None:
        """Write the changes since the last flush. Rows that could not be written are retried at the next flush."""
        async with self._writing:
            due = sorted(self._changed)
            for start in range(0, len(due), MOST_OPERATIONS):
                places = due[start : start + MOST_OPERATIONS]
                agents = sorted({agent for _, agent in places} - self._listed)
                rows: list[Operation] = [Put(Key("control", AGENTS, agent), {"agent": agent}) for agent in agents]
                self._changed -= set(places)  # counts that arrive during this write are written next
                rows += [self._row(bucket, agent) for bucket, agent in places]
                try:
                    await self._store.transact("metrics", rows)
                except HelixError as error:
                    self._changed |= set(places)
                    logger.warning("metrics of %d buckets are not written yet: %s", len(places), error)
                    break
                self._listed |= set(agents)
            self._forget()

    def start(self) -> None:
        """Start writing in the background, on the running event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="helix:metrics")

    async def stop(self) -> None:
        """Write the remaining counts, and stop writing in the background."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self.flush()

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(BUCKET_S)
            await self.flush()

    def _row(self, bucket: int, agent: str) -> Put:
        key = Key("control", f"{AGENTS}#{agent}", f"{_sort(bucket)}#{self._process}")
        return Put(key, {"tally": to_json(self._tallies[bucket, agent]), "ttl": bucket + BUCKET_S + KEEP_S})

    def _forget(self) -> None:
        """Drop completed buckets that are written, and the oldest ones if there are too many."""
        current = _bucket(self._clock.now())
        for place in sorted(self._tallies):
            if (place not in self._changed and place[0] < current) or len(self._tallies) > MOST_BUCKETS:
                self._tallies.pop(place)
                self._changed.discard(place)
        self._seen = {key: bucket for key, bucket in self._seen.items() if bucket >= current - 60 * BUCKET_S}


async def read_metrics(store: StateStore, agent: str | None, window_s: float, now: float, **load: int) -> LLMMetrics:
    """Return the metrics of an agent's model calls (None: all agents) in the last `window_s` seconds (at least 60), across
    all processes. A bucket that is only partly inside the window is counted in full. load: `queue_depth`, `concurrent` and
    `max_concurrent` from admission."""
    window = max(window_s, 60.0)
    agents = [agent] if agent is not None else await agents_measured(store)
    start, end = _sort(_bucket(now - window)), _sort(_bucket(now) + BUCKET_S)
    pages = await asyncio.gather(*(store.query("control", f"{AGENTS}#{name}", start=start, end=end) for name in agents))
    tallies = [from_json(row.value["tally"]) for page in pages for row in page]
    return metrics_of(total(tallies), window, now, **load)


async def agents_measured(store: StateStore) -> list[str]:
    """Return the agents for which the store has ever recorded metrics."""
    return [row.key.sort for row in await store.query("control", AGENTS)]


def _bucket(at: float) -> int:
    return int(at // BUCKET_S) * BUCKET_S


def _sort(bucket: int) -> str:
    return f"{max(bucket, 0):012d}"


def sample_of(measures: Measures, now: float) -> CallSample:
    """Return the model call that the measures describe."""
    values = measures.values
    return CallSample(
        at=now,
        input_tokens=int(values.get("InputTokens", 0)),
        output_tokens=int(values.get("OutputTokens", 0)),
        latency_ms=values.get("ModelLatency"),
        ttft_ms=values.get("TimeToFirstToken"),
        cost=values.get("CostUsd", 0),
        error=values.get("ModelErrors", 0) > 0,
        throttled=values.get("ModelThrottles", 0) > 0,
    )


def key_of(measures: Measures) -> Hashable | None:
    """Return (run, step, attempt), or None if the measures do not name them."""
    place = tuple(measures.details.get(name) for name in ("run_id", "step", "attempt"))
    return None if None in place else place
