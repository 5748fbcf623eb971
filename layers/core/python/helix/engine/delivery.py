"""Who executes a verb: a module of its own, because functions without the engine have deliveries too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Lease:
    """What a worker knows of its lease on a session: until when it may act. Heartbeats move it."""

    expires: float


@dataclass(frozen=True, slots=True)
class Delivery:
    """Who executes a verb. `owner` is unique to this delivery (Lambda) or worker (in process). A leased worker acts while
    its session's lease is its own; any other until `deadline` (Unix seconds)."""

    owner: str
    deadline: float
    lease: Lease | None = None

    @property
    def leased(self) -> bool:
        return self.lease is not None

    def may_act(self, now: float) -> bool:
        """Looked at by the holder's own clock before it starts anything that others might start too."""
        return now < (self.deadline if self.lease is None else self.lease.expires)
