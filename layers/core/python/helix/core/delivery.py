"""Who executes a verb, and where its execution stands: a module of its own, because functions without the engine have
deliveries too."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """Who executes a verb. `owner` is unique to this delivery (Lambda) or worker (in process). `deadline` is when its
    platform ends it (Unix seconds); a process that nobody ends has none."""

    owner: str
    deadline: float = math.inf

    def may_act(self, now: float) -> bool:
        return now < self.deadline


@dataclass(frozen=True, slots=True)
class Position:
    """Where an execution stands: the part of the run, the step to buy, and an estimate of the events in its history. The
    rows say how far the run really is."""

    session_id: str
    run_id: str
    part: int
    step: int
    events: int = 0
