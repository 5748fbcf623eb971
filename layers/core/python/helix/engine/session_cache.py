"""A cache of session rows that a worker has read and will need again.

Law: the cached rows of a session stay as long as a caller holds them, as a run does while it works. Rows of other
sessions stay up to a total of `CACHED_BYTES`; the least recently used are evicted first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from helix.core.entries import AnyEntry, AssistantRow
from helix.core.json import JsonObject, size
from helix.core.messages import AnyMessage, AssistantMessage
from helix.core.prompt import is_changed
from helix.core.session_row import SessionRow
from helix.core.view_row import ViewRow

CACHED_BYTES = 32_000_000
MESSAGE_BYTES = 1_000
"""The approximate size of a message without its text, in bytes."""
STATES = 4
"""The number of custom states that are cached per session."""


@dataclass(slots=True)
class Conversation:
    """The cached messages of one lineage, starting with the first."""

    messages: list[AnyMessage] = field(default_factory=list)
    """The first messages of the lineage, without gaps."""
    call_ids: set[str] = field(default_factory=set)
    """The ids of all calls in `messages`, from which new ids must differ."""
    changed: list[int] = field(default_factory=list)
    """The indexes in `messages` of results whose call was edited, and of answers with verdicts of guards, which the
    model sees otherwise than they are stored."""


@dataclass(slots=True, weakref_slot=True)
class Known:
    """The cached rows of one session."""

    conversations: dict[int, Conversation] = field(default_factory=dict)
    """Conversations by lineage."""
    states: dict[str, JsonObject] = field(default_factory=dict)
    """Custom states by the id of the checkpoint that holds them, at most `STATES`."""
    views: dict[int, ViewRow] = field(default_factory=dict)
    """Views by the session version in their key."""
    heads: set[str] = field(default_factory=set)
    """The ids of request heads that rows of the session name. They are stored, because a head is stored before the
    first row that names it."""
    size: int = 0
    """The approximate size of everything cached here, in bytes."""


class SessionCache:
    def __init__(self) -> None:
        self._held: WeakValueDictionary[tuple[str, float], Known] = WeakValueDictionary()
        self._recent: OrderedDict[tuple[str, float], Known] = OrderedDict()
        self._size = 0

    def known(self, session_id: str, created_at: float) -> Known:
        """Return the cached rows of the session. They stay cached as long as the caller holds them."""
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
        """Return the cached conversation of the session's lineage. The cache owns it, so do not change it."""
        known = self.known(session.session_id, session.created_at)
        return known.conversations.setdefault(session.lineage, Conversation())

    def extend(self, session: SessionRow, conversation: Conversation, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            conversation.messages.append(message)
            if isinstance(message, AssistantMessage):
                conversation.call_ids.update(call.id for call in message.tool_calls)
            if is_changed(message):
                conversation.changed.append(len(conversation.messages) - 1)
        more = sum(MESSAGE_BYTES + len(message.content or "") for message in messages)
        self._grow(session.session_id, session.created_at, more)

    def states(self, session_id: str, created_at: float) -> dict[str, JsonObject]:
        """Return the cached custom states of the session by checkpoint id. The cache owns them, so do not change
        them."""
        return self.known(session_id, created_at).states

    def put_state(self, session_id: str, created_at: float, checkpoint_id: str, state: JsonObject) -> None:
        states = self.states(session_id, created_at)
        gone = [states.pop(checkpoint_id)] if checkpoint_id in states else []
        states[checkpoint_id] = state
        while len(states) > STATES:
            gone.append(states.pop(next(iter(states))))
        self._grow(session_id, created_at, size(state) - sum(map(size, gone)))

    def put_view(self, session: SessionRow, version: int, view: ViewRow) -> None:
        self.known(session.session_id, session.created_at).views[version] = view
        self._grow(session.session_id, session.created_at, MESSAGE_BYTES + len(view.summary))

    def add_heads(self, session: SessionRow, entries: Iterable[AnyEntry]) -> None:
        """Note the request heads that these messages of the session name."""
        heads = {entry.head for entry in entries if isinstance(entry, AssistantRow) and entry.head}
        self.known(session.session_id, session.created_at).heads.update(heads)

    def _grow(self, session_id: str, created_at: float, more: int) -> None:
        self.known(session_id, created_at).size += more
        self._size += more
        self._make_room()

    def _make_room(self) -> None:
        while self._size > CACHED_BYTES and len(self._recent) > 1:
            self._size -= self._recent.popitem(last=False)[1].size
