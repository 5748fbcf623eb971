"""A worker whose store fails: whoever waits is told, nothing is lost, and the session can be resumed at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from helix import Agent, LLMConfig, LocalExecutor, MemoryStateStore, ScriptedModel, StoreError, tool
from helix.ports.state_store import Operation
from helix.runtime.watching import RunStoppedError


class Flaky(MemoryStateStore):
    """Refuses to record results while `broken`."""

    broken = True

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        if self.broken and name == "call_result":
            raise StoreError("the disk is full")
        await super().transact(name, operations)


@tool
async def work() -> str:
    """Work."""
    return "worked"


async def test_a_failed_store_is_told_and_the_session_goes_on() -> None:
    store = Flaky()
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
