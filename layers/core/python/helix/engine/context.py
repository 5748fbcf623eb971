"""The context of a worker that advances a run, passed as one object instead of eight arguments."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from helix.core.agents import AnyAgent
from helix.core.declared_tools import accepts, declared_settings, declared_tools
from helix.core.delivery import Delivery
from helix.core.entries import AssistantRow
from helix.core.errors import AgentNotFoundError
from helix.core.guards import seconds_after_answer
from helix.core.rows import StopRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.tools import AnyTool
from helix.engine.engine import Engine
from helix.engine.missing import RowMissingError
from helix.engine.session_cache import Known
from helix.engine.stops import StopWatch
from helix.engine.writing import advance, commit
from helix.ports.state_store import Operation, Update
from helix.services.request_heads import read_head
from helix.services.run_stream import RunStream

CANCEL_S = 15
"""The margin in seconds between the end of a model call and the deadline of its delivery. It leaves time to stage the
answer or to release the claim."""
GUARDS_S = 120.0
"""The maximum number of seconds of a delivery that are left for the guards of an answer."""


@dataclass(slots=True)
class RunContext:
    """The run that a worker advances, with everything that its verbs need."""

    engine: Engine
    """The ports and settings."""
    own: AnyAgent
    """The session's own agent. Its limits bound the run, and its model is the run's in the counts of usage."""
    session: SessionRow
    """The session's row as this worker last read or wrote it."""
    run_id: str
    """The run that the worker advances."""
    delivery: Delivery
    """The delivery that executes the verb. Its owner marks the claims, and its deadline bounds the work."""
    stream: RunStream
    """The run's writer to the stream of its root session."""
    known: Known
    """The cached rows of the session. Holding this reference keeps them in the cache."""
    part_agent: str = ""
    """The agent whose functions execute this part of the run. Empty: the session's own agent."""
    agent: AnyAgent = field(init=False)
    """The active agent: the session's own, or the one that was handed over to."""
    watch: StopWatch = field(default_factory=StopWatch)
    """The watch for an interrupt or abort of the run. In a context from `make_context` it never sees one."""
    started_at: float = 0
    """The time (Unix seconds) of the run's claim. 0: the run's row was not passed in."""
    until: float | None = None
    """The time (Unix seconds) by which a sub-agent's run must be over. None: there is no such limit."""
    leaving: Callable[[], bool] = bool
    """A function that returns whether this worker should stop before the next step. The default always returns
    False."""
    longest_pause_s: float = math.inf
    """The longest pause before a model call, in seconds, that this worker makes. After a longer one, a later delivery
    makes the call."""
    fresh: bool = False
    """Whether this worker's claim has just written `session`, so that the first step does not have to read it."""
    run_tools: Mapping[str, AnyTool] = field(default_factory=dict)
    """The tools that the run declared, by name. Empty in a context from `make_context`, which executes nothing."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings of the run that override those of the agent, by name. Empty like `run_tools`."""
    row: RunRow | None = None
    """The run's row, if this worker knows every write to it. None: it must be read."""
    text: str | None = None
    """The text of the run's last answer, set when this worker ends the run. None: this worker has not ended the run, or
    there is no answer."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A lock that is held while a transaction that writes `session` is in flight. A refused heartbeat waits for it, to
    find out whether this worker's own write was first."""

    def __post_init__(self) -> None:
        self.agent = self.own

    @property
    def session_id(self) -> str:
        return self.session.session_id

    def activate(self, name: str) -> None:
        """Let the agent with that name act, and name it on the stream. An empty name is the session's own. Raises
        `AgentNotFoundError` if this process does not know it."""
        self.agent = self.engine.find_agent(self.own, name)
        self.stream.agent_type = self.agent.name

    def now(self) -> float:
        return self.engine.clock.now()

    @property
    def declared(self) -> dict[str, AnyTool]:
        """The tools that the run declared and the active agent accepts, by name."""
        return {name: tool for name, tool in self.run_tools.items() if accepts(self.agent, name)}

    def find_tool(self, name: str) -> AnyTool | None:
        """Return the agent's tool of this name, or else the one that the run declared. None if there is neither."""
        return self.agent.find_tool(name) or self.declared.get(name)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def next_version(self, session: SessionRow, **changes: Any) -> SessionRow:
        """Return a copy of the row with the next version. If runs are claimed, this also moves the deadline of the
        run's claim."""
        now = self.now()
        if self.engine.placement.claims_runs:
            changes |= {"lease_owner": self.delivery.owner, "lease_expires": now + self.engine.settings.claim_s}
        return advance(session, now, **changes)

    async def commit(
        self, name: str, operations: Sequence[Operation], won: Callable[[], Awaitable[bool]], session: SessionRow
    ) -> bool:
        """Commit a transaction that writes `session`. False: a condition refused it."""
        async with self.writing:
            if not await commit(self.engine, name, operations, won):
                return False
            self.session = session
            return True

    def ended(self, changes: Update, answer: AssistantRow | None) -> None:
        """Note that this worker has ended the run after `answer`. `changes` are the changes to the run's row."""
        if self.row is not None:
            self.row = RunRow.at(*changes.key[1:], {**self.row.dump(), **changes.set})
            self.text = answer.content if answer is not None else None

    def owns(self, session: SessionRow) -> bool:
        """Return whether this worker holds the step's claim in this row."""
        claim = session.claim
        return (
            claim is not None and claim.run_id == self.run_id and claim.attempt_id.startswith(self.delivery.owner + ".")
        )

    def may_ask(self) -> bool:
        """Return whether the worker may still ask the model, according to its own clock. This is checked immediately
        before the call, because other workers may buy the step after the deadline."""
        claim = self.session.claim
        return claim is not None and self.now() < claim.deadline - self.engine.settings.margin_s

    # --- time ---------------------------------------------------------------------------------------------------------

    def late(self) -> StopRow | None:
        """Return a stop for a sub-agent that takes longer than its parent's tool allows, or None."""
        if self.until is None or self.now() < self.until:
            return None
        reason = f"the sub-agent took longer than {round(self.until - self.started_at, 1):g} s"
        return StopRow(run_id=self.run_id, stop="abort", reason=reason, created_at=self.now())

    def may_begin_another(self, steps: int) -> bool:
        """Return whether this worker begins another step after it has bought `steps` steps. It needs time for a whole
        model call."""
        if self.engine.placement.executes_whole_runs:
            return True
        most = self.engine.settings.steps_per_invocation
        if self.leaving() or (most is not None and steps >= most):
            return False
        return self.now() + self.engine.settings.step_time_s <= self.delivery.deadline

    def model_time(self) -> float | None:
        """Return the number of seconds that a model call may take: the time left for this delivery, without that of the
        guards after it, or for a sub-agent's run. None: there is no limit."""
        guards_s = min(GUARDS_S, seconds_after_answer(self.agent))
        end = min(self.delivery.deadline - CANCEL_S - guards_s, math.inf if self.until is None else self.until)
        return None if math.isinf(end) else max(0.0, end - self.now())


NOBODY = Delivery("", 0)
"""A delivery without an owner, for contexts that record facts and claim nothing."""


def make_context(
    engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow | None = None, delivery: Delivery = NOBODY
) -> RunContext:
    """Create the context of a run of a session of `agent`. `run`: None for the session's current run. If this process
    does not know the active agent, the session's own stands in for it, so that the run can be ended."""
    run_id, turn = (session.run_id, session.turn) if run is None else (run.run_id, run.turn)
    stream = RunStream(engine.streams, engine.clock, session, run_id, turn)
    known = engine.history.cache.known(session.session_id, session.created_at)
    context = RunContext(engine, agent, session, run_id, delivery, stream, known)
    with suppress(AgentNotFoundError):
        context.activate(session.active_agent if run is None or run.status == "running" else run.active_agent)
    if run is not None:
        context.part_agent = run.part_agent
        context.started_at, context.until = run.started_at, run.deadline if run.status == "running" else None
    return context


async def read_declared(engine: Engine, session: SessionRow) -> tuple[dict[str, AnyTool], dict[str, Any]]:
    """Return the tools and the settings that the session's run declared, by name. Nothing is read if it declared
    none."""
    if not session.frontend_tools:
        return {}, {}
    head = await read_head(engine.store, session.session_id, session.frontend_tools)
    if head is None:
        raise RowMissingError(f"session {session.session_id!r}: the tools that its run declared are missing")
    return declared_tools(head), declared_settings(head)


@asynccontextmanager
async def open_context(
    engine: Engine, agent: AnyAgent, session: SessionRow, run: RunRow | None, delivery: Delivery
) -> AsyncIterator[RunContext]:
    """Open a context that watches for stops. Leaving the block flushes the stream, so the log then has all its
    chunks."""
    context = make_context(engine, agent, session, run, delivery)
    context.run_tools, context.settings = await read_declared(engine, session)
    async with engine.stops.watch(session, context.run_id) as watch:
        context.watch = watch
        try:
            yield context
        finally:
            await context.stream.close()
