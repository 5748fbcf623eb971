"""Deliveries and positions of executions, in a separate module for functions that do not import the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """One invocation of a verb, or one in-process worker."""

    owner: str
    """The owner name of its claims, unique to this delivery (Lambda) or worker (in process)."""
    deadline: float = math.inf
    """The time when the platform ends the delivery, in Unix seconds. Infinite for a worker in process."""

    def may_act(self, now: float) -> bool:
        return now < self.deadline


@dataclass(frozen=True, slots=True)
class Position:
    """The position of an execution according to its payload. Only the stored rows tell how far the run really got."""

    session_id: str
    """The session of the run."""
    run_id: str
    """The run that is executed."""
    part: int
    """The number of the part of the run that this execution carries out, starting at 1."""
    step: int
    """The step to buy, or the step of the call to execute. 0 if only the part matters."""
    events: int = 0
    """The estimated number of events in the execution's history. At `roll_over_events`, the run continues in a new
    part."""
