"""Sizes and names at their limits: what fits works, and what does not fit is refused with a clear error."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_run import (
    Text,
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

from helix import ToolContext
from helix.core.call_results import MAX_RESULT_BYTES
from helix.core.context import MAX_EVENT_BYTES
from helix.core.errors import InvalidInputError, SessionNotFoundError
from helix.core.json import MAX_BYTES
from helix.core.messages import AssistantMessage
from helix.core.periods import TokenPeriod
from helix.fleet.budgets import BudgetManager


async def test_session_ids(world: World) -> None:
    executor = world.executor(["ok"] * 10)
    who = agent()
    for good in ("a", "A-b_c.d:e@f+g=h", "x" * 256, "-", "0"):
        handle, result, _ = await play(executor, who, session_id=good)
        assert (handle.session_id, result.status) == (good, "completed")
        point = (await handle.get_state()).checkpoint_id
        assert (await executor.sessions.get_checkpoint(good, point)).id == point
    for bad in ("x" * 257, "a b", "a/b", "a#b", "é", "a\n", "\udc80", "*"):
        with pytest.raises(InvalidInputError, match="session_id"):
            await executor.execute(who, "go", session_id=bad)
        with pytest.raises(SessionNotFoundError):
            await executor.sessions.get(bad)
        assert not await executor.sessions.exists(bad)
    with pytest.raises(InvalidInputError, match="session_id"):
        await executor.execute(who, "go", session_id=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="run_id"):
        await executor.sessions.get_run("a", "\udc80")
    with pytest.raises(InvalidInputError):
        await executor.sessions.list_sessions(user_id="\udc80")


async def test_a_message_of_a_megabyte(world: World) -> None:
    executor = world.executor(["ok"])
    who = agent()
    with pytest.raises(InvalidInputError, match="1000001 bytes"):
        await executor.execute(who, "é" + "x" * (MAX_BYTES - 1))
    handle, result, _ = await play(executor, who, "x" * MAX_BYTES)
    assert result.status == "completed"
    assert len((await history(executor, handle.session_id))[0].content or "") == MAX_BYTES


async def test_events_up_to_100_kb(world: World) -> None:
    def work(given: Text, ctx: ToolContext[Any]) -> str:
        ctx.emit("big", "x" * (int(given.text) - 2))
        return "ok"

    script = [calls(call("work", text=str(MAX_EVENT_BYTES)), call("work", text=str(MAX_EVENT_BYTES + 1))), "done"]
    executor = world.executor(script)
    handle, _, chunks = await play(executor, agent(tools=[a_tool("work", work, input_schema=Text)]))
    assert [len(c.data) for c in of_type(chunks, "custom")] == [MAX_EVENT_BYTES - 2]
    good, bad = results(await history(executor, handle.session_id))
    assert good == "ok" and "100001 bytes" in bad


async def test_events_that_are_no_json(quick_world: World) -> None:
    refused: list[str] = []

    def work(given: Any, ctx: ToolContext[Any]) -> str:
        for data in (float("nan"), object(), {"x": "\udc80"}):
            try:
                ctx.emit("odd", data)  # type: ignore[arg-type]
            except InvalidInputError as error:
                refused.append(str(error))
        try:
            ctx.emit("", 1)
        except InvalidInputError as error:
            refused.append(str(error))
        return "ok"

    executor = quick_world.executor([calls(call("work")), "done"])
    _, result, chunks = await play(executor, agent(tools=[a_tool("work", work)]))
    assert result.output == "done" and len(refused) == 4 and not of_type(chunks, "custom")


@pytest.mark.parametrize("letter", ["x", "é"])
async def test_results_are_cut_with_a_marker(world: World, letter: str) -> None:
    width = len(letter.encode())

    def work(given: Text, ctx: ToolContext[Any]) -> str:
        return letter * int(given.text)

    fits = MAX_RESULT_BYTES // width
    executor = world.executor([calls(call("work", text=str(fits)), call("work", text=str(fits + 1))), "done"])
    handle, result, _ = await play(executor, agent(tools=[a_tool("work", work, input_schema=Text)]))
    assert result.output == "done"
    whole, cut = results(await history(executor, handle.session_id))
    assert whole == letter * fits
    assert cut == letter * fits + f"\n[truncated: {(fits + 1) * width} bytes in all]"


async def test_an_output_is_never_cut(quick_world: World) -> None:
    class Long(BaseModel):
        text: str

    deliver = a_tool("deliver", lambda given, ctx: {"text": "x" * 100_001}, finish_with=True)
    executor = quick_world.executor([calls(call("deliver")), "gave up"])
    handle, result, _ = await play(executor, agent(tools=[deliver]))
    assert result.output == "gave up" and "exceeds" in results(await history(executor, handle.session_id))[0]
    executor = quick_world.executor([calls(call("__finish__", text="x" * 300_000))])
    _, result, _ = await play(executor, agent(output_schema=Long))
    assert result.output is not None and len(result.output.text) == 300_000


async def test_a_childs_output_that_is_too_long_is_cut_for_its_parent(quick_world: World) -> None:
    from helix import create_sub_agent_tool

    class Long(BaseModel):
        text: str

    child = agent("child", output_schema=Long)
    script = {
        "helper": [calls(call("subagent__child", message="x")), "done"],
        "child": [calls(call("__finish__", text="x" * 100_001))],
    }
    executor = quick_world.executor(script)
    handle, result, _ = await play(executor, agent(tools=[create_sub_agent_tool(child)]))
    assert result.output == "done"
    assert "[truncated: 100012 bytes in all]" in results(await history(executor, handle.session_id))[0]


async def test_odd_call_ids(world: World) -> None:
    ids = ["", " ", "é/#\x00", "x" * 5_000, "call"]
    entry = {"tool_calls": [{"id": i, "name": "work", "arguments": {}} for i in ids]}
    executor = world.executor([entry, "done"])
    who = agent(tools=[a_tool("work", lambda given, ctx: ctx.tool_call_id)])
    handle, result, chunks = await play(executor, who)
    assert result.output == "done"
    messages = await history(executor, handle.session_id)
    (answer,) = [m for m in messages if isinstance(m, AssistantMessage) and m.tool_calls]
    assert results(messages) == [c.id for c in answer.tool_calls]
    assert all(c.id for c in answer.tool_calls)
    assert_stream(chunks)


@pytest.mark.parametrize("on_budget", ["fail", "pause"])
async def test_a_budget_without_room(world: World, on_budget: str) -> None:
    executor = world.executor([{"content": "done", "usage": {"prompt_tokens": 30, "calls": 1}}])
    budgets = BudgetManager(executor.store)
    await budgets.set_budget(10, TokenPeriod.TOTAL)
    who = agent(on_budget=on_budget)
    handle, result, _ = await play(executor, who)
    assert result.steps == 0
    if on_budget == "fail":
        assert (result.status, result.error_code, result.recoverable) == ("failed", "budget_exceeded", True)
    else:
        assert (result.status, result.pending) == ("paused", [])
        assert (await executor.sessions.get_run(handle.session_id, handle.run_id)).reason == "budget_exceeded"
        assert (await handle.can_resume()).can_resume
    await budgets.set_budget(1_000_000, TokenPeriod.TOTAL)
    again = await (handle.retry() if on_budget == "fail" else handle.resume())
    assert (await result_of(again)).output == "done"
    told = await budgets.check_budget()
    assert told["global_total"]["current_tokens"] == 30  # the usage, not the reservation


async def test_big_custom_state(world: World) -> None:
    class Big(BaseModel):
        text: str = ""
        items: list[str] = []

    def grow(given: Any, ctx: ToolContext[Big]) -> str:
        with ctx.draft() as state:
            state.text = "x" * 500_000
            state.items.extend(str(i) for i in range(1_000))
        return "ok"

    executor = world.executor([calls(call("grow")), "done"])
    handle, _, chunks = await play(executor, agent(tools=[a_tool("grow", grow)], state_schema=Big))
    state: dict[str, Any] = (await handle.get_state()).custom_state
    assert len(state["text"]) == 500_000 and len(state["items"]) == 1_000
    assert_stream(chunks)


async def test_deep_state_is_refused_in_words(quick_world: World) -> None:
    nested: dict[str, Any] = {}
    for _ in range(100_000):
        nested = {"x": nested}
    executor = quick_world.executor(["x"])
    with pytest.raises(InvalidInputError):
        await executor.execute(agent(), {"message": "x", "state": nested})
    while nested:  # so that freeing it does not recurse
        nested = nested.pop("x")
