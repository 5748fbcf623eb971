"""Clocks for tests."""

from __future__ import annotations

import asyncio

from helix.adapters.system import SystemClock


class ShiftedClock(SystemClock):
    """The real clock, `ahead_s` seconds ahead. By this clock, every claim shorter than that has expired."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s

    def now(self) -> float:
        return super().now() + self.ahead_s


class SetClock:
    """A clock that stays at `at` (in Unix seconds) until it is advanced. Sleepers wake up once it has advanced far
    enough."""

    def __init__(self, at: float = 0.0) -> None:
        self._at = at
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def now(self) -> float:
        return self._at

    def advance(self, seconds: float) -> None:
        self._at += seconds
        woken = [event for until, event in self._sleepers if until <= self._at]
        self._sleepers = [(until, event) for until, event in self._sleepers if until > self._at]
        for event in woken:
            event.set()

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        self._sleepers.append((self._at + seconds, event))
        try:
            await event.wait()
        finally:
            self._sleepers = [(until, other) for until, other in self._sleepers if other is not event]

    @property
    def sleepers(self) -> int:
        """The number of tasks that wait for the clock to advance."""
        return len(self._sleepers)
