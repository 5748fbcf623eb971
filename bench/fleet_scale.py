"""Measure the fleet's cost at scale: waiting agents, open runs, budgets, windows, sub-agents, expiring rows.

    python bench/fleet_scale.py            prints the tables and saves them to bench/results/fleet_scale.md (2 minutes)
    python bench/fleet_scale.py --quick    prints them for at most 100

Each line is one operation: its calls to the store, the rows that they read, and its milliseconds on a SQLite file.
"""

from __future__ import annotations

import asyncio
import platform
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel

from helix import Agent, LLMConfig, LocalExecutor, ScriptedModel, SQLiteStateStore, create_sub_agent_tool, define_tool
from helix.core.delivery import Delivery, Position
from helix.core.json import dumps
from helix.core.registry import AgentRegistry
from helix.engine.engine import Settings
from helix.engine.verbs import deliver_model
from helix.fleet import BudgetManager
from helix.fleet.spending import BudgetMoney
from helix.ports.launcher import ExecutionState, Part
from helix.ports.state_store import Key, Operation, Put, Row, StateStore, Table, Value
from helix.runtime.launching import LaunchingExecutor
from helix.services.budget_rows import Demand
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate
from helix.sessions.sweep import sweep
from helix.testing.clocks import SetClock, ShiftedClock
from helix.workers.queued import queued_engine
from helix.workers.worker import Worker

QUICK = "--quick" in sys.argv
MANY = (10, 100) if QUICK else (10, 100, 1000)
HOUR = 3600.0


class Counted:
    """A store that counts its calls and the rows that they read."""

    def __init__(self, inner: StateStore) -> None:
        self.inner = inner
        self.gets = self.queries = self.writes = self.rows = 0
        self.session_bytes = 0

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        self.gets += 1
        self.rows += len(keys)
        return await self.inner.get(keys)

    async def query(self, table: Table, partition: str, **bounds: Any) -> list[Row]:
        self.queries += 1
        rows = await self.inner.query(table, partition, **bounds)
        self.rows += len(rows)
        return rows

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        self.writes += 1
        for operation in operations:
            if isinstance(operation, Put) and operation.key.sort == "session":
                self.session_bytes = max(self.session_bytes, len(dumps(operation.value)))
        await self.inner.transact(name, operations)

    def watch(self, table: Table, partition: str) -> Any:
        return self.inner.watch(table, partition)

    async def close(self) -> None:
        await self.inner.close()


@dataclass
class Cost:
    gets: int
    queries: int
    writes: int
    rows: int
    ms: float
    more: str = ""

    @property
    def cells(self) -> str:
        return f"{self.gets} | {self.queries} | {self.writes} | {self.rows} | {self.ms:.1f}"


async def cost(store: Counted, work: Callable[[], Awaitable[Any]]) -> Cost:
    before = (store.gets, store.queries, store.writes, store.rows)
    begun = time.perf_counter()
    await work()
    took = (time.perf_counter() - begun) * 1000
    after = (store.gets, store.queries, store.writes, store.rows)
    return Cost(*(b - a for a, b in zip(before, after, strict=True)), took)


@asynccontextmanager
async def stored() -> AsyncIterator[Counted]:
    with TemporaryDirectory() as folder:
        store = Counted(SQLiteStateStore(Path(folder) / "bench.db"))
        try:
            yield store
        finally:
            await store.close()


class Nothing(BaseModel):
    n: int = 0


def waiter(wait: Callable[[Nothing, Any], str]) -> Agent[Any, Any]:
    tool = define_tool(name="wait", description="Wait.", input_schema=Nothing, execute=wait)
    return Agent(
        name="waiter", system_prompt="Wait.", tools=[tool], llm_config=LLMConfig(model="bench"), max_steps=None
    )


# --- admission ----------------------------------------------------------------------------------------------------


async def released(agents: int, waiting: int = 1) -> Cost:
    """End a run while all agents share a limit and this many runs of each agent wait."""
    async with stored() as store:
        slots = RowSlots(store, account_limit=1)
        first = Candidate("agent 0", "run", "session", 0.0)
        await slots.admit(first, default=1)
        for n in range(agents):
            for m in range(waiting):
                await slots.admit(Candidate(f"agent {n}", f"run {n} {m}", "s", 1.0 + n + m), default=1)
        return await cost(store, lambda: slots.release(first))


# --- the sweep ----------------------------------------------------------------------------------------------------


class Asked:
    """A launcher that reports every execution as running; `asked` counts how often it was asked."""

    asked = 0

    async def start(self, part: Part) -> None:
        return None

    async def state(self, part: Part) -> ExecutionState:
        self.asked += 1
        return "running"

    async def stop(self, part: Part, reason: str) -> None:
        return None

    async def wake(self, token: str) -> None:
        return None


async def swept(runs: int, *, silent: bool) -> Cost:
    """Sweep once over healthy open runs. silent: none has written for ten minutes."""
    call = {"type": "tool_calls", "tool_calls": [{"name": "wait", "arguments": {}}]}
    async with stored() as store:
        engine, agents, _ = queued_engine(store, model=ScriptedModel([call], repeat=True), registry=AgentRegistry())
        launcher, clock = Asked(), ShiftedClock()
        engine.launcher, engine.clock = launcher, clock
        executor = LaunchingExecutor(engine, agents)
        handles = [await executor.execute(waiter(lambda given, context: "done"), "go") for _ in range(runs)]
        clock.ahead_s += engine.settings.start_grace_s + 1
        for handle in handles:
            place = Position(handle.session_id, handle.run_id, 1, 1)
            await deliver_model(engine, place, Delivery("bench", clock.now() + 600))
        clock.ahead_s += 600 if silent else 0
        found = await cost(store, lambda: sweep(engine, Delivery("bench", clock.now() + 3600)))
        found.more = str(launcher.asked)
        return found


# --- budgets ------------------------------------------------------------------------------------------------------


async def govern_reads(sessions: int) -> Cost:
    """Measure the budget reads of `govern` in a minute, while this many sessions have their own budget."""
    async with stored() as store:
        budgets = BudgetManager(store)
        for n in range(sessions):
            await budgets.set_budget(1000, "hour", session=f"session {n}")
        await budgets.set_budget(1000, "hour", "worker")
        money = BudgetMoney(RowBudgets(store), budgets._clock)

        async def read() -> None:
            await money.read(await money.agents())

        return await cost(store, read)


async def one_check(sessions: int) -> Cost:
    async with stored() as store:
        budgets = BudgetManager(store)
        for n in range(sessions):
            await budgets.set_budget(1000, "hour", session=f"session {n}")
        return await cost(store, lambda: budgets.check_budget(session="session 7"))


async def returned(draws: int) -> Cost:
    """Measure the end of a run that drew this many times."""
    async with stored() as store:
        budgets = RowBudgets(store)
        manager = BudgetManager(store)
        definition = await manager.set_budget(10_000_000, "total")
        now = 1_800_000_000.0
        await budgets.open(definition, now, 1)
        name = definition.window(now)[0]
        for n in range(draws):
            await budgets.draw("run", n, [Demand(name, "tokens", 10, 10)])
        return await cost(store, lambda: budgets.give_back("run", {name: 5 * draws}))


class Late(SetClock):
    """A clock that advances only on request; a sleeping task wakes at once."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)


async def row_after(hours: int) -> Cost:
    """Execute one run with a call each hour under an hourly budget, and return the largest size of its session's row."""
    clock, asked = Late(1_800_000_000.0), 0

    def wait(given: Nothing, context: Any) -> str:
        clock.advance(HOUR)
        return "an hour later"

    def says(request: Any) -> Any:
        nonlocal asked
        asked += 1
        usage = {"prompt_tokens": 40, "completion_tokens": 10, "cost_micros": 12, "calls": 1}
        if asked == hours:
            return {"type": "text", "content": "done", "usage": usage}
        return {"type": "tool_calls", "tool_calls": [{"name": "wait", "arguments": {}}], "usage": usage}

    async with stored() as store:
        model = ScriptedModel([says], repeat=True, record=False)
        executor = LocalExecutor(store, model=model, settings=Settings(claim_s=1e9), clock=clock)
        await BudgetManager(store, clock=clock).set_budget(1_000_000, "hour")

        async def play() -> None:
            await (await executor.execute(waiter(wait), "go")).result()

        found = await cost(store, play)
        await executor.close()
        found.more = f"{store.session_bytes / 1024:.2f}"
        return found


# --- sub-agents ---------------------------------------------------------------------------------------------------


async def parent(children: int, at_once: int) -> Cost:
    """Let a worker execute a parent with this many sub-agents, `at_once` of them in each step."""
    leaf: Agent[Any, Any] = Agent(
        name="leaf", system_prompt="Answer.", llm_config=LLMConfig(model="bench"), output_schema=Nothing
    )
    root: Agent[Any, Any] = Agent(
        name="root",
        system_prompt="Ask.",
        llm_config=LLMConfig(model="bench"),
        tools=[create_sub_agent_tool(leaf)],
        max_steps=None,
    )
    ask = {"name": "subagent__leaf", "arguments": {"message": "x"}}
    calls = [{"type": "tool_calls", "tool_calls": [ask] * at_once}] * (children // at_once)
    finish = [{"type": "tool_calls", "tool_calls": [{"name": "__finish__", "arguments": {"n": 1}}]}] * children
    async with stored() as store:
        registry = AgentRegistry()
        registry.register(root)
        model = ScriptedModel({"root": [*calls, "done"], "leaf": finish}, record=False)
        engine, agents, queue = queued_engine(store, model=model, registry=registry)
        worker = Worker(engine, queue, "bench", ["root"])

        async def play() -> None:
            handle = await LaunchingExecutor(engine, agents).execute(root, "go")
            serving = asyncio.create_task(worker.serve())
            result = await handle.result(600)
            assert result.status == "completed", result
            worker.drain()
            await serving

        return await cost(store, play)


# --- rows that expire ---------------------------------------------------------------------------------------------


async def purged(rows: int) -> Cost:
    """Measure the expiry of a hundred rows out of this many."""
    async with stored() as store:
        for first in range(0, rows, 100):
            puts = [
                Put(
                    Key("control", f"usage#{n % 50}", f"{n:08d}"),
                    {"tokens": n, "ttl": 5 if n < 100 else 2_000_000_000, "text": "x" * 200},
                )
                for n in range(first, first + 100)
            ]
            await store.transact("fill", puts)
        assert isinstance(store.inner, SQLiteStateStore)
        return await cost(store, lambda: store.inner.purge(10.0))  # type: ignore[attr-defined]


# --- the tables ---------------------------------------------------------------------------------------------------

HEAD = "gets | queries | writes | rows read | ms"


async def section(
    title: str, many: Sequence[int], what: str, measure: Callable[[int], Awaitable[Cost]], more: str = ""
) -> list[str]:
    lines = ["", f"## {title}", "", f"| {what} | {HEAD} |" + (f" {more} |" if more else "")]
    lines.append("|---:|" + "---:|" * (6 if more else 5))
    for n in many:
        found = await measure(n)
        lines.append(f"| {n} | {found.cells} |" + (f" {found.more} |" if more else ""))
        print(lines[-1], title, flush=True)
    return lines


async def tables() -> list[str]:
    rows = [1_000, 10_000] if QUICK else [1_000, 10_000, 100_000]
    hours = [1, 24] if QUICK else [1, 24, 168, 720]
    more = [*MANY] if QUICK else [*MANY, 10_000]
    asked = "asked of Step Functions"
    lines: list[str] = []
    for title, many, what, measure, extra in (
        ("A run ends, and the account has a limit", MANY, "agents with a line", released, ""),
        ("A sweep with active runs", MANY, "open runs", lambda n: swept(n, silent=False), asked),
        ("A sweep with runs silent for ten minutes", MANY, "open runs", lambda n: swept(n, silent=True), asked),
        ("Budget reads of `govern`", more, "sessions with a budget", govern_reads, ""),
        ("`check_budget` of one session", more, "sessions with a budget", one_check, ""),
        ("A run with draws ends", MANY, "draws", returned, ""),
        ("A run under an hourly budget", hours, "hours, a step each", row_after, "KB of its session's row"),
        ("Sub-agents of one step", (10, 64), "sub-agents", lambda n: parent(n, n), ""),
        ("Sub-agents, ten a step", MANY, "sub-agents", lambda n: parent(n, 10), ""),
        ("Expired rows are deleted from SQLite", rows, "rows", purged, ""),
    ):
        lines += await section(title, many, what, measure, extra)
    return lines


def main() -> None:
    lines = ["# Cost of the fleet at scale", ""]
    lines += [f"Python {platform.python_version()}, SQLite on a local disk; `python bench/fleet_scale.py`.", "", NOTES]
    lines += asyncio.run(tables())
    table = "\n".join(lines) + "\n"
    print(table)
    if not QUICK:
        (Path(__file__).parent / "results" / "fleet_scale.md").write_text(table)


NOTES = """\
Each line is one operation, with the number of agents, runs or rows in the first column. Gets, queries and writes are calls
to the store; milliseconds are those of a SQLite file. On DynamoDB a get is a request for each 100 rows, a query one for
each MB, and each takes some milliseconds. `docs/guide/scaling.md` explains the consequences."""


if __name__ == "__main__":
    main()
