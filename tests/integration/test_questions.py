"""Questions that tools ask while they run. Each is asked once, and answered once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from tests.support_run import (
    World,
    a_tool,
    agent,
    assert_stream,
    call,
    calls,
    history,
    of_type,
    play,
    result_of,
    results,
)

from helix import Agent, Confirmation, Question, ToolContext, ask_user, tool
from helix.core.call_results import call_value
from helix.core.errors import CallNotPendingError, InvalidInputError
from helix.core.json import JsonValue
from helix.core.questions import MAX_QUESTIONS
from helix.core.tools import create_sub_agent_tool
from helix.core.usage import Usage


class Passenger(BaseModel):
    name: str
    age: int

    @field_validator("name")
    @classmethod
    def not_a_robot(cls, name: str) -> str:
        if name == "robot":
            raise ValueError("robots fly as freight")
        return name


def booking(entered: list[Any]) -> Agent[Any, Any]:
    @tool
    async def book(city: str, ctx: ToolContext) -> str:
        """Book a flight."""
        entered.append("book")
        seat = await ctx.ask(Question("Which seat?", choices=["window", "aisle"]))
        who = await ctx.ask(Question("Who flies?", schema=Passenger))
        assert isinstance(who, Passenger)
        entered.append((seat, who.age))
        return f"{who.name} flies to {city} at the {seat}."

    return agent(tools=[book])


async def test_a_tool_asks_one_question_after_another(world: World) -> None:
    entered: list[Any] = []
    who = booking(entered)
    executor = world.executor([calls(call("book", city="Oslo")), "done"])
    handle, result, chunks = await play(executor, who)
    assert result.status == "paused"
    (waits,) = result.pending
    assert (waits.call_id, waits.kind, waits.round, waits.arguments) == ("call_0", "question", 1, {"city": "Oslo"})
    assert [q.text for q in waits.questions] == ["Which seat?"]
    (asked,) = of_type(chunks, "tool_approval_request")
    assert (asked.kind, asked.round, asked.questions[0].answer_schema["enum"]) == ("question", 1, ["window", "aisle"])
    paused: Any = chunks[-1]
    assert paused.pending[0]["questions"][0]["text"] == "Which seat?"
    state = await handle.get_state()
    assert state.pending[0].questions == waits.questions
    (row,) = (await executor.sessions.list_checkpoints(handle.session_id)).items[0].pending
    assert row.questions == waits.questions

    again = await handle.answer("call_0", data="aisle", round=1)
    result = await result_of(again)
    (waits,) = result.pending
    assert [(q.text, q.answered) for q in waits.questions] == [("Who flies?", False)] and waits.round == 2
    last = await again.answer("call_0", data={"name": "Ada", "age": 36})
    result = await result_of(last)
    assert result.output == "done"
    assert results(await history(executor, handle.session_id)) == ["Ada flies to Oslo at the aisle."]
    assert entered == ["book", "book", "book", ("aisle", 36)]


async def test_an_answer_that_does_not_fit_names_the_field_and_loses_nothing(world: World) -> None:
    who = booking([])
    executor = world.executor([calls(call("book", city="Oslo")), "done"])
    handle, _, _ = await play(executor, who)
    wrongs: list[JsonValue] = ["roof", None, 3, ["aisle"]]
    for wrong in wrongs:
        with pytest.raises(InvalidInputError, match="'Which seat\\?' does not fit its schema: the answer: must be"):
            await handle.answer("call_0", data=wrong)
    handle = await handle.answer("call_0", data="window")
    assert (await result_of(handle)).status == "paused"
    with pytest.raises(InvalidInputError, match=r"age: must be integer, not string"):
        await handle.answer("call_0", data={"name": "Ada", "age": "36"})
    with pytest.raises(InvalidInputError, match=r"age: is missing"):
        await handle.answer("call_0", data={"name": "Ada"})
    assert [q.text for q in (await handle.get_state()).pending[0].questions] == ["Who flies?"]
    again = await handle.answer("call_0", data={"name": "robot", "age": 1})  # only the tool's own type can tell
    (waits,) = (await result_of(again)).pending
    assert waits.questions[0].problem is not None and "robots fly as freight" in waits.questions[0].problem
    last = await again.answer("call_0", data={"name": "Ada", "age": 1})
    assert (await result_of(last)).status == "completed"
    assert results(await history(executor, handle.session_id)) == ["Ada flies to Oslo at the window."]


async def test_a_repeated_answer_never_reaches_a_later_question(world: World) -> None:
    @tool
    async def two(ctx: ToolContext) -> str:
        """Ask twice."""
        return f"{await ctx.ask(Question('First?'))} {await ctx.ask(Question('Second?'))}"

    who = agent(tools=[two])
    executor = world.executor([calls(call("two")), "done"])
    handle, _, _ = await play(executor, who)
    again = await handle.answer("call_0", data="one", round=1)
    await result_of(again)
    with pytest.raises(CallNotPendingError):
        await handle.answer("call_0", data="one", round=1)
    last = await again.answer("call_0", data="two", round=2)
    await result_of(last)
    assert results(await history(executor, handle.session_id)) == ["one two"]


async def test_two_answers_at_once(world: World) -> None:
    """The first wins, whoever gives it."""
    entered: list[Any] = []
    who = booking(entered)
    handle, _, _ = await play(world.executor([calls(call("book", city="Oslo"))]), who)
    others = [world.executor(["done"]) for _ in range(4)]
    answers = [
        other.answer(who, handle.session_id, Confirmation("call_0", data=seat))
        for other, seat in zip(others, ["aisle", "window", "aisle", "window"], strict=True)
    ]
    given = await asyncio.gather(*answers, return_exceptions=True)
    assert sum(not isinstance(each, BaseException) for each in given) == 1
    assert all(isinstance(each, CallNotPendingError) for each in given if isinstance(each, BaseException))


async def test_several_questions_at_once(world: World) -> None:
    """The arguments of one `ask`, and the asks of one `gather`, are one round, answered together."""

    @tool
    async def order(ctx: ToolContext) -> JsonValue:
        """Take an order."""
        size, count = await ctx.ask(Question("Size?", choices=["S", "L"]), Question("How many?", schema=int))
        extras, note = await asyncio.gather(
            ctx.ask(Question("Extras?", choices=["nuts", "cream"], several=True)), ctx.ask(Question("Note?"))
        )
        return [size, count, *extras, note]

    who = agent(tools=[order])
    executor = world.executor([calls(call("order")), "done"])
    handle, result, _ = await play(executor, who)
    assert [q.text for q in result.pending[0].questions] == ["Size?", "How many?"]
    with pytest.raises(InvalidInputError, match="asks 2 questions: data must be a list"):
        await handle.answer("call_0", data="S")
    handle = await handle.answer("call_0", data=["S", 2])
    assert [q.text for q in (await result_of(handle)).pending[0].questions] == ["Extras?", "Note?"]
    handle = await handle.answer("call_0", data=[["nuts"], "to go"])
    assert (await result_of(handle)).output == "done"
    assert results(await history(executor, handle.session_id)) == ['["S",2,"nuts","to go"]']


async def test_a_denied_question_fails_the_call(world: World) -> None:
    entered: list[Any] = []
    executor = world.executor([calls(call("book", city="Oslo")), "done"])
    handle, _, _ = await play(executor, booking(entered))
    last = await handle.answer("call_0", approved=False, reason="none of your business")
    assert (await result_of(last)).output == "done"
    assert results(await history(executor, handle.session_id)) == ['{"error":"denied: none of your business"}']
    assert entered == ["book"]


async def test_a_question_pauses_whatever_the_tool_catches(world: World) -> None:
    @tool
    async def careful(ctx: ToolContext) -> str:
        """Catch everything."""
        try:
            return await ctx.ask(Question("Sure?"))
        except Exception:
            return "swallowed"

    @tool(retries=3)
    async def greedy(ctx: ToolContext) -> str:
        """Catch even more."""
        try:
            return await ctx.ask(Question("Sure?"))
        except BaseException:
            raise ValueError("swallowed") from None

    executor = world.executor([calls(call("careful"), call("greedy")), "done"])
    handle, result, _ = await play(executor, agent(tools=[careful, greedy]))
    assert [(p.call_id, p.kind) for p in result.pending] == [("call_0", "question"), ("call_1", "question")]
    handle = await handle.answer("call_0", data="yes")
    handle = await handle.answer("call_1", data="no")
    assert (await result_of(handle)).output == "done"
    assert results(await history(executor, handle.session_id)) == ["yes", "no"]


async def test_a_changed_question_is_asked_again_and_not_forever(world: World) -> None:
    rounds = 0

    @tool
    async def fickle(ctx: ToolContext) -> str:
        """Ask something else each time."""
        nonlocal rounds
        rounds += 1
        return await ctx.ask(Question(f"Number {rounds}?"))

    executor = world.executor([calls(call("fickle")), "done"])
    handle, result, _ = await play(executor, agent(tools=[fickle]))
    while result.status == "paused":
        assert result.pending[0].questions[0].text == f"Number {rounds}?"
        handle = await handle.answer("call_0", data="x")
        result = await result_of(handle)
    assert rounds == MAX_QUESTIONS + 1
    (failed,) = results(await history(executor, handle.session_id))
    assert f"a call may ask {MAX_QUESTIONS} questions at most" in failed


async def test_state_usage_and_results_of_a_tool_that_asks(world: World) -> None:
    """Changes before a question are dropped with its execution. What the execution cost counts."""

    @tool
    async def count(ctx: ToolContext) -> str:
        """Count."""
        with ctx.draft() as state:
            state["n"] = state.get("n", 0) + 1
        ctx.record_usage(Usage(calls=1, cost_micros=5))
        return await ctx.ask(Question("Go on?"))

    executor = world.executor([calls(call("count")), "done"])
    handle, _, _ = await play(executor, agent(tools=[count]))
    last = await handle.answer("call_0", data="yes")
    await result_of(last)
    state = await last.get_state()
    assert state.custom_state == {"n": 1}
    assert state.usage.cost_micros >= 10
    for (value,) in [[row async for row in call_rows(executor, handle.session_id)]]:
        assert call_value(value) == "yes" and [(q.text, q.data) for q in value.questions] == [("Go on?", "yes")]


async def call_rows(executor: Any, session_id: str) -> Any:
    session = await executor.engine.history.existing(session_id)
    row = await executor.engine.history.lineage(session_id, session.lineage)
    for entry in await executor.engine.history.entries(session_id, row, 0, session.count):
        if entry.kind == "call":
            yield entry


async def test_a_message_closes_a_question(world: World) -> None:
    executor = world.executor([calls(call("book", city="Oslo")), "never mind"])
    handle, _, _ = await play(executor, booking([]))
    again = await handle.resume(message="Forget it.")
    assert (await result_of(again)).output == "never mind"
    (closed,) = results(await history(executor, handle.session_id))
    assert '"not_answered"' in closed
    with pytest.raises(CallNotPendingError):
        await again.answer("call_0", data="aisle")


async def test_an_answer_while_the_run_is_interrupted(world: World) -> None:
    """The answer is kept, and the next run goes on with it."""
    executor = world.executor([calls(call("two"), call("hold")), "done"])
    reached, go = asyncio.Event(), asyncio.Event()

    @tool
    async def two(ctx: ToolContext) -> str:
        """Ask."""
        return await ctx.ask(Question("Sure?"))

    async def wait(given: Any, ctx: ToolContext) -> str:
        reached.set()
        await go.wait()
        return "held"

    who = agent(tools=[two, a_tool("hold", wait)])
    handle = await executor.execute(who, "go")
    await reached.wait()
    await executor.answer(who, handle.session_id, Confirmation("call_0", data="yes"))
    await handle.interrupt()
    go.set()
    assert (await result_of(handle)).status == "interrupted"
    again = await handle.resume()
    assert (await result_of(again)).output == "done"
    assert results(await history(executor, handle.session_id)) == ["yes", "held"]


async def test_a_sub_agent_asks_through_its_parent(world: World) -> None:
    class Out(BaseModel):
        text: str

    @tool
    async def survey(ctx: ToolContext) -> str:
        """Ask."""
        return await ctx.ask(Question("Which colour?"))

    child = agent("child", tools=[survey], output_schema=Out)
    parent = agent("parent", tools=[create_sub_agent_tool(child)])
    executor = world.executor(
        [
            calls(call("subagent__child", message="ask")),
            calls(call("survey")),
            calls(call("__finish__", text="red it is")),
            "done",
        ]
    )
    handle, result, _ = await play(executor, parent)
    assert result.pending[0].kind == "child"
    below = await executor.sessions.get(str(result.pending[0].child_session_id))
    (waits,) = below.pending
    assert [q.text for q in waits.questions] == ["Which colour?"]
    last = await handle.answer(waits.call_id, data="red", round=waits.round)
    while (result := await result_of(last)).status == "paused":
        last = await executor.get_handle(parent, handle.session_id)
    assert result.output == "done"


async def test_the_model_asks_the_user(world: World) -> None:
    executor = world.executor(
        [
            calls(
                call("ask_user", question="Which colour?", choices=["red", "blue"]),
                call("ask_user", question="Which sizes?", choices=["S", "M"], several=True),
                call("ask_user", question="Your name?"),
            ),
            "done",
        ]
    )
    handle, result, chunks = await play(executor, agent(tools=[ask_user]))
    assert [q.text for p in result.pending for q in p.questions] == ["Which colour?", "Which sizes?", "Your name?"]
    given: dict[str, JsonValue] = {"call_0": "red", "call_1": ["S", "M"], "call_2": "Ada"}
    for call_id, data in given.items():
        handle = await handle.answer(call_id, data=data)
    assert (await result_of(handle)).output == "done"
    assert results(await history(executor, handle.session_id)) == ["red", '["S","M"]', "Ada"]
    assert_stream(of_type(chunks, "run_paused"))
