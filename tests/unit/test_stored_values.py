"""Statuses, modes and sources of stored rows: typed where they are compared, and readable whatever a row has."""

from __future__ import annotations

from typing import get_args

import pytest

from helix.core.entries import CallRow
from helix.core.errors import DamagedRowError
from helix.core.rows import CheckpointRow, RunRow, SessionRow
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
    """And is read as it was written, also where an earlier version wrote it in full."""
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
    assert (stored["checkpoint"], stored["start_state_at"]) == ("~s1-t2500-00000b", "cpv1-other-s0-t1-000001")
    again = RunRow.model_validate(stored)
    assert again == RunRow.model_validate(whole) and again.checkpoint == IDENT
