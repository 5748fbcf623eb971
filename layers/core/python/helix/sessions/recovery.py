"""Reads a conversation to display or continue it."""

from __future__ import annotations

from typing import NamedTuple

from helix.core.messages import AnyMessage
from helix.ports.state_store import StateStore
from helix.sessions.read import Sessions


class RecoveredConversation(NamedTuple):
    """A conversation to display or continue."""

    messages: list[AnyMessage]
    """The messages of the current lineage, with call/result pairs repaired."""
    can_resume: bool
    """Whether `resume` would continue it (`Sessions.can_resume`)."""


async def recover_conversation(store: StateStore, session_id: str) -> RecoveredConversation:
    """Return the conversation of a session for display or continuation. Read-only."""
    sessions = Sessions(store)
    messages = await sessions.load_conversation_messages(session_id)
    return RecoveredConversation(messages, (await sessions.can_resume(session_id)).can_resume)
