"""FleetControl: read the actual state of agents and set their desired state, from any process that can access the store.

Law: this class only writes the desired state. The agent's supervisor carries it out: an `AgentRuntime` on this machine, or
admission itself in the deployed app. An instance is a unit of allowed concurrency, so a new number immediately becomes the
admission limit.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from helix.core.checks import is_int
from helix.core.errors import AgentNotFoundError, AgentStoppedError, InvalidInputError, InvalidScaleError
from helix.core.health import CheckType, HealthStatus, combine_results
from helix.core.resources import ResourceConfig
from helix.core.scaling import Rule, ScalingDecision
from helix.fleet.decisions import DecisionLog
from helix.fleet.health_rows import results
from helix.fleet.process_info import ProcessInfo, ProcessStatus, is_living
from helix.fleet.rows import AgentEntry, change_entry, put_entry, read_entries, read_entry, read_processes
from helix.ports.clock import Clock
from helix.ports.state_store import ABSENT, StateStore
from helix.services.row_slots import RowSlots

if TYPE_CHECKING:
    from helix.fleet.health import HealthChange

SILENT_S = 30.0
"""The time without a check by its supervisor after which a process on another machine is no longer counted as an
instance."""
NOT_FOUND = "not_found"


class FleetControl:
    """Controls the agents in one store. slots: the slot counters that hold the limits; without them, an instance is just a
    process. known: the agents of the deployed app, which have no entry until their desired state is set. log: records each
    change to a limit as an operator's decision."""

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        *,
        slots: RowSlots | None = None,
        known: Mapping[str, ResourceConfig] | None = None,
        log: DecisionLog | None = None,
    ) -> None:
        self._store, self._clock, self._slots, self._log = store, clock, slots, log
        self._known = dict(known or {})
        self._when = "" if known is None else " (one that is deployed is known once it has run)"

    # --- reading ------------------------------------------------------------------------------------------------------

    async def status(self, agent_name: str) -> dict[str, Any]:
        """Return the agent's status as a mapping.

        Its keys are status (`running` while there are live processes, `stopped`, `not_found`), instances (the number of
        live processes), wanted, resources (as registered; `{}` without a registration), processes, health, created_at and
        supervisor.
        """
        entry = await self._entry(agent_name)
        if entry is None:
            return {"agent_id": agent_name, "status": NOT_FOUND}
        return await self._status(entry)

    async def list(self, *, after: str = "", limit: int | None = None) -> list[dict[str, Any]]:
        """Return the status of every agent, ordered by id. `limit` and `after` select a page: at most `limit` agents
        after the id `after`. Raises `InvalidInputError` for a limit below 1."""
        if limit is not None and limit < 1:
            raise InvalidInputError(f"limit is {limit}: it must be at least 1")
        entries = {entry.agent_id: entry for entry in await read_entries(self._store, after, limit)}
        for agent_name in self._known.keys() - entries.keys():
            if agent_name > after:
                entries[agent_name] = self._first(agent_name)
        # If the page of rows is full, known agents that belong on later pages sort after it and are cut off.
        return [await self._status(entries[agent_name]) for agent_name in sorted(entries)[:limit]]

    async def _status(self, entry: AgentEntry) -> dict[str, Any]:
        processes = [self.seen(info) for info in await read_processes(self._store, entry.agent_id)]
        live = [info for info in processes if info.alive]
        now = self._clock.now()
        return {
            "agent_id": entry.agent_id,
            "status": "running" if live else "stopped",
            "instances": len(live),
            "wanted": 0 if entry.stopped else entry.wanted,
            "resources": entry.registered,
            "processes": [info.model_dump(mode="json") for info in processes],
            "health": combine_results(await results(self._store, entry.agent_id)).model_dump(mode="json"),
            "created_at": entry.created_at,
            "supervisor": entry.supervisor if entry.supervised(now) else None,
        }

    def seen(self, info: ProcessInfo) -> ProcessInfo:
        """Return the process with its actual status. Its row may be outdated, because the supervisor that wrote it may have
        died too."""
        gone = info.alive and not self.is_live(info)
        return info.model_copy(update={"status": ProcessStatus.STOPPED, "pid": None}) if gone else info

    def is_live(self, info: ProcessInfo) -> bool:
        """Return whether the process exists. On this machine the operating system knows; on others the time of the
        supervisor's last check decides."""
        if info.alive and info.pid is not None and info.host == socket.gethostname():
            return is_living(info.pid, info.born)
        return info.alive and info.seen_at >= self._clock.now() - SILENT_S

    # --- desired state ------------------------------------------------------------------------------------------------

    async def scale(self, agent_name: str, instances: int) -> None:
        """Set the desired number of instances. Raises `InvalidScaleError` outside the agent's bounds. A lower number does
        not end running work."""
        entry = await self._existing(agent_name)
        limits = entry.limits
        if not is_int(instances) or not limits.min_instances <= instances <= limits.max_instances:
            raise InvalidScaleError(
                f"agent {agent_name!r} has {limits.min_instances} to {limits.max_instances} instances, not {instances!r}"
            )
        await change_entry(self._store, agent_name, wanted=instances)
        await self._admit(agent_name, f"an operator set it to {instances}")

    async def start(self, agent_name: str) -> None:
        """Raise the desired number to at least the minimum, and admit runs of a stopped agent again. Idempotent."""
        while True:
            entry = await self._existing(agent_name)
            wanted = max(entry.wanted, entry.limits.min_instances)
            seen = {"wanted": entry.wanted, "stopped": entry.stopped, "starts": entry.starts}
            changes = {"wanted": wanted, "stopped": False, "force": False}
            if await change_entry(self._store, agent_name, add=["starts"], seen=seen, **changes):
                await self._admit(agent_name, "an operator started it")
                return

    async def stop(self, agent_name: str, *, force: bool = False) -> None:
        """Stop the agent. It does not accept new runs, and running ones are interrupted (aborted with `force`)."""
        await self._existing(agent_name)
        why = "an operator stopped it" + (" by force" if force else "")
        await self._limit(agent_name, 0, why)
        await change_entry(self._store, agent_name, stopped=True, force=force)
        await self._admit(agent_name, why)

    async def restart(self, agent_name: str) -> None:
        """Replace all processes of the agent, which reloads its code. Each process hands over its work. Raises
        `AgentStoppedError` for a stopped agent, which stays stopped until `start`."""
        while True:
            entry = await self._existing(agent_name)
            if entry.stopped:
                raise AgentStoppedError(
                    f"agent {agent_name!r} is stopped, and a restart does not start it again: start it"
                )
            wanted = max(entry.wanted, entry.limits.min_instances)
            seen = {"wanted": entry.wanted, "stopped": False, "starts": entry.starts}
            if await change_entry(self._store, agent_name, add=["restarts", "starts"], seen=seen, wanted=wanted):
                await self._admit(agent_name, "an operator restarted it")
                return

    async def apply_health(self, change: HealthChange) -> None:
        """Apply a change in health. If a readiness check fails, the agent admits no runs until all of its readiness checks
        pass again. A stopped agent stays stopped. If admission was reopened in the meantime, the limit is left
        unchanged."""
        entry = await self._entry(change.target)
        if change.stops_admission is None or entry is None or entry.stopped:
            return
        why = f"readiness check {change.check!r} is {change.after.value}: {change.result.message or 'no message'}"
        if await self._unready(change.target):
            await self._limit(change.target, 0, why, "health")
        elif self._slots is not None:
            counter = (await self._slots.counters()).get(change.target)
            if counter is not None and counter.bound == 0:
                await self._limit(change.target, max(1, entry.wanted), why, "health")
                entry = await self._entry(change.target)
                if entry is not None and entry.stopped:  # it was stopped between the two reads, and the stop wins
                    await self._limit(change.target, 0, "an operator stopped it")

    # --- internals ------------------------------------------------------------------------------------------------

    async def _unready(self, agent_name: str) -> bool:
        return any(
            result.check_type is CheckType.READINESS and result.status is HealthStatus.UNHEALTHY
            for result in await results(self._store, agent_name)
        )

    async def _entry(self, agent_name: str) -> AgentEntry | None:
        entry = await read_entry(self._store, agent_name)
        return self._first(agent_name) if entry is None and agent_name in self._known else entry

    def _first(self, agent_name: str) -> AgentEntry:
        resources = self._known[agent_name]
        return AgentEntry(
            agent_id=agent_name, resources=resources.model_dump(mode="json"), wanted=resources.max_instances
        )

    async def _existing(self, agent_name: str) -> AgentEntry:
        entry = await read_entry(self._store, agent_name)
        if entry is None and agent_name in self._known:
            entry = self._first(agent_name).model_copy(update={"created_at": self._clock.now()})
            await put_entry(self._store, entry, ABSENT)
        if entry is None:
            known = ", ".join(sorted({e.agent_id for e in await read_entries(self._store)} | self._known.keys()))
            there = f"there are: {known or 'none'}{self._when}"
            raise AgentNotFoundError(f"there is no agent {agent_name!r} in this fleet; {there}")
        return entry

    async def _admit(self, agent_name: str, why: str) -> None:
        """Set the limit to the entry's desired number. Afterwards read the entry again, and repeat until it is unchanged.
        If two callers change it concurrently, the last write therefore also determines the limit."""
        wish: tuple[bool, int] | None = None
        while (entry := await self._existing(agent_name)) and wish != (entry.stopped, entry.wanted):
            wish = entry.stopped, entry.wanted
            # At least 1, so that the first run is admitted and starts an instance even if none is kept ready.
            await self._limit(agent_name, 0 if entry.stopped else max(1, entry.wanted), why)

    async def _limit(self, agent_name: str, instances: int, why: str, rule: Rule = "operator") -> None:
        if self._slots is None:
            return
        counter = (await self._slots.counters()).get(agent_name)
        before = 0 if counter is None else counter.bound or 0
        await self._slots.set_limit(agent_name, instances)
        if self._log is not None and before != instances:
            decision = ScalingDecision(before=before, after=instances, rule=rule, reason=why)
            await self._log.record(agent_name, decision)
