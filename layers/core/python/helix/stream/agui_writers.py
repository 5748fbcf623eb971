"""The sessions that write to one stream, as AG-UI distinguishes them."""

from __future__ import annotations

from dataclasses import dataclass, field

from helix.core.json import JsonObject


@dataclass
class Writer:
    """One writer on the stream: the root session, or a run of a sub-agent."""

    session_id: str
    """The session that writes."""
    run_id: str
    """The id of the run that writes: the AG-UI run, or the sub-agent's run."""
    tag: JsonObject = field(default_factory=dict)
    """The fields of all its events: `subagentRunId` for a sub-agent, none for the root."""
    at: tuple[int, int] = (0, 0)
    """The current (step, attempt)."""
    message: str | None = None
    """The id of the open text message. None if no message is open."""
    thought: str | None = None
    """The id of the open reasoning message. None if no message is open."""
    thoughts: int = 0
    """The number of reasoning messages in the current attempt, used to number their ids."""
    shown: list[str] = field(default_factory=list)
    """The ids of the messages of the current attempt."""


@dataclass(frozen=True)
class Link:
    """The link from a sub-agent to the call that started it."""

    agent: str
    """The name of the sub-agent."""
    call: str
    """The id of the call, as front ends see it."""
    parent: str
    """The session that made the call."""
