"""Interrupts and aborts of a run: they stop it wherever it is, and stop only the intended run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support_resume import Log, interrupted_in_model, writer
from tests.support_run import (
    Gate,
    Nothing,
    World,
    a_tool,
    agent,
    assert_stream,
    call,
    calls,
    chunks_of,
    gated,
    history,
    play,
    result_of,
    results,
    told,
    types,
)

from helix import ScriptedModel, ToolContext
from helix.core.errors import CannotResumeError, InvalidInputError, SessionNotFoundError
from helix.engine.engine import Settings


def waiting(name: str, gate: Gate, result: str = "ok", **fields: Any) -> Any:
    async def wait(given: Nothing, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return result

    return a_tool(name, wait, **fields)


async def test_interrupt_during_the_model_call(world: World) -> None:
    gate = Gate()
    executor = world.executor([calls(call("write", text="a")), gated(gate, "never said"), "said later"])
    who = agent(tools=[writer()], state_schema=Log)
    handle = await interrupted_in_model(executor, who, gate)
    result, chunks = await result_of(handle), await chunks_of(handle)
    assert (result.status, result.error) == ("interrupted", None)
    last = chunks[-1]
    assert last.type == "run_interrupted" and last.reason == "enough"  # type: ignore[union-attr]
    assert last.checkpoint_id == (await handle.get_state()).checkpoint_id  # type: ignore[union-attr]
    assert told(await history(executor, handle.session_id)) == ["user: go", "assistant: [write]", "tool: wrote a"]
    assert (await handle.can_resume()).can_resume

    again = await handle.resume()
    result, chunks = await result_of(again), await chunks_of(again)
    assert result.output == "said later" and again.run_id != handle.run_id
    resumed = chunks[0]
    assert resumed.type == "run_resumed" and resumed.previous_run_id == handle.run_id  # type: ignore[union-attr]
    assert resumed.mode == "continue"  # type: ignore[union-attr]
    assert (await executor.sessions.get_run(handle.session_id, handle.run_id)).status == "superseded"
    assert (await result_of(handle)).status == "interrupted"
    assert (await handle.get_state()).custom_state == {"lines": ["a"]}


async def test_text_of_an_interrupted_step_is_discarded(world: World) -> None:
    gate = Gate()

    class Slow(ScriptedModel):
        async def generate_step(self, request: Any) -> Any:
            if not self.requests:
                self.requests.append(request)
                request.callbacks.on_text_delta("half a sen")
                await gate.wait()
            return await super().generate_step(request)

    executor = world.executor(Slow(["a whole sentence"]))
    handle = await interrupted_in_model(executor, agent(), gate)
    chunks = await chunks_of(handle)
    assert types(chunks)[-2:] == ["step_discarded", "run_interrupted"]
    again = await handle.resume()
    assert (await result_of(again)).output == "a whole sentence"


async def test_interrupt_during_tools_lets_them_finish(world: World) -> None:
    gate = Gate()
    executor = world.executor([calls(call("wait"), call("write", text="b")), "done"])
    who = agent(tools=[waiting("wait", gate), writer()], state_schema=Log)
    handle = await executor.execute(who, "go")
    await gate.reached()
    assert await handle.interrupt()
    gate.open()
    assert (await result_of(handle)).status == "interrupted"
    assert results(await history(executor, handle.session_id)) == ["ok", "wrote b"]  # committed, not lost
    again = await handle.resume()
    assert (await result_of(again)).output == "done" and gate.times == 1


async def test_a_long_tool_sees_the_interrupt(world: World) -> None:
    started = asyncio.Event()

    async def patient(given: Nothing, ctx: ToolContext[Any]) -> str:
        started.set()
        while not ctx.cancelled():
            await asyncio.sleep(0.005)
        return "stopped early"

    executor = world.executor([calls(call("patient")), "done"])
    handle = await executor.execute(agent(tools=[a_tool("patient", patient)]), "go")
    await started.wait()
    await handle.interrupt(wait=True)
    assert results(await history(executor, handle.session_id)) == ["stopped early"]


async def test_a_stop_before_the_tools_leaves_them_unstarted(world: World) -> None:
    """This includes calls that must not run twice, because a call that never started has no unknown outcome."""
    ran: list[str] = []

    async def stop(payload: Any, context: Any) -> None:
        if context.step_count == 0:
            await executor.interrupt(context.session_id)

    def work(given: Nothing, ctx: ToolContext[Any]) -> str:
        ran.append(ctx.tool_call_id)
        return "worked"

    tools = [a_tool("once", work, on_unknown="skip"), a_tool("asks", work, on_unknown="ask"), a_tool("any", work)]
    script = [calls(call("once"), call("asks"), call("any")), "done"]
    executor = world.executor(script, hooks={"after_llm_call": stop})
    who = agent(tools=tools)
    handle = await executor.execute(who, "go")
    assert (await result_of(handle)).status == "interrupted" and ran == []
    assert told(await history(executor, handle.session_id)) == ["user: go"]
    assert [c.type for c in await chunks_of(handle)].count("tool_start") == 0
    again = await handle.resume()
    assert (await result_of(again)).output == "done" and sorted(ran) == ["call_0", "call_1", "call_2"]
    assert_stream(await chunks_of(again))


async def test_unstarted_calls_are_closed_as_not_executed(world: World) -> None:
    async def stop(payload: Any, context: Any) -> None:
        if context.step_count == 0:
            await executor.interrupt(context.session_id)

    executor = world.executor([calls(call("write", text="x")), "fine"], hooks={"after_llm_call": stop})
    who = agent(tools=[writer()], state_schema=Log)
    handle = await executor.execute(who, "go")
    await result_of(handle)
    again = await handle.resume(mode="with_message", message="do something else")
    assert (await result_of(again)).output == "fine"
    lines = told(await history(executor, handle.session_id))
    assert lines[2].startswith('tool: {"status":"not_executed"') and lines[3] == "user: do something else"


async def test_interrupt_from_another_process(file_world: World) -> None:
    gate = Gate()
    executor, other = file_world.executor([gated(gate, "x")]), file_world.executor(["resumed there"])
    who = agent()
    handle = await executor.execute(who, "go")
    await gate.reached()
    seen = await other.get_handle(who, handle.session_id)
    assert seen.run_id == handle.run_id
    assert await seen.interrupt("from afar", wait=True)
    assert (await result_of(handle)).status == "interrupted"
    again = await seen.resume()
    assert (await result_of(again)).output == "resumed there"


async def test_interrupt_never_hits_the_next_run(world: World) -> None:
    executor = world.executor(["one", "two"])
    who = agent()
    handle, _, _ = await play(executor, who)
    assert await handle.interrupt() is False
    second = await executor.execute(who, "more", session_id=handle.session_id)
    assert await handle.interrupt() is False
    await handle.abort()
    assert (await result_of(second)).status == "completed"
    assert await executor.interrupt(handle.session_id) is False
    with pytest.raises(SessionNotFoundError):
        await executor.interrupt("ses_nowhere")


async def test_interrupt_twice_is_once(world: World) -> None:
    """The run checks for a stop only at its next step, so both interrupts find it at work."""
    gate = Gate()
    executor = world.executor([gated(gate, calls(call("write", text="a")))], settings=Settings(stop_poll_s=3600))
    handle = await executor.execute(agent(tools=[writer()], state_schema=Log), "go")
    await gate.reached()
    assert await handle.interrupt("first") and await handle.interrupt("second")
    gate.open()
    assert (await result_of(handle)).status == "interrupted"
    assert (await chunks_of(handle))[-1].reason == "first"  # type: ignore[union-attr]


async def test_abort(world: World) -> None:
    gate = Gate()
    executor = world.executor([gated(gate, "x"), "a new start"])
    who = agent()
    handle = await executor.execute(who, "go")
    await gate.reached()
    await handle.abort("no more")
    await handle.abort("again")
    result = await result_of(handle)
    assert (result.status, result.error_code, result.error, result.recoverable) == (
        "failed",
        "aborted",
        "no more",
        False,
    )
    state = await handle.get_state()
    assert state.aborted and state.abort_reason == "no more"
    assert (await handle.can_resume()).reason == "aborted"
    with pytest.raises(CannotResumeError) as caught:
        await handle.retry()
    assert caught.value.reason == "aborted"
    with pytest.raises(CannotResumeError):
        await handle.resume()
    again = await executor.execute(who, "start over", session_id=handle.session_id)
    assert (await result_of(again)).output == "a new start"
    assert not (await again.get_state()).aborted


async def test_a_reason_has_a_size(quick_world: World) -> None:
    gate = Gate()
    handle = await quick_world.executor([gated(gate, "x")]).execute(agent(), "go")
    await gate.reached()
    for reason in ("x" * 8_001, "bad \udc80"):
        with pytest.raises(InvalidInputError):
            await handle.interrupt(reason)
        with pytest.raises(InvalidInputError):
            await handle.abort(reason)
    await handle.interrupt("x" * 8_000, wait=True)
