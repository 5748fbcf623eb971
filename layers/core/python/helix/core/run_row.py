"""The run row: one execute, resume or retry of a session (docs/protocol.md#row-run).

Law: the session row has the state of a run while it works. The end of the run copies that state to the run's row.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from helix.core.compact import StoredUsage, expand_run, shorten_run
from helix.core.json import JsonObject, JsonValue
from helix.core.rows import ErrorInfo, Pending
from helix.core.session_row import Block, StepClaim
from helix.core.spans import Trace
from helix.core.status import ClaimMode, RunStatus
from helix.core.stored import AsStored, Stored
from helix.core.usage import Usage


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
    """The input `message`, `state` and `files` of the run. The files are stored in the short form of `core.compact`. None
    if the run continues without a message."""
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
    start_view: int = 0
    """The session version in the key of the view at the start of the run. 0: the whole history was shown."""
    start_agent: str = ""
    """The active agent at the start of the run. Empty before the first handoff: the session's own agent."""
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
    part_agent: str = ""
    """The agent whose functions carry out this execution. Empty: the session's own agent."""
    arrived: int = 0
    """The number of messages that were left in the inbox while the run worked, and 1 if older ones waited at its
    beginning. If it is not 0, the run's effects start what waits."""
    steps: int = 0
    """The number of steps that the run bought. Written when the run ends."""
    last: tuple[int, int] | None = None
    """The (step, attempt) that was staged or committed last, copied from the session when the run ends. None if there
    was none."""
    claim: StepClaim | None = None
    """The step claim that was open when the run ended. The run's effects count its reservation as spent. None if no
    call was open."""
    head: str = ""
    """The id of the request head of that call. Empty if no call was open."""
    output_limit: int | None = None
    """The output limit of that call in tokens, as in the session's row. None if budgets set none."""


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

    active_agent: str = ""
    """The active agent when the run ended, which made the output. Empty before the first handoff: the session's own
    agent."""
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
