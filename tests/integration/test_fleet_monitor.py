"""`govern` on this machine: it reads figures from the rows that workers write, and writes decisions for the runtime."""

from __future__ import annotations

import asyncio

import pytest
from tests.support_run import agent

from helix.adapters.memory import MemoryStateStore
from helix.adapters.system import SystemIds
from helix.core.health import HealthStatus
from helix.core.measures import Measures
from helix.core.resources import ResourceConfig
from helix.engine.engine import Engine
from helix.engine.placement import IN_WORKERS
from helix.fleet.control import FleetControl
from helix.fleet.health import HealthChecker
from helix.fleet.metric_rows import StoreMetrics
from helix.fleet.monitoring import FleetMonitor
from helix.fleet.rows import AgentEntry, put_entry, read_entry
from helix.ports.state_store import ABSENT
from helix.runtime.agent_models import Agents
from helix.services.hook_manager import HookManager
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.segments import SegmentStreams
from helix.services.slot_rows import Candidate
from helix.services.work_queue import WorkQueue
from helix.testing.clocks import SetClock

HOUR = 1_795_219_200.0
NAME = "worker"


class Machine:
    """A store with one registered agent, 1 to 5 instances, and an engine that admits runs."""

    def __init__(self) -> None:
        self.store, self.clock = MemoryStateStore(), SetClock(HOUR)
        self.heard: list[Measures] = []
        agents = Agents(None, None)
        agents.know(agent(NAME))
        self.slots = RowSlots(self.store)
        self.engine = Engine(
            store=self.store,
            streams=SegmentStreams(self.store),
            clock=self.clock,
            ids=SystemIds(),
            models=agents.model_of,
            agents=agents.named,
            hooks=HookManager(None),
            budgets=RowBudgets(self.store),
            placement=IN_WORKERS,
            launcher=WorkQueue(self.store, self.clock),
            slots=self.slots,
            metrics=self,
        )
        self.monitor = FleetMonitor(self.engine)
        self.control = FleetControl(self.store, self.clock, slots=self.slots)

    def record(self, measures: Measures) -> None:
        self.heard.append(measures)

    async def register(self) -> None:
        resources = ResourceConfig(min_instances=1, max_instances=5).model_dump(mode="json")
        await put_entry(self.store, AgentEntry(agent_id=NAME, resources=resources), ABSENT)
        await self.control.start(NAME)

    async def come(self, runs: int) -> None:
        for n in range(runs):
            await self.slots.admit(Candidate(NAME, f"r{n}", f"s{n}", HOUR + n), default=5)

    async def wanted(self) -> int:
        entry = await read_entry(self.store, NAME)
        assert entry is not None
        return entry.wanted

    async def bound(self) -> int | None:
        return (await self.slots.counters())[NAME].bound


@pytest.fixture
async def machine() -> Machine:
    made = Machine()
    await made.register()
    return made


async def test_a_queue_asks_for_more_processes_and_lets_more_runs_in(machine: Machine) -> None:
    await machine.come(8)
    assert (await machine.bound(), await machine.wanted()) == (1, 1)
    assert await machine.monitor.evaluate_once() == {"up": 1}
    assert (await machine.bound(), await machine.wanted()) == (2, 2)
    assert len(await machine.slots.holders(NAME)) == 2


async def test_quiet_brings_both_down_again(machine: Machine) -> None:
    await machine.control.scale(NAME, 3)
    assert await machine.monitor.evaluate_once() == {"down": 1}
    assert (await machine.bound(), await machine.wanted()) == (2, 2)


async def test_the_numbers_are_those_that_workers_wrote(machine: Machine) -> None:
    """The throttled calls come from a worker's own metrics."""
    worker = StoreMetrics(machine.store, machine.clock, "p1")
    worker.record(Measures({"ModelCalls": 1, "ModelThrottles": 1, "ModelErrors": 1}, agent=NAME))
    await worker.flush()
    await machine.come(8)
    assert await machine.monitor.evaluate_once() == {"held by throttling": 1}
    assert await machine.bound() == 1


async def test_a_stopped_agent_stays_stopped(machine: Machine) -> None:
    await machine.control.stop(NAME)
    await machine.come(8)
    assert await machine.monitor.evaluate_once() == {"closed by an operator": 1}
    await machine.control.start(NAME)
    assert await machine.monitor.evaluate_once() == {"up": 1}


async def test_a_closed_agent_keeps_the_processes_that_its_runs_are_in(machine: Machine) -> None:
    from helix.core.budget import BudgetDefinition
    from helix.core.periods import TokenPeriod
    from helix.services.budget_rows import Demand

    budget = BudgetDefinition(scope=f"agent:{NAME}", period=TokenPeriod.HOURLY, unit="micros", limit=100)
    budgets = RowBudgets(machine.store)
    await budgets.define(budget, HOUR)
    window = budget.window(HOUR)[0]
    await budgets.open(budget, HOUR, 1)
    assert await budgets.draw("r0", 0, [Demand(window, "micros", 100)])
    await budgets.give_back("r0", {window: 100})
    await machine.come(2)
    assert await machine.monitor.evaluate_once() == {"down": 1}
    assert (await machine.bound(), await machine.wanted()) == (0, 1)


async def test_gauges_are_told_at_each_look(machine: Machine) -> None:
    await machine.come(4)
    await machine.monitor.evaluate_once()
    gauges = {told.agent: told.values for told in machine.heard if "QueueDepth" in told.values}
    assert gauges[NAME]["QueueDepth"] == 3 and gauges[NAME]["ConcurrencyLimit"] == 1
    assert gauges[None]["QueueDepth"] == 3


async def test_an_agent_that_rests_has_a_gauge_of_its_budget(machine: Machine) -> None:
    """It needs neither a counter nor an open run. The total of all agents is the largest share."""
    from helix.core.budget import BudgetDefinition
    from helix.core.periods import TokenPeriod
    from helix.services.budget_rows import Demand

    budget = BudgetDefinition(scope="agent:resting", period=TokenPeriod.DAILY, unit="tokens", limit=100)
    budgets = RowBudgets(machine.store)
    await budgets.define(budget, HOUR)
    await budgets.open(budget, HOUR, 1)
    assert await budgets.draw("r0", 0, [Demand(budget.window(HOUR)[0], "tokens", 60)])
    await machine.monitor.evaluate_once()
    told = {
        told.agent: told.values["BudgetUtilization"] for told in machine.heard if "BudgetUtilization" in told.values
    }
    assert told == {"resting": 60, None: 60}


async def test_it_looks_every_half_minute_until_it_is_stopped(machine: Machine) -> None:
    await machine.come(8)
    await machine.monitor.start_monitoring()
    await machine.monitor.start_monitoring()
    for limit in (2, 2, 3):
        while machine.clock.sleepers != 1:
            await asyncio.sleep(0)
        machine.clock.advance(30)
        while machine.clock.sleepers != 1:
            await asyncio.sleep(0)
        assert await machine.bound() == limit, "a minute of cooldown"
    await machine.monitor.stop_monitoring()
    await machine.monitor.stop_monitoring()
    assert machine.clock.sleepers == 0


async def test_how_model_calls_do_is_the_agents_health(machine: Machine) -> None:
    health = HealthChecker(machine.store, clock=machine.clock)
    monitor = FleetMonitor(machine.engine, health=health)
    await monitor.evaluate_once()
    assert (await health.check_health(NAME)).status is HealthStatus.UNKNOWN, "without calls no health is reported"
    await machine.come(60)
    await monitor.evaluate_once()
    result = await health.check_health(NAME)
    assert result.status is HealthStatus.UNHEALTHY and "59 wait" in result.message
