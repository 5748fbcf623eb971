"""A reader who followed the stream and one who loads the session show the same conversation."""

from __future__ import annotations

from typing import Any

from helix.core.conversation.conversation import Conversation
from helix.core.conversation.items import Step, User
from helix.core.entries import AssistantRow, message_of
from helix.core.tools import FINISH_TOOL_NAME
from helix.services.segments import SegmentStreams
from helix.sessions.session_rows import SessionRows
from helix.testing.invariants import read_tree
from helix.testing.stream_invariants import read_all


async def check_folds(machine: Any) -> None:
    """Check each root session whose history was never rewound, copied or deleted."""
    store = machine.world.inner
    for session in machine.sessions():
        if session.parent is None and not session.lineages and session.forked_from is None:
            tree = await read_tree(store, session.session_id)
            messages = await read_all(SegmentStreams(store), session.stream_id)
            followed = Conversation(session.session_id)
            for message in messages:
                followed.take(message)
            for rows in tree:
                if rows.session is None or rows.session.lineages or rows.session_id not in followed.below:
                    continue
                _compare(rows, _shown(followed.below[rows.session_id]), _shown(_loaded(rows)))


def _loaded(rows: SessionRows) -> Conversation:
    session = rows.session
    assert session is not None
    entries = rows.history(session.lineage, session.count)
    children = {
        call: (ref.session_id, ref.agent_type)
        for entry in entries
        if isinstance(entry, AssistantRow)
        for call, ref in entry.children.items()
    }
    conversation = Conversation(rows.session_id)
    assert None not in entries
    conversation.load([message_of(e, 0, index) for index, e in enumerate(entries) if e is not None], children)
    return conversation


def _shown(conversation: Conversation) -> list[Any]:
    """Return what readers see of answers and of the messages that waited."""
    found: list[Any] = []
    for item in conversation.items:
        if isinstance(item, User) and item.queued_id:
            found.append(("user", item.text, item.queued_id))
        elif isinstance(item, Step) and item.state == "committed":
            calls = sorted((call.id, call.state) for call in item.calls if call.name != FINISH_TOOL_NAME)
            found.append(("step", item.step, item.text, calls))
    return found


def _compare(rows: SessionRows, followed: list[Any], loaded: list[Any]) -> None:
    assert rows.session is not None
    last = rows.session.step
    told = [item for item in followed if item[0] == "user" or item[1] <= last]
    same = next(
        (n for n, (one, other) in enumerate(zip(told, loaded, strict=False)) if one != other),
        min(len(told), len(loaded)),
    )
    assert told == loaded, f"folds_agree: {rows.session_id}: followed {told[same:]}, loaded {loaded[same:]}"
