"""Slots: how many runs of an agent, and of all agents, are at work at once, and who waits (PROTOCOL 10).

Law: a slot or a ticket is a row, and the counters beside them change in the same transactions, so they are exact. Who
frees a slot, raises a limit or puts a ticket looks afterwards whether a free slot and a ticket can be joined: of any two
of them the later one sees the other, so no wake-up is lost. A grant is the row, not the start of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from helix.ports.state_store import Check

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
class SlotCounter:
    """The numbers of one agent, or of the account (`agent_type` None: all runs together).

    limit: what was set; None: nothing was. default: what the definition asks for, or None. running: slots that are held.
    queued: tickets. max_queue, queue_timeout_s: what was set for this agent; None: the defaults hold.
    """

    agent_type: str | None
    limit: int | None = None
    default: int | None = None
    running: int = 0
    queued: int = 0
    max_queue: int | None = None
    queue_timeout_s: float | None = None

    @property
    def bound(self) -> int | None:
        """The limit that holds; None: as many as come."""
        return self.default if self.limit is None else self.limit

    @property
    def has_room(self) -> bool:
        return self.bound is None or self.running < self.bound


@dataclass(frozen=True, slots=True)
class Admission:
    """free: no limit applies, and nothing was written. held: the run has a slot. waits: it has the ticket `waiting`. full:
    it has neither, because the queue is full. over: it has neither, because `alive` did not hold.

    granted: others that were given a slot on the way, to be begun. queued: tickets of the agent now.
    """

    state: Literal["free", "held", "waits", "full", "over"]
    waiting: Waiting | None = None
    granted: tuple[Candidate, ...] = ()
    queued: int = 0


class Slots(Protocol):
    """Every verb may be repeated, by several callers at once. `StoreError`: unknown whether it happened; repeat it."""

    async def admit(
        self, run: Candidate, *, default: int | None, alive: Check | None = None, bounded: bool = True
    ) -> Admission:
        """A slot for the run; or where it would exceed a limit, or go before others, a ticket.

        default: the limit that the agent's definition asks for, which holds unless one was set. alive: nothing is written
        unless this holds in that moment. bounded: refuse where the agent's queue is full; otherwise the queue grows.
        """
        ...

    async def release(self, run: Candidate) -> list[Candidate]:
        """Give up the slot, or the ticket. Returns the runs that were given a slot, to be begun. A run that holds neither
        changes nothing."""
        ...

    async def leave(self, run: Candidate) -> bool:
        """Give up the ticket. False where there is none: then the run may hold a slot."""
        ...

    async def grant(self) -> list[Candidate]:
        """Give free slots to those who wait, first in line first; a ticket that cannot go does not hold up those of other
        agents. Returns the runs that were given one, to be begun. To be called after a limit was raised."""
        ...

    async def set_limit(self, agent_type: str | None, limit: int | None) -> None:
        """The limit of an agent, or of the account (None). None as limit: the default holds again; 0: nobody is admitted.
        A lower limit ends nobody: slots are given again once fewer are held."""
        ...

    async def change_limit(self, agent_type: str, before: int, after: int, *, alive: Check | None = None) -> bool:
        """`set_limit`, on condition that the limit that holds is `before`, and that `alive` holds. False, and nothing
        changed: it is not, and is not `after` either; or `alive` does not hold. A repeat answers True."""
        ...

    async def set_queue(self, agent_type: str, *, max_queue: int | None = None, timeout_s: float | None = None) -> None:
        """How long the agent's queue may get, and how long a run may wait in it; None: the default."""
        ...

    async def counters(self) -> dict[str | None, SlotCounter]:
        """By agent type; under None the account's. Agents that were never limited have none."""
        ...

    async def full(self, agent_type: str, *, default: int | None) -> SlotCounter | None:
        """None, or where a bounded `admit` would now be refused, the agent's counter with `max_queue` as it holds."""
        ...

    async def holders(self, agent_type: str) -> list[Candidate]:
        """Runs with slots."""
        ...

    async def queue(self, agent_type: str) -> list[Waiting]:
        """Runs with tickets, first in line first."""
        ...

    async def waiting(self, run: Candidate) -> Waiting | None:
        """The run's ticket."""
        ...

    async def holds(self, run: Candidate) -> bool:
        """Whether the run has a slot."""
        ...
