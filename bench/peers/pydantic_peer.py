"""Pydantic AI. On disk it is an agent with the `DBOSDurability` capability inside a DBOS workflow on SQLite, with its
tool as a DBOS step, as its documentation recommends. In memory it is a plain agent. A `FunctionModel` plays the script.
The caller keeps the history between turns. There is no durable session to inspect, so the history is the result of the
recovered workflow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import UsageLimits
from work import Script, database, main

NO_LIMIT = UsageLimits(request_limit=None)


class PydanticAI:
    PACKAGES = ("pydantic-ai-slim", "dbos")

    def __init__(self, place: str, script: Script) -> None:
        self.place, self.script = place, script
        self.durable = place != "memory"

    async def open(self) -> None:
        model = FunctionModel(self.answer, stream_function=self.answer_in_pieces)
        capabilities: list[Any] = []
        if self.durable:
            from dbos import DBOS
            from pydantic_ai.durable_exec.dbos import DBOSDurability

            config: Any = {
                "name": "bench",
                "system_database_url": f"sqlite:///{database(self.place)}",
                "application_version": "1",
                "run_admin_server": False,
                "log_level": "CRITICAL",
            }
            DBOS(config=config)
            capabilities = [DBOSDurability()]
        agent = self.agent = Agent(model, name="bench", instructions="Work.", capabilities=capabilities)
        script = self.script

        async def work(n: int, branch: int = 0) -> str:
            """Give 1 KB."""
            return await asyncio.to_thread(script.work, n, branch) if script.width > 1 else script.work(n, branch)

        agent.tool_plain(DBOS.step(name="work")(work) if self.durable else work)

        async def turn(message: str) -> list[list[Any]]:
            handler = drain if script.streams else None
            result = await agent.run(message, usage_limits=NO_LIMIT, event_stream_handler=handler)
            return history(result.all_messages())

        self.run: Any = turn
        if self.durable:
            self.dbos: Any = DBOS
            self.run = DBOS.workflow(name="turn")(turn)
            DBOS.launch()

    @staticmethod
    def results(messages: list[ModelMessage]) -> int:
        parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
        return sum(part.part_kind == "tool-return" for part in parts)

    async def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answer = await self.script.think(self.results(messages))
        calls = [ToolCallPart("work", {"n": c.n, "branch": c.branch}, c.id) for c in answer.calls]
        return ModelResponse(parts=calls or [TextPart(answer.text)])

    async def answer_in_pieces(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        answer = self.script.ask(self.results(messages))
        async for piece in self.script.deltas(answer):
            yield piece
        for place, call in enumerate(answer.calls):
            given = json.dumps({"n": call.n, "branch": call.branch})
            yield {place: DeltaToolCall("work", given, tool_call_id=call.id)}

    async def turn(self, session: str, message: str) -> None:
        if not self.durable:
            await self.run(message)
            return
        from dbos import SetWorkflowID

        with SetWorkflowID(session):
            await self.run(message)

    async def resume(self, session: str) -> None:
        """Wait for the recovery, which `launch` has started."""
        handle = await self.dbos.retrieve_workflow_async(session)
        self.found = await handle.get_result()

    async def stream(self, session: str, message: str) -> AsyncIterator[str]:
        async with self.agent.run_stream(message) as result:
            async for piece in result.stream_text(delta=True, debounce_by=None):
                yield piece

    async def history(self, session: str) -> list[list[Any]]:
        return self.found

    async def close(self) -> None:
        if self.durable:
            self.dbos.destroy()


async def drain(context: Any, events: Any) -> None:
    async for _ in events:
        pass


def history(messages: list[ModelMessage]) -> list[list[Any]]:
    found: list[list[Any]] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            said = "".join(part.content for part in message.parts if isinstance(part, TextPart))
            found.append(["assistant", said, [p.tool_call_id for p in message.parts if isinstance(p, ToolCallPart)]])
            continue
        for part in message.parts:
            if part.part_kind == "user-prompt":
                found.append(["user", part.content])
            elif part.part_kind == "tool-return":
                found.append(["tool", part.tool_call_id])
    return found


if __name__ == "__main__":
    main(PydanticAI)
