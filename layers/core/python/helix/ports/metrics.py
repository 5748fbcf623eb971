"""The metrics sink."""

from __future__ import annotations

from typing import Protocol

from helix.core.measures import Measures


class Metrics(Protocol):
    def record(self, measures: Measures) -> None:
        """Record the measures. Returns immediately and never raises, because metrics must not make the measured work
        fail. Measures may be lost if the process dies; each is recorded at most once."""
        ...


class NoMetrics:
    """An implementation of `Metrics` for engines without metrics."""

    def record(self, measures: Measures) -> None:
        return
