"""Slots: the number of runs at work, per agent and in total, and the waiting runs (docs/protocol.md#slots).

The rows in the control table:

    admission / account, agent#<type>            counters: {limit, default, running, queued, max_queue, queue_timeout_s,
                                                 epoch, divided, moves, stopped_by}
    admission#shards#<account, agent#<type>> / <number>    a shard of a counter: {epoch, free, queued} (`slot_shards`)
    admission#slots#<type> / <run id>            one row for each slot that a run holds
    admission#tickets#<type> / <rank>#<run id>   one row for each run that waits; the rows sort in queue order
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from helix.ports.state_store import Key, Row, Value

COUNTERS = "admission"
_FIELDS = (
    *("limit", "default", "running", "queued", "max_queue", "queue_timeout_s", "epoch", "divided", "moves"),
    "stopped_by",
)
MAX_PRIORITY = 999


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that asks for a slot. It uses the same values each time it asks."""

    agent_type: str
    """The agent of the run, whose limit and queue apply."""
    run_id: str
    """The id of the run. It is the sort key of the slot's row."""
    session_id: str
    """The session of the run. A grant starts the run by this id."""
    order: float
    """The time (Unix seconds) when the run was claimed. Among runs of the same priority, the earliest claim goes
    first."""
    priority: int = 0
    """The queue priority, from -999 to 999. Higher priorities go first."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A ticket: the place of a run in the queue of its agent."""

    candidate: Candidate
    """The run that waits."""
    expires_at: float
    """The end of the wait, in Unix seconds. After that, any process that notices may end the run."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a counter, as read."""

    number: int
    """The number of the shard, from 0. It is the sort key of the row."""
    epoch: int
    """The epoch of the counter when it lent the slots. Slots of an earlier epoch are merged into the counter."""
    free: int
    """The number of lent slots that are not held by a run."""
    queued: int
    """The number of tickets counted in this shard."""


@dataclass(frozen=True, slots=True)
class SlotCounter:
    """The slot counts of one agent, or of the account (all runs together)."""

    agent_type: str | None
    """The agent that is counted. None for the account."""
    limit: int | None = None
    """The limit that was set. None if no limit was set; `default` then applies."""
    default: int | None = None
    """The limit from the agent's definition or the account's setting. None for no limit."""
    running: int = 0
    """The number of slots that runs hold. The stored row also counts the slots that it lent to its shards."""
    queued: int = 0
    """The number of tickets, including those counted in shards."""
    max_queue: int | None = None
    """The maximum queue length that was set for this agent. None if the default of `RowSlots` applies."""
    queue_timeout_s: float | None = None
    """The maximum wait that was set for this agent, in seconds. None if the default of `RowSlots` applies."""
    epoch: int = 0
    """The number of times that the limit was lowered."""
    divided: bool = False
    """Whether the counter has shards. Their counts are included in `running` and `queued`."""
    moves: int = 0
    """The number of transactions that moved slots or tickets between the row and a shard."""
    stopped_by: str | None = None
    """The budget that set a limit of 0, such as "budget agent:poet/day/micros". None if a budget did not set it."""
    shards: tuple[Shard, ...] = ()
    """The shards as read. Empty if the counter is not divided, or if its shards were not read."""

    @property
    def bound(self) -> int | None:
        """The limit that applies. None for no limit."""
        return self.default if self.limit is None else self.limit

    @property
    def room(self) -> float:
        return float("inf") if self.bound is None else self.bound - self.running

    @property
    def has_room(self) -> bool:
        return self.room > 0


@dataclass(frozen=True, slots=True)
class Admission:
    """The result for a run that asks for a slot."""

    state: Literal["free", "held", "waits", "full", "over"]
    """`free`: no limit applies, and nothing was written. `held`: the run has a slot. `waits`: the run has the ticket
    `waiting`. `full`: it has neither, because the queue is full. `over`: it has neither, because the condition `alive`
    failed or the run ended in the meantime."""
    waiting: Waiting | None = None
    """The ticket of the run. None unless the state is `waits`."""
    granted: tuple[Candidate, ...] = ()
    """Other runs that got a slot during this admission. The caller must start them."""
    queued: int = 0
    """The number of tickets of the agent. It is counted only in the states `waits` and `full`."""
    stopped_by: str | None = None
    """The budget that stopped the agent, from its counter. None unless the state is `waits`."""


def counter_key(agent_type: str | None) -> Key:
    return Key("control", COUNTERS, "account" if agent_type is None else f"agent#{agent_type}")


def shards(agent_type: str | None) -> str:
    return f"{COUNTERS}#shards#{counter_key(agent_type).sort}"


def shard_key(agent_type: str | None, number: int) -> Key:
    return Key("control", shards(agent_type), f"{number:03d}")


def slots(agent_type: str) -> str:
    return f"{COUNTERS}#slots#{agent_type}"


def tickets(agent_type: str) -> str:
    return f"{COUNTERS}#tickets#{agent_type}"


def slot_key(run: Candidate) -> Key:
    return Key("control", slots(run.agent_type), run.run_id)


def ticket_key(run: Candidate) -> Key:
    """Return the key of the run's ticket. Rows sort by bytes: higher priorities first, then by the time of the claim in
    microseconds."""
    rank = f"{MAX_PRIORITY - run.priority:04d}#{max(0, round(run.order * 1e6)):018d}"
    return Key("control", tickets(run.agent_type), f"{rank}#{run.run_id}")


def fresh(default: int | None) -> dict[str, Any]:
    return {"limit": None, "default": default, "running": 0, "queued": 0}


def counter(row: Row) -> SlotCounter:
    kind, _, agent_type = row.key.sort.partition("#")
    return counted(agent_type if kind == "agent" else None, row.value)


def counted(agent_type: str | None, value: Value) -> SlotCounter:
    return SlotCounter(agent_type, **{name: value[name] for name in _FIELDS if name in value})


def with_shards(counter: SlotCounter, rows: Sequence[Row]) -> SlotCounter:
    found = tuple(Shard(int(r.key.sort), r.value["epoch"], r.value["free"], r.value["queued"]) for r in rows)
    running = counter.running - sum(shard.free for shard in found)
    return replace(counter, running=running, queued=counter.queued + sum(s.queued for s in found), shards=found)


def candidate(value: dict[str, Any]) -> Candidate:
    return Candidate(value["agent_type"], value["run_id"], value["session_id"], value["order"], value["priority"])


def waiting(value: dict[str, Any]) -> Waiting:
    return Waiting(candidate(value), value["expires_at"])
