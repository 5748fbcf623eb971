"""Operations on all runs or all budgets read only what they need. `bench/results/fleet_scale.md` has the figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.delivery_stage import Held, Stage, event_of
from tests.support_run import a_tool, agent, call, calls

from helix import MemoryStateStore
from helix.core.delivery import Delivery
from helix.core.errors import StoreError
from helix.engine.engine import Settings
from helix.fleet.budgets import BudgetManager
from helix.fleet.spending import BudgetMoney
from helix.ports.launcher import ExecutionState, Part
from helix.ports.state_store import Key, Row, Value
from helix.services.row_budgets import RowBudgets
from helix.sessions.sweep import sweep

GRACE_S = Settings().start_grace_s


class Counting(MemoryStateStore):
    def __init__(self) -> None:
        super().__init__()
        self.calls = self.rows = 0

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        self.calls += 1
        return await super().get(keys)

    async def query(self, table: Any, partition: str, **options: Any) -> list[Row]:
        rows = await super().query(table, partition, **options)
        self.calls += 1
        self.rows += len(rows)
        return rows


class Asked(Held):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def state(self, part: Part) -> ExecutionState:
        self.asked.append(part.run_id)
        return await super().state(part)


def busy(store: MemoryStateStore) -> tuple[Stage, Asked, Any]:
    """A stage whose agent calls a tool again and again."""
    who = agent(tools=[a_tool("work", lambda given, ctx: "worked")], max_steps=None)
    on = Stage([calls(call("work"))] * 400, who, store=store)
    held = on.held = on.engine.launcher = Asked()
    return on, held, who


async def look(on: Stage) -> dict[str, int]:
    return dict(await sweep(on.engine, Delivery("sweep", on.clock.now() + 60)))


async def test_a_run_that_writes_is_not_asked_for() -> None:
    """A silent run is read, and so is a run that was claimed and never started, however young its row looks."""
    on, held, who = busy(MemoryStateStore())
    writes, silent, never = [await on.begin(who) for _ in range(3)]
    await on.deliver("call_model", silent)
    del held.states[never["run_id"]]
    on.clock.ahead_s += GRACE_S + 1
    await on.deliver("call_model", writes)
    assert await look(on) == {"moves": 1, "running": 1, "started": 1}
    assert sorted(held.asked) == sorted([silent["run_id"], never["run_id"]])


async def test_a_run_that_wrote_and_died_is_found_a_moment_later() -> None:
    """The event of its execution's end was lost."""
    on, held, who = busy(MemoryStateStore())
    event = await on.begin(who)
    on.clock.ahead_s += GRACE_S + 1
    await on.deliver("call_model", event)
    held.states[event["run_id"]] = "ended"
    assert await look(on) == {"moves": 1}
    on.clock.ahead_s += GRACE_S + 1
    assert await look(on) == {"failed run": 1}
    assert (await on.run(event)).status == "failed"


async def test_an_ended_run_is_finished_however_lately_it_wrote() -> None:
    """Its last write was its end, and the worker that had to apply its effects died."""
    who = agent()
    on = Stage(["Done."], who)
    event = await on.begin(who)
    on.clock.ahead_s += GRACE_S + 1
    assert (await on.deliver("call_model", event))["next"] == "finish"
    on.held.states[event["run_id"]] = "ended"
    assert await look(on) == {"finished": 1}


async def test_many_runs_that_write_are_passed_over_page_by_page() -> None:
    store = Counting()
    on, held, who = busy(store)
    for _ in range(250):
        await on.executor.execute(who, "go")
    on.clock.ahead_s += GRACE_S + 1
    for part in list(held.starts):
        await on.deliver("call_model", event_of(part))
    store.calls = 0
    assert await look(on) == {"moves": 250}
    assert (held.asked, store.calls < 50) == ([], True)


class Lost(MemoryStateStore):
    """A store that fails a read that includes `broken`."""

    broken = ""

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        if any(key.partition == self.broken for key in keys):
            raise StoreError("its object is gone")
        return await super().get(keys)


async def test_a_session_that_cannot_be_read_keeps_no_other_waiting() -> None:
    store = Lost()
    on, held, who = busy(store)
    lost, never = [await on.begin(who) for _ in range(2)]
    del held.states[never["run_id"]]
    on.clock.ahead_s += GRACE_S + 1
    store.broken = lost["session_id"]
    assert await look(on) == {"failed": 1, "started": 1}


async def test_govern_reads_no_budgets_of_sessions() -> None:
    store = Counting()
    budgets = BudgetManager(store)
    for n in range(50):
        await budgets.set_budget(100, "day", session=f"s{n}")
    await budgets.set_budget(100, "day", "worker")
    store.rows = 0
    assert await BudgetMoney(RowBudgets(store), budgets.clock).agents() == {"worker"}
    assert store.rows == 1


async def test_a_deleted_session_takes_its_budgets_along() -> None:
    """A session that is not deleted can continue, and keeps its budgets."""
    on, _, who = busy(MemoryStateStore())
    budgets = BudgetManager(on.store)
    for session in ("gone", "stays"):
        await budgets.set_budget(10_000, "total", session=session)
        await on.executor.execute(who, "go", session_id=session)
        await on.deliver("call_model", event_of(on.held.starts[-1]))
        await on.executor.abort(who, session)
    assert await on.executor.delete("gone")
    assert [definition.scope for definition in await budgets.list_budgets()] == ["session:stays"]
    assert await on.store.query("control", "budget#session:gone/total/tokens/total") == []
    assert len(await on.store.query("control", "budget#session:stays/total/tokens/total")) == 1
