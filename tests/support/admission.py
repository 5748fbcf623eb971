"""Agents with few slots, and a stage on which the test plays the platform (`delivery_stage`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.support.delivery_stage import Json, Stage, event_of
from tests.support_run import agent

from helix import MemoryStateStore, ScriptedModel
from helix.core.agents import AnyAgent
from helix.core.handles import AgentExecutionHandle
from helix.ports.state_store import Operation

Handle = AgentExecutionHandle[Any]


class Meanwhile(MemoryStateStore):
    """A store in which something happens once, before a transaction of that name."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[str, Callable[[], Awaitable[Any]]] = {}

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if (first := self.before.pop(name, None)) is not None:
            await first()
        await super().transact(name, operations)


def worker(limit: int = 1, name: str = "worker", **fields: Any) -> AnyAgent:
    return agent(name, resources={"max": limit}, **fields)


def stage(*agents: AnyAgent, script: Any = None, **options: Any) -> Stage:
    return Stage(script or ScriptedModel(["Done."], repeat=True), *agents, **options)


async def come(on: Stage, who: AnyAgent, times: int, **options: Any) -> list[Handle]:
    return [await on.executor.execute(who, f"message {n}", **options) for n in range(times)]


def started(on: Stage) -> list[str]:
    """Return the runs in the order of their first start."""
    return list(dict.fromkeys(part.run_id for part in on.held.starts))


def event(on: Stage, handle: Handle) -> Json:
    """Return the event that the run's execution was started with. It must have been started."""
    return event_of(next(part for part in on.held.starts if part.run_id == handle.run_id))


async def statuses(on: Stage, handles: list[Handle]) -> list[str]:
    return [(await on.executor.sessions.get_run(h.session_id, h.run_id)).status for h in handles]
