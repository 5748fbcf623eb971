"""A worker whose store fails. Waiting callers get an error, nothing is lost, and the session can be resumed at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support_run import Gate, gated

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, StoreError, tool
from helix.engine.claims.liveness import LostClaimError
from helix.engine.engine import Settings
from helix.ports.state_store import Operation
from helix.runtime.handle import RunStoppedError


class Flaky(MemoryStateStore):
    """A store that fails transactions of one name while `broken`."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self.failing, self.broken = failing, True

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if self.broken and name == self.failing:
            raise StoreError("the disk is full")
        await super().transact(name, operations)


@tool
async def work() -> str:
    """Work."""
    return "worked"


async def test_a_failed_store_is_told_and_the_session_goes_on() -> None:
    store = Flaky("call_result")
    agent = Agent(name="worker", system_prompt="Work.", tools=[work], llm_config=LLMConfig(model="scripted"))
    model = ScriptedModel([{"type": "tool_calls", "tool_calls": [{"name": "work"}]}, "done"], by="position")
    async with LocalExecutor(store, model=model) as executor:
        handle = await executor.execute(agent, "go")
        with pytest.raises(RunStoppedError) as stopped:
            await handle.result(timeout_s=20)
        assert "the disk is full" in str(stopped.value.__cause__)
        with pytest.raises(RunStoppedError):
            _ = [chunk async for chunk in await handle.stream()]
        store.broken = False
        again = await executor.resume(agent, handle.session_id)
        result = await again.result(timeout_s=20)
    assert (result.status, result.output) == ("completed", "done")


async def test_a_claim_that_cannot_be_kept_ends_the_wait() -> None:
    """No other worker has taken over the run, so its row says running forever."""
    gate = Gate()
    agent = Agent(name="worker", system_prompt="Work.", llm_config=LLMConfig(model="scripted"))
    model, settings = ScriptedModel([gated(gate, "never")]), Settings(claim_s=0.4)
    async with LocalExecutor(Flaky("heartbeat"), model=model, settings=settings) as executor:
        handle = await executor.execute(agent, "go")
        with pytest.raises(RunStoppedError) as stopped:
            await handle.result(timeout_s=20)
        assert isinstance(stopped.value.__cause__, LostClaimError)
        with pytest.raises(RunStoppedError):
            _ = [chunk async for chunk in await handle.stream()]
