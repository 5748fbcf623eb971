"""Budget windows: their keys and bounds. They follow each other without gap or overlap."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.core.periods import TokenPeriod, window_at, window_key

BOUNDED = [period for period in TokenPeriod if period is not TokenPeriod.TOTAL]
MOMENTS = st.floats(min_value=0, max_value=4_000_000_000)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("moment", "keys"),
    [
        ("2026-11-21T14:35:07", ["2026-11-21T14", "2026-11-21", "2026-W47", "2026-11", "total"]),
        ("2026-11-21T00:00:00", ["2026-11-21T00", "2026-11-21", "2026-W47", "2026-11", "total"]),
        ("2026-11-22T23:59:59.9", ["2026-11-22T23", "2026-11-22", "2026-W47", "2026-11", "total"]),
        ("2026-11-23T00:00:00", ["2026-11-23T00", "2026-11-23", "2026-W48", "2026-11", "total"]),
        ("2027-01-01T00:00:00", ["2027-01-01T00", "2027-01-01", "2026-W53", "2027-01", "total"]),
        ("2024-12-30T12:00:00", ["2024-12-30T12", "2024-12-30", "2025-W01", "2024-12", "total"]),
        ("2024-02-29T01:00:00", ["2024-02-29T01", "2024-02-29", "2024-W09", "2024-02", "total"]),
    ],
)
def test_keys_are_utc_and_weeks_are_iso(moment: str, keys: list[str]) -> None:
    assert [window_key(period, at(moment)) for period in TokenPeriod] == keys


@given(moment=MOMENTS, period=st.sampled_from(BOUNDED))
def test_windows_follow_each_other(moment: float, period: TokenPeriod) -> None:
    window = window_at(period, moment)
    assert window.end is not None and window.start <= moment < window.end
    following = window_at(period, window.end)
    assert following.start == window.end
    assert following.key > window.key or period is TokenPeriod.WEEKLY
    assert window_at(period, window.end - 0.001) == window == window_at(period, window.start)


@given(one=MOMENTS, other=MOMENTS, period=st.sampled_from(BOUNDED))
def test_one_key_is_one_window(one: float, other: float, period: TokenPeriod) -> None:
    same = window_at(period, one).start == window_at(period, other).start
    assert (window_key(period, one) == window_key(period, other)) is same


def test_periods_are_named_both_ways() -> None:
    assert [TokenPeriod(word) for word in ("hourly", "day", "weekly", "month", "total")] == list(TokenPeriod)
    assert [period.adverb for period in TokenPeriod] == ["hourly", "daily", "weekly", "monthly", "total"]
    with pytest.raises(ValueError):
        TokenPeriod("yearly")
    assert window_at(TokenPeriod.TOTAL, 5).end is None
