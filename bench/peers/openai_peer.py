"""OpenAI Agents: `Runner` with a `SQLiteSession`, on a file or in memory. The model implements `agents.models.Model` and
plays the script; tracing is off. A dead turn is run again without new input (`input=[]`), on the stored history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, ModelResponse, RunConfig, Runner, SQLiteSession, Usage, function_tool
from agents.models.interface import Model as AgentsModel
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)
from work import Answer, Script, database, main

CONFIG = RunConfig(tracing_disabled=True)
TURNS = 100_000


class Model(AgentsModel):
    def __init__(self, script: Script) -> None:
        self.script = script

    @staticmethod
    def results(given: Any) -> int:
        results = 0
        for item in given if isinstance(given, list) else []:
            results = 0 if item.get("role") == "user" else results + (item.get("type") == "function_call_output")
        return results

    @staticmethod
    def output(answer: Answer, said: str) -> list[Any]:
        if answer.calls:
            return [
                ResponseFunctionToolCall(
                    type="function_call",
                    call_id=c.id,
                    name="work",
                    arguments=json.dumps({"n": c.n, "branch": c.branch}),
                )
                for c in answer.calls
            ]
        text = ResponseOutputText(type="output_text", text=said, annotations=[])
        return [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])]

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        answer = await self.script.think(self.results(input))
        return ModelResponse(output=self.output(answer, answer.text), usage=Usage(), response_id=None)

    async def stream_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        answer = self.script.ask(self.results(input))
        said, number = "", 0
        async for piece in self.script.deltas(answer):
            said += piece
            number += 1
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                delta=piece,
                content_index=0,
                item_id="m",
                output_index=0,
                sequence_number=number,
                logprobs=[],
            )
        response = Response(
            id="r",
            object="response",
            created_at=0,
            model="bench",
            output=self.output(answer, said),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=number + 1)


class OpenAIAgents:
    PACKAGES = ("openai-agents",)

    def __init__(self, place: str, script: Script) -> None:
        self.place, self.script = place, script
        self.sessions: dict[str, SQLiteSession] = {}

    async def open(self) -> None:
        script = self.script

        @function_tool
        async def work(n: int, branch: int = 0) -> str:
            """Give 1 KB."""
            return await asyncio.to_thread(script.work, n, branch) if script.width > 1 else script.work(n, branch)

        self.agent = Agent(name="bench", instructions="Work.", tools=[work], model=Model(script))

    def session(self, session: str) -> SQLiteSession:
        path = ":memory:" if self.place == "memory" else database(self.place)
        return SQLiteSession(session, path)

    async def turn(self, session: str, message: Any) -> None:
        if self.script.streams:
            async for _ in self.stream(session, message):
                pass
            return
        opened = self.session(session)
        await Runner.run(self.agent, message, session=opened, max_turns=TURNS, run_config=CONFIG)
        opened.close()

    async def resume(self, session: str) -> None:
        await self.turn(session, [])

    async def stream(self, session: str, message: Any) -> AsyncIterator[str]:
        opened = self.session(session)
        result = Runner.run_streamed(self.agent, message, session=opened, max_turns=TURNS, run_config=CONFIG)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
                yield event.data.delta
        opened.close()

    async def history(self, session: str) -> list[list[Any]]:
        found: list[list[Any]] = []
        for item in await self.session(session).get_items():
            given: Any = item
            if given.get("role") == "user":
                found.append(["user", given["content"]])
            elif given.get("type") == "function_call":
                if found and found[-1][0] == "assistant" and found[-1][2]:
                    found[-1][2].append(given["call_id"])  # each call of an answer is an item of its own
                else:
                    found.append(["assistant", "", [given["call_id"]]])
            elif given.get("type") == "function_call_output":
                found.append(["tool", given["call_id"]])
            else:
                found.append(["assistant", given["content"][0]["text"], []])
        return found

    async def close(self) -> None:
        pass


if __name__ == "__main__":
    main(OpenAIAgents)
