"""StepFunctionsExecutor: the same sessions and runs, executed by Step Functions and Lambda."""

from __future__ import annotations

from helix.core.agents import AnyAgent
from helix.engine.claims import Claimed
from helix.engine.delivery import Delivery
from helix.engine.engine import Engine
from helix.engine.launching import begin
from helix.runtime.agents import Agents
from helix.runtime.executor import Executor

ACT_S = 60


class StepFunctionsExecutor(Executor):
    """Claims runs and starts their executions; what runs them is deployed (`helix deploy`). Safe from any number of
    processes with access to the tables. `helix.runtime.cloud.application().executor` makes one of the environment that a
    deployed function has."""

    def __init__(self, engine: Engine, agents: Agents) -> None:
        super().__init__(engine, agents)
        self._owner = engine.ids.new("caller")

    async def __aenter__(self) -> StepFunctionsExecutor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections. Runs go on."""
        await self.store.close()

    async def _begin(self, agent: AnyAgent, claimed: Claimed, delivery: Delivery) -> None:
        await begin(self.engine, agent, claimed)

    def _gave_up(self, run_id: str) -> None:
        return  # never: a sweep looks after every open run

    def _delivery(self) -> Delivery:
        return Delivery(self._owner, self.engine.clock.now() + ACT_S)
