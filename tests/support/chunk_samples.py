"""A valid sample of each chunk type, with the chunks that must precede it.

A new chunk type needs a sample here: `tests/unit/test_chunks.py` and `tests/unit/test_shown_chunks.py` use them.
"""

from __future__ import annotations

from typing import Any

from helix.core import chunks as c

STEP: dict[str, Any] = {"step": 1, "attempt": 1}
CALL: dict[str, Any] = {"tool_call_id": "c1", "tool_name": "look", "step": 1}
CHILD: dict[str, Any] = {
    "parent_tool_call_id": "c1",
    "sub_agent_id": "sub",
    "sub_agent_type": "helper",
    "step": 1,
}
TEXT = c.TextDeltaChunk(delta="Tea.", **STEP)
COMMITTED = c.StepCommittedChunk(usage={"prompt_tokens": 5, "calls": 1}, model="m", **STEP)
STARTED = c.ToolStartChunk(attempt=1, **CALL)
SUB = {"session_id": "sub", "run_id": "run2", "agent_id": "sub", "agent_type": "helper"}
BELOW = c.TextDeltaChunk(delta="Below.", **SUB, **STEP)
CHUNKS: dict[str, tuple[list[c.StreamChunk], c.StreamChunk]] = {
    "text_delta": ([], TEXT),
    "thinking": ([], c.ThinkingChunk(content="Hm.", **STEP)),
    "tool_start": ([TEXT, COMMITTED], STARTED),
    "tool_end": ([TEXT, COMMITTED, STARTED], c.ToolEndChunk(result=1, **CALL)),
    "subagent_start": ([TEXT, COMMITTED, STARTED], c.SubAgentStartChunk(**CHILD)),
    "subagent_end": (
        [TEXT, COMMITTED, STARTED, c.SubAgentStartChunk(**CHILD), BELOW],
        c.SubAgentEndChunk(status="completed", result=1, **CHILD),
    ),
    "custom": ([], c.CustomEventChunk(event_name="found", data=1)),
    "state_patch": ([], c.StatePatchChunk(patches=[{"op": "add", "path": "/n", "value": 1}])),
    "error": ([], c.ErrorChunk(error="busy", code="model_error")),
    "output_delta": ([], c.OutputDeltaChunk(delta='{"n": 1', **STEP)),
    "output": ([], c.OutputChunk(output={"n": 1})),
    "run_interrupted": ([TEXT, BELOW], c.RunInterruptedChunk(reason="stopped")),
    "run_resumed": ([], c.RunResumedChunk(previous_run_id="before", mode="takeover")),
    "checkpoint_created": ([], c.CheckpointCreatedChunk(checkpoint_id="k", step_count=1, message_count=2)),
    "run_paused": ([TEXT, BELOW], c.RunPausedChunk(reason="budget_exceeded")),
    "run_superseded": ([], c.RunSupersededChunk(superseded_run_id="before", by_run_id="run")),
    "step_committed": ([TEXT], COMMITTED),
    "step_discarded": ([TEXT], c.StepDiscardedChunk(reason="lost", **STEP)),
    "stream_resync": ([TEXT], c.StreamResyncChunk(reason="chunks were lost")),
    "tool_approval_request": ([TEXT, COMMITTED], c.ToolApprovalRequestChunk(**CALL)),
    "call_reminder": ([], c.CallReminderChunk(tool_call_id="c", tool_name="pay", number=2)),
    "run_queued": ([], c.RunQueuedChunk(queued=2, expires_at=1.0)),
    "context_changed": ([], c.ContextChangedChunk(hidden=4, cleared=4, summary="Tea.", step=1)),
    "message_queued": ([], c.MessageQueuedChunk(queued_id="q", state="delivered", content="Wait.")),
    "agent_changed": ([], c.AgentChangedChunk(agent="billing")),
    "server_tool": (
        [],
        c.ServerToolChunk(tool_call_id="s1", tool_name="web_search", arguments={"query": "tea"}, **STEP),
    ),
    "citation": ([TEXT], c.CitationChunk(start=0, end=3, url="https://tea.example", title="Tea", **STEP)),
    "unknown": ([], c.UnknownChunk(type="later")),
}
"""The preceding chunks and the chunk itself, by type."""
