"""Reminders are at the end of each request, recorded with it, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_run import World, a_tool, agent, call, calls, play, result_of

from helix import (
    Block,
    Guard,
    LocalExecutor,
    MemoryStateStore,
    ReminderContext,
    ResponseCacheConfig,
    ScriptedModel,
    ToolContext,
)
from helix.adapters.models.turns import turns
from helix.core.caching import CacheStrategy
from helix.core.config import LLMConfig
from helix.core.errors import DefinitionError
from helix.core.messages import AnyMessage, AssistantMessage, ToolCallRequest, ToolResultMessage, UserMessage
from helix.core.reminders import REMINDER_CHARS
from helix.engine.steps import reminders as engine_reminders
from helix.engine.steps.cached import question
from helix.ports.model import LLMGenerateInput
from helix.services.request_heads import read_head
from helix.services.segments import SegmentStreams
from helix.services.session_calls import session_calls
from helix.sessions.read import Sessions
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import Crash, CrashPoints
from helix.testing.invariants import check_session

S = "shop"


class Cart(BaseModel):
    items: list[str] = []


async def add(_: Any, ctx: ToolContext[Cart]) -> str:
    ctx.update_state(lambda cart: cart.items.append("apple"))
    return "added"


def cart(context: ReminderContext) -> str | None:
    return f"In the cart: {', '.join(context.state.items)}." if context.state.items else None


async def place(context: ReminderContext) -> str:
    await asyncio.sleep(0)
    return f"{context.agent_type} of {context.user_id}, {context.session_id} step {context.step}, {context.metadata}"


def shop(*reminders: Any, **fields: Any) -> Any:
    return agent("shop", tools=[a_tool("add", add)], state_schema=Cart, reminders=reminders, **fields)


def wrapped(*texts: str) -> str:
    return "<reminder>\n" + "\n\n".join(texts) + "\n</reminder>"


class Recorder:
    """A model that plays a script and keeps its requests."""

    def __init__(self, *script: Any) -> None:
        self.requests: list[LLMGenerateInput] = []
        self._script = list(script)

    def __call__(self, request: LLMGenerateInput) -> Any:
        self.requests.append(request)
        return self._script[len(self.requests) - 1]

    def adapter(self) -> ScriptedModel:
        return ScriptedModel([self], repeat=True, record=False)


def contents(messages: Sequence[AnyMessage]) -> list[str]:
    return [message.content or "" for message in messages]


async def test_a_reminder_ends_each_request_and_is_not_part_of_history(quick_world: World) -> None:
    model = Recorder(calls(call("add")), "Done.", "Again.")
    executor = quick_world.executor(model.adapter())
    who = shop("Prices are in euros.", cart, place)
    _, _, chunks = await play(executor, who, "Buy", session_id=S, user_id="ada", metadata={"till": 3})
    await play(executor, who, "More", session_id=S, user_id="ada")
    about = "shop of ada, shop step {}, {{'till': 3}}".format
    ends = [
        wrapped("Prices are in euros.", about(1)),
        wrapped("Prices are in euros.", "In the cart: apple.", about(2)),
        wrapped("Prices are in euros.", "In the cart: apple.", about(3)),
    ]
    assert [request.messages[-1] for request in model.requests] == [UserMessage(content=end) for end in ends]
    assert [message.role for message in model.requests[1].messages] == ["system", "user", "assistant", "tool", "user"]
    assert [request.passing for request in model.requests] == [1, 1, 1]
    first, second, third = (contents(request.lasting) for request in model.requests)
    assert second[: len(first)] == first and third[: len(second)] == second, "the beginning stays in the cache"
    assert contents((await executor.sessions.get_messages(S)).messages) == [
        "Buy",
        "",
        "added",
        "Done.",
        "More",
        "Again.",
    ]
    assert not any("<reminder>" in chunk.model_dump_json() for chunk in chunks)
    for step, request in enumerate(model.requests, 1):
        found = await executor.sessions.get_context(S, step)
        assert contents(found.messages) == contents(request.messages[1:]), f"step {step} is shown as it was sent"
        assert found.request is not None and found.request.reminders == [ends[step - 1]]
        assert found.system_prompt == "You help."
    await check_session(executor.store, executor.streams, S, at_rest=True)


async def test_a_step_without_a_reminder_sends_nothing_more(quick_world: World) -> None:
    model = Recorder("Hello.", "Hello.")
    executor = quick_world.executor(model.adapter())
    await play(executor, shop(cart, lambda _: "  "), session_id=S)
    await play(executor, shop(), session_id="other")
    reminded, plain = model.requests
    assert contents(reminded.messages) == contents(plain.messages) and reminded.passing == 0
    (one,), (other,) = await session_calls(executor.store, S), await session_calls(executor.store, "other")
    assert one.head == other.head, "the head is shared by all sessions"


def broken(_: ReminderContext) -> str:
    raise ValueError("the shop is closed")


@pytest.mark.parametrize(
    ("reminder", "problem"),
    [
        (broken, "reminder 'broken' of agent 'shop' raised ValueError"),
        (lambda _: 7, "reminder 'reminders[1]' of agent 'shop' returned int: return a text, or None"),
        (
            lambda _: "x" * (REMINDER_CHARS + 1),
            "'reminders[1]' of agent 'shop' has 8,001 characters: the limit is 8,000",
        ),
    ],
)
async def test_a_wrong_reminder_fails_the_run_by_its_name(quick_world: World, reminder: Any, problem: str) -> None:
    executor = quick_world.executor(["Hello."])
    _, result, _ = await play(executor, shop("Fine.", reminder), session_id=S)
    assert (result.status, result.error_code) == ("failed", "reminder_failed")
    assert result.error is not None and problem in result.error
    retried = await result_of(await executor.retry(shop("Fine."), S))
    assert retried.text == "Hello.", "no model was called before"


async def test_a_slow_reminder_fails_the_run(quick_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_reminders, "REMINDERS_S", 0.05)

    async def slow(_: ReminderContext) -> str:
        await asyncio.sleep(30)
        return "never"

    _, result, _ = await play(quick_world.executor(["Hello."]), shop(slow))
    assert (
        result.error is not None and "reminder 'slow' of agent 'shop' did not return within the 0.05 s" in result.error
    )


@pytest.mark.parametrize(
    ("reminders", "field"),
    [("text", "reminders"), (["x"] * 9, "reminders"), (["fine", " "], r"reminders\[1\]"), ([7], r"reminders\[0\]"),
     (["x" * 8_001], r"reminders\[0\]")],
)  # fmt: skip
def test_a_definition_names_the_wrong_reminder(reminders: Any, field: str) -> None:
    with pytest.raises(DefinitionError, match=field):
        agent("shop", reminders=reminders)


async def test_each_attempt_records_the_reminder_that_it_sent() -> None:
    """The worker dies after its claim. The next one evaluates the reminder again, and both are recorded."""
    numbers, store = count(1), MemoryStateStore()
    who = shop(lambda _: f"number {next(numbers)}")
    points = CrashPoints(("transact:claim_step:after", 0))
    streams = points.streams(SegmentStreams(points.store(store)))
    dying = LocalExecutor(points.store(store), streams=streams, model=ScriptedModel(["Hello."]))

    async def run() -> None:
        await (await dying.execute(who, "go", session_id=S)).result()

    with pytest.raises(Crash):
        await points.unless_crashed(run())
    model = Recorder("Hello.")
    async with LocalExecutor(store, model=model.adapter(), clock=ShiftedClock(3600)) as executor:
        await asyncio.wait_for(result_of(await executor.resume(who, S)), 60)
        found = await session_calls(store, S)
        heads = [await read_head(store, S, one.head) for one in found]
    assert [one.outcome for one in found] == ["dead", "answered"]
    assert [head.reminders for head in heads if head is not None] == [[wrapped("number 1")], [wrapped("number 2")]]
    assert model.requests[0].messages[-1].content == wrapped("number 2")
    assert contents((await Sessions(store).get_context(S, 1)).messages)[-1] == wrapped("number 2")


async def test_tries_of_one_call_send_the_same_reminder(quick_world: World) -> None:
    numbers = count(1)
    failed = {"error": "overloaded", "code": "server_error", "retryable": True}
    model = Recorder({**failed, "retry_after_s": 0.01}, "Hello.")
    await play(quick_world.executor(model.adapter()), shop(lambda _: f"number {next(numbers)}"))
    assert [request.messages[-1].content for request in model.requests] == [wrapped("number 1")] * 2


async def test_guards_judge_the_message_before_the_reminder(quick_world: World) -> None:
    judged: list[str] = []

    def watch(value: str, _: Any) -> Block:
        judged.append(value)
        return Block("not here")

    who = shop("Be quick.", guards=[Guard(input=watch)])
    model = Recorder("Hello.")
    await play(quick_world.executor(model.adapter()), who, "bomb")
    assert judged == ["bomb"]
    (request,) = model.requests
    assert "bomb" not in contents(request.messages) and request.messages[-1].content == wrapped("Be quick.")


def test_a_reminder_is_in_the_turn_of_the_results_after_them() -> None:
    asked = AssistantMessage(tool_calls=[ToolCallRequest(id="a", name="add"), ToolCallRequest(id="b", name="add")])
    results = [ToolResultMessage(tool_call_id=one, tool_name="add", content="added") for one in "ab"]
    messages: list[AnyMessage] = [
        UserMessage(content="Buy"),
        asked,
        *results,
        UserMessage(content=wrapped("Be quick.")),
    ]
    _, made = turns(
        messages,
        text=lambda text: {"text": text},
        content=lambda message: [{"text": message.content}],
        answer=lambda message: [{"call": one.id} for one in message.tool_calls],
        result=lambda message: {"result": message.tool_call_id},
    )
    assert [turn["role"] for turn in made] == ["user", "assistant", "user"]
    assert made[-1]["content"] == [{"result": "a"}, {"result": "b"}, {"text": wrapped("Be quick.")}]


def test_the_response_cache_compares_the_question_and_keeps_the_reminder_in_its_key() -> None:
    policy = ResponseCacheConfig(strategy=CacheStrategy.SEMANTIC, sampled=True)

    def asked(text: str, *ends: str) -> Any:
        messages = [UserMessage(content=text), *(UserMessage(content=end) for end in ends)]
        config = LLMConfig(model="m", response_cache=policy)
        return question(LLMGenerateInput(messages, (), config, S, "shop", passing=len(ends)), policy)

    one, same, later = asked("Hi", "at noon"), asked("Hello", "at noon"), asked("Hi", "at one")
    assert (one.text, same.text) == ("Hi", "Hello")
    assert one.context == same.context and one.context != later.context
    assert len({one.exact, same.exact, later.exact, asked("Hi").exact}) == 4
