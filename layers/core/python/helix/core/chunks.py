"""Stream chunks: what a reader of a run sees, one tagged union.

Law: text is provisional until the `step_committed` of its (session, step, attempt); `step_discarded` takes it back.
The envelope is filled in by the stream writer and the sequencer, never by the code that makes the chunk.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, JsonValue
from helix.core.messages import Edit
from helix.core.usage import Usage


class ChunkBase(BaseModel):
    """The envelope. `agent_id` is the session id of the emitting agent (children write on their root's stream);
    `sequence` is dense from 1 over the whole stream; `timestamp` is Unix seconds at the writer; `attempt` counts the
    tries of a step, and for a tool's chunks the claims of its call."""

    # Built at first use: an agent file imports all twenty and needs none.
    model_config = ConfigDict(extra="forbid", defer_build=True)

    session_id: str = ""
    run_id: str = ""
    agent_id: str = ""
    agent_type: str = ""
    step: int = 0
    attempt: int = 0
    sequence: int = 0
    timestamp: float = 0.0


class TextDeltaChunk(ChunkBase):
    type: Literal["text_delta"] = "text_delta"
    delta: str


class ThinkingChunk(ChunkBase):
    """A delta where `is_complete` is false; the whole block once where it is true (do not append it to the deltas)."""

    type: Literal["thinking"] = "thinking"
    content: str
    is_complete: bool = False


class ToolStartChunk(ChunkBase):
    """A claimed call begins. A second one for the same call (higher `attempt`) replaces the first. `edited`: a person
    approved these `arguments` in place of the model's."""

    type: Literal["tool_start"] = "tool_start"
    tool_call_id: str
    tool_name: str
    arguments: JsonObject = Field(default_factory=dict)
    edited: Edit | None = None


class ToolEndChunk(ChunkBase):
    """`arguments`: the model's arguments of a refused call, which has no `tool_start`. None if the writer lacked them."""

    type: Literal["tool_end"] = "tool_end"
    tool_call_id: str
    tool_name: str
    result: JsonValue = None
    success: bool = True
    error: str | None = None
    arguments: JsonObject | None = None


class SubAgentStartChunk(ChunkBase):
    type: Literal["subagent_start"] = "subagent_start"
    parent_tool_call_id: str
    sub_agent_id: str
    sub_agent_type: str


class SubAgentEndChunk(ChunkBase):
    type: Literal["subagent_end"] = "subagent_end"
    parent_tool_call_id: str
    sub_agent_id: str
    sub_agent_type: str
    status: str
    result: JsonValue = None
    error: str | None = None


class CustomEventChunk(ChunkBase):
    type: Literal["custom"] = "custom"
    event_name: str
    data: JsonValue = None


class StatePatchChunk(ChunkBase):
    """RFC 6902 operations from the previously committed custom state to the one now committed."""

    type: Literal["state_patch"] = "state_patch"
    patches: list[JsonObject]
    warnings: list[str] = Field(default_factory=list)


class ErrorChunk(ChunkBase):
    """`recoverable` is false exactly once, right before the stream of a failed run ends."""

    type: Literal["error"] = "error"
    error: str
    code: str = "error"
    recoverable: bool = True


class OutputChunk(ChunkBase):
    type: Literal["output"] = "output"
    output: JsonValue


class RunInterruptedChunk(ChunkBase):
    type: Literal["run_interrupted"] = "run_interrupted"
    reason: str | None = None
    checkpoint_id: str | None = None


class RunResumedChunk(ChunkBase):
    """First chunk of a run that goes on from an earlier one. `mode` is a resume or retry mode, or `takeover`."""

    type: Literal["run_resumed"] = "run_resumed"
    previous_run_id: str
    mode: str
    checkpoint_id: str | None = None


class RunQueuedChunk(ChunkBase):
    """The run waits for a free slot of its agent, or of the account. `queued` runs of the agent waited then, with it.
    `reason`: why none starts, if the agent is stopped: `stopped by budget agent:poet/day/micros`."""

    type: Literal["run_queued"] = "run_queued"
    queued: int
    expires_at: float
    reason: str | None = None


class CheckpointCreatedChunk(ChunkBase):
    type: Literal["checkpoint_created"] = "checkpoint_created"
    checkpoint_id: str
    step_count: int
    message_count: int


class RunPausedChunk(ChunkBase):
    """The run waits for people: `pending` lists the calls, see `core.rows.Pending`."""

    type: Literal["run_paused"] = "run_paused"
    reason: str = "pending"
    pending: list[JsonObject] = Field(default_factory=list)
    checkpoint_id: str | None = None


class RunSupersededChunk(ChunkBase):
    type: Literal["run_superseded"] = "run_superseded"
    superseded_run_id: str
    by_run_id: str


class StepCommittedChunk(ChunkBase):
    """The text of this step and attempt is final and equals the stored answer."""

    type: Literal["step_committed"] = "step_committed"
    model: str | None = None
    usage: Usage | None = None
    stop_reason: str | None = None


class StepDiscardedChunk(ChunkBase):
    """Drop what this step and attempt showed. `status`: of the run, if its end cut the attempt off. The words of an
    `interrupted` run may stay on a page until another attempt of the step begins."""

    type: Literal["step_discarded"] = "step_discarded"
    reason: str | None = None
    status: str | None = None


class StreamResyncChunk(ChunkBase):
    """Drop what is shown and start again from the checkpoint: the session was rewound, or chunks were lost."""

    type: Literal["stream_resync"] = "stream_resync"
    reason: str
    checkpoint_id: str | None = None
    from_sequence: int = 0


class ToolApprovalRequestChunk(ChunkBase):
    """`kind` says what is asked for: `approval` of the call, the `client`'s result, or a ruling on an `unknown` outcome.
    `parameters` is the JSON schema of `input`; `reason` is why the tool asks, where its rule says it."""

    type: Literal["tool_approval_request"] = "tool_approval_request"
    tool_call_id: str
    tool_name: str
    input: JsonObject = Field(default_factory=dict)
    parameters: JsonObject = Field(default_factory=dict)
    reason: str | None = None
    kind: Literal["approval", "client", "unknown"] = "approval"


AnyChunk: TypeAlias = (
    TextDeltaChunk | ThinkingChunk | ToolStartChunk | ToolEndChunk | SubAgentStartChunk | SubAgentEndChunk
    | CustomEventChunk | StatePatchChunk | ErrorChunk | OutputChunk | RunInterruptedChunk | RunResumedChunk
    | CheckpointCreatedChunk | RunPausedChunk | RunSupersededChunk | StepCommittedChunk | StepDiscardedChunk
    | StreamResyncChunk | ToolApprovalRequestChunk | RunQueuedChunk
)  # fmt: skip
KnownChunk = Annotated[AnyChunk, Field(discriminator="type")]


class UnknownChunk(ChunkBase):
    """A chunk of a type this version does not know: readers pass it on, writers refuse it."""

    model_config = ConfigDict(extra="allow")

    type: str


StreamChunk: TypeAlias = AnyChunk | UnknownChunk

_adapter: TypeAdapter[AnyChunk] | None = None
CHUNK_CLASSES: dict[str, type[ChunkBase]] = {
    cls.model_fields["type"].default: cls for cls in ChunkBase.__subclasses__() if cls is not UnknownChunk
}
CHUNK_TYPES = frozenset(CHUNK_CLASSES)


def parse_chunk(data: Any) -> StreamChunk:
    """A chunk from its JSON object. A later version may have written it: an unknown type gives an `UnknownChunk`, unknown
    fields are left out. Anything else wrong raises ValidationError."""
    kind = data.get("type") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise InvalidInputError("a chunk is a JSON object with a 'type'")
    cls = CHUNK_CLASSES.get(kind, UnknownChunk)
    extra: Any = None if cls is UnknownChunk else "ignore"
    return cls.model_validate(data, extra=extra)  # type: ignore[return-value]


def chunk_json_schema() -> dict[str, Any]:
    """JSON Schema of the union, for clients in other languages."""
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
