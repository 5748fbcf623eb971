"""What became true in a run. Verbs record facts; `helix.engine.observers` turns them into chunks, hooks, metrics and spans.

| Fact | Stream | Hooks | Metrics | Spans |
|---|---|---|---|---|
| `RunStarted` | | | `RunsStarted` | |
| `RunClaimed` | run's first record | | | |
| `RunBegan` | | `on_agent_start` | | |
| `MessagesAdded` | | `on_message`, `on_state_change` | | |
| `StepFolded` | state patch, checkpoint | the same | | |
| `CommitsMissed` | what a dead worker did not write | | | |
| `RunQueued` | `run_queued` | | `QueueDepth` | |
| `RunAdmitted` | | | `QueueWait` | queue wait |
| `CacheAsked` | | | `CacheHits`, `CacheMisses` | |
| `BudgetRefused` | | | `BudgetRefusals` | |
| `ModelAsked` | | `before_llm_call` | | |
| `TextReceived`, `ThinkingReceived` | deltas | | | |
| `TryFailed` | error, `step_discarded` | | | |
| `ModelAnswered` | | `after_llm_call` | | |
| `ModelCallEnded` | | | `ModelCalls`, ... | chat |
| `CallsRefused` | errors | | | |
| `StepStaged` | `step_committed` | | | |
| `CallWaits` | `tool_approval_request` | | | |
| `ToolClaimed` | | `before_tool` | | |
| `ToolStarted` | `tool_start` | | | |
| `CallDone` | `tool_end`, `subagent_end` | | | |
| `ToolEnded` | | `after_tool` | `ToolCalls`, ... | execute_tool |
| `ChildBegan` | | `before_sub_agent` | | |
| `ChildAttached` | `tool_start`, `subagent_start` | | | |
| `ChildEnded` | | `after_sub_agent` | | |
| `RunEnded` | run's last record | | | |
| `RunFinished` | | `on_agent_complete`, `on_agent_fail` | | run, agent |
| `RunCounted` | | | `RunsCompleted`, ... | |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helix.core.entries import AnyEntry, AssistantRow, CallRow, ChildRef
from helix.core.json import JsonObject
from helix.core.messages import ToolCallRequest
from helix.core.planning import StepProcessingPlan
from helix.core.rows import CheckpointRow, RunRow, StepClaim
from helix.core.steps import AnyStepResult
from helix.core.tools import AnyTool
from helix.ports.model import LLMGenerateInput

if TYPE_CHECKING:
    from helix.engine.claims.claim import Claimed
    from helix.engine.claims.missed import Missed


@dataclass(frozen=True, slots=True)
class RunStarted:
    run: RunRow


@dataclass(frozen=True, slots=True)
class RunClaimed:
    claimed: Claimed


@dataclass(frozen=True, slots=True)
class RunBegan:
    run: RunRow


@dataclass(frozen=True, slots=True)
class MessagesAdded:
    """`entries` became history, in order, and `patches` changed the state."""

    entries: Sequence[AnyEntry]
    patches: Sequence[JsonObject] = ()


@dataclass(frozen=True, slots=True)
class StepFolded:
    entries: Sequence[AnyEntry]
    checkpoint: CheckpointRow


@dataclass(frozen=True, slots=True)
class CommitsMissed:
    """What a worker that died may not have recorded. `last`: the stream may not know this turn yet; it begins with the
    step and attempt staged last."""

    missed: Missed | None
    begins: bool = False
    last: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class RunQueued:
    """`reason`: why none starts, if the agent is stopped."""

    queued: int
    expires_at: float
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RunAdmitted:
    """A run that waited in line since `since` has a slot."""

    run: RunRow
    since: float


@dataclass(frozen=True, slots=True)
class CacheAsked:
    """The response cache was looked up. `saved_micros`: what a hit saves; None: a miss."""

    model: str
    saved_micros: int | None


@dataclass(frozen=True, slots=True)
class BudgetRefused:
    """`budget`, a window of one, had no room for the next model call."""

    budget: str


@dataclass(frozen=True, slots=True)
class ModelAsked:
    request: LLMGenerateInput


@dataclass(frozen=True, slots=True)
class TextReceived:
    claim: StepClaim
    delta: str


@dataclass(frozen=True, slots=True)
class ThinkingReceived:
    claim: StepClaim
    content: str
    is_complete: bool


@dataclass(frozen=True, slots=True)
class TryFailed:
    """A try of the model call failed and is repeated. `shown`: some of its answer was."""

    claim: StepClaim
    error: Exception
    shown: bool


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    claim: StepClaim
    result: AnyStepResult


@dataclass(slots=True)
class ModelCallEnded:
    """One model call, whatever came of it. `first`: when the first piece of the answer came; `tries`: (moment, code) of
    each try that failed; `error`: a code. `cached`: the answer was remembered, nobody was asked."""

    claim: StepClaim
    request: LLMGenerateInput
    begun: float
    first: float | None = None
    tries: list[tuple[float, str]] = field(default_factory=list)
    throttled: bool = False
    result: AnyStepResult | None = None
    error: str | None = None
    cached: bool = False


@dataclass(frozen=True, slots=True)
class CallsRefused:
    plan: StepProcessingPlan
    row: AssistantRow


@dataclass(frozen=True, slots=True)
class StepStaged:
    row: AssistantRow


@dataclass(frozen=True, slots=True)
class CallWaits:
    """Somebody is asked: for an approval, for the client's result, or what became of an unknown outcome."""

    row: CallRow
    answer: AssistantRow


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A claimed call of a tool that this worker executes."""

    tool: AnyTool
    request: ToolCallRequest
    row: CallRow


@dataclass(frozen=True, slots=True)
class ToolClaimed(ToolCall): ...


@dataclass(frozen=True, slots=True)
class ToolStarted(ToolCall): ...


@dataclass(frozen=True, slots=True)
class ToolEnded(ToolCall):
    """`done` is None where the tool was cancelled."""

    begun: float
    done: CallRow | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class CallDone:
    """`version`: of the commit that made it history, where a later worker writes it again. `arguments`: the model's, of a
    call that was refused."""

    row: CallRow
    version: int = 0
    arguments: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class ChildBegan:
    row: CallRow
    ref: ChildRef


@dataclass(frozen=True, slots=True)
class ChildAttached:
    row: CallRow
    request: ToolCallRequest
    ref: ChildRef


@dataclass(frozen=True, slots=True)
class ChildEnded:
    row: CallRow
    status: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    run: RunRow


@dataclass(frozen=True, slots=True)
class RunFinished:
    run: RunRow


@dataclass(frozen=True, slots=True)
class RunCounted:
    run: RunRow


Fact = (
    RunStarted
    | RunClaimed
    | RunBegan
    | MessagesAdded
    | StepFolded
    | CommitsMissed
    | RunQueued
    | RunAdmitted
    | CacheAsked
    | BudgetRefused
    | ModelAsked
    | TextReceived
    | ThinkingReceived
    | TryFailed
    | ModelAnswered
    | ModelCallEnded
    | CallsRefused
    | StepStaged
    | CallWaits
    | ToolClaimed
    | ToolStarted
    | ToolEnded
    | CallDone
    | ChildBegan
    | ChildAttached
    | ChildEnded
    | RunEnded
    | RunFinished
    | RunCounted
)
