"""Executions: what carries a claimed run from delivery to delivery outside this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

ExecutionState = Literal["none", "running", "ended"]


@dataclass(frozen=True, slots=True)
class Part:
    """One execution of a run. A long run is executed in parts, one after the other; `step` is the first one that this part
    buys. `profile` names the functions that execute it. Equal parts are started with equal input."""

    profile: str
    session_id: str
    run_id: str
    part: int
    step: int


def execution_name(part: Part) -> str:
    """The name of the part's execution: a second start under it is known for one."""
    return part.run_id if part.part == 1 else f"{part.run_id}__part-{part.part}"


class Launcher(Protocol):
    async def start(self, part: Part) -> None:
        """Start the execution, unless it was started before: then nothing happens, even if it has ended.

        Raises `StoreError` when it is not known to have started; start it again then.
        """
        ...

    async def state(self, part: Part) -> ExecutionState:
        """Whether the execution runs. `none`: it was never started, or so long ago that nobody knows of it."""
        ...

    async def stop(self, part: Part, reason: str) -> None:
        """End the execution where it is; harmless when it has ended or was never started."""
        ...

    async def wake(self, token: str) -> None:
        """Let the execution that waits on this task token go on; harmless when it no longer waits."""
        ...
