"""The stored rows of a session. `core.row_keys` has their keys (docs/protocol.md#rows).

Law: the protocol's step row is the assistant message beyond the count, and its call rows follow it. So folding a step
only moves the count. The step's claim is in the session row, which the claim writes anyway.
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
"""A Literal type for stored values that accepts any text. Another version may have written a value that this one does
not know, and the row can still be read."""


class Stored(Record):
    """The base of stored rows. A row leaves out what equals its default, because bytes are billed. An older version
    ignores a newer version's fields."""

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
        """Parse the row that is stored under this key of the table `sessions`. Raises `DamagedRowError`, which names
        the key."""
        try:
            return super().model_validate(value)
        except UNREADABLE as error:
            raise damaged_row("sessions", partition, sort, first_problem(error)) from error

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_defaults=True)


class ErrorInfo(Record):
    """The reason why a run failed."""

    code: str
    """The stable name of the error, such as `budget_exceeded` or `runtime_crash`. An abort is `aborted`."""
    message: Annotated[str, AfterValidator(clean_text)]
    """A description for people. Halves of characters are joined or replaced, so that the text can be stored."""
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
    """The kind of response that is missing. `approval`: a person's approval. `client`: the result of a tool that the
    client executes. `unknown`: a ruling on the outcome of a call whose worker died. `child`: the call's sub-agent is
    paused or interrupted."""
    child_session_id: str | None = None
    """For `child`, the sub-agent's session. None for other kinds."""
    reason: str | None = None
    """Why the tool's rule asks for an approval. None if the rule gives no reason."""
    edited: Edit | None = None
    """The person who changed the arguments in an earlier approval, and the time. The outcome of that execution is
    unknown. None if the arguments are the model's."""
    arguments: JsonObject = Field(default_factory=dict)
    """The arguments of the call. They are stored only with `edited`. Otherwise reads take them from the answer's
    row."""
    parameters: JsonObject = Field(default_factory=dict)
    """The JSON schema of the arguments. It is never stored. Reads fill it in if they know the agent; otherwise it is
    empty."""


class OpenStep(Record):
    """A staged answer that is not yet history: the rows from `base` on."""

    step: int
    """The step that the answer belongs to."""
    attempt: int
    """The attempt at the step that bought the answer."""
    run_id: str
    """The run that staged the answer. A later run may take over the step."""
    base: int
    """The index of the answer, which equals the session's count. The call rows follow it."""
    calls: int
    """The number of the answer's calls, whether they have a row yet or not."""
    wide: bool = False
    """Whether the step has too many calls for one transaction. Several transactions then write their rows
    (docs/protocol.md#wide)."""


class StepClaim(Record):
    """The claim of a worker that is buying a step."""

    step: int
    """The step that the worker is buying."""
    attempt: int
    """The number of the attempt, from 1 within the step."""
    attempt_id: str
    """`<owner>.<session version>`, made once by the worker that claims. If the worker gets no reply to its transaction,
    it looks for this id."""
    run_id: str
    """The run that the worker buys the step for."""
    deadline: float
    """The latest moment (Unix seconds) at which the holder can still act. 0: the claim was released or expired."""
    micros: int = 0
    """The micro-dollars reserved for the call. 0 if nothing is reserved: without budgets, for a cached answer, and for
    a function agent."""
    tokens: int = 0
    """The tokens reserved for the call. 0 in the same cases as `micros`."""
    late: int = 0
    """The number of this run's attempts at the step that got no answer in their worker's time, or whose worker fell
    silent. The run fails at three."""


class Block(Record):
    """The amounts that the current run has drawn from one window of a budget. `spent + reserved + assumed <= drawn`,
    unless a call used more than was reserved for it. The reserved amount is in the session's `claim`."""

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
    """Whether no more calls are reserved from the block, because another window has begun or the budget is gone."""


class Bounds(Record):
    """The budgets that bound a session (`core.budget`)."""

    version: int
    """The count of all changes of budget definitions when these were read. If the count has moved, the next step reads
    them again."""
    level: Literal["", "warning", "critical", "exceeded"] = ""
    """The alert level of the budget that was used up furthest at the run's last draw. Empty below `warning`."""
    budgets: list[list[JsonValue]] = Field(default_factory=list)
    """The definitions in the short form of `core.budget.packed`. Empty if no budget bounds this session."""


class Parent(Record):
    """The call that a sub-agent's session works for."""

    session_id: str
    """The session above the sub-agent."""
    run_id: str
    """The run that started the sub-agent."""
    call_id: str
    """The call that gets the sub-agent's result."""


class SessionIdentity(Stored):
    """The session itself: who it belongs to, and where it comes from."""

    kind: Literal["session"] = "session"
    """The tag of this kind of row in the store."""
    session_id: str
    """The id of the session. It is not stored here, because it names the partition."""
    agent_type: str
    """The name of the session's agent, which never changes."""
    stream_id: str
    """The stream that the session's chunks go to: its own id, or the id of its root session."""
    parent: Parent | None = None
    """The call that a sub-agent's session works for. None for a root session."""
    ancestors: list[str] = Field(default_factory=list)
    """The agents above a sub-agent, the root's first. Empty for a root session."""
    forked_from: JsonObject | None = None
    """The `session_id` and `checkpoint_id` that a branch or clone was copied from. None for other sessions."""
    trace: Trace | None = None
    """The run ids of the root and the parent, to which the spans of a sub-agent's run belong. None for a root
    session."""
    user_id: str | None = None
    """The user who owns the session. None if its creator named no user."""
    tags: list[str] = Field(default_factory=list)
    """The tags that the creator gave. Sub-agents inherit them."""
    metadata: JsonObject = Field(default_factory=dict)
    """The JSON object that the creator gave. Sub-agents inherit it."""
    priority: int = 0
    """The rank of the session's runs while they wait for a slot, from -999 to 999. A higher one goes first."""
    created_at: float = 0
    """The time of creation (Unix seconds). It tells the session from one that was deleted under the same id."""
    updated_at: float = 0
    """The time of the last write that raised the version (Unix seconds)."""


class SessionHistory(Stored):
    """The end of a session's history."""

    version: int
    """A counter that grows by one with each transaction that writes this row. Renewing a deadline does not change
    it."""
    turn: int
    """The number of the current or last run within the session, from 1. 0 in a copy that has not run yet."""
    lineage: int = 0
    """The current lineage."""
    lineages: int = 0
    """The highest lineage number given so far. A rewind takes the next one."""
    count: int = 0
    """The number of messages of the lineage that are history."""
    step: int = 0
    """The number of the last step that is history. 0 before the first."""
    last: tuple[int, int] | None = None
    """The (step, attempt) staged or committed last, with which the stream settles an attempt left open. None before the
    first answer and after a rewind."""
    checkpoint: str = ""
    """The id of the last checkpoint. Empty before the first."""
    state_at: str = ""
    """The id of the checkpoint that holds the current custom state. Empty: the agent's initial state."""


class SessionWork(Stored):
    """The current run of a session, and who works on it."""

    status: AsStored[SessionStatus]
    """The status of the last run, or `deleting` while the session's rows are being removed."""
    run_id: str
    """The current or last run. Empty in a copy that has not run yet."""
    run_steps: int = 0
    """The number of steps that the current run has bought, for the limit `max_steps`. A call that failed counts too."""
    misses: int = 0
    """The number of times that the current run's model gave no valid output, for the limit `max_completion_retries`."""
    forced: bool = False
    """Whether the next answer must be the output. The model then has to call `__finish__`."""
    open: OpenStep | None = None
    """The staged step that is not history yet. None if there is no such step."""
    claim: StepClaim | None = None
    """The claim of the worker that is buying the next step. None while no step is being bought."""
    pending: list[Pending] = Field(default_factory=list)
    """The calls that a paused session waits for. Empty in other states, and if a budget caused the pause."""
    lease_owner: str | None = None
    """The worker that holds the run in process. None on AWS and in worker processes, and between runs. In a hidden
    session, the id of its deletion."""
    lease_expires: float = 0
    """The deadline of that worker's claim on the run (Unix seconds). 0: no lease."""


class SessionMoney(Stored):
    """The usage of a session and of its current run, and the budgets that bound them."""

    usage: StoredUsage = Usage()
    """The usage of all runs, including that of tools and sub-agents. It is not stored if it equals `run_usage`."""
    run_usage: StoredUsage = Usage()
    """The usage of the current run, including that of its tools and sub-agents."""
    run_parts: dict[str, StoredUsage] = Field(default_factory=dict)
    """The parts of the current run that its own model did not use, by name (`core.usage_parts`). Amounts assumed for
    calls without an answer are here only, not in `run_usage`."""
    blocks: list[Block] = Field(default_factory=list)
    """The amounts that the current run has drawn from budgets. The run's end moves them to its row."""
    bounds: Bounds | None = None
    """The budgets that bound the session, as last read. None if no budget had ever been defined."""
    user_budgets: str = ""
    """A digest of the budgets that the project declared for each user when `bounds` was read. Empty without a user or
    such budgets."""


class SessionEnd(Stored):
    """The end of a session's last run."""

    output: JsonValue = None
    """The output of the last run. None if it gave none, or is still active."""
    error: ErrorInfo | None = None
    """The reason why the last run failed. None if it did not."""
    aborted: bool = False
    """Whether the last run was aborted. An aborted session takes a new message, but no retry."""
    abort_reason: str | None = None
    """The reason that the abort's caller gave, if any."""


class SessionRow(SessionEnd, SessionMoney, SessionWork, SessionHistory, SessionIdentity):
    """The state of a session: its current run, the end of its history, and its open step."""

    _expand = model_validator(mode="before")(expand_session)

    @classmethod
    def at(cls, session_id: str, value: Any) -> Self:
        """Parse the row that is stored in this partition. Raises `DamagedRowError`."""
        return cls.read(session_id, SESSION, {**value, "session_id": session_id})

    def dump(self) -> dict[str, Any]:
        return shorten_session(super().dump())


class RunIdentity(Stored):
    """The run itself: what it was asked, and by which run it was preceded."""

    kind: Literal["run"] = "run"
    """The tag of this kind of row in the store."""
    run_id: str
    """The id of the run. It is not stored here, because the row's key has it."""
    session_id: str
    """The session of the run. It is not stored here, because it names the partition."""
    turn: int
    """The number of the run within its session, from 1. It is not stored if the run's id contains it."""
    mode: AsStored[ClaimMode] = "execute"
    """The kind of claim that began the run (docs/protocol.md#claims)."""
    agent_type: str
    """The name of the session's agent."""
    previous_run_id: str | None = None
    """The run of the session before this one. None for the first."""
    input: JsonObject | None = None
    """The `message` and `state` that the run was given. None if it continues without a message."""
    priority: int = 0
    """The rank of the run while it waits for a slot, from -999 to 999. A higher one goes first."""
    fingerprint: str = ""
    """A digest of the agent's prompt, model, tools and output schema at the claim."""
    editions: list[tuple[int, str]] = Field(default_factory=list)
    """The (step, fingerprint) pairs of later steps at which a delivery found a changed agent."""
    deadline: float | None = None
    """The moment at which the tool of a sub-agent's parent stops waiting (Unix seconds). None for root runs, and in
    process, where the parent's worker watches the time."""
    trace: Trace | None = None
    """The run ids of the root and the parent, to which the spans of a sub-agent's run belong. None for a root run."""


class RunStart(Stored):
    """The place in history at which a run began."""

    first_step: int = 1
    """The number of the first step that the run may buy."""
    start_lineage: int = 0
    """The lineage in which the run began. The `start_*` fields say where history stood before the run's own message. A
    retry `from_start` goes back there."""
    start_count: int = 0
    """The number of messages in history before the run's own message."""
    start_state_at: str = ""
    """The id of the checkpoint with the custom state that the run began with. Empty: the agent's initial state."""
    start_step: int = 0
    """The number of the last step in history when the run began."""
    start_sequence: int = 0
    """The last sequence of the stream before the run. Readers of the run start after it. 0: the stream had no
    messages."""
    started_at: float = 0
    """The time of the claim (Unix seconds)."""


class RunProgress(Stored):
    """The progress of a run, and of its executions."""

    status: AsStored[RunStatus]
    """The status of the session while this is its current run; final afterwards. An interrupted or paused run becomes
    `superseded` when the next run is claimed."""
    part: int = 1
    """The number of the execution at work, from 1. A long run on AWS moves to a new execution
    (docs/protocol.md#roll-over)."""
    part_step: int = 0
    """The first step that this execution buys. 0: `first_step`."""
    steps: int = 0
    """The number of steps that the run bought. The run's end writes it."""
    last: tuple[int, int] | None = None
    """The (step, attempt) staged or committed last, taken over from the session at the run's end. None if there was
    none."""
    claim: StepClaim | None = None
    """The step claim that was open at the run's end. Its effects count the reservation as spent. None if no call was
    open."""


class RunMoney(Stored):
    """The usage of a run, and what it has drawn from budgets."""

    model: str = ""
    """The model that its agent was set to call. Empty if the agent decides at each call."""
    usage: StoredUsage = Usage()
    """The usage of the run, including that of its tools and sub-agents. The run's end writes it. Late answers are not
    in it."""
    parts: dict[str, StoredUsage] = Field(default_factory=dict)
    """The parts of the run that `model` did not use, by name (`core.usage_parts`). The run's end writes them."""
    late_calls: int = 0
    """The number of answers that came when the run was no longer their delivery's."""
    late_micros: int = 0
    """The micro-dollars that those answers cost."""
    late_tokens: int = 0
    """The tokens that those answers used."""
    over_micros: int = 0
    """The micro-dollars that those answers cost beyond what had been reserved for them."""
    over_tokens: int = 0
    """The tokens that those answers used beyond what had been reserved for them."""
    blocks: list[Block] = Field(default_factory=list)
    """The amounts that the run drew from budgets, taken over from the session at the run's end. Its effects return the
    rest."""


class RunEnd(Stored):
    """The end of a run."""

    ended_at: float | None = None
    """The time of the end (Unix seconds). None while the run is active."""
    output: JsonValue = None
    """The output of the run. None if it gave none."""
    error: ErrorInfo | None = None
    """The reason why the run failed. None if it did not."""
    reason: str | None = None
    """The reason of an interrupt or abort, or of a pause: `pending` or `budget_exceeded`. None for other ends."""
    completion_reason: str | None = None
    """The cause of the end: `text`, `output`, `finish_with`, `stop_when` or `max_steps`; for a pause, its `reason`.
    None for other ends."""
    pending: list[Pending] = Field(default_factory=list)
    """The calls that a paused run waits for."""
    checkpoint: str | None = None
    """The id of the session's last checkpoint at the run's end. None while the run is active."""
    effects: Literal["open", "done"] = "open"
    """`open` until all that follows from the run's end is done, then `done` (docs/protocol.md#ends)."""


class RunRow(RunEnd, RunMoney, RunProgress, RunStart, RunIdentity):
    """One execute, resume or retry of a session. Its claim writes the row, and its end completes it."""

    _expand = model_validator(mode="before")(expand_run)

    @classmethod
    def at(cls, session_id: str, sort: str, value: Any) -> Self:
        """Parse the row that is stored under this key. Raises `DamagedRowError`."""
        return cls.read(session_id, sort, {**value, "session_id": session_id, "run_id": sort[2:]})

    def dump(self) -> dict[str, Any]:
        return shorten_run(super().dump())


class CheckpointRow(Stored):
    """A moment to go back to. It holds whole steps only."""

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
    """The lineage of history at this moment."""
    count: int
    """The number of messages of the lineage that were history."""
    step: int = 0
    """The number of the last step in that history."""
    status: AsStored[SessionStatus]
    """The status of the session at this moment."""
    state_at: str
    """The id of the checkpoint that holds the custom state. It is this one if the state changed here."""
    state: JsonObject | None = None
    """The custom state, if it changed here. None if it did not."""
    patches: list[JsonObject] = Field(default_factory=list)
    """The RFC 6902 operations that led from the state before to `state`."""
    warnings: list[str] = Field(default_factory=list)
    """The collisions between parallel tools, and the changes that the merge refused, in words."""
    pending: list[Pending] = Field(default_factory=list)
    """The calls that the session waited for."""
    usage: StoredUsage = Usage()
    """The usage of the session up to this moment."""
    name: str | None = None
    """The name that a caller gave, if any. Retention keeps a checkpoint with a name."""
    created_at: float = 0
    """The time of the write (Unix seconds)."""

    _expand = model_validator(mode="before")(expand_checkpoint)

    @classmethod
    def at(cls, session_id: str, sort: str, value: Any) -> Self:
        """Parse the row that is stored under this key. Raises `DamagedRowError`."""
        try:
            version = int(sort[2:])
        except ValueError as error:
            raise damaged_row("sessions", session_id, sort, "its key has no version") from error
        return cls.read(session_id, sort, {**value, "place": (session_id, version)})

    def dump(self) -> dict[str, Any]:
        return shorten_checkpoint(super().dump())


class LineageRow(Stored):
    """The composition of a lineage's beginning from older lineages. The claim that starts the lineage writes it."""

    kind: Literal["lineage"] = "lineage"
    """The tag of this kind of row in the store."""
    lineage: int
    """The number of the lineage. Lineage 0 has no row."""
    start: int
    """The first index whose message is the lineage's own. The messages below it come from `chain`."""
    chain: list[tuple[int, int]]
    """The (older lineage, count) pairs that the beginning is made of, counts ascending. They are resolved to the
    bottom, so no other lineage row has to be read."""


class StopRow(Stored):
    """A request to interrupt or abort one run. Its key names the run, so the next run never sees it."""

    kind: Literal["stop"] = "stop"
    """The tag of this kind of row in the store."""
    run_id: str
    """The run to stop."""
    stop: Literal["interrupt", "abort"]
    """`interrupt` leaves a session that can be resumed. `abort` fails the run for good."""
    reason: str | None = None
    """The reason that the caller gave, if any."""
    created_at: float = 0
    """The time of the request (Unix seconds)."""


class AttemptRow(Stored):
    """A model call that left no answer in history."""

    kind: Literal["attempt"] = "attempt"
    """The tag of this kind of row in the store."""
    run_id: str
    """The run that asked the model."""
    step: int
    """The step that the call was for."""
    attempt: int
    """The number of the attempt within the step."""
    outcome: Literal["failed", "lost", "cancelled", "dead"]
    """`failed`: the model's last word was an error. `lost`: the answer came when the run was no longer the delivery's.
    `cancelled`: a stop came first. `dead`: the worker died."""
    model: str | None = None
    """The model that was called. None if it is not known."""
    usage: StoredUsage = Usage()
    """The usage that the provider reported for a `failed` or `lost` call. For the other outcomes it is unknown, and
    zero here."""
    assumed_micros: int = 0
    """The micro-dollars reserved for the call, which count as spent because its usage is unknown. In a `lost` row, what
    was assumed until the answer came."""
    assumed_tokens: int = 0
    """The tokens reserved for the call; see `assumed_micros`."""
    error: str | None = None
    """The error code of a `failed` call. None for other outcomes."""
    at: float = 0
    """The time at which the outcome was settled (Unix seconds)."""
