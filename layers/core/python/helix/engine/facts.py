"""The facts of a run. Verbs record them; `helix.engine.observers` turns them into chunks, hooks, metrics and spans.

| Fact | Stream | Hooks | Metrics | Spans |
|---|---|---|---|---|
| `RunStarted` | | | `RunsStarted` | |
| `RunClaimed` | run's first record | | | |
| `RunBegan` | | `on_agent_start` | | |
| `MessagesAdded` | | `on_message`, `on_state_change` | | |
| `StepFolded` | `agent_changed`, state patch, checkpoint | the same | | |
| `CommitsMissed` | what a dead worker did not write | | | |
| `RunQueued` | `run_queued` | | `QueueDepth` | |
| `RunAdmitted` | | | `QueueWait` | queue wait |
| `CacheAsked` | | | `CacheHits`, `CacheMisses` | |
| `CacheLost` | | | `PromptCacheLosses` | |
| `BudgetRefused` | | | `BudgetRefusals` | |
| `MessageWaits` | `message_queued` | | | |
| `ContextChanged` | `context_changed` | | | |
| `ModelAsked` | | `before_llm_call` | | |
| `TextReceived`, `ThinkingReceived`, `OutputReceived` | deltas | | | |
| `ServerCalled`, `TextCited` | `server_tool`, `citation` | | | |
| `TryFailed` | error, `step_discarded` | | | |
| `AnswerWithheld` | `step_discarded` | | | |
| `ModelAnswered` | | `after_llm_call` | | |
| `ModelCallEnded` | | | `ModelCalls`, ... | chat |
| `CallsRefused` | errors | | | |
| `StepStaged` | `step_committed` | | | |
| `CallWaits` | `tool_approval_request` | | | |
| `CallReminded` | `call_reminder` | `on_reminder` | | |
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
from helix.core.inbox import InboxRow
from helix.core.json import JsonObject
from helix.core.messages import ToolCallRequest
from helix.core.planning import StepProcessingPlan
from helix.core.rows import CheckpointRow
from helix.core.run_row import RunRow
from helix.core.session_row import StepClaim
from helix.core.steps import AnyStepResult
from helix.core.tools import AnyTool
from helix.core.view_row import ViewRow
from helix.engine.answer_facts import AnswerPart as AnswerPart
from helix.engine.answer_facts import OutputReceived as OutputReceived
from helix.engine.answer_facts import ServerCalled as ServerCalled
from helix.engine.answer_facts import TextCited as TextCited
from helix.engine.answer_facts import TextReceived as TextReceived
from helix.engine.answer_facts import ThinkingReceived as ThinkingReceived
from helix.ports.model import LLMGenerateInput

if TYPE_CHECKING:
    from helix.engine.claims.claim import Claimed
    from helix.engine.claims.missed import Missed


@dataclass(frozen=True, slots=True)
class RunStarted:
    run: RunRow
    """The row of the new run, as written by its claim, or by the abort of an idle session."""


@dataclass(frozen=True, slots=True)
class RunClaimed:
    claimed: Claimed
    """The claim, with the rows that it wrote."""


@dataclass(frozen=True, slots=True)
class RunBegan:
    run: RunRow
    """The row of the run that starts to work."""


@dataclass(frozen=True, slots=True)
class MessagesAdded:
    """A commit that added messages to history and may have changed the custom state."""

    entries: Sequence[AnyEntry]
    """The rows of the new messages, in the order of history."""
    patches: Sequence[JsonObject] = ()
    """The JSON Patch operations that the commit applied to the custom state. Empty: the state did not change."""


@dataclass(frozen=True, slots=True)
class StepFolded:
    entries: Sequence[AnyEntry]
    """The step's answer and its calls with their results, in the order of history, then the messages that steer the run.
    Empty if the commit wrote a checkpoint only."""
    checkpoint: CheckpointRow
    """The checkpoint that the commit wrote."""


@dataclass(frozen=True, slots=True)
class CommitsMissed:
    """Commits that another worker made but may not have written to the stream, because it died or was too slow."""

    missed: Missed | None
    """The commits that the stream may lack. None: nothing was committed that could be missing."""
    begins: bool = False
    """Whether the run's first record is also written, because the stream may not know this turn yet."""
    last: tuple[int, int] | None = None
    """The (step, attempt) that was staged or committed last, which the first record carries to settle an open attempt.
    None: no answer has been staged in this lineage yet."""


@dataclass(frozen=True, slots=True)
class RunQueued:
    """A claimed run that waits for a slot."""

    queued: int
    """The number of runs of the agent that are waiting for a slot, including this one."""
    expires_at: float
    """The time (Unix seconds) after which the run has waited too long and is ended."""
    reason: str | None = None
    """The reason why no run of the agent can start, if a budget stopped the agent. None: all slots are taken."""


@dataclass(frozen=True, slots=True)
class RunAdmitted:
    """A run that waited for a slot and now has one."""

    run: RunRow
    """The row of the run that got the slot."""
    since: float
    """The time (Unix seconds) of the run's claim, when its wait began."""


@dataclass(frozen=True, slots=True)
class CacheAsked:
    """A lookup in the response cache."""

    model: str
    """The model that the request names."""
    saved_micros: int | None
    """The cost of the cached call in micro-dollars, which the hit saves. None: the lookup was a miss."""


@dataclass(frozen=True, slots=True)
class CacheLost:
    """A prompt that was not read from the provider's cache, although the cache should have had it."""

    row: AssistantRow
    """The staged answer. It has the reason and the number of tokens."""


@dataclass(frozen=True, slots=True)
class BudgetRefused:
    """A refusal by a budget that had no room for the next model call."""

    budget: str
    """The name of the budget's window, `<scope>/<period>/<unit>/<window key>`."""


@dataclass(frozen=True, slots=True)
class MessageWaits:
    """A message that was left in the inbox of the session, or was withdrawn."""

    queued_id: str
    """The id of the message."""
    message: InboxRow | None
    """The message's row. None: it was withdrawn."""


@dataclass(frozen=True, slots=True)
class ContextChanged:
    """A new view: the model is shown another part of the history from now on. A worker that finds the view records it
    again."""

    view: ViewRow
    """The row of the new view."""
    version: int
    """The session version in the row's key."""


@dataclass(frozen=True, slots=True)
class ModelAsked:
    request: LLMGenerateInput
    """The request that is about to be sent, or answered from the response cache."""


@dataclass(frozen=True, slots=True)
class TryFailed:
    """A failed try of a model call, which is retried."""

    claim: StepClaim
    """The step's claim under which the model is called."""
    error: Exception
    """The error that the try raised. Its `code`, if it has one, goes to the stream."""
    shown: bool
    """Whether readers have seen parts of the failed answer, which the stream must then discard."""


@dataclass(frozen=True, slots=True)
class AnswerWithheld:
    """Text that readers must no longer show, because a guard changed or refused the answer."""

    claim: StepClaim
    """The claim under which the model was asked."""
    reason: str
    """Why the text is taken back."""


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    claim: StepClaim
    """The step's claim under which the model was called."""
    result: AnyStepResult
    """The answer, or an `ErrorStepResult` if the call failed permanently."""


@dataclass(slots=True)
class ModelCallEnded:
    """One model call, whatever its result. Times are Unix seconds by the clock of the worker that made the call."""

    claim: StepClaim
    """The step's claim under which the model was called."""
    request: LLMGenerateInput
    """The prepared request, without the callbacks and the timeout of this call."""
    begun: float
    """The time when the call began, after the hooks `before_llm_call`."""
    first: float | None = None
    """The time when the first piece of the current try's answer arrived. None: no piece arrived, or the answer was
    cached."""
    tries: list[tuple[float, str]] = field(default_factory=list)
    """The failed tries within the call, each with its time and error code."""
    throttled: bool = False
    """Whether the provider refused a try, or the call, with a rate limit."""
    result: AnyStepResult | None = None
    """The answer or the final error. None: the call was cancelled or raised."""
    error: str | None = None
    """`cancelled` if the call has no result, or `access_denied` if AWS denied the bytes of a file. None: it has a
    result, which may be an error itself."""
    cached: bool = False
    """Whether the answer came from the response cache, so that no model was called."""


@dataclass(frozen=True, slots=True)
class CallsRefused:
    plan: StepProcessingPlan
    """The plan of the step; its `resolved` has the calls that are not executed."""
    row: AssistantRow
    """The answer with those calls. It is about to be staged."""


@dataclass(frozen=True, slots=True)
class StepStaged:
    row: AssistantRow
    """The answer that was staged, or committed immediately. A delivery that finds the step staged records it again."""


@dataclass(frozen=True, slots=True)
class CallWaits:
    """A question to a person or the client: for an approval, for a client tool's result, about an unknown outcome, or
    from the tool itself."""

    row: CallRow
    """The call's row, in the state `asked`."""
    answer: AssistantRow
    """The answer that contains the call and the arguments to show."""


@dataclass(frozen=True, slots=True)
class CallReminded(CallWaits):
    """A reminder of a call that has waited for a while."""

    number: int
    """The number of the reminder, starting at 1 for each call."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A claimed call of a tool that this worker executes. The base class of three facts."""

    tool: AnyTool
    """The tool's definition."""
    request: ToolCallRequest
    """The call to execute, with the arguments, which a person may have edited."""
    row: CallRow
    """The call's row as claimed by this worker."""


@dataclass(frozen=True, slots=True)
class ToolClaimed(ToolCall): ...


@dataclass(frozen=True, slots=True)
class ToolStarted(ToolCall): ...


@dataclass(frozen=True, slots=True)
class ToolEnded(ToolCall):
    """The end of a tool's execution."""

    begun: float
    """The time (Unix seconds) when the tool started."""
    done: CallRow | None = None
    """The call's row with its result. None: the tool was cancelled, or it asks questions."""
    error: str | None = None
    """`cancelled`, or the class name of the exception that ended the execution. None: the tool has a result, or it asks
    questions."""


@dataclass(frozen=True, slots=True)
class CallDone:
    """The result of a call, which may be recorded again by a later worker."""

    row: CallRow
    """The call's row, in the state `done`."""
    arguments: JsonObject | None = None
    """The model's arguments, for a call that was refused and therefore has no `tool_start`. None: the call was
    executed."""


@dataclass(frozen=True, slots=True)
class ChildBegan:
    row: CallRow
    """The parent's call row."""
    ref: ChildRef
    """The ids of the sub-agent's session and first run."""


@dataclass(frozen=True, slots=True)
class ChildAttached:
    row: CallRow
    """The parent's call row."""
    request: ToolCallRequest
    """The parent's call, with the arguments that the sub-agent gets."""
    ref: ChildRef
    """The ids of the sub-agent's session and first run."""


@dataclass(frozen=True, slots=True)
class ChildEnded:
    row: CallRow
    """The parent's call row."""
    status: str
    """The status of the sub-agent's session, or `completed` or `failed` depending on the result in the call row."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    run: RunRow
    """The row of the ended run, with the arguments of the calls that it waits for."""


@dataclass(frozen=True, slots=True)
class RunFinished:
    run: RunRow
    """The row of the ended run whose slot was released."""


@dataclass(frozen=True, slots=True)
class RunCounted:
    run: RunRow
    """The row of the ended run. Only the worker that closed its effects records this fact."""


Fact = (
    RunStarted | RunClaimed | RunBegan | MessagesAdded | StepFolded | CommitsMissed | RunQueued | RunAdmitted
    | CacheAsked | CacheLost | BudgetRefused | ContextChanged | MessageWaits | ModelAsked | AnswerPart | TryFailed
    | AnswerWithheld | ModelAnswered | ModelCallEnded | CallsRefused | StepStaged | CallWaits | CallReminded
    | ToolClaimed | ToolStarted | ToolEnded | CallDone | ChildBegan | ChildAttached | ChildEnded | RunEnded
    | RunFinished | RunCounted
)  # fmt: skip
