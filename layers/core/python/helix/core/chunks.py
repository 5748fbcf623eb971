"""Stream chunks: the events that a reader of a run sees, as one tagged union.

Law: text is provisional until the `step_committed` of its (session, step, attempt); `step_discarded` takes it back. The
stream writer and the sequencer fill in the envelope, never the code that makes the chunk.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import Edit
from helix.core.usage import Usage


class ChunkBase(BaseModel):
    """The envelope that every chunk has. The defaults hold until the stream writer fills the fields in."""

    # Built at first use: a file that defines agents imports all twenty classes and needs none.
    model_config = ConfigDict(extra="forbid", defer_build=True)

    session_id: str = ""
    """The session that wrote the chunk: that of the root, or of a sub-agent, which writes on its root's stream."""
    run_id: str = ""
    """The run that wrote the chunk."""
    agent_id: str = ""
    """The session id of the agent that wrote the chunk, equal to `session_id`."""
    agent_type: str = ""
    """The name of the agent that wrote the chunk."""
    step: int = 0
    """The step that the chunk belongs to. 0 for chunks about the run as a whole."""
    attempt: int = 0
    """The number of the try at the step. For the chunks of a tool call, the number of the claim of the call."""
    sequence: int = 0
    """The number of the chunk in the stream: 1, 2, 3, ... without gaps over all runs and sub-agents."""
    timestamp: float = 0.0
    """The Unix seconds at which the writer made the chunk."""


class TextDeltaChunk(ChunkBase):
    """A piece of the model's text."""

    type: Literal["text_delta"] = "text_delta"
    """The tag of this chunk on the wire."""
    delta: str
    """The text to append to the pieces of the same session, step and attempt."""


class ThinkingChunk(ChunkBase):
    """A piece of the model's reasoning, or a whole block of it."""

    type: Literal["thinking"] = "thinking"
    """The tag of this chunk on the wire."""
    content: str
    """The piece, or the text of the whole block."""
    is_complete: bool = False
    """False for a piece. True once for the whole block, which repeats the pieces: do not append it to them."""


class ToolStartChunk(ChunkBase):
    """The start of a claimed call. A second one for the same call, with a higher `attempt`, replaces the first."""

    type: Literal["tool_start"] = "tool_start"
    """The tag of this chunk on the wire."""
    tool_call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The tool that the model called."""
    arguments: JsonObject = Field(default_factory=dict)
    """The arguments that the call is executed with: the model's, or those that a person approved in their place."""
    edited: Edit | None = None
    """The person who approved other arguments than the model's, and the time. None if `arguments` are the model's."""


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
    """The model's arguments of a refused call, which has no `tool_start`. None for other calls, and if the writer did
    not have the arguments."""


class SubAgentStartChunk(ChunkBase):
    """The start or continuation of a sub-agent's session. It follows the `tool_start` of its call."""

    type: Literal["subagent_start"] = "subagent_start"
    """The tag of this chunk on the wire."""
    parent_tool_call_id: str
    """The call of the parent that the sub-agent works for."""
    sub_agent_id: str
    """The session id of the sub-agent."""
    sub_agent_type: str
    """The name of the sub-agent's definition."""


class SubAgentEndChunk(ChunkBase):
    """The end of a sub-agent's work for a call. The `tool_end` of the call follows."""

    type: Literal["subagent_end"] = "subagent_end"
    """The tag of this chunk on the wire."""
    parent_tool_call_id: str
    """The call of the parent that the sub-agent works for."""
    sub_agent_id: str
    """The session id of the sub-agent."""
    sub_agent_type: str
    """The name of the sub-agent's definition."""
    status: str
    """`completed`, `failed`, or `interrupted` if the call was ended without the sub-agent's own result."""
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
    """The JSON value that the tool or hook gave."""


class StatePatchChunk(ChunkBase):
    """A change of the committed custom state."""

    type: Literal["state_patch"] = "state_patch"
    """The tag of this chunk on the wire."""
    patches: list[JsonObject]
    """RFC 6902 operations from the previously committed custom state to the one now committed."""
    warnings: list[str] = Field(default_factory=list)
    """Texts about parallel calls that changed the same place of the state. Each names the calls and what was done."""


class ErrorChunk(ChunkBase):
    """A failure of a model call, of a tool call that is not executed, or of the run."""

    type: Literal["error"] = "error"
    """The tag of this chunk on the wire."""
    error: str
    """The error message."""
    code: str = "error"
    """A stable code of the error, such as `model_error` or `invalid_tool_call` (`core.errors`)."""
    recoverable: bool = True
    """True if the run goes on. False exactly once, right before the stream of a failed run ends."""


class OutputChunk(ChunkBase):
    """The output of a completed run."""

    type: Literal["output"] = "output"
    """The tag of this chunk on the wire."""
    output: JsonValue
    """The JSON of the run's structured output."""


class RunInterruptedChunk(ChunkBase):
    """The end of an interrupted run."""

    type: Literal["run_interrupted"] = "run_interrupted"
    """The tag of this chunk on the wire."""
    reason: str | None = None
    """The reason that the caller of the interrupt gave. None if the caller gave none."""
    checkpoint_id: str | None = None
    """The last checkpoint of the run, which a resume goes on from. None if the run wrote none."""


class RunResumedChunk(ChunkBase):
    """The first chunk of a run that goes on from an earlier one."""

    type: Literal["run_resumed"] = "run_resumed"
    """The tag of this chunk on the wire."""
    previous_run_id: str
    """The run that this one goes on from."""
    mode: str
    """A resume or retry mode, or `takeover` (`core.status.ClaimMode`)."""
    checkpoint_id: str | None = None
    """The checkpoint that the claim of this run wrote."""


class RunQueuedChunk(ChunkBase):
    """A notice that the run waits for a free slot of its agent, or of the account."""

    type: Literal["run_queued"] = "run_queued"
    """The tag of this chunk on the wire."""
    queued: int
    """The number of runs of the agent that waited at that moment, this one included."""
    expires_at: float
    """The Unix seconds until which the run may wait."""
    reason: str | None = None
    """Why no run starts if the agent is stopped, such as `stopped by budget agent:poet/day/micros`. None if the run
    waits for a free slot only."""


class CheckpointCreatedChunk(ChunkBase):
    """A notice that a checkpoint is durable."""

    type: Literal["checkpoint_created"] = "checkpoint_created"
    """The tag of this chunk on the wire."""
    checkpoint_id: str
    """The checkpoint to go back to."""
    step_count: int
    """The number of the last step that is history at the checkpoint."""
    message_count: int
    """The number of messages that are history at the checkpoint."""


class RunPausedChunk(ChunkBase):
    """The end of a paused run. It waits for people, or for room in a budget."""

    type: Literal["run_paused"] = "run_paused"
    """The tag of this chunk on the wire."""
    reason: str = "pending"
    """`pending` if calls wait for an answer, `budget_exceeded` if a budget has no room for the next model call."""
    pending: list[JsonObject] = Field(default_factory=list)
    """The calls that wait, each as the JSON of a `core.rows.Pending`."""
    checkpoint_id: str | None = None
    """The last checkpoint of the run."""


class RunSupersededChunk(ChunkBase):
    """A notice that a new message replaced a run that was interrupted or paused."""

    type: Literal["run_superseded"] = "run_superseded"
    """The tag of this chunk on the wire."""
    superseded_run_id: str
    """The run that was replaced."""
    by_run_id: str
    """The run that the new message started."""


class StepCommittedChunk(ChunkBase):
    """The commit of a step: the text of this step and attempt is final and equals the stored answer."""

    type: Literal["step_committed"] = "step_committed"
    """The tag of this chunk on the wire."""
    model: str | None = None
    """The model that answered. None if the sequencer wrote the chunk in place of a worker that died."""
    usage: Usage | None = None
    """Tokens and cost of the answer. None as for `model`."""
    stop_reason: str | None = None
    """Why the model stopped (`core.steps.StopReason`). None as for `model`, or if the adapter gave none."""


class StepDiscardedChunk(ChunkBase):
    """A request to drop what this step and attempt showed."""

    type: Literal["step_discarded"] = "step_discarded"
    """The tag of this chunk on the wire."""
    reason: str | None = None
    """The reason why the attempt was dropped, as a text."""
    status: str | None = None
    """The status of the run, if its end cut the attempt off; otherwise None. The text of an `interrupted` run may stay
    on a page until another attempt of the step begins."""


class StreamResyncChunk(ChunkBase):
    """A request to drop what is shown and start again from the checkpoint: the session was rewound, or chunks were
    lost."""

    type: Literal["stream_resync"] = "stream_resync"
    """The tag of this chunk on the wire."""
    reason: str
    """`chunks were lost`, `messages have expired`, or the mode of the run that rewound the session
    (`core.status.ClaimMode`)."""
    checkpoint_id: str | None = None
    """The checkpoint to start from, which the claim of the rewinding run wrote. None if chunks are missing: start from
    the session's latest."""
    from_sequence: int = 0
    """The last sequence of the stream before the run that rewound it, or before the chunks that follow a gap."""


class ToolApprovalRequestChunk(ChunkBase):
    """A question to a person or to the client about a call."""

    type: Literal["tool_approval_request"] = "tool_approval_request"
    """The tag of this chunk on the wire."""
    tool_call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The tool that the model called."""
    input: JsonObject = Field(default_factory=dict)
    """The arguments of the call: the model's, or those that a person approved before the outcome was lost."""
    parameters: JsonObject = Field(default_factory=dict)
    """The JSON schema of `input`. Empty if the agent no longer has the tool."""
    reason: str | None = None
    """Why the tool asks, if its rule gives a reason."""
    kind: Literal["approval", "client", "unknown"] = "approval"
    """The question: `approval` of the call, the `client`'s result, or a ruling on an `unknown` outcome."""


AnyChunk: TypeAlias = (
    TextDeltaChunk | ThinkingChunk | ToolStartChunk | ToolEndChunk | SubAgentStartChunk | SubAgentEndChunk
    | CustomEventChunk | StatePatchChunk | ErrorChunk | OutputChunk | RunInterruptedChunk | RunResumedChunk
    | CheckpointCreatedChunk | RunPausedChunk | RunSupersededChunk | StepCommittedChunk | StepDiscardedChunk
    | StreamResyncChunk | ToolApprovalRequestChunk | RunQueuedChunk
)  # fmt: skip
KnownChunk = Annotated[AnyChunk, Field(discriminator="type")]


class UnknownChunk(ChunkBase):
    """A chunk of a type that this version does not know. Readers pass it on, writers refuse it."""

    model_config = ConfigDict(extra="allow")

    type: str
    """The tag as it was read. The other fields are extra attributes of the model."""


StreamChunk: TypeAlias = AnyChunk | UnknownChunk

_adapter: TypeAdapter[AnyChunk] | None = None
CHUNK_CLASSES: dict[str, type[ChunkBase]] = {
    cls.model_fields["type"].default: cls for cls in ChunkBase.__subclasses__() if cls is not UnknownChunk
}
CHUNK_TYPES = frozenset(CHUNK_CLASSES)


def parse_chunk(data: Any) -> StreamChunk:
    """Return a chunk from its JSON object, which a later version may have written.

    An unknown type gives an `UnknownChunk`, and unknown fields are left out. Raises `InvalidInputError` without a
    `type`, and `ValidationError` for anything else that is wrong.
    """
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise InvalidInputError("a chunk is a JSON object with a 'type'")
    cls = CHUNK_CLASSES.get(kind, UnknownChunk)
    extra: Any = None if cls is UnknownChunk else "ignore"
    return cls.model_validate(data, extra=extra)  # type: ignore[return-value]


def chunk_json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the union, for clients in other languages."""
    global _adapter
    if _adapter is None:
        _adapter = TypeAdapter(KnownChunk)
    return _adapter.json_schema()


def is_text_delta_chunk(chunk: ChunkBase) -> TypeGuard[TextDeltaChunk]:
    return isinstance(chunk, TextDeltaChunk)


def is_thinking_chunk(chunk: ChunkBase) -> TypeGuard[ThinkingChunk]:
    return isinstance(chunk, ThinkingChunk)


def is_tool_start_chunk(chunk: ChunkBase) -> TypeGuard[ToolStartChunk]:
    return isinstance(chunk, ToolStartChunk)


def is_tool_end_chunk(chunk: ChunkBase) -> TypeGuard[ToolEndChunk]:
    return isinstance(chunk, ToolEndChunk)


def is_sub_agent_start_chunk(chunk: ChunkBase) -> TypeGuard[SubAgentStartChunk]:
    return isinstance(chunk, SubAgentStartChunk)


def is_sub_agent_end_chunk(chunk: ChunkBase) -> TypeGuard[SubAgentEndChunk]:
    return isinstance(chunk, SubAgentEndChunk)


def is_custom_event_chunk(chunk: ChunkBase) -> TypeGuard[CustomEventChunk]:
    return isinstance(chunk, CustomEventChunk)


def is_state_patch_chunk(chunk: ChunkBase) -> TypeGuard[StatePatchChunk]:
    return isinstance(chunk, StatePatchChunk)


def is_error_chunk(chunk: ChunkBase) -> TypeGuard[ErrorChunk]:
    return isinstance(chunk, ErrorChunk)


def is_output_chunk(chunk: ChunkBase) -> TypeGuard[OutputChunk]:
    return isinstance(chunk, OutputChunk)


def is_run_interrupted_chunk(chunk: ChunkBase) -> TypeGuard[RunInterruptedChunk]:
    return isinstance(chunk, RunInterruptedChunk)


def is_run_resumed_chunk(chunk: ChunkBase) -> TypeGuard[RunResumedChunk]:
    return isinstance(chunk, RunResumedChunk)


def is_checkpoint_created_chunk(chunk: ChunkBase) -> TypeGuard[CheckpointCreatedChunk]:
    return isinstance(chunk, CheckpointCreatedChunk)
