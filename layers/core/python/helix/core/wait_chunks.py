"""The chunk about a call that has waited for a while."""

from __future__ import annotations

from typing import Literal

from helix.core.chunk_envelope import NoticeChunk


class CallReminderChunk(NoticeChunk):
    """A reminder of a call that still waits for a person or the client. It comes after the run has paused. Its `attempt` is
    the number of the reminder."""

    type: Literal["call_reminder"] = "call_reminder"
    """The tag of this chunk on the wire."""
    ui_fields = ("tool_call_id", "tool_name", "kind", "number", "expires_at")
    line = "Reminder {number}: {tool_name} ({tool_call_id}) still waits."

    tool_call_id: str
    """The id of the call, unique in its session."""
    tool_name: str
    """The tool that the model called."""
    kind: Literal["approval", "client", "unknown", "question"] = "approval"
    """The response that the call waits for, as in `tool_approval_request`."""
    number: int = 1
    """The number of the reminder, starting at 1 for each call."""
    expires_at: float | None = None
    """The time (Unix seconds) when the wait ends without a response. None: never."""
