"""The clock."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Return the time in Unix seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        ...
