"""Converts stream chunks to the text of progress notifications."""

from __future__ import annotations

from helix.core import chunks as c


def step_in_words(chunk: c.StreamChunk) -> str | None:
    """Return the text of a chunk's progress notification. None for chunks without one, such as a piece of text."""
    words = _describe_chunk(chunk)
    return None if words is None else f"{chunk.agent_type}: {words}"


def _describe_chunk(chunk: c.StreamChunk) -> str | None:
    match chunk:
        case c.ToolStartChunk(tool_name=name):
            return f"{name} begins"
        case c.ToolEndChunk(tool_name=name):
            return f"{name} {'is done' if chunk.success else 'failed'}"
        case c.SubAgentStartChunk(sub_agent_type=name):
            return f"{name} begins"
        case c.SubAgentEndChunk(sub_agent_type=name):
            return f"{name} {chunk.status}"
        case c.StepCommittedChunk(step=step):
            return f"step {step} is done"
        case c.RunQueuedChunk():
            return "waits for a free slot" + (f": the agent is {chunk.reason}" if chunk.reason else "")
        case c.ToolApprovalRequestChunk(tool_name=name):
            return f"{name} waits for a person"
        case _:
            return None
