"""Executors that claim runs here and have them executed elsewhere, for example by Step Functions and Lambda."""

from __future__ import annotations

import asyncio
import contextlib

from helix.core.agents import AnyAgent
from helix.core.delivery import Delivery
from helix.core.errors import AgentNotFoundError
from helix.core.handles import Confirmation
from helix.core.status import ClaimMode
from helix.engine.claims.claim import Claimed
from helix.engine.claims.confirm import Answered
from helix.engine.engine import Engine
from helix.engine.runs.admission import check_room
from helix.engine.runs.intake import begin, stop_waiting
from helix.runtime.agent_models import Agents
from helix.runtime.executor import Executor
from helix.services.activity import Activity

ACT_S = 60


class LaunchingExecutor(Executor):
    """An executor that claims runs and starts their executions with the engine's launcher. Functions or worker
    processes execute them. Safe from any number of processes on the same store."""

    def __init__(self, engine: Engine, agents: Agents) -> None:
        super().__init__(engine, agents)
        self._owner = engine.ids.new("caller")

    async def close(self) -> None:
        """Close the connections. Runs continue."""
        await self.store.close()

    async def _begin(self, agent: AnyAgent, claimed: Claimed, delivery: Delivery) -> None:
        await begin(self.engine, agent, claimed, delivery)

    async def interrupt(self, session_id: str, reason: str | None = None, *, run_id: str | None = None) -> bool:
        asked = await super().interrupt(session_id, reason, run_id=run_id)
        if asked:
            target = run_id or (await self.engine.history.existing(session_id)).run_id
            with contextlib.suppress(AgentNotFoundError):  # the sweep ends a waiting run whose agent is not known here
                await stop_waiting(self.engine, session_id, target, self._delivery())
        return asked

    async def _check_room(self, agent: AnyAgent, mode: ClaimMode, session_id: str | None) -> None:
        await check_room(self.engine, agent, mode, session_id)

    def _raise_if_lost(self, run_id: str) -> None:
        return  # it never abandons a run: a sweep takes care of every open run

    def _delivery(self) -> Delivery:
        return Delivery(self._owner, self.engine.clock.now() + ACT_S)


class StepFunctionsExecutor(LaunchingExecutor):
    """An executor that claims runs and starts their executions in the deployed stage (`helix deploy`). Safe from any
    number of processes with access to the tables. `helix.runtime.cloud.application().executor` creates one from the
    environment of a deployed function."""

    def __init__(self, engine: Engine, agents: Agents) -> None:
        super().__init__(engine, agents)
        self._activity = Activity(engine.store, engine.clock)

    async def _check_room(self, agent: AnyAgent, mode: ClaimMode, session_id: str | None) -> None:
        """Check for room, and record the activity before the claim, because the sweep may have to find the run."""
        await asyncio.gather(super()._check_room(agent, mode, session_id), self._activity.note())

    async def answer(
        self, agent: AnyAgent, session_id: str, confirmation: Confirmation, *, user_id: str | None = None
    ) -> Answered:
        await self._activity.note()  # because the answer may claim a run
        return await super().answer(agent, session_id, confirmation, user_id=user_id)

    async def __aenter__(self) -> StepFunctionsExecutor:
        return self
