"""When a process that died is started again: pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Times in seconds. The n-th death in a row is followed by a pause of `first_s * 2^(n-1)`, at most `longest_s`, and up
    to half as much again by a jitter between 0 and 1 that the caller draws. A process that lived for `healthy_s` begins
    to count anew; `limit` deaths in a row are a crash loop: it is given up."""

    first_s: float = 0.5
    longest_s: float = 30.0
    healthy_s: float = 60.0
    limit: int = 5

    def in_a_row(self, before: int, lived_s: float) -> int:
        """Deaths in a row, this one included."""
        return 1 if lived_s >= self.healthy_s else before + 1

    def pause_s(self, deaths: int, jitter: float) -> float | None:
        """How long to wait before the next start; None: give it up."""
        if deaths >= self.limit:
            return None
        pause = min(self.longest_s, self.first_s * 2.0 ** (deaths - 1))
        return pause * (1 + 0.5 * jitter)
