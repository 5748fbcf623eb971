"""Periods of budgets and usage, and the windows that they are divided into.

Law: windows are UTC and follow each other without gap or overlap. A window's key says its period and its place in time.
Moments are Unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from helix.core.errors import InvalidInputError


class TokenPeriod(StrEnum):
    """A period after which something that is counted begins anew. `TOTAL` never does."""

    HOURLY = "hour"
    DAILY = "day"
    WEEKLY = "week"
    MONTHLY = "month"
    TOTAL = "total"

    @property
    def adverb(self) -> str:
        """The name that people use for the period: `hourly`, `daily`, ..."""
        return self.name.lower()

    @classmethod
    def _missing_(cls, value: object) -> TokenPeriod | None:
        """Accept `hourly` and the like wherever a period is given as a text."""
        return next((period for period in cls if period.adverb == value), None)


def period_of(value: TokenPeriod | str) -> TokenPeriod:
    """Return the period. Raises `InvalidInputError` for a value that is not a period."""
    try:
        return TokenPeriod(value)
    except ValueError:
        known = ", ".join(period.adverb for period in TokenPeriod)
        raise InvalidInputError(f"period {value!r} is none of {known}") from None


@dataclass(frozen=True, slots=True)
class Window:
    """One window of a period."""

    period: TokenPeriod
    """The period that the window belongs to."""
    key: str
    """The name of the window among those of its period, such as `2026-11-21`."""
    start: float
    """The first moment of the window (Unix seconds)."""
    end: float | None
    """The moment at which the next window begins (Unix seconds). None: the window never ends."""


def window_key(period: TokenPeriod, now: float) -> str:
    """Return the key of the window that `now` is in: hour `2026-11-21T14`, day `2026-11-21`, ISO week `2026-W47`, month
    `2026-11`, or `total`."""
    return window_at(period, now).key


def window_at(period: TokenPeriod, now: float) -> Window:
    """Return the window that `now` is in, with its bounds. Weeks begin on Monday, and belong to the year of their
    Thursday."""
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
