"""The cast of a walk: the agents, their tools, and a model that does what the last user message says.

A message is a plan: steps separated by `>`, and calls of a step separated by `+`, as in `free+once>gated>text`. A finished
plan ends with a text, or with `__finish__` if the agent has an output. Each answer has the number of its purchase, so that
an answer on the stream, in history and in the ghost log can be identified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel
from tests.properties.protocol_world import ACTOR, Actor, World

from helix.core.agents import Agent, AnyAgent
from helix.core.budget import BudgetDefinition
from helix.core.config import LLMConfig
from helix.core.context import ToolContext
from helix.core.errors import FatalToolError
from helix.core.messages import AnyMessage, AssistantMessage, ToolResultMessage, UserMessage
from helix.core.periods import TokenPeriod
from helix.core.prompt import FINISH_NUDGE
from helix.core.steps import (
    AnyStepResult,
    ErrorStepResult,
    ParsedSubAgentCall,
    ParsedToolCall,
    TextStepResult,
    ToolCallsStepResult,
)
from helix.core.tools import AnyTool, create_sub_agent_tool, define_tool, tool
from helix.core.usage import Usage
from helix.engine.engine import Worst
from helix.ports.model import BaseAdapter, LLMGenerateInput

WORST = Worst(tokens=50, micros=5)
MONEY = BudgetDefinition(scope="global", period=TokenPeriod.TOTAL, unit="micros", limit=1)
TOKENS = BudgetDefinition(scope="global", period=TokenPeriod.HOURLY, unit="tokens", limit=1)
TOOL_TIMEOUT_S = 20.0


class Notes(BaseModel):
    log: list[str] = []


class Answer(BaseModel):
    answer: str


class Nothing(BaseModel):
    pass


@dataclass
class Purchase:
    """A model call. Its caller pays for it, whatever its outcome."""

    n: int
    session_id: str
    actor: Actor | None
    history: list[tuple[str, str, tuple[str, ...]]]
    cost: int
    text: str
    agent: str
    run: str = ""
    over: bool = False


@dataclass
class Started:
    """An execution of a tool."""

    key: str
    tool: str
    actor: Actor | None
    at: float
    context: ToolContext[Any]
    over: bool = False


@dataclass
class Ghost:
    """The record of what really happened outside the store."""

    purchases: list[Purchase] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    boomed: set[str] = field(default_factory=set)


def fingerprint(messages: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    found: list[tuple[str, str, tuple[str, ...]]] = []
    for m in messages:
        if isinstance(m, UserMessage) and m.id:  # others are notes of the framework
            found.append(("user", m.content, ()))
        elif isinstance(m, AssistantMessage):
            found.append(("assistant", m.content or "", tuple(c.id for c in m.tool_calls)))
        elif isinstance(m, ToolResultMessage):
            found.append(("tool", m.content, (m.tool_call_id,)))
    return found


class Stage:
    """The current world of the cast. Agents are made once, and worlds by the thousand."""

    cast: Cast


def _tool(
    name: str, on_unknown: Any, *, approval: bool = False, finish_with: bool = False, inline: bool = False
) -> Any:
    async def body(ctx: ToolContext[Notes]) -> str:
        cast = Stage.cast
        start = Started(ctx.idempotency_key, name, ACTOR.get(), cast.world.clock.now(), ctx)
        cast.observe_start(start)
        cast.ghost.started.append(start)
        try:
            await cast.world.gate("tool", f"{name} {ctx.idempotency_key}")
            if name == "fatal":
                raise FatalToolError("as planned")
            ctx.update_state(lambda notes: notes.log.append(f"{name} {ctx.tool_call_id}"))
            ctx.emit("worked", name)
            return f"{name} done"
        finally:
            start.over = True

    options = {"on_unknown": on_unknown, "require_approval": approval, "finish_with": finish_with}
    options["inline"] = inline
    return tool(name=name, description=f"The tool {name}.", timeout_s=TOOL_TIMEOUT_S, **options)(body)


COMMON: dict[str, Any] = {
    "system_prompt": "work",
    "state_schema": Notes,
    "llm_config": LLMConfig(model="planned"),
}
"""The fields that the agents of every cast share."""


def shared_tools() -> list[AnyTool]:
    """Return the tools that the agents of every cast have."""
    form = define_tool(name="form", description="Ask the client.", input_schema=Nothing, execute="client")
    policies: dict[str, Any] = {"free": "retry", "once": "skip", "care": "ask"}
    return [*(_tool(name, policy) for name, policy in policies.items()), _tool("gated", "retry", approval=True), form]


def quick_tools(tools: list[AnyTool]) -> list[AnyTool]:
    """Return these tools, of which the first two are inline."""
    return [_tool("free", "retry", inline=True), _tool("once", "skip", inline=True), *tools[2:]]


@cache
def agents() -> dict[str, AnyAgent]:
    shared = shared_tools()
    own = [*shared, _tool("fatal", "retry"), _tool("done", "retry", finish_with=True)]
    helper: AnyAgent = Agent(name="helper", tools=shared, output_schema=Answer, **COMMON)
    solo: AnyAgent = Agent(name="solo", tools=quick_tools(own), **COMMON)
    boss: AnyAgent = Agent(name="boss", tools=[*own, create_sub_agent_tool(helper)], on_budget="pause", **COMMON)
    return {agent.name: agent for agent in (helper, solo, boss)}


class Cast(BaseAdapter):
    """The model and the ghost log of one world. Each start of a tool and each model call is checked when it happens.
    `kids` are the words that ask a sub-agent, and the plan of each."""

    kids: ClassVar[Mapping[str, str]] = {"kid": "free", "kidgate": "gated", "kidtext": "text", "kidform": "form+free"}

    def __init__(
        self, world: World, observe_start: Callable[[Started], None], observe_purchase: Callable[[Purchase], None]
    ) -> None:
        self.world, self.ghost, self.observe_start = world, Ghost(), observe_start
        self.observe_purchase = observe_purchase
        self.agents = self.made()
        self.solo = self.agents["solo"]
        Stage.cast = self

    def texts(self) -> set[str]:
        """Return every text that an answer may have."""
        return {purchase.text for purchase in self.ghost.purchases}

    @staticmethod
    def made() -> dict[str, AnyAgent]:
        return agents()

    # --- the model ------------------------------------------------------------------------------------------------

    async def generate_step(self, request: LLMGenerateInput) -> AnyStepResult:
        if request.tool_choice == "none":  # a summary would hide the plan that the cast plays
            return ErrorStepResult(error="no summary", code="overloaded")
        history: list[AnyMessage] = [m for m in request.messages if m.role != "system"]
        n = len(self.ghost.purchases) + 1
        cost = 1 + n % WORST.micros
        bought = Purchase(n, request.agent_id, ACTOR.get(), fingerprint(history), cost, f"#{n}.", request.agent_type)
        self.observe_purchase(bought)
        self.ghost.purchases.append(bought)
        try:
            return await self._speak(request, history, bought)
        finally:
            bought.over = True

    async def _speak(self, request: LLMGenerateInput, history: list[AnyMessage], bought: Purchase) -> AnyStepResult:
        n = bought.n
        show = request.callbacks.on_text_delta
        if show is not None:
            show(f"#{n}")
        await self.world.gate("model", f"#{n}")
        if show is not None:
            show(".")
        return self._answer(request, history, bought)

    def is_plan(self, message: UserMessage) -> bool:
        return message.content != FINISH_NUDGE

    def _words(self, history: list[AnyMessage]) -> list[str]:
        """Return the words of the next step."""
        asked = [i for i, m in enumerate(history) if isinstance(m, UserMessage) and self.is_plan(m)]
        at = asked[-1] if asked else 0
        message = history[at] if history else None
        plan = message.content.split(" ")[0].split(">") if isinstance(message, UserMessage) else []
        index = sum(isinstance(m, AssistantMessage) for m in history[at:])
        return plan[index].split("+") if index < len(plan) else ["end"]

    def _call(self, ident: str, word: str, bought: Purchase) -> ParsedToolCall:
        return ParsedToolCall(id=ident, name=word, arguments={})

    def _kid(self, ident: str, word: str, bought: Purchase) -> ParsedSubAgentCall:
        return ParsedSubAgentCall(id=ident, agent_type="helper", input={"message": self.kids[word]})

    def _answer(self, request: LLMGenerateInput, history: list[AnyMessage], bought: Purchase) -> AnyStepResult:
        usage = Usage(prompt_tokens=bought.cost * 10, cost_micros=bought.cost, calls=1)
        words = self._words(history)
        if words == ["boom"]:
            place = f"{bought.session_id} {bought.history}"
            if place not in self.ghost.boomed:
                self.ghost.boomed.add(place)
                return ErrorStepResult(error="as planned", code="model_error", usage=usage)
            words = ["end"]
        calls, children = [], []
        for i, word in enumerate(words):
            ident = f"call_{i}"  # never unique, so the engine must make it so
            if word == "end" and request.output_schema is not None:
                calls.append(ParsedToolCall(id=ident, name="__finish__", arguments={"answer": bought.text}))
            elif word in self.kids:
                children.append(self._kid(ident, word, bought))
            elif word not in ("end", "text"):
                calls.append(self._call(ident, word, bought))
        if calls or children:
            return ToolCallsStepResult(
                content=bought.text, tool_calls=calls, sub_agent_calls=children, usage=usage, model="m"
            )
        return TextStepResult(content=bought.text, usage=usage, model="m")
