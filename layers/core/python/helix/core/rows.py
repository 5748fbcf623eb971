"""The short rows of a session: checkpoints, lineages, stop requests and attempts, and the values that several rows
contain (docs/protocol.md#rows). `core.session_row`, `core.run_row` and `core.entries` have the other rows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from helix.core.compact import StoredUsage, expand_checkpoint, shorten_checkpoint
from helix.core.errors import damaged_row
from helix.core.json import JsonObject, clean_text
from helix.core.messages import AskedQuestion, Edit, Record
from helix.core.status import SessionStatus
from helix.core.stored import AsStored, Stored
from helix.core.usage import Usage
from helix.core.verdicts import NO_VERDICTS, Verdict


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
    kind: Literal["approval", "client", "unknown", "question", "elsewhere", "child"] = "approval"
    """The kind of response that the call waits for. `approval`: a person's approval. `client`: the result of a tool
    that the client executes. `unknown`: a decision about the outcome of a call whose worker died. `question`: the answers
    to the tool's `questions`. `elsewhere`: the result of another system, which has a token. `child`: the call's sub-agent
    is paused or interrupted."""
    child_session_id: str | None = None
    """For `child`, the sub-agent's session. None for other kinds."""
    reason: str | None = None
    """Why the tool's rule requires approval. None if the rule gives no reason."""
    edited: Edit | None = None
    """The edit of the arguments in an earlier approval. The outcome of that execution is unknown. None if the
    arguments are the model's."""
    arguments: JsonObject = Field(default_factory=dict)
    """The arguments of the call. They are stored here only if `edited` is set. Otherwise reads take them from the
    answer's row."""
    parameters: JsonObject = Field(default_factory=dict)
    """The JSON schema of the arguments. It is never stored: reads fill it in if they know the agent. Otherwise it is
    empty."""
    questions: list[AskedQuestion] = Field(default_factory=list)
    """For `question`, the open questions. They are never stored here: reads take them from the call's row."""
    expires_at: float | None = None
    """The time (Unix seconds) when the wait ends without a response. None: never."""
    remind_at: float | None = None
    """The time (Unix seconds) of the next reminder. None: there is none."""
    reminded: int = 0
    """The number of reminders so far."""
    round: int = 0
    """For `question`, a number that grows with each round of questions of the call. A response may name it, so that a
    repeated response never answers a later question. 0 for other kinds."""


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
    view: int = 0
    """The session version in the key of the view that the model was shown. 0: the whole history."""
    frontend_tools: str = ""
    """The id of the request head with the tools and settings that the run declared, for a run that goes on from here.
    Empty if it declared none."""
    active_agent: str = ""
    """The agent that makes the next step after that history. Empty before the first handoff: the session's own agent."""
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
    """The composition of a lineage's beginning from older lineages. Written by the claim that starts the lineage."""

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
    """A request to interrupt, abort or steer one run. Its key contains the run id, so the next run never sees it."""

    kind: Literal["stop"] = "stop"
    """The tag of this kind of row in the store."""
    run_id: str
    """The run to stop or to steer."""
    stop: Literal["interrupt", "abort"] | None = None
    """`interrupt` leaves a session that can be resumed. `abort` fails the run permanently. None: the run is only
    steered."""
    steer: int = 0
    """The number of messages that were left in the inbox for the run's next model call. The step that takes them sets it
    to 0."""
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
    outcome: Literal["summary", "failed", "lost", "cancelled", "dead"]
    """`summary`: the call wrote a summary for a view. `failed`: the call ended with an error. `lost`: the answer
    arrived when the delivery no longer held the run. `cancelled`: the run was stopped first. `dead`: the worker
    died."""
    model: str | None = None
    """The model that was called. None if it is not known."""
    head: str = ""
    """The id of the request head that was sent (docs/protocol.md#row-head). Empty in rows of earlier versions, and for a
    function agent."""
    output_limit: int | None = None
    """The maximum number of tokens in the answer, if budgets set it. None: the head has the agent's limit, if any."""
    usage: StoredUsage = Usage()
    """The usage that the provider reported for a `summary`, `failed` or `lost` call. Zero for the other outcomes, whose
    usage is unknown."""
    assumed_micros: int = 0
    """The micro-dollars reserved for the call, which count as spent because its usage is unknown. In a `lost` row, the
    amount assumed until the answer arrived."""
    assumed_tokens: int = 0
    """The tokens reserved for the call; see `assumed_micros`."""
    error: str | None = None
    """The error code of a `failed` call. None for other outcomes."""
    verdicts: list[Verdict] = NO_VERDICTS
    """The verdicts of guards on the answer of a `failed` call that one of them blocked. Empty for other calls."""
    at: float = 0
    """The time at which the outcome was settled (Unix seconds)."""
