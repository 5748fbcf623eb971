"""Executions, which advance a claimed run from delivery to delivery outside this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

ExecutionState = Literal["none", "running", "ended"]


@dataclass(frozen=True, slots=True)
class Part:
    """One execution of a run. A long run is executed in several consecutive parts. Starting the same part again uses
    the same input."""

    profile: str
    """The name of the resource profile whose functions execute the part."""
    session_id: str
    """The session of the run."""
    run_id: str
    """The run that is executed."""
    part: int
    """The number of the part within its run, starting at 1."""
    step: int
    """The first step that this part buys."""


def execution_name(part: Part) -> str:
    """Return the name of the part's execution. A second start with the same name finds the existing execution."""
    return part.run_id if part.part == 1 else f"{part.run_id}__part-{part.part}"


class Launcher(Protocol):
    async def start(self, part: Part) -> None:
        """Start the execution. Has no effect if it was started before, even if it has ended since.

        Raises `StoreError` if it is unknown whether it started. The caller then calls `start` again.
        """
        ...

    async def state(self, part: Part) -> ExecutionState:
        """Return the state of the execution. `none`: it was never started, or so long ago that the platform has deleted
        its record."""
        ...

    async def stop(self, part: Part, reason: str) -> None:
        """Stop the execution immediately. Has no effect if it has ended or was never started."""
        ...

    async def wake(self, token: str) -> None:
        """Resume the execution that waits for this task token. Has no effect if it no longer waits."""
        ...
