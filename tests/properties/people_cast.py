"""The cast of the walks with people: tools that ask or end elsewhere, guards that count what they judge, agents that hand
over or keep cut answers, and a model that plays plans.

A message is a plan with an id of its own, as in `free+survey>text ~12`. A mark behind the id says what the input guards do:
`mask` (replace it), `drop` (hide it from the model), `stop` (end the run). The other guards decide by the number of the
answer that they judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from tests.properties.protocol_cast import (
    COMMON,
    TOOL_TIMEOUT_S,
    Answer,
    Cast,
    Notes,
    Purchase,
    Stage,
    Started,
    _tool,
    quick_tools,
    shared_tools,
)
from tests.properties.protocol_world import ACTOR, Actor

from helix.core.agents import Agent, AnyAgent
from helix.core.context import ToolContext
from helix.core.guards import Guard, GuardContext
from helix.core.json import JsonValue
from helix.core.messages import UserMessage
from helix.core.questions import Question, ask_user
from helix.core.steps import (
    ParsedSubAgentCall,
    ParsedToolCall,
)
from helix.core.tools import create_sub_agent_tool, tool
from helix.core.verdicts import Allow, AnyVerdict, Ask, Block, Replace, Retry, hash_of

DEFAULT = "whatever you like"
"""The answer to a question that no one answers in time."""
WAIT_S = 25.0
GUARD_S = 4.0
"""The timeout of a guard. A function must have time for all of them after its model call."""
TAG = re.compile(r"~(\w+)")
MARKS = ("mask", "drop", "stop")
WAITS: list[dict[str, Any]] = [{}, {"heartbeat_s": WAIT_S}, {"timeout_s": 2 * WAIT_S}]
WAITS.append({"heartbeat_s": WAIT_S, "timeout_s": 2 * WAIT_S, "on_timeout": "fail"})
"""How long a call waits for its result from elsewhere."""
TRANSFERS = {"pal": "transfer_to_pal", "home": "transfer_to_solo"}
"""The words that hand the conversation over."""


def tag_of(text: str) -> str:
    """Return the id of a message. Empty if the text has none."""
    found = TAG.search(text)
    return found[1] if found else ""


@dataclass
class Judged:
    """A judgement of a guard, when it began."""

    session_id: str
    guard: str
    on: str
    of: str
    """The id of the judged call, if any."""
    hash: str
    actor: Actor | None


@dataclass
class Seen:
    """An answer that a tool got to its question."""

    key: str
    question: str
    answer: JsonValue


@dataclass
class Left:
    """A token that a tool got for its call. `key` is the call's idempotency key."""

    key: str
    token: str


# --- tools that ask -----------------------------------------------------------------------------------------------------


def _begin(ctx: ToolContext[Notes]) -> Started:
    cast = PeopleStage.cast
    start = Started(ctx.idempotency_key, ctx.tool_name, ACTOR.get(), cast.world.clock.now(), ctx)
    cast.observe_start(start)
    cast.ghost.started.append(start)
    return start


async def _gate(ctx: ToolContext[Notes]) -> None:
    await PeopleStage.cast.world.gate("tool", f"{ctx.tool_name} {ctx.idempotency_key}")


async def _ask(ctx: ToolContext[Notes], *questions: Question[Any]) -> list[Any]:
    found = await ctx.ask(*questions)
    answers = [found] if len(questions) == 1 else list(found)
    for question, answer in zip(questions, answers, strict=True):
        PeopleStage.cast.seen.append(Seen(ctx.idempotency_key, question.text, answer))
    return answers


async def survey(ctx: ToolContext[Notes]) -> str:
    """Ask what is liked, in two rounds."""
    start = _begin(ctx)
    try:
        await _gate(ctx)
        (colour,) = await _ask(ctx, Question("Which colour?"))
        count, _ = await _ask(ctx, Question(f"How many in {colour}?", schema=int), Question(f"Why {colour}?"))
        ctx.update_state(lambda notes: notes.log.append(f"survey {ctx.tool_call_id}"))
        return f"{count} {colour}"
    finally:
        start.over = True


async def pledge(ctx: ToolContext[Notes]) -> str:
    """Ask, and then do what must not happen twice."""
    start = _begin(ctx)
    try:
        await _gate(ctx)
        question = Question("How much?", timeout_s=WAIT_S, on_timeout="default", default=DEFAULT)
        (amount,) = await _ask(ctx, question)
        PeopleStage.cast.done.append(ctx.idempotency_key)
        await PeopleStage.cast.world.gate("tool", f"pledging {ctx.idempotency_key}")
        ctx.update_state(lambda notes: notes.log.append(f"pledge {ctx.tool_call_id}"))
        return f"pledged {amount}"
    finally:
        start.over = True


async def send(to: str, ctx: ToolContext[Notes]) -> str:
    """Send a letter."""
    start = _begin(ctx)
    try:
        await _gate(ctx)
        ctx.update_state(lambda notes: notes.log.append(f"send {ctx.tool_call_id}"))
        return f"sent to {to}"
    finally:
        start.over = True


async def ship(ctx: ToolContext[Notes]) -> str:
    """Ship. Another system says how it ended."""
    start, cast = _begin(ctx), PeopleStage.cast
    try:
        await _gate(ctx)
        token = await ctx.later(**WAITS[len(cast.left) % len(WAITS)])
        cast.left.append(Left(ctx.idempotency_key, token))
        ctx.update_state(lambda notes: notes.log.append(f"ship {ctx.tool_call_id}"))
        await cast.world.gate("tool", f"shipping {ctx.idempotency_key}")
        return "not yet"
    finally:
        start.over = True


# --- guards -------------------------------------------------------------------------------------------------------------


def _judge(name: str, decide: Callable[[str, GuardContext], AnyVerdict]) -> Callable[..., Any]:
    async def function(value: Any, context: GuardContext) -> AnyVerdict:
        cast = PeopleStage.cast
        judged = Judged(context.session_id, name, context.on, context.call_id, hash_of(value), ACTOR.get())
        cast.observe_judged(judged)
        cast.judged.append(judged)
        await cast.world.gate("tool", f"guard {name} {context.on} of {context.session_id}")
        return decide(str(value), context)

    return function


def _number(text: str) -> int:
    found = re.search(r"#(\d+)", text)
    return int(found[1]) if found else 0


def _of_input(text: str, context: GuardContext) -> AnyVerdict:
    if text.endswith(" mask"):
        return Replace(text.removesuffix(" mask"))
    if text.endswith(" drop"):
        return Block(f"message {tag_of(text)} must not be read")
    return Block("it must not be sent", to="user") if text.endswith(" stop") else Allow()


def _of_call(text: str, context: GuardContext) -> AnyVerdict:
    n = _number(text)
    if context.tool_name != "send" or n % 4 == 0:
        return Allow()
    return (Ask("it is much"), Replace({"to": f"#{n} safely"}), Block("not to them"))[n % 4 - 1]


def _of_result(text: str, context: GuardContext) -> AnyVerdict:
    if context.tool_name != "send":
        return Allow()
    return Block("it is secret") if _number(text) % 5 == 0 else Replace(f"{text}, it says")


def _of_output(text: str, context: GuardContext) -> AnyVerdict:
    n = _number(text)
    if n % 29 == 28:
        return Block("it must not be said", to="user")
    if n % 7 == 6:
        return Retry("say it otherwise")
    return Replace(f"{text}*") if n % 5 == 4 and "{" not in text else Allow()


def _guards() -> list[Guard]:
    time: dict[str, Any] = {"timeout_s": GUARD_S}
    first = Guard(name="first", input=_judge("first", _of_input), call=_judge("first", _of_call), **time)
    second = Guard(name="second", result=_judge("second", _of_result), output=_judge("second", _of_output), **time)
    beside = Guard(name="beside", input=_judge("beside", lambda *_: Allow()), when="beside", **time)
    last = Guard(
        name="last", input=_judge("last", lambda *_: Allow()), output=_judge("last", lambda *_: Allow()), **time
    )
    return [first, second, beside, last]


async def _check(output: Answer) -> str | None:
    return "it is too short" if _number(output.answer) % 6 == 5 else None


@cache
def people_agents() -> dict[str, AnyAgent]:
    asking = [tool(timeout_s=TOOL_TIMEOUT_S)(survey), tool(timeout_s=TOOL_TIMEOUT_S, on_unknown="skip")(pledge)]
    asking += [tool(timeout_s=TOOL_TIMEOUT_S)(send), tool(timeout_s=TOOL_TIMEOUT_S, later=True)(ship), ask_user]
    shared = [*shared_tools(), *asking]
    own = [*shared, _tool("fatal", "retry")]
    helper: AnyAgent = Agent(name="helper", tools=shared, output_schema=Answer, guards=_guards(), **COMMON)
    pal: AnyAgent = Agent(name="pal", tools=own, handoffs=["solo"], keep_partial=True, **COMMON)
    solo: AnyAgent = Agent(name="solo", tools=quick_tools(own), handoffs=[pal], guards=_guards(), **COMMON)
    of_boss = [*own, create_sub_agent_tool(helper)]
    boss: AnyAgent = Agent(name="boss", tools=of_boss, handoffs=[pal], keep_partial=True, **COMMON)
    clerk: AnyAgent = Agent(name="clerk", tools=own, output_schema=Answer, guards=_guards(), **COMMON)
    clerk.output_check(_check)
    return {agent.name: agent for agent in (helper, pal, solo, boss, clerk)}


# --- the model ----------------------------------------------------------------------------------------------------------


class PeopleStage:
    cast: PeopleCast


class PeopleCast(Cast):
    """The model, and the record of what tools and guards really got and did."""

    kids: ClassVar[Mapping[str, str]] = {**Cast.kids, "kidask": "survey", "kidsend": "send+pledge", "kidship": "ship"}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.seen: list[Seen] = []
        self.done: list[str] = []
        self.left: list[Left] = []
        self.cut: set[str] = set()
        self.judged: list[Judged] = []
        self.observe_judged: Callable[[Judged], None] = lambda judged: None
        PeopleStage.cast = self
        Stage.cast = self

    @staticmethod
    def made() -> dict[str, AnyAgent]:
        return people_agents()

    def texts(self) -> set[str]:
        found = super().texts()
        return found | {f"{text}*" for text in found} | self.cut

    def is_plan(self, message: UserMessage) -> bool:
        return bool(message.id and tag_of(message.content))

    def _call(self, ident: str, word: str, bought: Purchase) -> ParsedToolCall:
        arguments: dict[str, JsonValue] = {}
        if word == "ask_user":
            arguments["question"] = f"What now, after #{bought.n}?"
        elif word == "send":
            arguments["to"] = f"#{bought.n}"
        return ParsedToolCall(id=ident, name=TRANSFERS.get(word, word), arguments=arguments)

    def _kid(self, ident: str, word: str, bought: Purchase) -> ParsedSubAgentCall:
        message = f"{self.kids[word]} ~k{bought.n}x{ident.removeprefix('call_')}"
        return ParsedSubAgentCall(id=ident, agent_type="helper", input={"message": message})
