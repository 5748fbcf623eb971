"""The sessions that write on one stream, as AG-UI tells them apart."""

from __future__ import annotations

from dataclasses import dataclass, field

from helix.core.json import JsonObject


@dataclass
class Writer:
    """One session that writes: the root, or a run of a sub-agent."""

    session_id: str
    """The session that writes."""
    run_id: str
    """The run that writes. It is the AG-UI run, or the sub-agent's run id."""
    tag: JsonObject = field(default_factory=dict)
    """The fields that all its events carry: `subagentRunId` for a sub-agent, nothing for the root."""
    at: tuple[int, int] = (0, 0)
    """The (step, attempt) at which it is."""
    message: str | None = None
    """The id of the text message that is open. None if no message is open."""
    thought: str | None = None
    """The id of the reasoning message that is open. None if no message is open."""
    thoughts: int = 0
    """The number of reasoning messages in the present attempt, which numbers their ids."""
    shown: list[str] = field(default_factory=list)
    """The ids of the messages of the present attempt."""


@dataclass(frozen=True)
class Link:
    """A sub-agent's place: the call that started it."""

    agent: str
    """The name of the sub-agent."""
    call: str
    """The id of the call, as front ends see it."""
    parent: str
    """The session that made the call."""
