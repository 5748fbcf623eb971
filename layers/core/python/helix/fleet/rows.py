"""The fleet's rows: which agents there are, what is wanted of them, and the processes that serve them.

    fleet              <agent id>        AgentEntry
    fleet#<agent id>   p#<process id>    ProcessInfo
                       l#<worker id>     ProcessInfo, of a life that ended with a crash: kept for a day

Law: what is wanted is written by anybody, each field by a write of its own; who supervises an agent holds a lease in its
entry, and alone writes its processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from helix.core.json import JsonObject
from helix.core.resources import ResourceConfig
from helix.fleet.process_info import OVER, ProcessInfo, ProcessStatus
from helix.ports.state_store import Delete, Key, Operation, Put, StateStore, Update, When
from helix.services.committing import refused

FLEET = "fleet"
KEEP_S = 86_400.0
MAX_PROCESSES = 20
"""The most ended processes that are listed for an agent; older ones are deleted."""


class AgentEntry(BaseModel):
    """`definition` is a digest of what was registered; `source`, `model`, `max_tokens` say what worker processes serve;
    `cost_budget` is in US dollars per hour. `wanted` instances; none while `stopped` (with `force`: its runs were aborted).
    `restarts` and `starts` count what was asked for, so that each is done once. `supervisor` looks after it until
    `supervisor_expires` (Unix seconds), or until its process has ended."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    agent_id: str
    definition: str = ""
    source: str = ""
    resources: JsonObject = Field(default_factory=dict)
    model: str | None = None
    max_tokens: int | None = None
    cost_budget: float | None = None
    wanted: int = 0
    stopped: bool = False
    force: bool = False
    restarts: int = 0
    starts: int = 0
    created_at: float = 0
    supervisor: str | None = None
    supervisor_expires: float = 0
    supervisor_host: str = ""
    supervisor_pid: int | None = None
    supervisor_born: float | None = None

    @property
    def registered(self) -> JsonObject:
        """The resources that a registration gave. Those of an entry without one are bounds for `limits` only."""
        return self.resources if self.definition else {}

    @property
    def limits(self) -> ResourceConfig:
        return ResourceConfig.model_validate(self.resources)

    def supervised(self, now: float) -> bool:
        return self.supervisor is not None and self.supervisor_expires >= now


def entry_key(agent_name: str) -> Key:
    return Key("control", FLEET, agent_name)


def processes_partition(agent_name: str) -> str:
    return f"{FLEET}#{agent_name}"


def process_key(agent_name: str, process_id: str) -> Key:
    return Key("control", processes_partition(agent_name), f"p#{process_id}")


async def read_entry(store: StateStore, agent_name: str) -> AgentEntry | None:
    (value,) = await store.get([entry_key(agent_name)])
    return None if value is None else AgentEntry.model_validate(value)


async def read_entries(store: StateStore, after: str = "", limit: int | None = None) -> list[AgentEntry]:
    """By id, from the one that follows `after` on."""
    start = after + "\x00" if after else ""
    rows = await store.query("control", FLEET, start=start, limit=limit)
    return [AgentEntry.model_validate(row.value) for row in rows]


async def put_entry(store: StateStore, entry: AgentEntry, when: When) -> bool:
    put = Put(entry_key(entry.agent_id), entry.model_dump(mode="json"), when)
    return await refused(store, "put_agent", [put]) is None


async def change_entry(
    store: StateStore, agent_name: str, *, add: Sequence[str] = (), seen: dict[str, Any] | None = None, **changes: Any
) -> bool:
    """Set fields of an entry that is there, and count `add` one up. False if `seen` no longer holds, or it is gone."""
    when = When(equal=seen) if seen else None
    update = Update(entry_key(agent_name), set=changes, add=dict.fromkeys(add, 1), when=when)
    return await refused(store, "change_agent", [update]) is None


async def read_processes(store: StateStore, agent_name: str) -> list[ProcessInfo]:
    """Oldest first: ids sort by time."""
    rows = await store.query("control", processes_partition(agent_name), start="p#", end="p$")
    return [ProcessInfo.model_validate(row.value) for row in rows]


async def read_crashes(store: StateStore, agent_name: str, limit: int) -> list[ProcessInfo]:
    """The lives of its processes that ended with a crash, each as it was then; those of the newest processes."""
    partition = processes_partition(agent_name)
    rows = await store.query("control", partition, start="l#", end="l$", limit=limit, reverse=True)
    return [ProcessInfo.model_validate(row.value) for row in rows]


async def put_process(store: StateStore, agent_name: str, info: ProcessInfo, now: float) -> None:
    value, expires = info.model_dump(mode="json"), {"ttl": int(now + KEEP_S)}
    stored = {**value, **expires} if info.status in OVER else value
    operations: list[Operation] = [Put(process_key(agent_name, info.process_id), stored)]
    if info.status in (ProcessStatus.CRASHED, ProcessStatus.FAILED):  # its next life takes the row above
        life = Key("control", processes_partition(agent_name), f"l#{info.worker_id}")
        operations.append(Put(life, {**value, **expires}))
    await store.transact("put_process", operations)


async def forget_processes(
    store: StateStore, agent_name: str, processes: Sequence[ProcessInfo]
) -> Sequence[ProcessInfo]:
    """Delete the rows of those that are over, but for the newest. Returns those that were forgotten."""
    gone = [info for info in processes if info.status in OVER][:-MAX_PROCESSES][:100]
    operations: list[Operation] = [Delete(process_key(agent_name, info.process_id)) for info in gone]
    if operations:
        await store.transact("forget_processes", operations)
    return gone
