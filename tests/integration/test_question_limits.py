"""What cannot be asked, answers in a unit test, and what remains of a question that nobody answers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.test_questions import Passenger, booking, call_rows
from tests.support.usage_invariants import find_usage_problems
from tests.support_run import (
    World,
    a_tool,
    agent,
    call,
    calls,
    history,
    play,
    result_of,
    results,
)

from helix import Question, ToolContext, create_tool_context, tool
from helix.core.errors import InvalidInputError
from helix.core.usage import Usage
from helix.sessions.ledger import ledger


async def test_something_that_is_not_a_question(world: World) -> None:
    async def ask(given: Any, ctx: ToolContext) -> Any:
        return await ctx.ask("Sure?")  # type: ignore[call-overload]

    executor = world.executor([calls(call("ask")), "done"])
    handle, _, _ = await play(executor, agent(tools=[a_tool("ask", ask)]))
    (failed,) = results(await history(executor, handle.session_id))
    assert "ctx.ask takes one or more questions" in failed


def test_a_question_that_cannot_be_asked() -> None:
    for wrong in (
        lambda: Question(""),
        lambda: Question("Which?", choices=[]),
        lambda: Question("Which?", choices=["a", "a"]),
        lambda: Question("Which?", choices="ab"),
        lambda: Question("Which?", choices=["a"], schema=str),  # type: ignore[call-overload]
        lambda: Question("Which?", several=True),  # type: ignore[call-overload]
        lambda: Question("Which?", schema=type("Odd", (), {})),
        lambda: Question("x" * 5_000),
    ):
        with pytest.raises(InvalidInputError, match="question"):
            wrong()


async def test_answers_in_a_unit_test_of_a_tool() -> None:
    ctx: ToolContext[Any] = create_tool_context(
        agent_id="s", agent_type="a", answers=["aisle", {"name": "A", "age": 3}]
    )
    assert await ctx.ask(Question("Seat?", choices=["aisle"])) == "aisle"
    assert await ctx.ask(Question("Who?", schema=Passenger)) == Passenger(name="A", age=3)
    with pytest.raises(InvalidInputError, match="there is no answer to Question\\('More\\?'\\)"):
        await ctx.ask(Question("More?"))


async def test_a_message_that_closes_a_question_loses_no_usage(world: World) -> None:
    """The run that closes the call counts what its execution cost, as a fold would."""

    @tool
    async def count(ctx: ToolContext) -> str:
        """Count."""
        ctx.record_usage(Usage(calls=1, cost_micros=5))
        return await ctx.ask(Question("Go on?"))

    @tool
    async def measure(ctx: ToolContext) -> str:
        """Measure."""
        ctx.record_usage(Usage(calls=1, cost_micros=7))
        return "measured"

    executor = world.executor([calls(call("count"), call("measure")), "never mind", "more"])
    handle, _, _ = await play(executor, agent(tools=[count, measure]))
    again = await handle.resume(message="Forget it.")
    assert (await result_of(again)).usage.cost_micros == 12
    assert (await again.get_state()).usage.cost_micros == 12
    rows = [row async for row in call_rows(executor, handle.session_id)]
    assert [(row.by, row.usage and row.usage.cost_micros) for row in rows] == [("close", 5), ("tool", 7)]
    found = await ledger(executor.store, handle.session_id)
    assert found.agrees and [line.what for line in found.lines if line.service == "Tool"] == ["count", "measure"]
    assert not await find_usage_problems(executor.store, handle.session_id)


async def test_a_paused_run_stays_paused_for_its_handle_when_the_session_goes_on(world: World) -> None:
    executor = world.executor([calls(call("book", city="Oslo")), "never mind"])
    handle, result, _ = await play(executor, booking([]))
    assert result.status == "paused"
    await result_of(await handle.resume(message="Forget it."))
    later = await result_of(handle)
    assert (later.status, later.completion_reason) == ("paused", "pending")
    assert [pending.call_id for pending in later.pending] == ["call_0"]
