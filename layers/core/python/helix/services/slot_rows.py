"""Slots: how many runs of an agent, and of all agents, are at work at once, and who waits (docs/protocol.md#slots). Their
rows in the control table:

    admission / account, agent#<type>            counters: {limit, default, running, queued, max_queue, queue_timeout_s,
                                                 epoch, divided, moves, stopped_by}
    admission#shards#<account, agent#<type>> / <number>    a shard of one: {epoch, free, queued} (`slot_shards`)
    admission#slots#<type> / <run id>            one row per slot that is held
    admission#tickets#<type> / <rank>#<run id>   one row per run that waits; the rows sort as the line stands
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
    """A run that asks for a slot. Higher `priority` (-999 to 999) goes first, and within one who claimed first: `order` is
    the claim's Unix seconds. A run asks with the same values each time."""

    agent_type: str
    run_id: str
    session_id: str
    order: float
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A ticket. After `expires_at` (Unix seconds) whoever looks may end the run: it has waited too long."""

    candidate: Candidate
    expires_at: float


@dataclass(frozen=True, slots=True)
class Shard:
    """free: slots that it may give. queued: tickets that are counted here. epoch: of the counter, when it got them."""

    number: int
    epoch: int
    free: int
    queued: int


@dataclass(frozen=True, slots=True)
class SlotCounter:
    """The numbers of one agent, or of the account (`agent_type` None: all runs together).

    limit: what was set; None: nothing was. default: what the definition asks for, or None. running: slots that are held.
    queued: tickets. max_queue, queue_timeout_s: what was set for this agent; None: the defaults hold. epoch: how often the
    limit was lowered. divided: whether it has shards, whose numbers are in `running` and `queued`. moves: how often
    something went between its row and a shard. stopped_by: what set a limit of 0, if a budget did ("budget
    agent:poet/day/micros").
    """

    agent_type: str | None
    limit: int | None = None
    default: int | None = None
    running: int = 0
    queued: int = 0
    max_queue: int | None = None
    queue_timeout_s: float | None = None
    epoch: int = 0
    divided: bool = False
    moves: int = 0
    stopped_by: str | None = None
    shards: tuple[Shard, ...] = ()

    @property
    def bound(self) -> int | None:
        """The limit that holds; None: as many as come."""
        return self.default if self.limit is None else self.limit

    @property
    def room(self) -> float:
        return float("inf") if self.bound is None else self.bound - self.running

    @property
    def has_room(self) -> bool:
        return self.room > 0


@dataclass(frozen=True, slots=True)
class Admission:
    """free: no limit applies, and nothing was written. held: the run has a slot. waits: it has the ticket `waiting`. full:
    it has neither, because the queue is full. over: it has neither, because `alive` did not hold.

    granted: others that were given a slot on the way, to be begun. queued: tickets of the agent now. stopped_by: as in its
    counter.
    """

    state: Literal["free", "held", "waits", "full", "over"]
    waiting: Waiting | None = None
    granted: tuple[Candidate, ...] = ()
    queued: int = 0
    stopped_by: str | None = None


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
    """Rows sort by bytes: higher priorities first, then by the time of the claim, in microseconds."""
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
