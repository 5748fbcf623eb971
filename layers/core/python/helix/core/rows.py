"""The stored rows of a session; `core.row_keys` has their keys (docs/protocol.md#rows).

Law: the step row of the protocol is the assistant message beyond the count, its call rows follow: folding a step only
moves the count. The step's claim lives in the session row, which the claim writes anyway.
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
"""One of the values that the type names. A row of another version may have one that it does not, and can still be read."""


class Stored(Record):
    """Rows leave out what equals its default: bytes are billed, and a newer version's fields are ignored by an older."""

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Raises `DamagedRowError` for what is no row of this kind."""
        try:
            return super().model_validate(obj, **options)
        except UNREADABLE as error:
            of = f" of session {obj['session_id']!r}" if isinstance(obj, dict) and "session_id" in obj else ""
            raise DamagedRowError(f"a stored {cls.__name__}{of} cannot be read: {first_problem(error)}") from error

    @classmethod
    def read(cls, partition: str, sort: str, value: Any) -> Self:
        """The row as stored under this key of the table `sessions`. Raises `DamagedRowError`, which names the key."""
        try:
            return super().model_validate(value)
        except UNREADABLE as error:
            raise damaged_row("sessions", partition, sort, first_problem(error)) from error

    def dump(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_defaults=True)


class ErrorInfo(Record):
    """Why a run failed. `recoverable` says whether `retry` makes sense."""

    code: str
    message: Annotated[str, AfterValidator(clean_text)]
    recoverable: bool = True


class Pending(Record):
    """A call that waits for people. `kind`: `approval`, `client` (its result), `unknown` (a ruling), or `child`: a
    sub-agent waits; then `child_session_id` is where. `reason`: why the tool asks, where its rule says it. `arguments` of
    the call and `parameters`, their JSON schema, are not stored here: reads take them from the call and from the agent,
    where they know it. `edited`: a person approved other `arguments` than the model's, before the outcome was lost."""

    model_config = ConfigDict(extra="ignore")

    call_id: str
    tool_name: str
    kind: Literal["approval", "client", "unknown", "child"] = "approval"
    child_session_id: str | None = None
    reason: str | None = None
    edited: Edit | None = None
    arguments: JsonObject = Field(default_factory=dict)
    parameters: JsonObject = Field(default_factory=dict)


class OpenStep(Record):
    """A staged answer that is not yet history: the rows from `base` on. `calls` counts its call rows. `wide`: no
    transaction holds them all."""

    step: int
    attempt: int
    run_id: str
    base: int
    calls: int
    wide: bool = False


class StepClaim(Record):
    """Who is buying a step. `deadline` is the latest moment (Unix seconds) at which the holder can still act. `late`: how
    many attempts at the step got no answer in the time that their worker had, or had a worker that fell silent."""

    step: int
    attempt: int
    attempt_id: str
    run_id: str
    deadline: float
    micros: int = 0
    tokens: int = 0
    late: int = 0


class Block(Record):
    """What the current run has drawn from one window of a budget, in the budget's unit: `spent + reserved + assumed <=
    drawn`. `draws`: the session's version at its last draw. `reported`: of `spent` and `assumed`, what the last draw
    reported to the budget. `closed`: no call is reserved from it any more, because another window has begun or the budget
    is gone."""

    budget: str
    unit: Literal["micros", "tokens"]
    drawn: int = 0
    spent: int = 0
    assumed: int = 0
    draws: int = 0
    reported: int = 0
    closed: bool = False


class Bounds(Record):
    """Which budgets bound a session (`core.budget`). `version`: of all definitions, when these were read. `budgets`: their
    short forms. `level`: how far the worst of them was used up at the run's last draw."""

    version: int
    level: Literal["", "warning", "critical", "exceeded"] = ""
    budgets: list[list[JsonValue]] = Field(default_factory=list)


class Parent(Record):
    session_id: str
    run_id: str
    call_id: str


class SessionRow(Stored):
    kind: Literal["session"] = "session"
    session_id: str
    agent_type: str
    stream_id: str
    status: AsStored[SessionStatus]
    version: int
    run_id: str
    turn: int
    lineage: int = 0
    lineages: int = 0
    count: int = 0
    step: int = 0
    checkpoint: str = ""
    state_at: str = ""
    open: OpenStep | None = None
    claim: StepClaim | None = None
    last: tuple[int, int] | None = None
    pending: list[Pending] = Field(default_factory=list)
    lease_owner: str | None = None
    lease_expires: float = 0
    run_steps: int = 0
    misses: int = 0
    forced: bool = False
    run_usage: StoredUsage = Usage()
    run_parts: dict[str, StoredUsage] = Field(default_factory=dict)
    usage: StoredUsage = Usage()
    blocks: list[Block] = Field(default_factory=list)
    bounds: Bounds | None = None
    user_budgets: str = ""
    output: JsonValue = None
    error: ErrorInfo | None = None
    aborted: bool = False
    abort_reason: str | None = None
    parent: Parent | None = None
    trace: Trace | None = None
    ancestors: list[str] = Field(default_factory=list)
    forked_from: JsonObject | None = None
    user_id: str | None = None
    tags: list[str] = Field(default_factory=list)
    metadata: JsonObject = Field(default_factory=dict)
    priority: int = 0
    created_at: float = 0
    updated_at: float = 0

    _expand = model_validator(mode="before")(expand_session)

    @classmethod
    def at(cls, session_id: str, value: Any) -> Self:
        """The row as stored in this partition. Raises `DamagedRowError`."""
        return cls.read(session_id, SESSION, {**value, "session_id": session_id})

    def dump(self) -> dict[str, Any]:
        return shorten_session(super().dump())


class RunRow(Stored):
    """`start_*` is where the run began: what `retry from_start` goes back to. `part`, `part_step`: the execution at work
    and the first step it buys (0: `first_step`). `model`: what its agent was set to call; `parts`: what of `usage` is of
    others (`core.usage_parts`). `late_*`: answers that came when the run was no longer their delivery's; `over_*`: what
    these used beyond what had been reserved for them. `editions`: (step, fingerprint) where a later step found another
    agent. `deadline`: when a sub-agent's time is over (Unix seconds): its parent's tool waits no longer. `effects`:
    docs/protocol.md#ends."""

    kind: Literal["run"] = "run"
    run_id: str
    session_id: str
    turn: int
    status: AsStored[RunStatus]
    mode: AsStored[ClaimMode] = "execute"
    agent_type: str
    first_step: int = 1
    part: int = 1
    part_step: int = 0
    deadline: float | None = None
    trace: Trace | None = None
    fingerprint: str = ""
    editions: list[tuple[int, str]] = Field(default_factory=list)
    previous_run_id: str | None = None
    input: JsonObject | None = None
    start_lineage: int = 0
    start_count: int = 0
    start_state_at: str = ""
    start_step: int = 0
    steps: int = 0
    model: str = ""
    usage: StoredUsage = Usage()
    parts: dict[str, StoredUsage] = Field(default_factory=dict)
    late_calls: int = 0
    late_micros: int = 0
    late_tokens: int = 0
    over_micros: int = 0
    over_tokens: int = 0
    blocks: list[Block] = Field(default_factory=list)
    claim: StepClaim | None = None
    last: tuple[int, int] | None = None
    output: JsonValue = None
    error: ErrorInfo | None = None
    reason: str | None = None
    completion_reason: str | None = None
    pending: list[Pending] = Field(default_factory=list)
    checkpoint: str | None = None
    start_sequence: int = 0
    effects: Literal["open", "done"] = "open"
    priority: int = 0
    started_at: float = 0
    ended_at: float | None = None

    _expand = model_validator(mode="before")(expand_run)

    @classmethod
    def at(cls, session_id: str, sort: str, value: Any) -> Self:
        """The row as stored under this key. Raises `DamagedRowError`."""
        return cls.read(session_id, sort, {**value, "session_id": session_id, "run_id": sort[2:]})

    def dump(self) -> dict[str, Any]:
        return shorten_run(super().dump())


class CheckpointRow(Stored):
    """A moment to go back to: whole steps only. The custom state is on the checkpoint named by `state_at`, which is
    this one when the state changed here. `name`: given by a caller; retention keeps the checkpoint."""

    kind: Literal["checkpoint"] = "checkpoint"
    id: str
    run_id: str
    turn: int
    lineage: int = 0
    count: int
    step: int = 0
    status: AsStored[SessionStatus]
    state_at: str
    state: JsonObject | None = None
    patches: list[JsonObject] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    pending: list[Pending] = Field(default_factory=list)
    usage: StoredUsage = Usage()
    name: str | None = None
    created_at: float = 0

    _expand = model_validator(mode="before")(expand_checkpoint)

    @classmethod
    def at(cls, session_id: str, sort: str, value: Any) -> Self:
        """The row as stored under this key. Raises `DamagedRowError`."""
        try:
            version = int(sort[2:])
        except ValueError as error:
            raise damaged_row("sessions", session_id, sort, "its key has no version") from error
        return cls.read(session_id, sort, {**value, "place": (session_id, version)})

    def dump(self) -> dict[str, Any]:
        return shorten_checkpoint(super().dump())


class LineageRow(Stored):
    """Messages below `start` come from `chain`: (lineage, count) pairs, counts ascending, resolved to the bottom."""

    kind: Literal["lineage"] = "lineage"
    lineage: int
    start: int
    chain: list[tuple[int, int]]


class StopRow(Stored):
    kind: Literal["stop"] = "stop"
    run_id: str
    stop: Literal["interrupt", "abort"]
    reason: str | None = None
    created_at: float = 0


class AttemptRow(Stored):
    """A model call that left no answer in history. `outcome`: `failed` (the model's last word was an error), `lost` (its
    answer came when the run was no longer the delivery's), `cancelled` (a stop came first), `dead` (its worker died).
    Nobody knows what the last two used: `assumed_*` is what was reserved for them, and counts as spent."""

    kind: Literal["attempt"] = "attempt"
    run_id: str
    step: int
    attempt: int
    outcome: Literal["failed", "lost", "cancelled", "dead"]
    model: str | None = None
    usage: StoredUsage = Usage()
    assumed_micros: int = 0
    assumed_tokens: int = 0
    error: str | None = None
    at: float = 0
