"""Type guards of chunks, under the names of the source systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard, TypeVar

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

_ChunkT = TypeVar("_ChunkT", bound=ChunkBase)


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
