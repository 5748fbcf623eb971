"""Type guards of chunks, under the names of the source systems."""

from __future__ import annotations

from typing import TypeGuard

from helix.core.chunk_envelope import ChunkBase
from helix.core.chunks import (
    CheckpointCreatedChunk,
    CustomEventChunk,
    ErrorChunk,
    OutputChunk,
    RunInterruptedChunk,
    RunResumedChunk,
    StatePatchChunk,
    SubAgentEndChunk,
    SubAgentStartChunk,
    TextDeltaChunk,
    ThinkingChunk,
    ToolEndChunk,
    ToolStartChunk,
)


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
