"""Results for calls without one, when a step is closed (docs/protocol.md#claims)."""

from __future__ import annotations

from helix.core.call_results import parsed_content
from helix.core.claim_plan import OpenRows, close
from helix.core.entries import AssistantRow, CallRow
from helix.core.messages import ToolCallRequest


def test_an_unknown_outcome_that_a_person_was_asked_about_stays_unknown() -> None:
    """If the model read that the call was not started, it would start the call again."""
    asks = {"a": ("asked", "approval"), "b": ("asked", "unknown"), "c": ("claimed", None), "d": ("approved", None)}
    answer = AssistantRow(
        run_id="run",
        step=1,
        attempt=1,
        attempt_id="x",
        tool_calls=[ToolCallRequest(id=ident, name="pay", arguments={}) for ident in asks],
        created_at=0,
    )
    rows = [
        CallRow.model_validate({"call_id": ident, "tool_name": "pay", "step": 1, "state": state, "ask": ask})
        for ident, (state, ask) in asks.items()
    ]
    said = [parsed_content(row.content) for _, row in close(OpenRows(answer, rows), 0)]
    statuses = [one["status"] for one in said if isinstance(one, dict)]
    assert statuses == ["not_executed", "unknown", "unknown", "not_executed"]
