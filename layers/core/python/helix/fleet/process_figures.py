"""Processor and memory use of this process, where psutil is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Used:
    """Of one process. `cpu_percent` since the last look, of one processor: two busy ones are 200."""

    cpu_percent: float | None = None
    memory_percent: float | None = None
    memory_bytes: int | None = None


class ProcessFigures:
    def __init__(self) -> None:
        self._process: Any = _process()

    def read(self) -> Used:
        if self._process is None:
            return Used()
        with self._process.oneshot():
            return Used(
                self._process.cpu_percent(None), self._process.memory_percent(), self._process.memory_info().rss
            )


def _process() -> Any:
    try:
        import psutil
    except ImportError:
        return None
    process = psutil.Process()
    process.cpu_percent(None)  # the first look has nothing to compare with
    return process
