"""Admission with long lines and many agents. Its cost is bounded, and it never withholds a free slot from a waiting run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.delivery_stage import Stage
from tests.support_run import agent

from helix import MemoryStateStore, ScriptedModel
from helix.core.agents import AnyAgent
from helix.core.delivery import Delivery
from helix.core.registry import AgentRegistry
from helix.engine.runs.admission import in_line
from helix.ports.state_store import Key, Row, Value
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate
from helix.sessions.sweep import sweep
from helix.sessions.users import list_users
from helix.workers.queued import fleet_executor, queued_engine


class Counting(MemoryStateStore):
    """A store that counts requests, the rows of the counters' partition, and the most rows that a query returned."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = self.rows = self.most = self.of_lines = 0

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        self.gets += 1
        return await super().get(keys)

    async def query(self, table: Any, partition: str, **options: Any) -> list[Row]:
        rows = await super().query(table, partition, **options)
        self.rows += len(rows) if partition == "admission" else 0
        self.of_lines += len(rows) if partition.startswith("admission#tickets#") else 0
        self.most = max(self.most, len(rows))
        return rows


def worker(limit: int = 1) -> AnyAgent:
    return agent("worker", resources={"max": limit})


async def queued(store: MemoryStateStore, who: AnyAgent, times: int) -> Stage:
    on = Stage(ScriptedModel(["Done."], repeat=True), who, store=store)
    for n in range(times):
        await on.executor.execute(who, f"message {n}")
    on.clock.ahead_s += 120
    return on


async def test_a_sweep_that_comes_to_no_end_fills_free_slots_all_the_same() -> None:
    """Otherwise a line that takes longer to read than a sweep has time for would wait forever, because nothing else grants
    slots."""
    on = await queued(MemoryStateStore(), worker(), 4)
    await on.slots.set_limit("worker", 2)  # and the process that released them died before it granted them
    done = await sweep(on.engine, Delivery("sweep", on.clock.now() + 1))
    assert done["left for the next sweep"] == 1 and len(await on.slots.holders("worker")) == 2


async def test_a_long_line_is_passed_over_page_by_page() -> None:
    store = Counting()
    on = await queued(store, worker(), 150)
    store.gets = store.most = 0
    done = await sweep(on.engine, Delivery("sweep", on.clock.now() + 60))
    assert done["queued"] == 149
    assert store.most <= 100, "the line, or the index, is read at once"
    assert store.gets < 40, "each waiting run would be read every minute"


async def test_where_a_run_stands_is_read_page_by_page() -> None:
    store = Counting()
    on = await queued(store, worker(), 150)
    line = [ticket.candidate for ticket in await on.slots.queue("worker")]
    assert len(line) == 149 and store.most <= 100
    for place in (1, 120, 149):
        store.of_lines, store.most, run = 0, 0, line[place - 1]
        found = await in_line(on.slots, on.engine.history, run.session_id, run.run_id)
        assert found is not None and found.place == place and store.most <= 100
        assert store.of_lines == place - 1, "those behind it are read too"


async def test_users_are_found_page_by_page() -> None:
    store = Counting()
    on = Stage(ScriptedModel(["Done."], repeat=True), agent("worker"), store=store)
    for n in range(120):
        await on.executor.execute(agent("worker"), "hello", user_id=f"user {n:03d}")
    store.most = 0
    assert await list_users(store) == [f"user {n:03d}" for n in range(120)]
    assert store.most <= 100, "the index of users, or of open runs, is read at once"


async def test_without_an_account_limit_an_admission_reads_no_other_agents_counters() -> None:
    store = Counting()
    slots = RowSlots(store)
    for n in range(200):
        await slots.set_limit(f"agent {n}", 1)
    runs = [Candidate("agent 7", f"run_{n}", f"s{n}", float(n)) for n in range(3)]
    store.rows = 0
    assert [(await slots.admit(run, default=None)).state for run in runs] == ["held", "waits", "waits"]
    assert await slots.full("agent 7", default=None) is None
    assert await slots.release(runs[0]) == [runs[1]]
    assert store.rows == 0


async def test_who_only_starts_runs_does_not_lift_the_limit_of_all(tmp_path: Path) -> None:
    """`fleet_executor` does not know the number of workers, so the limit of the store's runtime holds."""
    store, who, registry = MemoryStateStore(), agent("worker"), AgentRegistry()
    registry.register(who)
    engine, _, queue = queued_engine(store, registry=registry, max_runs=1)
    assert engine.slots is not None
    first = Candidate("worker", "run_0", "s0", 0.0)
    assert (await engine.slots.admit(first, default=None)).state == "held"
    await fleet_executor(store, registry=registry).execute(who, "go")
    counters = await engine.slots.counters()
    assert counters[None].bound == 1 and counters["worker"].queued == 1
    assert await queue.open_work() == []


async def test_runs_with_a_priority_are_found_in_line() -> None:
    """Their entries in the index name their tickets. Without the priority, each run would be looked up separately."""
    store = Counting()
    on = await queued(store, worker(), 1)
    for n in range(40):
        await on.executor.execute(worker(), f"later {n}", priority=-5)
    on.clock.ahead_s += 120
    store.gets = 0
    assert (await sweep(on.engine, Delivery("sweep", on.clock.now() + 60)))["queued"] == 40
    assert store.gets < 60, "each waiting run would be read"
