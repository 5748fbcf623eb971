"""The difference between two checkpoints of a session.

Law: this module is read-only. The messages of (lineage, count) never change, so the difference between two checkpoints
never changes either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.core.json import JsonObject
from helix.core.lineage import find_spans
from helix.core.messages import AnyMessage
from helix.core.patches import diff
from helix.core.rows import CheckpointRow, LineageRow
from helix.core.session_row import SessionRow
from helix.engine.history import History


@dataclass(frozen=True, slots=True)
class Diff:
    """The difference between two checkpoints."""

    patches: Sequence[JsonObject]
    """The RFC 6902 patches that turn the first state into the second."""
    messages: Sequence[AnyMessage]
    """A page of the messages that only the second checkpoint has."""
    added: int
    """The number of messages that only the second checkpoint has."""
    removed: int
    """The number of messages that only the first checkpoint has, if the session was rewound."""


async def diff_points(history: History, session: SessionRow, before: str, after: str, offset: int, limit: int) -> Diff:
    """Compare the two checkpoints. Raises `CheckpointNotFoundError`."""
    first, old = await history.point(session, before)
    second, new = await history.point(session, after)
    lineage = await history.lineage(session.session_id, second.lineage)
    same = common_messages((await history.lineage(session.session_id, first.lineage), first), (lineage, second))
    start = same + offset
    end = min(second.count, start + limit)
    messages = await history.read_messages(session.session_id, lineage, start, end) if start < end else []
    return Diff(diff(old, new), messages, second.count - same, first.count - same)


def common_messages(one: tuple[LineageRow, CheckpointRow], other: tuple[LineageRow, CheckpointRow]) -> int:
    """Return the length of the two histories' common prefix, which consists of the same rows."""
    same = 0
    places = (find_spans(lineage, 0, point.count) for lineage, point in (one, other))
    for (owner, start, end), (owner_too, start_too, end_too) in zip(*places, strict=False):
        if (owner, start) != (owner_too, start_too):
            break
        same = min(end, end_too)
        if end != end_too:
            break
    return same
