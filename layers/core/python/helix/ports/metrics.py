"""The destination of measures."""

from __future__ import annotations

from typing import Protocol

from helix.core.measures import Measures


class Metrics(Protocol):
    def record(self, measures: Measures) -> None:
        """Take the measures. Returns at once and never raises, because measuring must not make the measured work fail.
        Measures may be lost with their process; each is recorded once at most."""
        ...


class NoMetrics:
    """Implements `Metrics` for engines without metrics."""

    def record(self, measures: Measures) -> None:
        return
