"""Stream chunks: the events that the reader of a run receives, as one tagged union.

Law: text is provisional until the `step_committed` of its (session, step, attempt); `step_discarded` retracts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard, TypeVar, get_args

from pydantic import ConfigDict, Field, TypeAdapter

from helix.core.answer_chunks import CitationChunk as CitationChunk
from helix.core.answer_chunks import OutputChunk as OutputChunk
from helix.core.answer_chunks import OutputDeltaChunk as OutputDeltaChunk
from helix.core.answer_chunks import ServerToolChunk as ServerToolChunk
from helix.core.answer_chunks import TextDeltaChunk as TextDeltaChunk
from helix.core.answer_chunks import ThinkingChunk as ThinkingChunk
from helix.core.chunk_envelope import ChunkBase, NoticeChunk
from helix.core.errors import InvalidInputError
from helix.core.files import FilePart
from helix.core.inbox_chunks import MessageQueuedChunk as MessageQueuedChunk
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import AskedQuestion, CallResponse, Edit
from helix.core.usage import Usage
from helix.core.wait_chunks import CallReminderChunk as CallReminderChunk

_ChunkT = TypeVar("_ChunkT", bound=ChunkBase)


class ToolStartChunk(ChunkBase):
    """The start of a claimed call. A second one for the same call, with a higher `attempt`, replaces the first."""

    type: Literal["tool_start"] = "tool_start"
    """The tag of this chunk on the wire."""
    tool_call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The tool that the model called."""
    arguments: JsonObject = Field(default_factory=dict)
    """The arguments of the execution: the model's, or the ones that a person approved instead."""
    edited: Edit | None = None
    """The edit of the arguments in an approval. None if `arguments` are the model's."""
    questions: list[AskedQuestion] = Field(default_factory=list)
    """The questions that earlier executions asked, with their answers."""
    responses: list[CallResponse] = Field(default_factory=list)
    """The responses that the call got before, such as its approval."""


class ToolEndChunk(ChunkBase):
    """The result of a call, sent once per call."""

    type: Literal["tool_end"] = "tool_end"
    """The tag of this chunk on the wire."""
    tool_call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The tool that the model called."""
    result: JsonValue = None
    """The value that the call returned. For a failed call, the content of its result, such as `{"error": message}`."""
    success: bool = True
    """Whether the call succeeded."""
    error: str | None = None
    """The error message of a failed call. None for a success."""
    arguments: JsonObject | None = None
    """The model's arguments of a refused call, which has no `tool_start`. None for other calls, or if not known."""
    files: list[FilePart] = Field(default_factory=list)
    """The files that the tool returned, by their place in the result's text. The session holds them."""
    questions: list[AskedQuestion] = Field(default_factory=list)
    """All questions of the call, with their answers. One without an answer was not answered."""
    responses: list[CallResponse] = Field(default_factory=list)
    """The approvals, denials, results and rulings that people and clients gave."""


class SubAgentStartChunk(ChunkBase):
    """The start or resumption of a sub-agent's session. It follows the `tool_start` of its call."""

    type: Literal["subagent_start"] = "subagent_start"
    """The tag of this chunk on the wire."""
    parent_tool_call_id: str
    """The parent's tool call that started the sub-agent."""
    sub_agent_id: str
    """The session id of the sub-agent."""
    sub_agent_type: str
    """The name of the sub-agent's definition."""


class SubAgentEndChunk(ChunkBase):
    """The end of a sub-agent's work for a call. The `tool_end` of the call follows."""

    type: Literal["subagent_end"] = "subagent_end"
    """The tag of this chunk on the wire."""
    parent_tool_call_id: str
    """The parent's tool call that started the sub-agent."""
    sub_agent_id: str
    """The session id of the sub-agent."""
    sub_agent_type: str
    """The name of the sub-agent's definition."""
    status: str
    """`completed`, `failed`, or `interrupted` if the call ended without a result from the sub-agent."""
    result: JsonValue = None
    """The sub-agent's output. None unless it completed."""
    error: str | None = None
    """The error message if there is no output. None if the sub-agent completed."""


class CustomEventChunk(ChunkBase):
    """An event that a tool or a hook emitted."""

    type: Literal["custom"] = "custom"
    """The tag of this chunk on the wire."""
    event_name: str
    """The name that the tool or hook gave the event."""
    data: JsonValue = None
    """The JSON value that the tool or hook attached."""


class StatePatchChunk(ChunkBase):
    """A change of the committed custom state."""

    ui_fields = ("patches",)
    type: Literal["state_patch"] = "state_patch"
    """The tag of this chunk on the wire."""
    patches: list[JsonObject]
    """RFC 6902 operations from the previously committed custom state to the one now committed."""
    warnings: list[str] = Field(default_factory=list)
    """Messages about parallel calls that changed the same part of the state. Each names the calls and how the conflict
    was resolved."""


class ErrorChunk(ChunkBase):
    """A failed model call, a tool call that cannot be executed, or a failed run."""

    type: Literal["error"] = "error"
    """The tag of this chunk on the wire."""
    error: str
    """The error message."""
    code: str = "error"
    """A stable error code, such as `model_error` or `invalid_tool_call` (`core.errors`)."""
    recoverable: bool = True
    """True if the run continues. False exactly once, right before the stream of a failed run ends."""


class RunInterruptedChunk(ChunkBase):
    """The end of an interrupted run."""

    type: Literal["run_interrupted"] = "run_interrupted"
    """The tag of this chunk on the wire."""
    reason: str | None = None
    """The reason that the caller of the interrupt gave. None if the caller gave none."""
    checkpoint_id: str | None = None
    """The last checkpoint of the run, from which a resume continues. None if the run wrote no checkpoint."""


class RunResumedChunk(ChunkBase):
    """The first chunk of a run that continues an earlier one."""

    type: Literal["run_resumed"] = "run_resumed"
    """The tag of this chunk on the wire."""
    previous_run_id: str
    """The run that this run continues."""
    mode: str
    """The mode of the resume or retry, or `takeover` (`core.status.ClaimMode`)."""
    checkpoint_id: str | None = None
    """The checkpoint that the claim of this run wrote."""


class RunQueuedChunk(ChunkBase):
    """A notice that the run waits for a free slot of its agent, or of the account."""

    ui_fields = ("queued", "expires_at", "reason")
    type: Literal["run_queued"] = "run_queued"
    """The tag of this chunk on the wire."""
    queued: int
    """The number of queued runs of the agent at that moment, including this one."""
    expires_at: float
    """The end of the maximum wait, in Unix seconds."""
    reason: str | None = None
    """Why the agent is stopped and starts no runs, such as `stopped by budget agent:poet/day/micros`. None if the run
    only waits for a free slot."""


class ContextChangedChunk(ChunkBase):
    """The model is shown another part of the history from this step on. Nothing of the history is lost."""

    ui_fields = ("hidden", "cleared", "summary", "cause", "tokens")
    type: Literal["context_changed"] = "context_changed"
    """The tag of this chunk on the wire."""
    hidden: int = 0
    """The number of messages at the beginning of history that the model is not shown."""
    cleared: int = 0
    """The index in history before which notes take the place of long tool results."""
    summary: str = ""
    """The summary in place of the hidden messages. Empty without a summary."""
    cause: str = "policy"
    """Why the view changed: `policy`, `overflow` (the provider refused the prompt as too long), or `request`."""
    tokens: int = 0
    """The estimated length of the prompt before the change, in tokens."""


class CheckpointCreatedChunk(ChunkBase):
    """A notice that a checkpoint is durable."""

    type: Literal["checkpoint_created"] = "checkpoint_created"
    """The tag of this chunk on the wire."""
    checkpoint_id: str
    """The id of the checkpoint."""
    step_count: int
    """The number of the last committed step at the checkpoint."""
    message_count: int
    """The number of messages in history at the checkpoint."""


class RunPausedChunk(ChunkBase):
    """The end of a paused run. The session waits for a response from a person or client, or for room in a budget."""

    type: Literal["run_paused"] = "run_paused"
    """The tag of this chunk on the wire."""
    reason: str = "pending"
    """`pending` if calls wait for a response, `budget_exceeded` if a budget has no room for the next model call."""
    pending: list[JsonObject] = Field(default_factory=list)
    """The calls that wait, each as the JSON of a `core.rows.Pending`."""
    checkpoint_id: str | None = None
    """The last checkpoint of the run."""


class RunSupersededChunk(NoticeChunk):
    """A notice that a new message replaced a run that was interrupted or paused."""

    type: Literal["run_superseded"] = "run_superseded"
    """The tag of this chunk on the wire."""
    superseded_run_id: str
    """The run that was replaced."""
    by_run_id: str
    """The run that the new message started."""


class AgentChangedChunk(NoticeChunk):
    """A notice that another agent makes the next steps, after a handoff."""

    type: Literal["agent_changed"] = "agent_changed"
    """The tag of this chunk on the wire."""
    line = "{agent} takes over"
    ui_fields = ("agent",)

    agent: str
    """The agent that takes over. Chunks from here on have it as `agent_type`."""


class StepCommittedChunk(ChunkBase):
    """The commit of a step: the text of this step and attempt is final and equals the stored answer."""

    type: Literal["step_committed"] = "step_committed"
    """The tag of this chunk on the wire."""
    model: str | None = None
    """The model that answered. None if the sequencer wrote the chunk on behalf of a worker that died."""
    usage: Usage | None = None
    """Tokens and cost of the answer. None as for `model`."""
    stop_reason: str | None = None
    """Why the model stopped (`core.steps.StopReason`). None as for `model`, or if the adapter gave none."""
    lost_cache: str | None = None
    """Why the provider's cache lost the prompt (`core.lost_caches.LostCache`). None if it did not, or as for `model`."""


class StepDiscardedChunk(ChunkBase):
    """A request to remove everything that this step and attempt displayed."""

    type: Literal["step_discarded"] = "step_discarded"
    """The tag of this chunk on the wire."""
    reason: str | None = None
    """Why the attempt was discarded."""
    status: str | None = None
    """The status of the run if its end cut off the attempt. The text of an `interrupted` run may stay until the next."""


class StreamResyncChunk(ChunkBase):
    """A request to clear the display and reload from the checkpoint, because the session was rewound or chunks were
    lost."""

    ui_fields = ("reason", "checkpoint_id")
    type: Literal["stream_resync"] = "stream_resync"
    """The tag of this chunk on the wire."""
    reason: str
    """`chunks were lost`, `messages have expired`, or the `core.status.ClaimMode` of the run that rewound the session."""
    checkpoint_id: str | None = None
    """The checkpoint to reload, of the run that rewound the session. None if chunks were lost: reload the latest one."""
    from_sequence: int = 0
    """The last sequence before the run that rewound the session, or before the first chunk after a gap."""


class ToolApprovalRequestChunk(ChunkBase):
    """A question to a person or to the client about a call."""

    type: Literal["tool_approval_request"] = "tool_approval_request"
    """The tag of this chunk on the wire."""
    tool_call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The tool that the model called."""
    input: JsonObject = Field(default_factory=dict)
    """The arguments of the call: the model's, or, for an `unknown` outcome, the ones that a person had approved."""
    parameters: JsonObject = Field(default_factory=dict)
    """The JSON schema of `input`. Empty if the agent no longer has the tool."""
    reason: str | None = None
    """Why the tool requires approval, if its rule gives a reason."""
    kind: Literal["approval", "client", "unknown", "question", "elsewhere"] = "approval"
    """The kind of response: `approval` of the call, the `client`'s result, a decision about an `unknown` outcome, the
    answers to the tool's `questions`, or the result of another system (`elsewhere`), which readers cannot give."""
    questions: list[AskedQuestion] = Field(default_factory=list)
    """For `question`, the open questions. Empty for other kinds."""
    round: int = 0
    """For `question`, the number that a response may name, as in `core.rows.Pending`. 0 for other kinds."""
    declared: bool = False
    """For `client`, whether the run declared the tool, and not the agent."""


AnyChunk: TypeAlias = (
    TextDeltaChunk | ThinkingChunk | ToolStartChunk | ToolEndChunk | SubAgentStartChunk | SubAgentEndChunk
    | CustomEventChunk | StatePatchChunk | ErrorChunk | OutputChunk | RunInterruptedChunk | RunResumedChunk
    | CheckpointCreatedChunk | RunPausedChunk | RunSupersededChunk | StepCommittedChunk | StepDiscardedChunk
    | StreamResyncChunk | ToolApprovalRequestChunk | RunQueuedChunk | ContextChangedChunk | MessageQueuedChunk
    | OutputDeltaChunk | CallReminderChunk | AgentChangedChunk | ServerToolChunk | CitationChunk
)  # fmt: skip
KnownChunk = Annotated[AnyChunk, Field(discriminator="type")]


class UnknownChunk(ChunkBase):
    """A chunk of a type that this version does not know. Readers pass it through; writers reject it."""

    model_config = ConfigDict(extra="allow")

    type: str
    """The original type. All other fields are extra attributes of the model."""


StreamChunk: TypeAlias = AnyChunk | UnknownChunk

_adapter: TypeAdapter[AnyChunk] | None = None
CHUNK_CLASSES: dict[str, type[ChunkBase]] = {cls.model_fields["type"].default: cls for cls in get_args(AnyChunk)}
CHUNK_TYPES = frozenset(CHUNK_CLASSES)


def parse_chunk(data: Any) -> StreamChunk:
    """Parse a chunk from a JSON object that a later version may have written. An unknown type becomes an `UnknownChunk`,
    and unknown fields are dropped. Raises `InvalidInputError` if `type` is missing, and `ValidationError` for any other
    problem."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise InvalidInputError("a chunk must be a JSON object with a 'type'")
    cls = CHUNK_CLASSES.get(kind, UnknownChunk)
    extra: Any = None if cls is UnknownChunk else "ignore"
    return cls.model_validate(data, extra=extra)  # type: ignore[return-value]


def chunk_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the union, for clients in other languages."""
    global _adapter
    if _adapter is None:
        _adapter = TypeAdapter(KnownChunk)
    return _adapter.json_schema()


def _is(cls: type[_ChunkT]) -> Callable[[ChunkBase], TypeGuard[_ChunkT]]:
    """Return the type guard of a class."""

    def guard(chunk: ChunkBase) -> TypeGuard[_ChunkT]:
        return isinstance(chunk, cls)

    return guard


is_text_delta_chunk = _is(TextDeltaChunk)
is_thinking_chunk = _is(ThinkingChunk)
is_tool_start_chunk = _is(ToolStartChunk)
is_tool_end_chunk = _is(ToolEndChunk)
is_sub_agent_start_chunk = _is(SubAgentStartChunk)
is_sub_agent_end_chunk = _is(SubAgentEndChunk)
is_custom_event_chunk = _is(CustomEventChunk)
is_state_patch_chunk = _is(StatePatchChunk)
is_error_chunk = _is(ErrorChunk)
is_output_chunk = _is(OutputChunk)
is_run_interrupted_chunk = _is(RunInterruptedChunk)
is_run_resumed_chunk = _is(RunResumedChunk)
is_checkpoint_created_chunk = _is(CheckpointCreatedChunk)
