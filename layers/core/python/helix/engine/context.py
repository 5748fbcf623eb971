"""What travels together while a worker advances a run: one object instead of eight arguments."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from helix.core.agents import AnyAgent
from helix.core.delivery import Delivery
from helix.core.entries import AssistantRow
from helix.core.rows import RunRow, SessionRow, StopRow
from helix.engine.engine import Engine
from helix.engine.session_cache import Known
from helix.engine.stops import StopWatch
from helix.engine.writing import advance, commit
from helix.ports.state_store import Operation, Update
from helix.services.run_stream import RunStream

CANCEL_S = 15
"""A model call ends this long before its delivery's deadline: time to stage its answer, or to release its claim."""


@dataclass(slots=True)
class RunContext:
    """`session` is the row as this worker read or wrote it last; `writing` is held while a transaction of it is on its way.
    `until`: when a sub-agent's run must be over (Unix seconds). `leaving`: whether this worker stops at the next step.
    `fresh`: this worker's claim has just written `session`. `row`: the run's row, where this worker knows all that was
    written to it; `text`: of its last answer, once the row has ended. `known`: held, so that it stays cached."""

    engine: Engine
    agent: AnyAgent
    session: SessionRow
    run_id: str
    delivery: Delivery
    stream: RunStream
    known: Known
    watch: StopWatch = field(default_factory=StopWatch)
    started_at: float = 0
    until: float | None = None
    leaving: Callable[[], bool] = bool
    fresh: bool = False
    row: RunRow | None = None
    text: str | None = None
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def session_id(self) -> str:
        return self.session.session_id

    def now(self) -> float:
        return self.engine.clock.now()

    # --- rows ---------------------------------------------------------------------------------------------------------

    def next_version(self, session: SessionRow, **changes: Any) -> SessionRow:
        """A copy of the row, one version on. In process, it moves the deadline of the run's claim too."""
        now = self.now()
        if self.engine.in_process:
            changes |= {"lease_owner": self.delivery.owner, "lease_expires": now + self.engine.settings.claim_s}
        return advance(session, now, **changes)

    async def commit(
        self, name: str, operations: Sequence[Operation], won: Callable[[], Awaitable[bool]], session: SessionRow
    ) -> bool:
        """Commit a transaction that writes `session`. False: refused."""
        async with self.writing:
            if not await commit(self.engine, name, operations, won):
                return False
            self.session = session
            return True

    def ended(self, changes: Update, answer: AssistantRow | None) -> None:
        """This worker has ended the run: with these changes of its row, after this answer."""
        if self.row is not None:
            self.row = RunRow.at(*changes.key[1:], {**self.row.dump(), **changes.set})
            self.text = answer.content if answer is not None else None

    def owns(self, session: SessionRow) -> bool:
        """Whether the step's claim in this row is this worker's."""
        claim = session.claim
        return (
            claim is not None and claim.run_id == self.run_id and claim.attempt_id.startswith(self.delivery.owner + ".")
        )

    def may_ask(self) -> bool:
        """The holder's last look at its clock before it asks the model: past this moment others may buy the step."""
        claim = self.session.claim
        return claim is not None and self.now() < claim.deadline - self.engine.settings.margin_s

    # --- time ---------------------------------------------------------------------------------------------------------

    def late(self) -> StopRow | None:
        """The stop of a sub-agent that takes longer than its parent's tool allows."""
        if self.until is None or self.now() < self.until:
            return None
        reason = f"the sub-agent took longer than {round(self.until - self.started_at, 1):g} s"
        return StopRow(run_id=self.run_id, stop="abort", reason=reason, created_at=self.now())

    def may_begin_another(self, steps: int) -> bool:
        """Whether this worker begins another step after `steps`: there must be time for a whole model call."""
        if self.engine.in_process:
            return True
        most = self.engine.settings.steps_per_invocation
        if self.leaving() or (most is not None and steps >= most):
            return False
        return self.now() + self.engine.settings.step_time_s <= self.delivery.deadline

    def model_time(self) -> float | None:
        """Seconds that a model call may take: what this delivery, or a sub-agent's run, has left. None: any time."""
        end = min(self.delivery.deadline - CANCEL_S, math.inf if self.until is None else self.until)
        return None if math.isinf(end) else max(0.0, end - self.now())


NOBODY = Delivery("", 0)
"""For contexts that record facts and claim nothing."""


def make_context(
    engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow | None = None, delivery: Delivery = NOBODY
) -> RunContext:
    """`run`: default the session's current one."""
    run_id, turn = (session.run_id, session.turn) if run is None else (run.run_id, run.turn)
    stream = RunStream(engine.streams, engine.clock, session, run_id, turn)
    known = engine.history.cache.known(session.session_id, session.created_at)
    context = RunContext(engine, agent, session, run_id, delivery, stream, known)
    if run is not None:
        context.started_at, context.until = run.started_at, run.deadline if run.status == "running" else None
    return context


@asynccontextmanager
async def open_context(
    engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow | None, delivery: Delivery
) -> AsyncIterator[RunContext]:
    """A context that sees stops; what was put on its stream is in the log when the block ends."""
    context = make_context(engine, agent, session, run, delivery)
    async with engine.stops.watch(session, context.run_id) as watch:
        context.watch = watch
        try:
            yield context
        finally:
            await context.stream.close()
