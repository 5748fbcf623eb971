"""The executors and agents that `tests/properties/hostile.py` sends its values to: in process, and as deployed."""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Field
from tests.properties.hostile_values import Model
from tests.support.delivery_stage import Json, Stage, event_of
from tests.support_run import a_tool, agent

from helix import LocalExecutor, MemoryStateStore, ToolContext, create_sub_agent_tool
from helix.core.registry import AgentRegistry
from helix.core.steps import StructuredOutputStepResult, TextStepResult
from helix.engine.engine import Settings
from helix.runtime.executor import Executor


class Script:
    """A model that answers with the given value, and then that it is done."""

    def __init__(self) -> None:
        self.answers: deque[Any] = deque()

    async def generate_step(self, request: Any) -> Any:
        if not self.answers:
            finish = any(tool.name == "__finish__" for tool in request.tools)
            return StructuredOutputStepResult(output={"value": 1}) if finish else TextStepResult(content="done")
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Desk:
    """The agents, the next results of their tools, and the executor under test."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.script = rng, Script()
        self.does: Callable[[ToolContext[Any]], Any] = lambda ctx: "did"
        self.emits: Any = ("quiet", None)
        tools = [
            a_tool("work", lambda given, ctx: self.does(ctx), input_schema=Model),
            a_tool("ask", lambda given, ctx: repr(ctx.confirmation)[:50], input_schema=Model, require_approval=True),
            a_tool("client", "client", input_schema=Model),
            create_sub_agent_tool(agent("child", output_schema=Model)),
            create_sub_agent_tool(agent("other", output_schema=Model), input_schema=Model),
        ]

        def emit(payload: Any, ctx: Any) -> None:
            ctx.emit_custom(*self.emits)

        self.free = agent("free", tools=tools, hooks={"before_llm_call": emit}, frontend_tools=True)

        class Strict(BaseModel):
            value: Any = None
            items: list[Any] = Field(default_factory=list, max_length=3)

        self.strict = agent("strict", tools=tools, state_schema=Strict, output_schema=Model)
        self.executor: Executor

    def agents(self) -> AgentRegistry:
        registry = AgentRegistry()
        for who in (self.free, self.strict):
            registry.register(who)
        return registry

    async def settle(self) -> None:
        """Wait until everything that was started has ended."""

    async def sweep(self) -> None:
        """Check that the sweep passes and has nothing to do."""

    async def close(self) -> None:
        await self.executor.close()


class LocalDesk(Desk):
    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        settings = Settings(stop_poll_s=5)
        self.executor = LocalExecutor(MemoryStateStore(), model=self.script, registry=self.agents(), settings=settings)

    async def settle(self) -> None:
        assert isinstance(self.executor, LocalExecutor)
        while tasks := list(self.executor._tasks.values()):
            await asyncio.wait(tasks, timeout=20)
        assert not self.executor._failures, self.executor._failures


class CloudDesk(Desk):
    """The verbs of the deployed app, delivered as the state machine would deliver them."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.stage = Stage(self.script, self.free, self.strict)
        self.executor = self.stage.executor
        self.failures: list[Exception] = []

    async def settle(self) -> None:
        held = self.stage.held
        while held.starts:
            part = held.starts.pop(0)
            await self._execute(event_of(part))
            held.states[part.run_id] = "ended"

    async def _execute(self, event: Json) -> None:
        told: Json = await self._deliver("call_model", event)
        while told["next"] not in ("finish", "rolled"):
            for call in told.get("calls", [told["call"]] if "call" in told else []):
                place = {**event, "call": call, "token": f"t{call['id'][:20]}"}
                kept = {name: place[name] for name in ("session_id", "run_id", "part", "call")}
                if call["kind"] == "start_run":
                    await self._deliver("start_run", {**kept, "token": place["token"]})
                    await self.settle()
                else:
                    await self._deliver("call_tool", kept)
            told = await self._deliver("call_model", told)
        if told["next"] == "finish":
            await self._deliver("finish_run", told)

    async def _deliver(self, verb: str, event: Json) -> Any:
        fields = {
            "call_model": ("session_id", "run_id", "part", "step", "events"),
            "finish_run": ("session_id", "run_id"),
        }
        event = {name: event[name] for name in fields.get(verb, event) if name in event}
        return await self.stage.deliver(verb, json.loads(json.dumps(event)))

    async def sweep(self) -> None:
        done = await self.stage.deliver("sweep")
        assert not done.get("failed") and not done.get("damaged"), done
