"""An open step as its calls see it."""

from __future__ import annotations

from dataclasses import dataclass

from helix.core.claiming import OpenRows
from helix.core.row_keys import message_sort
from helix.core.rows import SessionRow, StopRow
from helix.engine.history import row_key
from helix.ports.state_store import Key


@dataclass(frozen=True, slots=True)
class StepView:
    """An open step as read: what all its calls need. Conditions on what was read keep a stale view harmless."""

    session: SessionRow
    rows: OpenRows
    stop: StopRow | None

    def place(self, call_id: str) -> int:
        return next(i for i, call in enumerate(self.rows.answer.tool_calls) if call.id == call_id)

    def key(self, call_id: str) -> Key:
        assert self.session.open is not None
        index = self.session.open.base + 1 + self.place(call_id)
        return row_key(self.session.session_id, message_sort(self.session.lineage, index))
