"""Statuses, modes and sources of stored rows have types for comparisons, and unknown values can still be read."""

from __future__ import annotations

from typing import get_args

import pytest

from helix.core.entries import CallRow
from helix.core.errors import DamagedRowError
from helix.core.rows import CheckpointRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.status import ResultSource, RunStatus, SessionStatus

SESSION = {"session_id": "s", "agent_type": "a", "stream_id": "s", "version": 1, "run_id": "r", "turn": 1}
RUN = {"run_id": "r", "session_id": "s", "turn": 1, "mode": "execute", "agent_type": "a", "first_step": 1}
CALL = {"call_id": "c", "tool_name": "t", "step": 1, "state": "done"}
POINT = {"id": "p", "run_id": "r", "turn": 1, "lineage": 0, "count": 0, "step": 0, "state_at": ""}


@pytest.mark.parametrize("status", [*get_args(SessionStatus), "of a later version"])
def test_any_status_is_read_and_written_back(status: str) -> None:
    assert SessionRow.model_validate({**SESSION, "status": status}).dump()["status"] == status
    assert CheckpointRow.model_validate({**POINT, "status": status}).dump()["status"] == status


@pytest.mark.parametrize("status", [*get_args(RunStatus), "of a later version"])
@pytest.mark.parametrize("mode", ["abort", "of a later version", ""])
def test_any_mode_of_a_run_is_read(status: str, mode: str) -> None:
    run = RunRow.model_validate({**RUN, "status": status, "mode": mode}).dump()
    assert (run["status"], run["mode"]) == (status, mode)


@pytest.mark.parametrize("source", [*get_args(ResultSource), "of a later version", None])
def test_any_source_of_a_result_is_read(source: str | None) -> None:
    assert CallRow.model_validate({**CALL, "by": source}).dump().get("by") == source


@pytest.mark.parametrize("status", [None, 5, ["running"]])
def test_what_is_no_text_is_damaged(status: object) -> None:
    with pytest.raises(DamagedRowError, match="status"):
        SessionRow.model_validate({**SESSION, "status": status})


IDENT, BEFORE = "cpv1-s-s1-t2500-00000b", "cpv1-s-s0-t1500-000001"
WHOLE = {**POINT, "id": IDENT, "step": 1, "status": "completed", "created_at": 2.5}


@pytest.mark.parametrize("state_at", [IDENT, BEFORE, "cpv1-s-with-another-s0-t1500-000001", ""])
def test_a_checkpoint_leaves_out_what_its_key_says(state_at: str) -> None:
    """The row is read as it was written, also if an earlier version stored all fields."""
    row = CheckpointRow.at("s", "c#0000000011", {**WHOLE, "state_at": state_at})
    stored = row.dump()
    assert not {"id", "lineage"} & set(stored) and stored.get("state_at") != IDENT
    assert CheckpointRow.at("s", "c#0000000011", stored) == row and (row.id, row.state_at) == (IDENT, state_at)


@pytest.mark.parametrize("ident", ["p", "cpv1-s-s2-t2500-00000b", "cpv1-s-s1-t2501-00000b"])
def test_a_checkpoint_keeps_an_id_of_another_form(ident: str) -> None:
    row = CheckpointRow.model_validate({**WHOLE, "id": ident})
    assert row.dump()["id"] == ident == CheckpointRow.at("s", "c#0000000011", row.dump()).id


def test_a_checkpoint_without_its_key_is_damaged() -> None:
    with pytest.raises(DamagedRowError):
        CheckpointRow.model_validate(CheckpointRow.model_validate(WHOLE).dump())


def test_a_run_names_its_checkpoints_in_short() -> None:
    whole = {**RUN, "status": "completed", "checkpoint": IDENT, "start_state_at": "cpv1-other-s0-t1-000001"}
    stored = RunRow.model_validate(whole).dump()
    assert (stored["checkpoint"], stored["start_state_at"]) == ("~1-2500-b", "cpv1-other-s0-t1-000001")
    assert not {"run_id", "session_id"} & set(stored)
    again = RunRow.at("s", "r#r", stored)
    assert again == RunRow.model_validate(whole) and again.checkpoint == IDENT


LONG = "run_000007_A"
FIRST, LATER = "cpv1-s-s0-t1500-000001", "cpv1-s-s3-t2500-1000001"


@pytest.mark.parametrize("run_id", ["r", LONG, "run_000002_A", "run_7_A", "run_", "run_0000a7_A"])
@pytest.mark.parametrize("state_at", ["", FIRST, LATER, "cpv1-s-0-1500-1", "cpv1-t-s0-t1500-000001"])
def test_a_session_leaves_out_what_its_key_and_ids_say(run_id: str, state_at: str) -> None:
    """The row is read as it was written, also after updates and if an earlier version stored all fields."""
    whole = {**SESSION, "run_id": run_id, "turn": 7, "state_at": state_at, "checkpoint": LATER, "created_at": 1.5}
    whole |= {"status": "running", "step": 3, "updated_at": 2.5, "usage": [5, 1], "run_usage": [5, 1]}
    row = SessionRow.at("s", whole)
    stored = row.dump()
    assert (row.turn, row.state_at, row.checkpoint, row.usage.prompt_tokens) == (7, state_at, LATER, 5)
    assert SessionRow.at("s", stored) == row
    assert not {"session_id", "stream_id", "usage"} & set(stored) and ("turn" in stored) == (run_id != LONG)
    if state_at in (FIRST, LATER):
        assert stored["state_at"] == ("~" if state_at == FIRST else "~3-2500-1000001")
    # the fields that a heartbeat updates
    renewed = {"version": stored["version"] + 1, "updated_at": 9.5, "lease_expires": 12.5}
    after = SessionRow.at("s", {**stored, **renewed})
    assert after == row.model_copy(update=renewed)
    older = {**row.model_dump(mode="json"), "state_at": state_at.replace("cpv1-s-s", "~s"), "checkpoint": LATER}
    assert SessionRow.at("s", older) == row


def test_the_usage_of_a_session_with_more_runs_is_stored() -> None:
    row = SessionRow.at("s", {**SESSION, "status": "running", "usage": [5, 1], "run_usage": [2]})
    assert row.dump()["usage"] == [5, 1] and SessionRow.at("s", row.dump()) == row
    row = SessionRow.at("s", {**SESSION, "status": "running", "usage": [5, 1]})
    assert row.dump()["usage"] == [5, 1] and SessionRow.at("s", row.dump()) == row


@pytest.mark.parametrize(
    "stored", [{}, {"run_id": 7}, {"run_id": "r", "state_at": 7}, {"run_id": "r", "created_at": "x"}]
)
def test_a_row_without_its_fields_is_damaged(stored: dict[str, object]) -> None:
    with pytest.raises(DamagedRowError, match="'s'"):
        SessionRow.at("s", stored)
    with pytest.raises(DamagedRowError, match="'s'"):
        RunRow.at("s", "r#r", stored)
    with pytest.raises(DamagedRowError):
        CheckpointRow.at("s", "c#0000000001", stored)
