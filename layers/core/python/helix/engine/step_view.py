"""The view of an open step with which its calls are executed."""

from __future__ import annotations

from dataclasses import dataclass, field

from helix.core.claim_plan import OpenRows
from helix.core.entries import CallRow
from helix.core.rows import StopRow
from helix.core.session_row import SessionRow
from helix.engine.history import call_key
from helix.ports.state_store import Key


@dataclass(frozen=True, slots=True)
class StepView:
    """An open step as read, with everything that its calls need. Each write has a condition on the rows as read, so a
    stale view does no harm."""

    session: SessionRow
    """The session's row, with the open step."""
    rows: OpenRows
    """The step's answer and the rows of its calls."""
    stop: StopRow | None
    """The stop of the run. None: no stop was requested."""
    results: dict[str, CallRow] = field(default_factory=dict)
    """The results that this worker has recorded since the view was read, by call id."""

    def finished(self) -> OpenRows | None:
        """Return the step with all its results, if this worker has recorded those that were missing. Results never
        change."""
        calls = zip(self.rows.answer.tool_calls, self.rows.calls, strict=True)
        rows = [self.results.get(request.id, row) for request, row in calls]
        return OpenRows(self.rows.answer, rows) if all(row and row.state == "done" for row in rows) else None

    def place(self, call_id: str) -> int:
        return next(i for i, call in enumerate(self.rows.answer.tool_calls) if call.id == call_id)

    def key(self, call_id: str) -> Key:
        return call_key(self.session, self.place(call_id))
