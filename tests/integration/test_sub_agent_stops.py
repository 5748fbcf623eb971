"""Stops in a tree of agents: from parent to child, and the effect of a child's end on its parent."""

from __future__ import annotations

from typing import Any

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
    eventually,
    gated,
    history,
    of_type,
    play,
    result_of,
    results,
    types,
)
from tests.support_sub_agents import ask, child, finish, only_child, parent

from helix import ToolContext, create_sub_agent_tool
from helix.engine.engine import Settings


async def test_interrupt_reaches_the_child_and_resume_goes_on(world: World) -> None:
    gate = Gate()
    script = {
        "boss": [calls(ask(), call("write", text="boss")), "done"],
        "finder": [calls(call("write", text="finder")), gated(gate, "never"), finish("blue")],
    }
    executor = world.executor(script)
    handle = await executor.execute(parent(child()), "go")
    await gate.reached()
    assert await handle.interrupt("pause please", wait=True)
    ref = await only_child(executor, handle.session_id)
    assert ref.status == "interrupted"
    chunks = await chunks_of(handle)
    assert [c.agent_type for c in of_type(chunks, "run_interrupted")] == ["finder", "boss"]
    again = await handle.resume()
    result, more = await result_of(again), await chunks_of(again)
    assert result.output == "done"
    assert await only_child(executor, handle.session_id) == ref.model_copy(
        update={"status": "completed"}
    )  # the same child
    assert (await executor.sessions.get(ref.session_id)).custom_state == {"lines": ["finder"]}
    assert results(await history(executor, handle.session_id)) == ['{"fact":"blue"}', "ok"]
    assert_stream([*chunks, *more])
    mine = [c for c in more if c.agent_id == handle.session_id]
    assert types(mine)[-6:-2] == ["subagent_end", "tool_end", "state_patch", "checkpoint_created"]


async def test_abort_reaches_the_child(world: World) -> None:
    gate = Gate()
    executor = world.executor({"boss": [calls(ask())], "finder": [gated(gate, "never")]})
    handle = await executor.execute(parent(child()), "go")
    await gate.reached()
    await handle.abort("stop it")
    assert (await result_of(handle)).error_code == "aborted"
    ref = await only_child(executor, handle.session_id)

    async def child_failed() -> bool:
        return (await executor.sessions.get(ref.session_id)).aborted

    await eventually(child_failed)


async def test_a_child_aborted_alone_is_a_failed_result(world: World) -> None:
    gate = Gate()
    finder = child()
    executor = world.executor({"boss": [calls(ask()), "went on"], "finder": [gated(gate, "never")]})
    handle = await executor.execute(parent(finder), "go")
    await gate.reached()
    ref = await only_child(executor, handle.session_id)
    await executor.abort(finder, ref.session_id, "not that one")
    assert (await result_of(handle)).output == "went on"
    assert results(await history(executor, handle.session_id)) == ['{"error":"not that one"}']


async def test_a_child_whose_tool_does_not_look_is_left_by_its_parent(world: World) -> None:
    """The child's worker loses its session at the heartbeat, and the parent's run continues all the same."""
    gate = Gate()

    async def deaf(given: Nothing, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return "late"

    finder = child(tools=[a_tool("deaf", deaf)])
    settings = Settings(stop_poll_s=0.01, claim_s=0.3)
    executor = world.executor({"boss": [calls(ask()), "went on"], "finder": [calls(call("deaf"))]}, settings=settings)
    handle = await executor.execute(parent(finder), "go")
    await gate.reached()
    ref = await only_child(executor, handle.session_id)
    await executor.abort(finder, ref.session_id, "too slow")
    assert (await result_of(handle)).output == "went on"
    gate.open()


async def test_a_child_that_takes_too_long_is_a_failed_result(world: World) -> None:
    gate = Gate()
    boss = agent("boss", tools=[create_sub_agent_tool(child(), timeout_s=0.05)])
    executor = world.executor({"boss": [calls(ask()), "went on"], "finder": [gated(gate, "never")]})
    handle, result, _ = await play(executor, boss)
    assert result.output == "went on"
    assert "longer than 0.05 s" in results(await history(executor, handle.session_id))[0]
    ref = await only_child(executor, handle.session_id)
    assert ref.status == "failed"


async def test_a_child_interrupted_alone_pauses_its_parent(world: World) -> None:
    gate = Gate()
    executor = world.executor({"boss": [calls(ask()), "done"], "finder": [gated(gate, "never"), finish("blue")]})
    handle = await executor.execute(parent(child()), "go")
    await gate.reached()
    ref = await only_child(executor, handle.session_id)
    assert await executor.interrupt(ref.session_id)
    result = await result_of(handle)
    assert result.status == "paused" and [(p.kind, p.child_session_id) for p in result.pending] == [
        ("child", ref.session_id)
    ]
    assert (await result_of(await handle.resume())).output == "done"
