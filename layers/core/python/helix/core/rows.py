"""The stored rows of a session (docs/protocol.md#rows). Their keys are in `core.row_keys`.

Law: the protocol's step row is the assistant message at index `count`, just past the end of history, and its call rows
follow. So folding a step only increases the count. The step's claim is stored in the session row, which the claim
writes anyway.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    model_validator,
)

from helix.core.compact import (
    StoredUsage,
    expand_checkpoint,
    expand_run,
    expand_session,
    shorten_checkpoint,
    shorten_run,
    shorten_session,
)
from helix.core.damage import UNREADABLE, first_problem
from helix.core.errors import DamagedRowError, damaged_row
from helix.core.json import JsonObject, JsonValue, clean_text
from helix.core.messages import Edit, Record
from helix.core.row_keys import SESSION
from helix.core.spans import Trace
from helix.core.status import ClaimMode, RunStatus, SessionStatus
from helix.core.usage import Usage


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a text")
    return value


ValueT = TypeVar("ValueT", bound=str)
AsStored = Annotated[ValueT, PlainValidator(_text), PlainSerializer(str)]
"""A Literal type for stored values that accepts any string, so that a row remains readable if another version wrote an
unknown value."""


class Stored(Record):
    """The base of stored rows. Fields that equal their default are not stored, because the store bills by the byte.
    Unknown fields of newer versions are ignored."""

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Parse a row. Raises `DamagedRowError` for a value that is not a row of this kind."""
        try:
            return super().model_validate(obj, **options)
        except UNREADABLE as error:
            of = f" of session {obj['session_id']!r}" if isinstance(obj, dict) and "session_id" in obj else ""
            raise DamagedRowError(f"a stored {cls.__name__}{of} cannot be read: {first_problem(error)}") from error

    @classmethod
    def read(cls, partition: str, sort: str, value: Any) -> Self:
        """Parse the row stored under this key of the table `sessions`. Raises `DamagedRowError`, which names the
        key."""
        try:
            return super().model_validate(value)
        except UNREADABLE as error:
            raise damaged_row("sessions", partition, sort, first_problem(error)) from error

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_defaults=True)


class ErrorInfo(Record):
    """The reason why a run failed."""

    code: str
    """The stable error code, such as `budget_exceeded` or `runtime_crash`. An abort has `aborted`."""
    message: Annotated[str, AfterValidator(clean_text)]
    """A human-readable description. Split surrogate pairs are joined and lone surrogates replaced, so that it can be
    stored."""
    recoverable: bool = True
    """Whether `retry` makes sense. False after an abort and for damaged rows."""


class Pending(Record):
    """A call that a session waits for."""

    model_config = ConfigDict(extra="ignore")

    call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The tool that the model called."""
    kind: Literal["approval", "client", "unknown", "child"] = "approval"
    """The kind of response that the call waits for. `approval`: a person's approval. `client`: the result of a tool
    that the client executes. `unknown`: a decision about the outcome of a call whose worker died. `child`: the call's
    sub-agent is paused or interrupted."""
    child_session_id: str | None = None
    """For `child`, the sub-agent's session. None for other kinds."""
    reason: str | None = None
    """Why the tool's rule requires approval. None if the rule gives no reason."""
    edited: Edit | None = None
    """Who edited the arguments in an earlier approval, and when. The outcome of that execution is unknown. None if the
    arguments are the model's."""
    arguments: JsonObject = Field(default_factory=dict)
    """The arguments of the call. They are stored here only if `edited` is set. Otherwise reads take them from the
    answer's row."""
    parameters: JsonObject = Field(default_factory=dict)
    """The JSON schema of the arguments. It is never stored: reads fill it in if they know the agent. Otherwise it is
    empty."""


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
    late: int = 0
    """The number of this run's attempts at the step that ran out of the worker's time, or whose worker fell silent. The
    run fails at three."""


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
    """The name of the session's agent, which never changes."""
    stream_id: str
    """The stream that receives the session's chunks: its own id, or the id of its root session."""
    parent: Parent | None = None
    """The call that started a sub-agent's session. None for a root session."""
    ancestors: list[str] = Field(default_factory=list)
    """The agents above a sub-agent, the root's first. Empty for a root session."""
    forked_from: JsonObject | None = None
    """The `session_id` and `checkpoint_id` that a branch or clone was copied from. None for other sessions."""
    trace: Trace | None = None
    """The run ids of the root and the parent, under which the spans of a sub-agent's run are recorded. None for a root
    session."""
    user_id: str | None = None
    """The user who owns the session. None if it was created without a user."""
    tags: list[str] = Field(default_factory=list)
    """The tags that the session was created with. Sub-agents inherit them."""
    metadata: JsonObject = Field(default_factory=dict)
    """The metadata that the session was created with. Sub-agents inherit it."""
    priority: int = 0
    """The priority of the session's runs while they wait for a slot, from -999 to 999. Higher priorities go first."""
    created_at: float = 0
    """The time of creation (Unix seconds). It distinguishes the session from a deleted one with the same id."""
    updated_at: float = 0
    """The time of the last write that incremented the version (Unix seconds)."""


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
    open: OpenStep | None = None
    """The staged step that is not yet part of history. None if there is no such step."""
    claim: StepClaim | None = None
    """The claim of the worker that is buying the next step. None while no step is being bought."""
    pending: list[Pending] = Field(default_factory=list)
    """The calls that a paused session waits for. Empty in other states, and if a budget caused the pause."""
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

    def dump(self) -> dict[str, Any]:
        return shorten_session(super().dump())


class RunIdentity(Stored):
    """The identity of a run: its input, its agent and the run before it."""

    kind: Literal["run"] = "run"
    """The tag of this kind of row in the store."""
    run_id: str
    """The id of the run. It is not stored here, because the row's key has it."""
    session_id: str
    """The session of the run. It is not stored here, because it names the partition."""
    turn: int
    """The number of the run within its session, starting at 1. It is not stored if the run's id contains it."""
    mode: AsStored[ClaimMode] = "execute"
    """The kind of claim that began the run (docs/protocol.md#claims)."""
    agent_type: str
    """The name of the session's agent."""
    previous_run_id: str | None = None
    """The run of the session before this one. None for the first."""
    input: JsonObject | None = None
    """The input `message` and `state` of the run. None if it continues without a message."""
    priority: int = 0
    """The priority of the run while it waits for a slot, from -999 to 999. Higher priorities go first."""
    fingerprint: str = ""
    """A digest of the agent's prompt, model, tools and output schema at the time of the claim."""
    editions: list[tuple[int, str]] = Field(default_factory=list)
    """The (step, fingerprint) pairs of later steps where a delivery found that the agent had changed."""
    deadline: float | None = None
    """The time when the parent's tool call stops waiting for this sub-agent (Unix seconds). None for root runs, and in
    process, where the parent's worker enforces the timeout."""
    trace: Trace | None = None
    """The run ids of the root and the parent, under which the spans of a sub-agent's run are recorded. None for a root
    run."""


class RunStart(Stored):
    """The position of history when a run began."""

    first_step: int = 1
    """The number of the first step that the run may buy."""
    start_lineage: int = 0
    """The lineage in which the run began. The `start_*` fields describe history before the run's own message. A retry
    `from_start` goes back there."""
    start_count: int = 0
    """The number of messages in history before the run's own message."""
    start_state_at: str = ""
    """The id of the checkpoint with the custom state at the start of the run. Empty for the agent's initial state."""
    start_step: int = 0
    """The number of the last step in history when the run began."""
    start_sequence: int = 0
    """The last sequence of the stream before the run. Readers of the run start after it. 0 if the stream had no
    messages."""
    started_at: float = 0
    """The time of the claim (Unix seconds)."""


class RunProgress(Stored):
    """The progress of a run, and the execution of its parts."""

    status: AsStored[RunStatus]
    """The status of the run. It equals the session's status while this is the current run, and is final afterwards. An
    interrupted or paused run becomes `superseded` when the next run is claimed."""
    part: int = 1
    """The number of the current execution, starting at 1. A long run on AWS moves to a new execution
    (docs/protocol.md#roll-over)."""
    part_step: int = 0
    """The first step that this execution buys. 0 means `first_step`."""
    steps: int = 0
    """The number of steps that the run bought. Written when the run ends."""
    last: tuple[int, int] | None = None
    """The (step, attempt) that was staged or committed last, copied from the session when the run ends. None if there
    was none."""
    claim: StepClaim | None = None
    """The step claim that was open when the run ended. The run's effects count its reservation as spent. None if no
    call was open."""


class RunMoney(Stored):
    """The usage of a run, and the amounts that it has drawn from budgets."""

    model: str = ""
    """The configured model of the run's agent. Empty if the agent chooses a model for each call."""
    usage: StoredUsage = Usage()
    """The usage of the run, including its tools and sub-agents but not late answers. Written when the run ends."""
    parts: dict[str, StoredUsage] = Field(default_factory=dict)
    """The usage of the run by anything but `model`, by part name (`core.usage_parts`). Written when the run ends."""
    late_calls: int = 0
    """The number of late answers: they arrived when their delivery no longer held the run."""
    late_micros: int = 0
    """The cost of the late answers in micro-dollars."""
    late_tokens: int = 0
    """The tokens that the late answers used."""
    over_micros: int = 0
    """The cost of the late answers beyond their reservations, in micro-dollars."""
    over_tokens: int = 0
    """The tokens that the late answers used beyond their reservations."""
    blocks: list[Block] = Field(default_factory=list)
    """The amounts that the run drew from budgets, copied from the session when the run ends. The run's effects return
    the unused rest."""


class RunEnd(Stored):
    """The outcome of a run."""

    ended_at: float | None = None
    """The time of the end (Unix seconds). None while the run is active."""
    output: JsonValue = None
    """The output of the run. None if it had none."""
    error: ErrorInfo | None = None
    """The reason why the run failed. None if it did not."""
    reason: str | None = None
    """The reason of an interrupt or abort, or of a pause: `pending` or `budget_exceeded`. None for other ends."""
    completion_reason: str | None = None
    """Why the run completed: `text`, `output`, `finish_with`, `stop_when` or `max_steps`. For a pause, its `reason`.
    None for other ends."""
    pending: list[Pending] = Field(default_factory=list)
    """The calls that a paused run waits for."""
    checkpoint: str | None = None
    """The id of the session's last checkpoint when the run ended. None while the run is active."""
    effects: Literal["open", "done"] = "open"
    """`open` until all effects of the run's end are done, then `done` (docs/protocol.md#ends)."""


class RunRow(RunEnd, RunMoney, RunProgress, RunStart, RunIdentity):
    """A run: one execute, resume or retry of a session. The claim creates the row, and the end of the run completes
    it."""

    _expand = model_validator(mode="before")(expand_run)

    @classmethod
    def at(cls, session_id: str, sort: str, value: Any) -> Self:
        """Parse the row stored under this key. Raises `DamagedRowError`."""
        return cls.read(session_id, sort, {**value, "session_id": session_id, "run_id": sort[2:]})

    def dump(self) -> dict[str, Any]:
        return shorten_run(super().dump())


class CheckpointRow(Stored):
    """A checkpoint to go back to. It contains only complete steps."""

    kind: Literal["checkpoint"] = "checkpoint"
    """The tag of this kind of row in the store."""
    id: str
    """`cpv1-<session>-s<step>-t<ms>-<version>`. It is not stored if it follows from the row's key, `step` and
    `created_at`."""
    run_id: str
    """The run that wrote the checkpoint."""
    turn: int
    """The number of that run within its session. It is not stored if the run's id contains it."""
    lineage: int = 0
    """The lineage of history at the checkpoint."""
    count: int
    """The number of the lineage's messages that were part of history."""
    step: int = 0
    """The number of the last step in that history."""
    status: AsStored[SessionStatus]
    """The status of the session at the checkpoint."""
    state_at: str
    """The id of the checkpoint that stores the custom state. It is this one if the state changed here."""
    state: JsonObject | None = None
    """The custom state, if it changed here. None if it did not."""
    patches: list[JsonObject] = Field(default_factory=list)
    """The RFC 6902 operations that turned the previous state into `state`."""
    warnings: list[str] = Field(default_factory=list)
    """Human-readable descriptions of conflicts between parallel tools, and of changes that the merge rejected."""
    pending: list[Pending] = Field(default_factory=list)
    """The calls that the session waited for at the checkpoint."""
    usage: StoredUsage = Usage()
    """The usage of the session up to the checkpoint."""
    name: str | None = None
    """The name that a caller gave the checkpoint, if any. Retention keeps named checkpoints."""
    created_at: float = 0
    """The time of the write (Unix seconds)."""

    _expand = model_validator(mode="before")(expand_checkpoint)

    @classmethod
    def at(cls, session_id: str, sort: str, value: Any) -> Self:
        """Parse the row stored under this key. Raises `DamagedRowError`."""
        try:
            version = int(sort[2:])
        except ValueError as error:
            raise damaged_row("sessions", session_id, sort, "its key has no version") from error
        return cls.read(session_id, sort, {**value, "place": (session_id, version)})

    def dump(self) -> dict[str, Any]:
        return shorten_checkpoint(super().dump())


class LineageRow(Stored):
    """How a lineage's beginning is composed of older lineages. Written by the claim that starts the lineage."""

    kind: Literal["lineage"] = "lineage"
    """The tag of this kind of row in the store."""
    lineage: int
    """The number of the lineage. Lineage 0 has no row."""
    start: int
    """The index of the first message that is stored in this lineage. Earlier messages come from `chain`."""
    chain: list[tuple[int, int]]
    """The (older lineage, count) pairs that make up the beginning, in ascending order of count. They are fully
    resolved, so that no other lineage row has to be read."""


class StopRow(Stored):
    """A request to interrupt or abort one run. Its key contains the run id, so the next run never sees it."""

    kind: Literal["stop"] = "stop"
    """The tag of this kind of row in the store."""
    run_id: str
    """The run to stop."""
    stop: Literal["interrupt", "abort"]
    """`interrupt` leaves a session that can be resumed. `abort` fails the run permanently."""
    reason: str | None = None
    """The reason that the caller gave, if any."""
    created_at: float = 0
    """The time of the request (Unix seconds)."""


class AttemptRow(Stored):
    """A model call that left no answer in history."""

    kind: Literal["attempt"] = "attempt"
    """The tag of this kind of row in the store."""
    run_id: str
    """The run that called the model."""
    step: int
    """The step that the call was for."""
    attempt: int
    """The number of the attempt within the step."""
    outcome: Literal["failed", "lost", "cancelled", "dead"]
    """`failed`: the call ended with an error. `lost`: the answer arrived when the delivery no longer held the run.
    `cancelled`: the run was stopped first. `dead`: the worker died."""
    model: str | None = None
    """The model that was called. None if it is not known."""
    usage: StoredUsage = Usage()
    """The usage that the provider reported for a `failed` or `lost` call. Zero for the other outcomes, whose usage is
    unknown."""
    assumed_micros: int = 0
    """The micro-dollars reserved for the call, which count as spent because its usage is unknown. In a `lost` row, the
    amount assumed until the answer arrived."""
    assumed_tokens: int = 0
    """The tokens reserved for the call; see `assumed_micros`."""
    error: str | None = None
    """The error code of a `failed` call. None for other outcomes."""
    at: float = 0
    """The time at which the outcome was settled (Unix seconds)."""
