"""`govern` on one machine. It makes the same decisions from the metrics that worker processes write, and sets the desired
state that a runtime carries out.

Law: it only reads and writes rows, so any process that can access the store can run it. Several concurrent monitors have
the same effect as one.
"""

from __future__ import annotations

import asyncio
from functools import partial

from helix._log import get_logger
from helix.core.delivery import Delivery
from helix.core.errors import AgentNotFoundError
from helix.core.llm_metrics import LLMMetrics
from helix.core.resources import ResourceConfig
from helix.engine.engine import Engine
from helix.engine.runs.admission import gauges
from helix.fleet.governing import Registered, Trigger, governor_of
from helix.fleet.health import HealthChecker
from helix.fleet.llm_health import evaluate_calls
from helix.fleet.metric_rows import read_metrics
from helix.fleet.rows import change_entry, read_entry
from helix.fleet.spending import record_gauges
from helix.ports.clock import Clock
from helix.ports.state_store import StateStore
from helix.services.row_slots import RowSlots

EVERY_S = 30.0
logger = get_logger("helix")


class StoredMetrics:
    """A `MetricsSource` that reads the metrics written by the processes of this store's agents."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def read(self, agent: str, window_s: float) -> LLMMetrics:
        return await read_metrics(self._store, agent, window_s, self._clock.now())


class WantedProcesses:
    """A `Capacity` of worker processes, one for each run that may be active. The number falls to 0 only if no run is
    active, because active runs need their processes in order to finish."""

    def __init__(self, store: StateStore, slots: RowSlots) -> None:
        self._store, self._slots = store, slots

    async def set_instances(self, agent: str, instances: int) -> None:
        counter = (await self._slots.counters()).get(agent)
        if instances > 0 or counter is None or counter.running == 0:
            await change_entry(self._store, agent, wanted=instances)


class FleetMonitor:
    """A monitor that evaluates all agents every `every_s` seconds between `start_monitoring` and `stop_monitoring`. Errors
    are logged, and the next evaluation retries. health: receives the health of each agent's model calls, as its check
    `llm`."""

    def __init__(self, engine: Engine, *, every_s: float = EVERY_S, health: HealthChecker | None = None) -> None:
        self._engine, self._every_s, self._health = engine, every_s, health
        self._task: asyncio.Task[None] | None = None
        self._owner = engine.ids.new("monitor")
        source, store = StoredMetrics(engine.store, engine.clock), engine.store
        registered = partial(_registered, engine)
        self.governor = governor_of(engine, registered, source, lambda slots: WantedProcesses(store, slots))

    async def start_monitoring(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="helix:govern")

    async def stop_monitoring(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def evaluate_once(self) -> dict[str, int]:
        """Evaluate once: record gauges, then decide. Returns how often each result occurred."""
        engine = self._engine
        counts, money = await gauges(engine), self.governor.money
        agents = {agent for agent in counts if agent is not None} | await money.agents()
        read = await money.read(agents)
        record_gauges(engine.metrics, counts, read)
        delivery = Delivery(self._owner, engine.clock.now() + self._every_s)
        if self._health is not None:
            await evaluate_calls(self._health, self.governor.source, counts, read, delivery, engine.clock)
        return dict(await self.governor.govern(Trigger("monitor"), delivery))

    async def _run(self) -> None:
        while True:
            await self._engine.clock.sleep(self._every_s)
            try:
                await self.evaluate_once()
            except Exception:
                logger.exception("govern: this evaluation failed")


async def _registered(engine: Engine, agent: str) -> Registered | None:
    """Return the registered resources, or else those in the agent's definition."""
    entry = await read_entry(engine.store, agent)
    if entry is not None:
        return Registered(entry.limits, stopped=entry.stopped)
    try:
        asked = engine.agents(agent).resources
    except AgentNotFoundError:
        return None
    return Registered(ResourceConfig.of(asked, f"agent {agent!r}", "resources") if asked else None)
