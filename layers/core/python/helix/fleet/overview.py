"""An operator's view of the fleet: limits, queues, processes, health, and the reasons for changes to limits.

Law: this module only reads, and the size of each part of a response is limited. A response has one page of agents, and for
each agent the first waiting runs and the newest decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from helix.core.errors import AgentNotFoundError
from helix.core.fleet_requests import GetFleet
from helix.core.health import HealthResult
from helix.core.json import JsonObject
from helix.core.reports import FleetAgent, FleetCheck, FleetDecision, FleetFound, FleetProcess, WaitingRun
from helix.fleet import health_rows
from helix.fleet.control import FleetControl
from helix.fleet.decisions import DecisionLog, DecisionRow
from helix.fleet.process_info import ProcessInfo
from helix.fleet.rows import AgentEntry, read_entries, read_entry, read_processes
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.state_store import StateStore
from helix.services.row_slots import RowSlots
from helix.services.slot_rows import SlotCounter, Waiting, tickets, waiting


@dataclass(frozen=True, slots=True)
class Overview:
    """A reader of the fleet's rows."""

    store: StateStore
    """The store with the fleet's rows."""
    clock: Clock
    """The clock, whose times are Unix seconds."""
    ids: Ids
    """The source of ids, which `DecisionLog` requires."""
    slots: RowSlots
    """The slot counters in the store."""
    names: Sequence[str]
    """The names of agents that are listed even if they have never run."""
    resources: Callable[[str], JsonObject]
    """A function that returns the resources in the definition of an agent in `names`, or `{}` if it declares none."""

    async def read(self, asked: GetFleet) -> FleetFound:
        """Read one page of the fleet. Raises `AgentNotFoundError` if `asked.agent` is not in the fleet."""
        counters, (beats, ready) = await asyncio.gather(self.slots.counters(), health_rows.app_rows(self.store))
        after = asked.after or ""
        if asked.agent is None:
            entries = await read_entries(self.store, after, asked.limit + 1)
        else:
            entry = await read_entry(self.store, asked.agent)
            entries = [] if entry is None else [entry]
        known = {entry.agent_id: entry for entry in entries}
        names = sorted(name for name in {*known, *self.names, *filter(None, counters)} if name > after)
        if asked.agent is not None:
            names = [name for name in names if name == asked.agent]
            if not names:
                raise AgentNotFoundError(f"there is no agent {asked.agent!r} in this fleet")
        page = names[: asked.limit]
        account = counters.get(None) or SlotCounter(None)
        agents = [
            await self._agent(known.get(name), counters.get(name) or SlotCounter(name), name, asked) for name in page
        ]
        return FleetFound(
            now=self.clock.now(),
            limit=account.bound,
            running=_running(account),
            queued=sum(counter.queued for name, counter in counters.items() if name is not None),
            ready=ready is None or bool(ready["ready"]),
            reason="" if ready is None else str(ready["reason"]),
            swept_at=beats.swept_at,
            agents=agents,
            cursor=page[-1] if len(names) > len(page) else None,
        )

    async def _agent(self, entry: AgentEntry | None, counter: SlotCounter, name: str, asked: GetFleet) -> FleetAgent:
        line, processes, checks, decisions = await asyncio.gather(
            self._line(name, asked.waiting if counter.queued else 0),
            read_processes(self.store, name),
            health_rows.results(self.store, name),
            self._decisions(name, asked.decisions),
        )
        bounds: dict[str, Any] = entry.registered if entry is not None else {}
        bounds = bounds or (self.resources(name) if name in self.names else {})
        return FleetAgent(
            agent=name,
            status="stopped" if counter.bound == 0 or (entry is not None and entry.stopped) else "running",
            stopped_by=counter.stopped_by,
            limit=counter.bound,
            running=_running(counter),
            queued=counter.queued,
            wanted=None if entry is None else entry.wanted,
            min_instances=bounds.get("min_instances"),
            max_instances=bounds.get("max_instances"),
            waiting=[_waiting(one) for one in line],
            processes=[self._process(info) for info in processes],
            checks=[_check(one) for one in checks],
            decisions=[_decision(row) for row in reversed(decisions)],
        )

    async def _line(self, agent: str, limit: int) -> list[Waiting]:
        if limit == 0:
            return []
        return [waiting(row.value) for row in await self.store.query("control", tickets(agent), limit=limit)]

    async def _decisions(self, agent: str, limit: int) -> list[DecisionRow]:
        return await DecisionLog(self.store, self.clock, self.ids).history(agent, limit) if limit else []

    def _process(self, info: ProcessInfo) -> FleetProcess:
        seen = FleetControl(self.store, self.clock).seen(info)
        return FleetProcess.model_validate(seen.model_dump(mode="json", include=set(FleetProcess.model_fields)))


def _running(counter: SlotCounter) -> int | None:
    """Return the number of active runs. None for an agent without a limit, because its runs are not counted."""
    return None if counter.bound is None else counter.running


def _waiting(one: Waiting) -> WaitingRun:
    run = one.candidate
    return WaitingRun(
        run_id=run.run_id,
        session_id=run.session_id,
        priority=run.priority,
        since=run.order,
        expires_at=one.expires_at,
    )


def _check(result: HealthResult) -> FleetCheck:
    return FleetCheck.model_validate(result.model_dump(mode="json", include=set(FleetCheck.model_fields)))


def _decision(row: DecisionRow) -> FleetDecision:
    return FleetDecision.model_validate(row.model_dump(mode="json", include=set(FleetDecision.model_fields)))
