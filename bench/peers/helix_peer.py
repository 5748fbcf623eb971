"""Helix: `LocalExecutor` on SQLite or memory, with an `LLMAdapter` that plays the script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from work import Refused, Script, database, main

from helix import Agent, AgentAlreadyRunningError, LLMConfig, LocalExecutor, tool
from helix.core.steps import AnyStepResult, ParsedToolCall, TextStepResult, ToolCallsStepResult
from helix.engine.engine import Settings
from helix.ports.model import LLMGenerateInput

CLAIM_S = 3.0


class Helix:
    """`synchronous` and `max_runs` configure the store and the executor. None means their defaults."""

    PACKAGES = ("helix-agents",)
    synchronous: str | None = None
    max_runs: int | str | None = "default"

    def __init__(self, place: str, script: Script) -> None:
        self.place, self.script = place, script

    async def open(self) -> None:
        script = self.script

        @tool
        async def work(n: int, branch: int = 0) -> str:
            """Give 1 KB."""
            return await asyncio.to_thread(script.work, n, branch) if script.width > 1 else script.work(n, branch)

        self.agent = Agent(
            name="bench", system_prompt="Work.", tools=[work], llm_config=LLMConfig(model="bench"), max_steps=None
        )
        bound: Any = {} if self.max_runs == "default" else {"max_runs": self.max_runs}
        self.executor = LocalExecutor(
            self.store(), model=Model(script), settings=Settings(claim_s=self.claim_s), **bound
        )

    def store(self) -> str:
        if self.place == "memory":
            return ":memory:"
        if self.place.startswith("redis://"):
            return self.place
        setting = f"?synchronous={self.synchronous}" if self.synchronous else ""
        return f"sqlite:///{database(self.place)}{setting}"

    @property
    def claim_s(self) -> float:
        """A dead process keeps its session for this long; the default would make the bench wait. In runs without a
        death, it holds."""
        return CLAIM_S if self.synchronous is None else Settings().claim_s

    async def turn(self, session: str, message: str) -> None:
        try:
            handle = await self.executor.execute(self.agent, message, session_id=session)
        except AgentAlreadyRunningError as error:
            raise Refused(type(error).__name__) from error
        result = await handle.result()
        assert result.status == "completed", result

    async def resume(self, session: str) -> None:
        while True:
            try:
                handle = await self.executor.resume(self.agent, session)
                break
            except AgentAlreadyRunningError:
                await asyncio.sleep(0.1)  # the dead process's claim expires
        await handle.result()

    async def stream(self, session: str, message: str) -> AsyncIterator[str]:
        handle = await self.executor.execute(self.agent, message, session_id=session)
        async for chunk in await handle.stream():
            if chunk.type == "text_delta":
                yield chunk.delta

    async def history(self, session: str) -> list[list[Any]]:
        found: list[list[Any]] = []
        for message in (await self.executor.sessions.get_messages(session, limit=1000)).messages:
            match message.role:
                case "user":
                    found.append(["user", message.content])
                case "assistant":
                    found.append(["assistant", message.content or "", [call.id for call in message.tool_calls]])
                case "tool":
                    found.append(["tool", message.tool_call_id])
        return found

    async def close(self) -> None:
        await self.executor.close()


class Model:
    def __init__(self, script: Script) -> None:
        self.script = script

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        results = 0
        for message in request.messages:
            results = 0 if message.role == "user" else results + (message.role == "tool")
        if self.script.streams:
            answer = self.script.ask(results)
            said = ""
            async for piece in self.script.deltas(answer):
                said += piece
                if request.callbacks.on_text_delta is not None:
                    request.callbacks.on_text_delta(piece)
        else:
            answer = await self.script.think(results)
            said = answer.text
        if not answer.calls:
            return TextStepResult(content=said)
        calls = [ParsedToolCall(id=c.id, name="work", arguments={"n": c.n, "branch": c.branch}) for c in answer.calls]
        return ToolCallsStepResult(content=said or None, tool_calls=calls)


if __name__ == "__main__":
    main(Helix)
