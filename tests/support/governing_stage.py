"""A governor over memory, with real slots and budgets, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from helix.adapters.memory import MemoryStateStore
from helix.adapters.system import SystemIds
from helix.core.budget import BudgetDefinition, TokenAlert
from helix.core.delivery import Delivery
from helix.core.llm_metrics import LLMMetrics
from helix.core.measures import Measures
from helix.core.periods import TokenPeriod
from helix.core.resources import ResourceConfig
from helix.fleet.decisions import DecisionLog
from helix.fleet.governing import Governor, Registered, Trigger
from helix.fleet.spending import BudgetMoney
from helix.ports.state_store import StateStore
from helix.services.budget_rows import VERSION, Demand
from helix.services.row_budgets import RowBudgets
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import Candidate
from helix.testing.clocks import SetClock

HOUR = 1_700_000_000 // 3600 * 3600
AGENT = "worker"


@dataclass
class World:
    """The state that governors share. `heard` are measures, `kept` the requested machines, `asked` the agents whose calls
    were queried, and `alerts` those of budgets, as an engine's listeners receive them."""

    clock: SetClock = field(default_factory=lambda: SetClock(HOUR))
    store: StateStore = field(default_factory=MemoryStateStore)
    calls: LLMMetrics = field(default_factory=LLMMetrics)
    resources: Mapping[str, Any] = field(default_factory=lambda: {"min": 1, "max": 8})
    stopped: bool = False
    heard: list[Measures] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    alerts: list[TokenAlert] = field(default_factory=list)
    serial: int = 0

    def governor(self, store: StateStore | None = None) -> Governor:
        """Return the governor of another process on the same rows, or on `store` instead."""
        rows = store or self.store
        slots = RowSlots(rows)

        async def grant() -> None:
            self.begun += [run.run_id for run in await slots.grant()]

        return Governor(
            slots=slots,
            grant=grant,
            registered=self._registered,
            money=BudgetMoney(RowBudgets(rows), self.clock, [self.alerts.append]),
            source=self,
            log=DecisionLog(rows, self.clock, SystemIds()),
            clock=self.clock,
            capacity=self,
            metrics=self,
        )

    async def govern(self, trigger: Trigger | None = None, store: StateStore | None = None) -> dict[str, int]:
        return dict(await self.governor(store).govern(trigger or Trigger(), self.delivery()))

    def delivery(self, left_s: float = 60) -> Delivery:
        return Delivery("test", self.clock.now() + left_s)

    # --- the ports that this test implements ---

    async def _registered(self, agent: str) -> Registered | None:
        return Registered(ResourceConfig.of(self.resources, agent), self.stopped) if agent == AGENT else None

    async def read(self, agent: str, window_s: float) -> LLMMetrics:
        self.asked.append(agent)
        return self.calls

    async def set_instances(self, agent: str, instances: int) -> None:
        self.kept.append(instances)

    def record(self, measures: Measures) -> None:
        self.heard.append(measures)

    # --- load and money ---

    @property
    def slots(self) -> RowSlots:
        return RowSlots(self.store)

    async def limit(self, limit: int) -> None:
        await self.slots.set_limit(AGENT, limit)

    async def bound(self) -> int | None:
        return (await self.slots.counters())[AGENT].bound

    async def stopped_by(self) -> str | None:
        return (await self.slots.counters())[AGENT].stopped_by

    async def ask(self, runs: int) -> None:
        """Start this many runs. Each works or waits."""
        for _ in range(runs):
            self.serial += 1
            run = Candidate(AGENT, f"r{self.serial:04d}", f"s{self.serial:04d}", self.clock.now() + self.serial / 1e6)
            await self.slots.admit(run, default=8)

    async def end_all(self) -> None:
        while holders := await self.slots.holders(AGENT):
            for run in holders:
                await self.slots.release(run)

    async def budget(
        self, dollars: float, period: TokenPeriod = TokenPeriod.HOURLY, scope: str = f"agent:{AGENT}"
    ) -> BudgetDefinition:
        definition = BudgetDefinition(scope=scope, period=period, unit="micros", limit=round(dollars * 1e6))
        await RowBudgets(self.store).define(definition, self.clock.now())
        return definition

    async def hold(self, definition: BudgetDefinition, run_id: str, dollars: float) -> None:
        """Reserve this amount for a run, or the rest of the window if that is less."""
        window, budgets = definition.window(self.clock.now())[0], RowBudgets(self.store)
        (state,) = await budgets.get([window])
        assert state is not None
        amount = min(round(dollars * 1e6), state.remaining)
        await budgets.draw(run_id, 0, [Demand(window, "micros", amount, amount)])

    async def end(self, definition: BudgetDefinition, run_id: str, dollars: float) -> None:
        """End the run, which has used this part of its reservation."""
        used = {definition.window(self.clock.now())[0]: round(dollars * 1e6)}
        await RowBudgets(self.store).give_back(run_id, used)

    async def spend(self, definition: BudgetDefinition, dollars: float) -> None:
        budgets = RowBudgets(self.store)
        window = definition.window(self.clock.now())[0]
        [count] = await self.store.get([VERSION])
        assert count is not None
        await budgets.open(definition, self.clock.now(), count["n"])
        self.serial += 1
        amount = round(dollars * 1e6)
        drawn = await budgets.draw(f"spender{self.serial}", 0, [Demand(window, "micros", amount, amount)])
        assert drawn is not None, "more than there is"
        await budgets.give_back(f"spender{self.serial}", {window: amount})
