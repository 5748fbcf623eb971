"""What a worker has read of sessions, and will want again.

Law: what is cached of a session stays as long as somebody holds it, as a run does while it is at work. Of other sessions as
much stays as fits into `CACHED_BYTES`; what was used longest ago goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from helix.core.json import JsonObject, size
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage
from helix.core.rows import SessionRow

CACHED_BYTES = 32_000_000
MESSAGE_BYTES = 1_000
"""Of a message, besides its text: roughly."""
STATES = 4
"""Custom states of one session."""


@dataclass(slots=True)
class Conversation:
    """What is cached of one lineage: the first messages, their call ids, and where `edited` results are."""

    messages: list[AnyMessage] = field(default_factory=list)
    call_ids: set[str] = field(default_factory=set)
    edited: list[int] = field(default_factory=list)


@dataclass(slots=True, weakref_slot=True)
class Known:
    """What is cached of one session: conversations by lineage, and custom states by checkpoint. `size`: in bytes."""

    conversations: dict[int, Conversation] = field(default_factory=dict)
    states: dict[str, JsonObject] = field(default_factory=dict)
    size: int = 0


class SessionCache:
    def __init__(self) -> None:
        self._held: WeakValueDictionary[tuple[str, float], Known] = WeakValueDictionary()
        self._recent: OrderedDict[tuple[str, float], Known] = OrderedDict()
        self._size = 0

    def known(self, session_id: str, created_at: float) -> Known:
        """What is cached of the session. It stays cached as long as the caller holds it."""
        key = (session_id, created_at)
        if (known := self._held.get(key)) is None:
            known = self._held[key] = Known()
        if key not in self._recent:
            self._recent[key] = known
            self._size += known.size
        self._recent.move_to_end(key)
        self._make_room()
        return known

    def find(self, session: SessionRow) -> Conversation | None:
        known = self._held.get((session.session_id, session.created_at))
        return None if known is None else known.conversations.get(session.lineage)

    def conversation(self, session: SessionRow) -> Conversation:
        """The cache's own: read only."""
        known = self.known(session.session_id, session.created_at)
        return known.conversations.setdefault(session.lineage, Conversation())

    def extend(self, session: SessionRow, conversation: Conversation, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            conversation.messages.append(message)
            if isinstance(message, AssistantMessage):
                conversation.call_ids.update(call.id for call in message.tool_calls)
            elif isinstance(message, ToolResultMessage) and "edited" in message.metadata:
                conversation.edited.append(len(conversation.messages) - 1)
        more = sum(MESSAGE_BYTES + len(message.content or "") for message in messages)
        self._grow(session.session_id, session.created_at, more)

    def states(self, session_id: str, created_at: float) -> dict[str, JsonObject]:
        """The cache's own: read only."""
        return self.known(session_id, created_at).states

    def put_state(self, session_id: str, created_at: float, checkpoint_id: str, state: JsonObject) -> None:
        states = self.states(session_id, created_at)
        gone = [states.pop(checkpoint_id)] if checkpoint_id in states else []
        states[checkpoint_id] = state
        while len(states) > STATES:
            gone.append(states.pop(next(iter(states))))
        self._grow(session_id, created_at, size(state) - sum(map(size, gone)))

    def _grow(self, session_id: str, created_at: float, more: int) -> None:
        self.known(session_id, created_at).size += more
        self._size += more
        self._make_room()

    def _make_room(self) -> None:
        while self._size > CACHED_BYTES and len(self._recent) > 1:
            self._size -= self._recent.popitem(last=False)[1].size
