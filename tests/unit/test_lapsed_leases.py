"""The conditions under which a worker's lease has expired."""

from __future__ import annotations

import pytest

from helix.core.claim_plan import CLOCK_SKEW_S, lapsed
from helix.core.session_row import SessionRow

NOW = 1_000_000.0
HOUR = 3600.0


def running(updated_at: float, lease_expires: float, status: str = "running") -> SessionRow:
    return SessionRow(
        session_id="s",
        agent_type="a",
        stream_id="s",
        status=status,
        version=1,
        run_id="r",
        turn=1,
        lease_expires=lease_expires,
        updated_at=updated_at,
    )


@pytest.mark.parametrize(
    ("updated_at", "lease_expires", "over"),
    [
        (NOW - 10, NOW + 5, False),
        (NOW - 20, NOW - 5, True),
        (NOW - 20, 0, False),  # no lease: executed by deliveries
        (NOW + HOUR - 5, NOW + HOUR + 10, True),  # the clock was set back an hour after the last renewal
        (NOW + HOUR, NOW + 15, False),  # it was set back, but the worker has renewed its lease since
        (NOW + CLOCK_SKEW_S, NOW + CLOCK_SKEW_S + 15, False),  # clocks of two machines may differ slightly
        (NOW - 10, NOW + 1e9, False),  # a long lease does not prove a wrong clock
    ],
)
def test_a_lease_lapses_by_time_or_when_its_renewal_lies_in_the_future(
    updated_at: float, lease_expires: float, over: bool
) -> None:
    assert lapsed(running(updated_at, lease_expires), NOW) is over
    assert not lapsed(running(updated_at, lease_expires, status="paused"), NOW)
