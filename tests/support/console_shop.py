"""The sessions that the tasks of the console are about: a shop whose agent works, waits, failed and was stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel
from tests.support.browser import Watched, browsing
from tests.support_run import Gate, a_tool, agent, call, calls, result_of

from helix import Agent, LocalExecutor, Question, ScriptedModel, ToolContext, create_sub_agent_tool, tool
from helix.console.here import serve_console
from helix.console.server import ConsoleServer
from helix.core.errors import ModelError
from helix.core.messages import ToolResultMessage, UserMessage
from helix.core.registry import AgentRegistry
from helix.ports.model import LLMGenerateInput


class Parcel(BaseModel):
    street: str
    pieces: int


class Topic(BaseModel):
    topic: str


class Seat(BaseModel):
    row: int
    window: bool


async def ship(given: Parcel, ctx: ToolContext[Any]) -> str:
    return f"shipped {given.pieces} to {given.street}"


async def look(given: Topic, ctx: ToolContext[Any]) -> str:
    ctx.update_state(lambda state: state.update(seen=given.topic))
    return f"seen {given.topic}"


@tool
async def book(ctx: ToolContext) -> str:
    """Book a seat."""
    seat = await ctx.ask(Question("Which seat?", schema=Seat))
    return f"booked row {seat.row}"


class Shop:
    """The agents, their model, and the sessions."""

    def __init__(self) -> None:
        self.oven, self.fence = Gate(), Gate()
        self._failures = 1
        finder = agent("finder", description="Finds things.")
        self.agents: list[Agent[Any, Any]] = [
            agent(
                "desk",
                description="Answers the customers of the shop.",
                tools=[
                    a_tool("ship", ship, input_schema=Parcel, require_approval=True),
                    a_tool("look", look, input_schema=Topic),
                    book,
                    create_sub_agent_tool(finder, Topic),
                ],
            ),
            finder,
        ]

    async def answer(self, request: LLMGenerateInput) -> Any:
        """Answer as the last message and the number of results after it demand."""
        last = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
        asked = str(request.messages[last].content)
        after = [one for one in request.messages[last:] if isinstance(one, ToolResultMessage)]
        if request.agent_type == "finder":
            return "It is on the shelf."
        if "oven" in asked:
            await self.oven.wait()
        if "fence" in asked and self.fence.times == 0:
            await self.fence.wait()
        if "letter" in asked and self._failures:
            self._failures -= 1
            raise ModelError("the model is away")
        return _first(asked) if not after else _last(asked, after)

    async def fill(self, executor: LocalExecutor) -> None:
        """Create the sessions that the tasks are about."""
        desk = self.agents[0]

        async def ask(session_id: str, *texts: str) -> None:
            for text in texts:
                await result_of(await executor.execute(desk, text, session_id=session_id))

        await ask("two-turns", "Count to ten.", "Count to twenty.")
        await ask("bill", "Explain the bill.")
        await ask("letter", "Translate the letter.")
        await ask("finder", "Ask the finder for the lamp.")
        await ask("five", "Ship five parcels.")
        await ask("deny", "Ship a parcel to Mars.")
        await ask("edit", "Ship a parcel to Bonn.")
        await ask("seat", "Book a seat.")
        fence = await executor.execute(desk, "Paint the fence.", session_id="fence")
        await self.fence.reached()
        await executor.interrupt("fence")
        await result_of(fence)
        await executor.execute(desk, "Watch the oven.", session_id="oven")
        await self.oven.reached()


def _first(asked: str) -> Any:
    match asked.split()[0]:
        case "Ship" if "five" in asked:
            return calls(*(call("ship", street=f"Street {n}", pieces=n) for n in range(1, 6)))
        case "Ship":
            return calls(call("ship", street=asked.split()[-1], pieces=3))
        case "Book":
            return calls(call("book"))
        case "Ask":
            return calls(call("subagent__finder", topic="lamp"))
        case "Explain" | "Look":
            return _costly(calls(call("look", topic="ledger")), 900)
        case _:
            return _costly({"content": f"I did it: {asked}"}, 5)


def _last(asked: str, results: list[ToolResultMessage]) -> Any:
    return _costly({"content": f"Done. {results[-1].content[:80]}"}, 77_000 if "bill" in asked else 5)


def _costly(entry: dict[str, Any], micros: int) -> dict[str, Any]:
    return {**entry, "usage": {"prompt_tokens": micros, "completion_tokens": 9, "cost_micros": micros}}


@asynccontextmanager
async def opened(folder: str) -> AsyncIterator[Watched]:
    """Open the console on the sessions of the tasks."""
    shop, registry = Shop(), AgentRegistry()
    for one in shop.agents:
        registry.replace(one)
    model = ScriptedModel([shop.answer] * 500)
    async with LocalExecutor(f"{folder}/helix.db", model=model, registry=registry) as executor:
        await shop.fill(executor)
        async with serve_console(executor, "a test") as service:
            with ConsoleServer(service) as console:
                async with browsing(console, viewport={"width": 1280, "height": 800}) as browser:
                    yield browser
        shop.oven.open()
