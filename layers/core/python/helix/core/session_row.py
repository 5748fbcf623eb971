"""The session row: the state of a session (docs/protocol.md#row-session).

Law: the protocol's step row is the assistant message at index `count`, just past the end of history, and its call rows
follow. So folding a step only increases the count. The step's claim is stored in the session row, which the claim
writes anyway.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from helix.core.compact import StoredUsage, expand_session, shorten_session
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import Record
from helix.core.row_keys import SESSION
from helix.core.rows import ErrorInfo, Pending
from helix.core.spans import Trace
from helix.core.status import SessionStatus
from helix.core.stored import AsStored, Stored
from helix.core.usage import Usage
from helix.core.view_row import NO_MARK, ContextMark

MAX_TITLE = 120
"""The maximum length of a session's title, in characters."""


class OpenStep(Record):
    """A staged answer that is not yet part of history: the rows from index `base`."""

    step: int
    """The step that the answer belongs to."""
    attempt: int
    """The attempt at the step that bought the answer."""
    run_id: str
    """The run that staged the answer. A later run may take over the step."""
    base: int
    """The index of the answer, which equals the session's count. The call rows follow it."""
    calls: int
    """The number of the answer's calls, including those without a row."""
    wide: bool = False
    """Whether the step has too many calls for one transaction. Several transactions then write their rows
    (docs/protocol.md#wide)."""


class StepClaim(Record):
    """The claim of a worker that is buying a step."""

    step: int
    """The step that the worker is buying."""
    attempt: int
    """The number of the attempt, starting at 1 within the step."""
    attempt_id: str
    """`<owner>.<session version>`, unique to the claim. If the claiming transaction gets no reply, the worker looks for
    this id to see whether it succeeded."""
    run_id: str
    """The run that the worker buys the step for."""
    deadline: float
    """The time until which the holder may act (Unix seconds). 0 if the claim was released or has expired."""
    micros: int = 0
    """The micro-dollars reserved for the call. 0 if nothing is reserved: without budgets, for a cached answer, and for
    a function agent."""
    tokens: int = 0
    """The tokens reserved for the call. 0 in the same cases as `micros`."""
    summary: bool = False
    """Whether the call writes a summary for a view, and not an answer of the step."""
    late: int = 0
    """The number of this run's attempts at the step that ran out of the worker's time, or whose worker fell silent. The
    run fails at three."""
    batch: str = ""
    """The name of the call that waits for a provider's batch (docs/protocol.md#batches). No worker holds the step
    meanwhile. Empty: a worker asks the model itself."""


class Block(Record):
    """The amounts that the current run has drawn from one budget window. `spent + reserved + assumed <= drawn`, unless
    a call used more than its reservation. The reserved amount is in the session's `claim`."""

    budget: str
    """The name of the window: `<scope>/<period>/<unit>/<window key>`."""
    unit: Literal["micros", "tokens"]
    """The unit of all amounts here: micro-dollars or tokens."""
    drawn: int = 0
    """The amount that the run has taken from the window."""
    spent: int = 0
    """The amount that finished calls used."""
    assumed: int = 0
    """The amount reserved for calls whose usage is not known. It counts as spent."""
    draws: int = 0
    """The session's version at the last draw. 0 before the first."""
    reported: int = 0
    """The part of `spent` and `assumed` that the last draw reported to the budget."""
    closed: bool = False
    """Whether the block takes no more reservations, because the next window has begun or the budget was deleted."""


class Bounds(Record):
    """The budgets that limit a session (`core.budget`)."""

    version: int
    """The version counter of all budget definitions when these were read. If the counter has changed, the next step
    reads them again."""
    level: Literal["", "warning", "critical", "exceeded"] = ""
    """The alert level of the most used budget at the run's last draw. Empty below `warning`."""
    budgets: list[list[JsonValue]] = Field(default_factory=list)
    """The definitions in the short form of `core.budget.packed`. Empty if no budget limits this session."""


class Parent(Record):
    """The parent's call that started a sub-agent's session."""

    session_id: str
    """The parent session."""
    run_id: str
    """The run that started the sub-agent."""
    call_id: str
    """The call that gets the sub-agent's result."""


class SessionIdentity(Stored):
    """The identity of a session: its owner, agent and origin."""

    kind: Literal["session"] = "session"
    """The tag of this kind of row in the store."""
    session_id: str
    """The id of the session. It is not stored here, because it names the partition."""
    agent_type: str
    """The name of the session's own agent, which never changes."""
    stream_id: str
    """The stream that receives the session's chunks: its own id, or the id of its root session."""
    parent: Parent | None = None
    """The call that started a sub-agent's session. None for a root session."""
    ancestors: list[str] = Field(default_factory=list)
    """The agents above a sub-agent, the root's first. Empty for a root session."""
    forked_from: JsonObject | None = None
    """The `session_id` and `checkpoint_id` that a branch or clone was copied from. None for other sessions."""
    origin: str = ""
    """The first session of the chain of copies that led to a branch or clone. Empty for other sessions, and for copies
    that older releases made."""
    trace: Trace | None = None
    """The run ids of the root and the parent, under which the spans of a sub-agent's run are recorded. None for a root
    session."""
    user_id: str | None = None
    """The user who owns the session. None if it was created without a user."""
    tags: list[str] = Field(default_factory=list)
    """The session's tags. A sub-agent's session begins with those of the session that it works for."""
    metadata: JsonObject = Field(default_factory=dict)
    """The metadata that the session was created with. Sub-agents inherit it."""
    title: str = ""
    """The title that a person gave the session. A copy has that of its source. Empty without one: readers then show the
    beginning of the first message."""
    priority: int = 0
    """The priority of the session's runs while they wait for a slot, from -999 to 999. Higher priorities go first."""
    created_at: float = 0
    """The time of creation (Unix seconds). It distinguishes the session from a deleted one with the same id."""
    updated_at: float = 0
    """The time of the last write that incremented the version (Unix seconds)."""

    @property
    def origin_id(self) -> str:
        """The first session of the chain of copies that led to this one, or else this session."""
        source = (self.forked_from or {}).get("session_id")
        return self.origin or (source if isinstance(source, str) else self.session_id)


class SessionHistory(Stored):
    """The extent of a session's history."""

    version: int
    """A counter that each transaction on this row increments. Renewing a deadline does not change it."""
    turn: int
    """The number of the current or last run within the session, starting at 1. 0 in a copy that has not run yet."""
    lineage: int = 0
    """The current lineage."""
    lineages: int = 0
    """The highest lineage number used so far. A rewind takes the next one."""
    count: int = 0
    """The number of the lineage's messages that are part of history."""
    step: int = 0
    """The number of the last step in history. 0 before the first step."""
    last: tuple[int, int] | None = None
    """The (step, attempt) that was staged or committed last. The stream uses it to settle an attempt left open. None
    before the first answer and after a rewind."""
    checkpoint: str = ""
    """The id of the last checkpoint. Empty before the first checkpoint."""
    state_at: str = ""
    """The id of the checkpoint with the current custom state. Empty for the agent's initial state."""
    context: ContextMark = NO_MARK
    """The view that the model is shown of this history."""
    active_agent: str = ""
    """The agent that makes the next step after this history: the target of the last handoff. Empty before the first
    handoff: the session's own agent."""


class SessionWork(Stored):
    """The current run of a session, and the worker that executes it."""

    status: AsStored[SessionStatus]
    """The status of the last run, or `deleting` while the session's rows are being deleted."""
    run_id: str
    """The current or last run. Empty in a copy that has not run yet."""
    run_steps: int = 0
    """The number of steps that the current run has bought, including failed model calls. `max_steps` limits it."""
    misses: int = 0
    """The number of missing or invalid outputs in the current run. `max_completion_retries` limits it."""
    forced: bool = False
    """Whether the next answer must be the output. The model then has to call `__finish__`."""
    reminded: bool = False
    """Whether the next request reminds the model to finish, without forcing it."""
    tools: list[str] = Field(default_factory=list)
    """The names of the tools that the model has called in any run, at most 30, in the order of their first call."""
    open: OpenStep | None = None
    """The staged step that is not yet part of history. None if there is no such step."""
    claim: StepClaim | None = None
    """The claim of the worker that is buying the next step. None while no step is being bought."""
    head: str = ""
    """The id of the request head that the worker sends (docs/protocol.md#row-head). Stored only beside `claim`."""
    output_limit: int | None = None
    """The maximum number of tokens in the answer, if budgets set it. Otherwise None: the head has the agent's own limit,
    if any. Stored only beside `claim`."""
    pending: list[Pending] = Field(default_factory=list)
    """The calls that a paused session waits for. Empty in other states, and if a budget caused the pause."""
    frontend_tools: str = ""
    """The id of the request head that has the tools and settings which the current or last run declared. Empty if it
    declared none."""
    inbox: bool = False
    """Whether messages wait in the inbox that the next run has to take. Set while the session is paused or stopped. The
    first step of the next run takes those that steer, and the end of that run starts the others."""
    lease_owner: str | None = None
    """The worker that holds the lease on an in-process run. None on AWS, in worker processes, and between runs. In a
    hidden session, the id of its deletion."""
    lease_expires: float = 0
    """The time when the lease expires (Unix seconds). 0 without a lease."""


class SessionMoney(Stored):
    """The usage of a session and its current run, and the budgets that limit them."""

    usage: StoredUsage = Usage()
    """The usage of all runs, including tools and sub-agents. It is not stored if it equals `run_usage`."""
    run_usage: StoredUsage = Usage()
    """The usage of the current run, including its tools and sub-agents."""
    run_parts: dict[str, StoredUsage] = Field(default_factory=dict)
    """The usage of the current run by anything but its own model, by part name (`core.usage_parts`). Amounts assumed
    for calls without an answer appear only here, not in `run_usage`."""
    blocks: list[Block] = Field(default_factory=list)
    """The amounts that the current run has drawn from budgets. They move to the run's row when it ends."""
    bounds: Bounds | None = None
    """The budgets that limit the session, as last read. None if no budget had ever been defined."""
    user_budgets: str = ""
    """A digest of the project's per-user budgets when `bounds` was read. Empty without a user or without such
    budgets."""


class SessionEnd(Stored):
    """The outcome of a session's last run."""

    output: JsonValue = None
    """The output of the last run. None if it had no output or is still active."""
    error: ErrorInfo | None = None
    """The reason why the last run failed. None if it did not."""
    aborted: bool = False
    """Whether the last run was aborted. An aborted session accepts a new message, but no retry."""
    abort_reason: str | None = None
    """The reason that the caller of the abort gave, if any."""


class SessionRow(SessionEnd, SessionMoney, SessionWork, SessionHistory, SessionIdentity):
    """The state of a session: its current run, the end of its history, and its open step."""

    _expand = model_validator(mode="before")(expand_session)

    @classmethod
    def at(cls, session_id: str, value: Any) -> Self:
        """Parse the session row stored in this partition. Raises `DamagedRowError`."""
        return cls.read(session_id, SESSION, {**value, "session_id": session_id})

    @property
    def in_batch(self) -> bool:
        """Whether the current run waits for a provider's batch."""
        return self.status == "running" and self.claim is not None and bool(self.claim.batch)

    def dump(self) -> dict[str, Any]:
        return shorten_session(super().dump())
