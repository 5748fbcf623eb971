"""Periods of budgets and usage, and their time windows.

Law: windows are in UTC and follow each other without gaps or overlaps. A window's key identifies its period and its
time. Times are in Unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from helix.core.errors import InvalidInputError


class TokenPeriod(StrEnum):
    """A period after which a count starts over. `TOTAL` never starts over."""

    HOURLY = "hour"
    DAILY = "day"
    WEEKLY = "week"
    MONTHLY = "month"
    TOTAL = "total"

    @property
    def adverb(self) -> str:
        """The adverb for the period: `hourly`, `daily`, ..."""
        return self.name.lower()

    @classmethod
    def _missing_(cls, value: object) -> TokenPeriod | None:
        """Accept adverbs such as `hourly` wherever a period is given as a string."""
        return next((period for period in cls if period.adverb == value), None)


def period_of(value: TokenPeriod | str) -> TokenPeriod:
    """Convert the value to a period. Raises `InvalidInputError` if it is not one."""
    try:
        return TokenPeriod(value)
    except ValueError:
        known = ", ".join(period.adverb for period in TokenPeriod)
        raise InvalidInputError(f"period is {value!r}; it must be one of {known}") from None


@dataclass(frozen=True, slots=True)
class Window:
    """One window of a period."""

    period: TokenPeriod
    """The period that the window belongs to."""
    key: str
    """The key of the window, unique within its period, such as `2026-11-21`."""
    start: float
    """The start of the window in Unix seconds, inclusive."""
    end: float | None
    """The end of the window in Unix seconds, exclusive. None if the window never ends."""


def window_key(period: TokenPeriod, now: float) -> str:
    """Return the key of the window that contains `now`: hour `2026-11-21T14`, day `2026-11-21`, ISO week `2026-W47`,
    month `2026-11`, or `total`."""
    return window_at(period, now).key


def window_at(period: TokenPeriod, now: float) -> Window:
    """Return the window that contains `now`. Weeks follow ISO 8601: they start on Monday and belong to the year of
    their Thursday."""
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
