"""The complete table of status transitions."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from helix.core.claim_plan import check_status
from helix.core.errors import AgentAlreadyRunningError, CannotResumeError, HelixError, IllegalTransitionError
from helix.core.session_row import SessionRow
from helix.core.status import CLAIMS, ENDS, AgentStatus, ClaimMode, check_move, may_claim

STATUSES = get_args(AgentStatus)
LEGAL: dict[ClaimMode, set[AgentStatus]] = {
    "execute": {"completed", "failed", "interrupted", "paused"},
    "continue": {"interrupted", "paused"},
    "with_message": {"interrupted", "paused"},
    "with_confirmation": {"paused"},
    "from_checkpoint": {"completed", "failed", "interrupted", "paused"},
    "retry": {"failed"},
    "from_start": {"failed"},
    "takeover": {"running"},
    "abort": {"interrupted", "paused"},
}


def session(status: str, *, aborted: bool = False) -> SessionRow:
    return SessionRow(
        session_id="s", agent_type="a", stream_id="s", status=status, version=1, run_id="r", turn=1, aborted=aborted
    )


def test_every_mode_is_in_the_table() -> None:
    assert set(CLAIMS) == set(get_args(ClaimMode)) == set(LEGAL)


@pytest.mark.parametrize(("mode", "status"), list(product(LEGAL, STATUSES)))
def test_who_may_claim(mode: ClaimMode, status: AgentStatus) -> None:
    assert may_claim(mode, status) == (status in LEGAL[mode])
    if status in LEGAL[mode]:
        check_status(session(status), mode, None)
        return
    with pytest.raises((AgentAlreadyRunningError, CannotResumeError)) as caught:
        check_status(session(status), mode, None)
    assert isinstance(caught.value, AgentAlreadyRunningError) == (status == "running")
    assert "'s'" in str(caught.value)


@pytest.mark.parametrize(("old", "new"), list(product([None, *STATUSES], STATUSES)))
def test_moves(old: AgentStatus | None, new: AgentStatus) -> None:
    legal = new == "running" or (old == "running" and new in ENDS)
    if legal:
        check_move(old, new)
    else:
        with pytest.raises(IllegalTransitionError, match=f"{old!r}.*{new!r}"):
            check_move(old, new)


def test_an_aborted_session_takes_a_message_only() -> None:
    aborted = session("failed", aborted=True)
    check_status(aborted, "execute", "hi")
    for mode in ("retry", "from_start"):
        with pytest.raises(CannotResumeError) as caught:
            check_status(aborted, mode, None)
        assert caught.value.reason == "aborted"


def test_errors_have_codes_of_their_own() -> None:
    found: list[type[HelixError]] = [HelixError]
    for cls in found:
        found.extend(cls.__subclasses__())
    named = [cls for cls in found if "code" in vars(cls) and cls.__module__ == "helix.core.errors"]
    assert len({cls.code for cls in named}) == len(named)
