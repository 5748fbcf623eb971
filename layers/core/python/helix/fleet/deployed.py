"""DeployedRuntime: control of a deployed stage's fleet, with the same method names as `AgentRuntime`.

    runtime = DeployedRuntime(store)                   # the stage's tables, from wherever they can be reached
    await runtime.scale_agent("support", instances=5)

Law: an instance is permission for one active run, and a process is an active run. This class does not start or end
anything. It writes limits and stop records, which the functions read. `govern` adjusts the limits to load and cost, within
the agent's bounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Literal

from helix.adapters.system import SystemClock, SystemIds
from helix.core.errors import AgentNotFoundError, AgentStoppedError, DamagedRowError, SessionNotFoundError
from helix.core.resources import ResourceConfig
from helix.core.rows import StopRow
from helix.engine.engine import Engine, logger
from helix.engine.runs.ends import put_stop
from helix.fleet.control import NOT_FOUND, FleetControl
from helix.fleet.decisions import DecisionLog
from helix.fleet.health import HealthChange
from helix.ports.clock import Clock
from helix.ports.state_store import Row, StateStore
from helix.ports.tracing import NoTracer
from helix.runtime.local import LocalExecutor
from helix.services.open_runs import PARTITIONS, partition_name
from helix.services.paging import pages
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import SlotCounter
from helix.services.usage_counters import read_totals

MOST = 100
"""The maximum number of instances for an agent that does not declare resources."""
STOPPED = "the agent is stopped"


class DeployedRuntime:
    """The fleet of one store. store: the stage's tables, or any store whose runs are executed elsewhere. An agent is known
    once it has run or its desired state has been set."""

    def __init__(self, store: StateStore, *, clock: Clock | None = None) -> None:
        self.store, self._clock = store, clock or SystemClock()
        self._slots = RowSlots(store)

    async def start_agent(self, agent_id: str) -> list[str]:
        """Admit runs of a stopped agent again. Waiting runs continue in order. Returns the ids of the active runs."""
        await (await self.control()).start(agent_id)
        return await self._at_work(agent_id)

    async def stop_agent(self, agent_id: str, force: bool = False) -> int:
        """Stop admitting runs (new ones wait), and interrupt the active ones. With `force`, abort active and waiting runs.
        Returns the number of stopped runs."""
        await (await self.control()).stop(agent_id, force=force)
        return await self.stop_runs(agent_id, force)

    async def stop_runs(self, agent_id: str, force: bool = False) -> int:
        """Stop the agent's runs like `stop_agent`, but without closing admission."""
        return await _stop_runs(self._engine(), agent_id, STOPPED, force=force)

    async def restart_agent(self, agent_id: str) -> list[str]:
        """Interrupt the active runs, and admit runs again. New code does not need a restart, because the next step already
        uses it. Raises `AgentStoppedError` for a stopped agent, which stays stopped until `start_agent`."""
        if (await self.get_agent_status(agent_id))["status"] == "stopped":
            raise AgentStoppedError(f"agent {agent_id!r} is stopped, and a restart does not start it again: start it")
        await self.stop_agent(agent_id)
        return await self.start_agent(agent_id)

    async def scale_agent(self, agent_id: str, instances: int) -> list[str]:
        """Set the maximum number of concurrent runs. Lowering the number does not end any runs. Raises `InvalidScaleError`
        outside the agent's bounds. Returns the ids of the active runs."""
        await (await self.control()).scale(agent_id, instances)
        return await self._at_work(agent_id)

    async def get_agent_status(self, agent_id: str) -> dict[str, Any]:
        """Return the status in the format of `AgentRuntime.get_agent_status`. status is `running`, `stopped` (limit 0;
        stopped_by names the budget if one stopped it) or `not_found`. instances is the limit, or None without one.
        resources contains `max_instances` from the rows. processes are the active runs."""
        try:
            found = await (await self.control()).status(agent_id)
        except AgentNotFoundError:
            return {"agent_id": agent_id, "status": NOT_FOUND}
        if found["status"] == NOT_FOUND:
            return found
        return self._shown(found, await self._slots.counters(), await self._at_work(agent_id))

    async def list_agents(self, *, after: str = "", limit: int | None = None) -> list[dict[str, Any]]:
        """Return the status of every agent, ordered by id. `limit` and `after` select a page: at most `limit` agents
        after the id `after`."""
        listed = await (await self.control()).list(after=after, limit=limit)
        counters, opened = await self._slots.counters(), await self._open_runs()
        return [
            self._shown(found, counters, await self._at_work(found["agent_id"], opened, counters)) for found in listed
        ]

    async def control(self) -> FleetControl:
        """Return a `FleetControl` for the currently known agents."""
        most = {total.agent: MOST for total in await read_totals(self.store) if total.agent}
        for name, counter in (await self._slots.counters()).items():
            if name is not None:
                most[name] = min(MOST, counter.default or MOST)
        known = {name: ResourceConfig(min_instances=0, max_instances=max(1, limit)) for name, limit in most.items()}
        log = DecisionLog(self.store, self._clock, SystemIds())
        return FleetControl(self.store, self._clock, slots=self._slots, known=known, log=log)

    async def apply_health(self, change: HealthChange) -> None:
        """Apply a change in health, for `HealthChecker(store, on_change=runtime.apply_health)`. If a readiness check fails,
        its agent admits no runs until all of its readiness checks pass again. A failed liveness check raises an alarm, but
        no process is restarted."""
        if change.stops_admission is not None:
            await (await self.control()).apply_health(change)

    # --- internals ------------------------------------------------------------------------------------------------

    def _shown(
        self, found: dict[str, Any], counters: Mapping[str | None, SlotCounter], runs: list[str]
    ) -> dict[str, Any]:
        counter = counters.get(found["agent_id"])
        limit = None if counter is None else counter.bound
        processes = [{"process_id": run_id, "name": found["agent_id"], "status": "running"} for run_id in runs]
        defined = None if counter is None else counter.default
        return {
            **found,
            "status": "stopped" if limit == 0 else "running",
            "stopped_by": None if counter is None else counter.stopped_by,
            "instances": limit,
            "resources": found["resources"] or ({} if defined is None else {"max_instances": defined}),
            "processes": processes,
        }

    async def _at_work(
        self,
        agent_id: str,
        opened: Mapping[str, list[str]] | None = None,
        counters: Mapping[str | None, SlotCounter] | None = None,
    ) -> list[str]:
        """Return the ids of the agent's active runs. `opened`, `counters`: these values, if they were already read for all
        agents at once."""
        counter = counters.get(agent_id) if counters is not None else None
        waits = counters is None or (counter is not None and counter.queued)
        waiting = {ticket.candidate.run_id for ticket in await self._slots.queue(agent_id)} if waits else set()
        found = (await self._open_runs() if opened is None else opened).get(agent_id, [])
        return [run_id for run_id in found if run_id not in waiting]

    async def _open_runs(self) -> Mapping[str, list[str]]:
        """Return the open runs by agent, oldest first."""
        found: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        for number in range(PARTITIONS):
            async for rows in pages(self.store, partition_name(number)):
                for row in rows:
                    found[row.value["agent_type"]].append((row.value.get("started_at", 0.0), row.key.sort))
        return {agent: [run_id for _, run_id in sorted(runs)] for agent, runs in found.items()}

    def _engine(self) -> Engine:
        """Return an engine that only writes stop records and does not execute runs."""
        engine = LocalExecutor(self.store, clock=self._clock, tracer=NoTracer()).engine
        engine.slots = self._slots
        return engine


async def _stop_runs(engine: Engine, agent: str, reason: str, *, force: bool = False) -> int:
    """Interrupt every active run of the agent. With `force`, abort active and waiting runs. Returns the number of stopped
    runs.

    Only stop records are written. A run's process sees its record within a second, or at the next delivery, and ends the
    run. Waiting runs stay in the queue unless `force` aborts them, and continue when the agent starts again. A session
    that cannot be read does not prevent other runs from being stopped.
    """
    waiting = set()
    if engine.slots is not None and not force:
        waiting = {ticket.candidate.run_id for ticket in await engine.slots.queue(agent)}
    stopped = 0
    for number in range(PARTITIONS):
        async for rows in pages(engine.store, partition_name(number)):
            for row in rows:
                if row.value["agent_type"] == agent and row.key.sort not in waiting:
                    stopped += await _stop(engine, row, "abort" if force else "interrupt", reason)
    return stopped


async def _stop(engine: Engine, row: Row, how: Literal["abort", "interrupt"], reason: str) -> bool:
    run_id = row.key.sort
    try:
        stop = StopRow(run_id=run_id, stop=how, reason=reason, created_at=engine.clock.now())
        return await put_stop(engine, row.value["session_id"], stop)
    except SessionNotFoundError:
        return False  # deleted, or expired
    except DamagedRowError as error:  # the sweep will fail its run
        logger.warning("run %s of agent %s cannot be stopped: %s", run_id, row.value["agent_type"], error)
        return False
