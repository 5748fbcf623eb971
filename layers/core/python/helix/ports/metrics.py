"""Where measures go."""

from __future__ import annotations

from typing import Protocol

from helix.core.measures import Measures


class Metrics(Protocol):
    def record(self, measures: Measures) -> None:
        """Take note of them. Returns at once and never raises: what is measured must not fail because of it. Measures may
        be lost with their process, and are recorded once at most."""
        ...


class NoMetrics:
    """For engines that nobody measures."""

    def record(self, measures: Measures) -> None:
        return
