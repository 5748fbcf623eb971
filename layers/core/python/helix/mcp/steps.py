"""Chunks of a stream as the words of a progress notification."""

from __future__ import annotations

from helix.core import chunks as c


def step_in_words(chunk: c.StreamChunk) -> str | None:
    """None for what is no progress of its own, such as a piece of text."""
    match chunk:
        case c.ToolStartChunk():
            return f"{chunk.agent_type}: {chunk.tool_name} begins"
        case c.ToolEndChunk():
            return f"{chunk.agent_type}: {chunk.tool_name} {'is done' if chunk.success else 'failed'}"
        case c.SubAgentStartChunk():
            return f"{chunk.agent_type}: {chunk.sub_agent_type} begins"
        case c.SubAgentEndChunk():
            return f"{chunk.agent_type}: {chunk.sub_agent_type} {chunk.status}"
        case c.StepCommittedChunk():
            return f"{chunk.agent_type}: step {chunk.step} is done"
        case c.RunQueuedChunk():
            return f"{chunk.agent_type}: waits for a free slot"
        case c.ToolApprovalRequestChunk():
            return f"{chunk.agent_type}: {chunk.tool_name} waits for a person"
        case _:
            return None
