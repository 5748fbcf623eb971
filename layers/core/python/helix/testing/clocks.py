"""Clocks for tests."""

from __future__ import annotations

from helix.adapters.system import SystemClock


class ShiftedClock(SystemClock):
    """The real clock, `ahead_s` seconds ahead: for whoever looks at it, every lease shorter than that has lapsed."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s

    def now(self) -> float:
        return super().now() + self.ahead_s
