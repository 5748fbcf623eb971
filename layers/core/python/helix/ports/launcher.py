"""Executions: they carry a claimed run from delivery to delivery outside this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

ExecutionState = Literal["none", "running", "ended"]


@dataclass(frozen=True, slots=True)
class Part:
    """One execution of a run. A long run is executed in parts, one after the other. Equal parts are started with equal
    input."""

    profile: str
    """The name of the resource profile whose functions execute the part."""
    session_id: str
    """The session of the run."""
    run_id: str
    """The run that is executed."""
    part: int
    """The number of the part within its run, from 1."""
    step: int
    """The first step that this part buys."""


def execution_name(part: Part) -> str:
    """Return the name of the part's execution. A second start under the same name finds the first."""
    return part.run_id if part.part == 1 else f"{part.run_id}__part-{part.part}"


class Launcher(Protocol):
    async def start(self, part: Part) -> None:
        """Start the execution, unless it was started before. Then nothing happens, even if it has ended.

        Raises `StoreError` if it is unknown whether it started. The caller then starts it again.
        """
        ...

    async def state(self, part: Part) -> ExecutionState:
        """Return whether the execution runs. `none`: it was never started, or so long ago that the platform has
        forgotten it."""
        ...

    async def stop(self, part: Part, reason: str) -> None:
        """End the execution where it is. Harmless if it has ended or was never started."""
        ...

    async def wake(self, token: str) -> None:
        """Let the execution that waits on this task token go on. Harmless if it no longer waits."""
        ...
