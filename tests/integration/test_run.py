"""One run from beginning to end: how an agent handles the output of its model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_notes import Notes, note
from tests.support_run import (
    Gate,
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
    text_of,
    told,
    types,
)

from helix import AgentClient, LLMConfig, ScriptedModel, ToolContext, Usage
from helix.core.errors import AgentAlreadyRunningError, InvalidInputError
from helix.core.registry import AgentRegistry

# --- text and tools -----------------------------------------------------------------------------------------------


async def test_plain_text(world: World) -> None:
    executor = world.executor(["Good morning to you."])
    handle, result, chunks = await play(executor, agent(), "hi")
    assert (result.status, result.output, result.text) == ("completed", "Good morning to you.", "Good morning to you.")
    assert (result.completion_reason, result.steps, result.error) == ("text", 1, None)
    assert text_of(chunks) == "Good morning to you."
    assert types(chunks) == ["checkpoint_created", "step_committed", "checkpoint_created"]
    assert [c.sequence for c in chunks] == list(range(1, len(chunks) + 1))
    assert {c.agent_id for c in chunks} == {handle.session_id} and {c.run_id for c in chunks} == {handle.run_id}
    assert told(await history(executor, handle.session_id)) == ["user: hi", "assistant: Good morning to you."]
    state = await handle.get_state()
    assert (state.status, state.step_count, state.message_count, state.turn) == ("completed", 1, 2, 1)


async def test_a_tool_and_its_state(world: World) -> None:
    executor = world.executor([calls(call("note", text="tea"), content="Let me see."), "done"])
    handle, result, chunks = await play(executor, agent(tools=[note], state_schema=Notes))
    assert result.output == "done" and result.steps == 2
    assert types(chunks) == [
        "state_patch",
        "checkpoint_created",
        "step_committed",
        "tool_start",
        "tool_end",
        "state_patch",
        "checkpoint_created",
        "step_committed",
        "checkpoint_created",
    ]
    (start,), (end,) = of_type(chunks, "tool_start"), of_type(chunks, "tool_end")
    assert (start.tool_name, start.arguments) == ("note", {"text": "tea"})
    assert (end.tool_call_id, end.success, end.result) == (start.tool_call_id, True, "noted tea")
    first, patch = of_type(chunks, "state_patch")
    assert {"op": "add", "path": "/last", "value": ""} in first.patches  # the initial state, from nothing
    assert {"op": "add", "path": "/items/-", "value": "tea"} in patch.patches
    assert (await handle.get_state()).custom_state == {"items": ["tea"], "last": "tea", "counts": {"tea": 3}}
    assert told(await history(executor, handle.session_id)) == [
        "user: go",
        "assistant: Let me see.[note]",
        "tool: noted tea",
        "assistant: done",
    ]
    assert_stream(chunks)


async def test_parallel_tools_merge_their_changes_in_call_order(world: World) -> None:
    """The second call finishes first, which has no effect on the result."""
    first_waits = Gate()

    async def slow(given: Text, ctx: ToolContext[Notes]) -> str:
        await first_waits.wait()
        return _write(given, ctx)

    def quick(given: Text, ctx: ToolContext[Notes]) -> str:
        assert ctx.get_state().items == ["old"]  # the changes of sibling calls are not visible
        first_waits.open()
        return _write(given, ctx)

    def _write(given: Text, ctx: ToolContext[Notes]) -> str:
        with ctx.draft() as state:
            state.items.append(given.text)
            state.last = given.text
            state.counts[given.text] = 1
        return given.text

    tools = [a_tool("slow", slow, input_schema=Text), a_tool("quick", quick, input_schema=Text)]
    executor = world.executor([calls(call("slow", text="a"), call("quick", text="b")), "done"])
    handle, _, chunks = await play(
        executor, agent(tools=tools, state_schema=Notes), {"message": "go", "state": {"items": ["old"]}}
    )
    state = (await handle.get_state()).custom_state
    assert state == {"items": ["old", "a", "b"], "last": "b", "counts": {"a": 1, "b": 1}}
    patch = of_type(chunks, "state_patch")[-1]
    assert len(patch.warnings) == 1 and patch.warnings[0].startswith("/last")
    assert results(await history(executor, handle.session_id)) == ["a", "b"]
    checkpoint = await executor.sessions.get_latest_checkpoint(handle.session_id)
    assert checkpoint.state == state


async def test_a_tool_emits_and_records_usage(world: World) -> None:
    def work(given: Any, ctx: ToolContext[Any]) -> dict[str, Any]:
        ctx.emit("progress", {"percent": 50})
        ctx.record_usage(Usage(prompt_tokens=7, cost_micros=11))
        return {"key": ctx.idempotency_key, "agent": ctx.agent_id, "step": ctx.step, "type": ctx.agent_type}

    async def awaited(given: Any, ctx: ToolContext[Any]) -> str:
        ctx.emit("progress", {"percent": 100})
        return "ok"

    script = [calls(call("work"), call("awaited")), {"content": "done", "usage": {"prompt_tokens": 5, "calls": 1}}]
    executor = world.executor(script)
    handle, result, chunks = await play(executor, agent(tools=[a_tool("work", work), a_tool("awaited", awaited)]))
    assert sorted(c.data["percent"] for c in of_type(chunks, "custom")) == [50, 100]
    by_call = {c.tool_call_id: c for c in of_type(chunks, "tool_end")}
    assert by_call["call_0"].result["agent"] == handle.session_id and by_call["call_0"].result["step"] == 1
    assert result.usage.prompt_tokens == 12 and result.usage.cost_micros == 11
    assert (await handle.get_state()).usage == result.usage


@pytest.mark.parametrize("value", ["42", "null", '{"a": 1}', "", "true"])
async def test_a_text_result_stays_a_text(quick_world: World, value: str) -> None:
    """A string is stored and returned verbatim, even if it looks like JSON."""
    executor = quick_world.executor([calls(call("say")), "done"])
    handle, _, chunks = await play(executor, agent(tools=[a_tool("say", lambda given, ctx: value)]))
    assert of_type(chunks, "tool_end")[0].result == value
    assert results(await history(executor, handle.session_id)) == [value]


# --- functions of the state ---------------------------------------------------------------------------------------


async def test_prompt_and_settings_follow_the_state(world: World) -> None:
    model = ScriptedModel([calls(call("note", text="x")), "done"])
    who = agent(
        tools=[note],
        state_schema=Notes,
        system_prompt=lambda state: f"seen {len(state.items)}",
        llm_config=lambda state: LLMConfig(model=f"m{len(state.items)}", temperature=0.5),
    )
    handle, _, _ = await play(world.executor(model), who)
    assert [r.messages[0].content for r in model.requests] == ["seen 0", "seen 1"]
    assert [r.config.model for r in model.requests] == ["m0", "m1"]
    messages = await history(world.executor(), handle.session_id)
    assert all(m.role != "system" for m in messages)


@pytest.mark.parametrize("field", ["system_prompt", "llm_config"])
async def test_a_function_of_the_state_that_raises_fails_the_run(quick_world: World, field: str) -> None:
    def wrong(state: Any) -> Any:
        raise ValueError("cannot say")

    given: dict[str, Any] = {field: wrong}
    _, result, _ = await play(quick_world.executor(["unreachable"]), agent(**given))
    assert result.status == "failed" and "raised ValueError" in (result.error or "")


# --- client tools and function agents -----------------------------------------------------------------------------


async def test_a_client_tool_pauses_for_its_result(world: World) -> None:
    ask = a_tool("ask_user", "client", input_schema=Text)
    executor = world.executor([calls(call("ask_user", text="name?"), call("note", text="x")), "Hello Ada"])
    who = agent(tools=[ask, note], state_schema=Notes)
    handle, result, chunks = await play(executor, who)
    assert result.status == "paused" and [(p.tool_name, p.kind) for p in result.pending] == [("ask_user", "client")]
    (request,) = of_type(chunks, "tool_approval_request")
    assert (request.kind, request.input) == ("client", {"text": "name?"})
    from helix import Confirmation

    again = await executor.resume(who, handle.session_id, confirmation=Confirmation("call_0", data={"name": "Ada"}))
    assert (await result_of(again)).output == "Hello Ada"
    assert results(await history(executor, handle.session_id)) == ['{"name":"Ada"}', "noted x"]


async def test_function_agents(world: World) -> None:
    client = AgentClient(registry=AgentRegistry())

    class Totals(BaseModel):
        total: int

    @client.agent(name="adder")
    async def adder(a: int, b: int, ctx: ToolContext[Any]) -> Totals:
        """Adds."""
        ctx.emit("adding", a)
        return Totals(total=a + b)

    @client.agent(name="echo")
    async def echo(text: str) -> str:
        """Says it again."""
        if text == "bad":
            raise ValueError("will not say it")
        return text

    executor = world.executor()
    _, result, chunks = await play(executor, adder, {"a": 2, "b": 3})
    assert result.output == Totals(total=5) and result.steps == 1
    assert of_type(chunks, "custom")[0].data == 2 and of_type(chunks, "output")[0].output == {"total": 5}
    _, result, _ = await play(executor, echo, "12")
    assert result.output == "12"
    _, result, _ = await play(executor, echo, "bad")
    assert (result.status, result.error_code) == ("failed", "function_failed") and "will not say it" in (
        result.error or ""
    )
    _, result, _ = await play(executor, adder, "seven")
    assert (result.status, result.error_code) == ("failed", "invalid_input")


# --- refusals -----------------------------------------------------------------------------------------------------


async def test_a_running_session_takes_no_second_run(world: World) -> None:
    gate = Gate()

    async def wait(given: Any, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return "ok"

    who = agent(tools=[a_tool("wait", wait)])
    executor = world.executor([calls(call("wait")), "done"])
    handle = await executor.execute(who, "go")
    await gate.reached()
    for other in (executor, world.executor(["x"])):
        with pytest.raises(AgentAlreadyRunningError) as caught:
            await other.execute(who, "me too", session_id=handle.session_id)
        assert caught.value.run_id == handle.run_id
    assert (await executor.can_resume(handle.session_id)).reason == "running"
    gate.open()
    assert (await result_of(handle)).status == "completed"


async def test_sixteen_at_once_on_one_session(world: World) -> None:
    executors = [world.executor(["done"]) for _ in range(4)]
    who = agent()
    asked = [executors[i % 4].execute(who, f"message {i}", session_id="ses_shared") for i in range(16)]
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    won = [o for o in outcomes if not isinstance(o, BaseException)]
    assert len(won) >= 1 and all(isinstance(o, AgentAlreadyRunningError) for o in outcomes if isinstance(o, Exception))
    for handle in won:
        assert (await result_of(handle)).status in ("completed", "failed")
    messages = await history(executors[0], "ses_shared")
    assert sum(m.role == "user" for m in messages) == len(won)


async def test_input_is_checked(quick_world: World) -> None:
    executor = quick_world.executor(["x"])
    who = agent(state_schema=Notes)
    for wrong in (
        "",
        "  \n",
        {"message": ""},
        {"text": "x"},
        {"message": "x", "more": 1},
        5,
        None,
        {"message": "bad \udc80"},
    ):
        with pytest.raises(InvalidInputError):
            await executor.execute(who, wrong)  # type: ignore[arg-type]
    for state in ({"items": 5}, {"items": [float("nan")]}, {"last": "\udc80"}):
        with pytest.raises(InvalidInputError, match=r"items|last|state"):
            await executor.execute(who, {"message": "x", "state": state})
    with pytest.raises(InvalidInputError):
        await executor.execute(agent(), {"message": "x", "state": {"a": "\udc80"}})
    with pytest.raises(InvalidInputError, match="Agent"):
        await executor.execute("helper", "x")  # type: ignore[arg-type]
    handle, _, _ = await play(executor, who)
    with pytest.raises(InvalidInputError, match="belongs to agent"):
        await executor.execute(agent("other"), "x", session_id=handle.session_id)
