"""Deliveries and positions of executions. They have a module of their own for functions that do not import the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """One invocation of a verb, or a worker in process."""

    owner: str
    """The name that claims are held under, unique to this delivery (Lambda) or worker (in process)."""
    deadline: float = math.inf
    """The time when the platform ends the delivery, in Unix seconds. Infinite for a process, which no platform ends."""

    def may_act(self, now: float) -> bool:
        return now < self.deadline


@dataclass(frozen=True, slots=True)
class Position:
    """The position of an execution, from its payload. The stored rows say how far the run really is."""

    session_id: str
    """The session of the run."""
    run_id: str
    """The run that is executed."""
    part: int
    """The part of the run that this execution plays, from 1 on."""
    step: int
    """The step to buy, or the step of the call to execute. 0 where only the part matters."""
    events: int = 0
    """The estimated number of events in the execution's history. At `roll_over_events` the next part begins."""
