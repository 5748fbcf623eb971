"""Periods of budgets and usage, and the windows that they fall into.

Law: windows are UTC, follow each other without gap or overlap, and a window's key says its period and its place in time.
Moments are Unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from helix.core.errors import InvalidInputError


class TokenPeriod(StrEnum):
    """How often something counted per period begins anew. `TOTAL` never does."""

    HOURLY = "hour"
    DAILY = "day"
    WEEKLY = "week"
    MONTHLY = "month"
    TOTAL = "total"

    @property
    def adverb(self) -> str:
        """`hourly`, `daily`, ...: how people name the period."""
        return self.name.lower()

    @classmethod
    def _missing_(cls, value: object) -> TokenPeriod | None:
        """`hourly` and the like are understood wherever a period is given as a text."""
        return next((period for period in cls if period.adverb == value), None)


def period_of(value: TokenPeriod | str) -> TokenPeriod:
    """Raises `InvalidInputError` for what is none."""
    try:
        return TokenPeriod(value)
    except ValueError:
        known = ", ".join(period.adverb for period in TokenPeriod)
        raise InvalidInputError(f"period {value!r} is none of {known}") from None


@dataclass(frozen=True, slots=True)
class Window:
    """`start` (included) to `end` (excluded; None: never) in Unix seconds. `key` names it among its period's windows."""

    period: TokenPeriod
    key: str
    start: float
    end: float | None


def window_key(period: TokenPeriod, now: float) -> str:
    """The window `now` is in: hour `2026-11-21T14`, day `2026-11-21`, ISO week `2026-W47`, month `2026-11`, `total`."""
    return window_at(period, now).key


def window_at(period: TokenPeriod, now: float) -> Window:
    """The window that `now` is in, with its bounds. Weeks begin on Monday, and belong to the year of their Thursday."""
    moment = datetime.fromtimestamp(now, UTC)
    hour = moment.replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0)
    match period:
        case TokenPeriod.HOURLY:
            return _window(period, hour.strftime("%Y-%m-%dT%H"), hour, hour + timedelta(hours=1))
        case TokenPeriod.DAILY:
            return _window(period, day.strftime("%Y-%m-%d"), day, day + timedelta(days=1))
        case TokenPeriod.WEEKLY:
            monday = day - timedelta(days=day.weekday())
            return _window(period, day.strftime("%G-W%V"), monday, monday + timedelta(days=7))
        case TokenPeriod.MONTHLY:
            first = day.replace(day=1)
            following = (first + timedelta(days=31)).replace(day=1)
            return _window(period, day.strftime("%Y-%m"), first, following)
        case TokenPeriod.TOTAL:
            return Window(period, "total", 0, None)


def _window(period: TokenPeriod, key: str, start: datetime, end: datetime) -> Window:
    return Window(period, key, start.timestamp(), end.timestamp())
