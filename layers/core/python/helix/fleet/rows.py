"""The fleet's rows: the agents, their desired state, and the processes that serve them.

    fleet              <agent id>        AgentEntry
    fleet#<agent id>   p#<process id>    ProcessInfo
                       l#<worker id>     ProcessInfo of a life that ended in a crash; kept for a day

Law: any process may write the desired state, field by field. The supervisor of an agent holds a lease in the agent's entry,
and only the supervisor writes the agent's processes.
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
"""The maximum number of ended processes to keep for an agent. Older ones are deleted."""


class AgentEntry(BaseModel):
    """The stored entry of one agent: its registration, its desired state, and the lease of its supervisor."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    agent_id: str
    """The agent's name, which is also the row's sort key."""
    definition: str = ""
    """A digest of the registration. Empty: the agent was never registered, and the entry stores only a limit."""
    source: str = ""
    """The import path of the agent that worker processes serve."""
    resources: JsonObject = Field(default_factory=dict)
    """The stored form of the agent's `ResourceConfig`."""
    model: str | None = None
    """The model that workers use instead of the agent's own. None: the agent's own."""
    max_tokens: int | None = None
    """The maximum number of output tokens per model call. None: the agent's own setting."""
    cost_budget: float | None = None
    """The registered budget in US dollars per hour. None: no budget was given."""
    wanted: int = 0
    """The desired number of instances. It has no effect while `stopped` is true."""
    stopped: bool = False
    """Whether an operator stopped the agent, so that none of its processes should run."""
    force: bool = False
    """Whether the stop aborts runs and kills processes, rather than interrupting runs and letting processes end."""
    restarts: int = 0
    """The number of requested restarts, including changes to the definition. A process with a lower generation is restarted
    once."""
    starts: int = 0
    """The number of requested starts. A new one lets the supervisor replace processes that it had given up on."""
    created_at: float = 0
    """The time of the first registration in Unix seconds. 0: unknown."""
    supervisor: str | None = None
    """The id of the runtime that supervises the agent. None: no runtime does."""
    supervisor_expires: float = 0
    """The time at which the supervisor's lease expires, in Unix seconds. It ends earlier if the supervisor's process has
    ended."""
    supervisor_host: str = ""
    """The host name of the supervisor's machine."""
    supervisor_pid: int | None = None
    """The process id of the supervisor on that machine."""
    supervisor_born: float | None = None
    """The start time of the supervisor's process in Unix seconds. It distinguishes the process from a later one with
    the same pid."""

    @property
    def registered(self) -> JsonObject:
        """The registered resources. Empty for an unregistered agent, whose stored resources only set bounds for
        `limits`."""
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
    """Return entries ordered by id, from the first one after `after`."""
    start = after + "\x00" if after else ""
    rows = await store.query("control", FLEET, start=start, limit=limit)
    return [AgentEntry.model_validate(row.value) for row in rows]


async def put_entry(store: StateStore, entry: AgentEntry, when: When) -> bool:
    put = Put(entry_key(entry.agent_id), entry.model_dump(mode="json"), when)
    return await refused(store, "put_agent", [put]) is None


async def change_entry(
    store: StateStore, agent_name: str, *, add: Sequence[str] = (), seen: dict[str, Any] | None = None, **changes: Any
) -> bool:
    """Set fields of an existing entry, and increment the fields in `add`. Returns False if the fields no longer have the
    values in `seen`, or the entry was deleted."""
    when = When(equal=seen) if seen else None
    update = Update(entry_key(agent_name), set=changes, add=dict.fromkeys(add, 1), when=when)
    return await refused(store, "change_agent", [update]) is None


async def read_processes(store: StateStore, agent_name: str) -> list[ProcessInfo]:
    """Return the processes, oldest first, since their ids sort by time."""
    rows = await store.query("control", processes_partition(agent_name), start="p#", end="p$")
    return [ProcessInfo.model_validate(row.value) for row in rows]


async def read_crashes(store: StateStore, agent_name: str, limit: int) -> list[ProcessInfo]:
    """Return the crashed lives of the agent's newest processes, each in its final state."""
    partition = processes_partition(agent_name)
    rows = await store.query("control", partition, start="l#", end="l$", limit=limit, reverse=True)
    return [ProcessInfo.model_validate(row.value) for row in rows]


async def put_process(store: StateStore, agent_name: str, info: ProcessInfo, now: float) -> None:
    value, expires = info.model_dump(mode="json"), {"ttl": int(now + KEEP_S)}
    stored = {**value, **expires} if info.status in OVER else value
    operations: list[Operation] = [Put(process_key(agent_name, info.process_id), stored)]
    if info.status in (ProcessStatus.CRASHED, ProcessStatus.FAILED):  # the next life overwrites the row above
        life = Key("control", processes_partition(agent_name), f"l#{info.worker_id}")
        operations.append(Put(life, {**value, **expires}))
    await store.transact("put_process", operations)


async def forget_processes(
    store: StateStore, agent_name: str, processes: Sequence[ProcessInfo]
) -> Sequence[ProcessInfo]:
    """Delete the rows of ended processes, except the newest. Returns the processes whose rows were deleted."""
    gone = [info for info in processes if info.status in OVER][:-MAX_PROCESSES][:100]
    operations: list[Operation] = [Delete(process_key(agent_name, info.process_id)) for info in gone]
    if operations:
        await store.transact("forget_processes", operations)
    return gone
