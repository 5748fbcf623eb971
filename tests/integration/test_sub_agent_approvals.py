"""Questions of sub-agents pause their parents, and one answer resumes all of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support_run import (
    Gate,
    Text,
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

from helix import Agent, Confirmation, ToolContext, create_sub_agent_tool
from helix.core.errors import CallNotPendingError, CannotResumeError, InvalidInputError
from helix.testing.invariants import check_session


def asking(ran: list[str]) -> Agent[Any, Any]:
    def pay(given: Text, ctx: ToolContext[Any]) -> str:
        ran.append(given.text)
        return f"paid {given.text}"

    return child(tools=[a_tool("pay", pay, input_schema=Text, require_approval=True)])


async def test_a_childs_question_pauses_the_parent_and_the_answer_resumes_both(world: World) -> None:
    ran: list[str] = []
    script = {"boss": [calls(ask()), "done"], "finder": [calls(call("pay", text="rent")), finish("paid")]}
    executor = world.executor(script)
    boss = parent(asking(ran))
    handle, result, chunks = await play(executor, boss)
    ref = await only_child(executor, handle.session_id)
    assert (result.status, ref.status) == ("paused", "paused")
    assert [(p.kind, p.child_session_id) for p in result.pending] == [("child", ref.session_id)]
    (request,) = of_type(chunks, "tool_approval_request")
    assert request.agent_id == ref.session_id
    assert (await handle.can_resume()).reason == "pending_confirmation"
    with pytest.raises(CannotResumeError):
        await handle.resume()

    again = await executor.resume(boss, handle.session_id, confirmation=Confirmation(request.tool_call_id))
    assert again.run_id != handle.run_id
    result, more = await result_of(again), await chunks_of(again)
    assert result.output == "done" and ran == ["rent"]
    assert (await executor.sessions.get(ref.session_id)).status == "completed"
    assert_stream([*chunks, *more])
    mine = types([c for c in [*chunks, *more] if c.agent_id == handle.session_id])
    assert mine.index("subagent_end") + 1 == mine.index("tool_end")
    assert mine.count("subagent_end") == 1 and mine.count("tool_end") == 1
    child_ends = [c for c in more if c.agent_id == ref.session_id]
    assert types(child_ends)[-1] == "output"  # the child is streamed live on the parent's new run


async def test_the_answer_reaches_two_levels_down(world: World) -> None:
    ran: list[str] = []
    finder = asking(ran)
    mid = child("mid", tools=[create_sub_agent_tool(finder)])
    script = {
        "boss": [calls(ask(name="mid")), "done"],
        "mid": [calls(ask()), calls(call("__finish__", fact="from below"))],
        "finder": [calls(call("pay", text="rent")), finish("paid")],
    }
    executor = world.executor(script)
    boss = parent(mid)
    handle, result, _ = await play(executor, boss)
    assert result.status == "paused"
    again = await executor.resume(boss, handle.session_id, confirmation=Confirmation("call_0"))
    assert (await result_of(again)).output == "done" and ran == ["rent"]
    assert results(await history(executor, handle.session_id)) == ['{"fact":"from below"}']


async def test_a_sub_agent_waits_for_its_own_approval_and_gets_the_edited_message(world: World) -> None:
    script = {"boss": [calls(ask("find Ann"), ask("find Bob")), "done"], "finder": [finish("found")]}
    executor = world.executor(script)
    boss = parent(child(), options={"require_approval": lambda given: f"asks to {given.message}"})
    handle, result, chunks = await play(executor, boss)
    assert [(p.kind, p.reason) for p in result.pending] == [
        ("approval", "asks to find Ann"),
        ("approval", "asks to find Bob"),
    ]
    assert await executor.sessions.list_sub_sessions(handle.session_id) == []
    wrong = Confirmation("call_0", arguments={"text": "find Eve"})
    with pytest.raises(InvalidInputError, match="message"):
        await executor.answer(boss, handle.session_id, wrong)
    await executor.answer(boss, handle.session_id, Confirmation("call_1", approved=False, reason="not Bob"))
    again = await executor.resume(
        boss, handle.session_id, confirmation=Confirmation("call_0", arguments={"message": "find Eve"}, by="ada")
    )
    result, more = await result_of(again), await chunks_of(again)
    assert result.output == "done"
    ref = await only_child(executor, handle.session_id)
    first = (await history(executor, ref.session_id))[0]
    assert (ref.parent_tool_call_id, first.content) == ("call_0", "find Eve")
    (start,) = [c for c in of_type(more, "tool_start") if c.agent_id == handle.session_id]
    assert (start.arguments, start.edited.by) == ({"message": "find Eve"}, "ada")
    assert_stream([*chunks, *more])
    await check_session(executor.store, executor.streams, handle.session_id, at_rest=True)


async def test_a_sub_agent_that_nobody_approved_never_starts(world: World) -> None:
    executor = world.executor({"boss": [calls(ask()), "fine", calls(ask())], "finder": []})
    boss = parent(child(), options={"require_approval": True})
    handle, result, chunks = await play(executor, boss)
    assert result.status == "paused"
    _, result, more = await play(executor, boss, "never mind", session_id=handle.session_id)
    assert result.output == "fine"
    _, result, last = await play(executor, boss, "again", session_id=handle.session_id)
    assert result.status == "paused"
    await executor.abort(boss, handle.session_id)
    with pytest.raises(CallNotPendingError):
        await executor.answer(boss, handle.session_id, Confirmation(result.pending[0].call_id))
    assert await executor.sessions.list_sub_sessions(handle.session_id) == []
    assert_stream([*chunks, *more, *last])
    await check_session(executor.store, executor.streams, handle.session_id, at_rest=True)


async def test_answered_from_another_process(file_world: World) -> None:
    ran: list[str] = []
    first = file_world.executor({"boss": [calls(ask())], "finder": [calls(call("pay", text="rent"))]})
    handle, result, _ = await play(first, parent(asking(ran)))
    assert result.status == "paused"
    await first.close()
    second = file_world.executor({"boss": ["done"], "finder": [finish("paid")]})
    again = await second.resume(parent(asking(ran)), handle.session_id, confirmation=Confirmation("call_0"))
    assert (await result_of(again)).output == "done" and ran == ["rent"]


async def test_a_parent_with_a_question_of_its_own_waits_for_both(world: World) -> None:
    ran: list[str] = []
    boss = agent("boss", tools=[create_sub_agent_tool(asking(ran)), a_tool("ask_me", "client")])
    script = {
        "boss": [calls(ask(), call("ask_me")), "done"],
        "finder": [calls(call("pay", text="rent")), finish("paid")],
    }
    executor = world.executor(script)
    handle, result, _ = await play(executor, boss)
    assert sorted(p.kind for p in result.pending) == ["child", "client"]
    child_call = (await executor.sessions.get((await only_child(executor, handle.session_id)).session_id)).pending[0]
    await executor.answer(boss, handle.session_id, Confirmation(child_call.call_id))

    async def child_told() -> bool:
        state = await handle.get_state()
        return state.status == "paused" and [p.kind for p in state.pending] == ["client"]

    await eventually(child_told)
    again = await executor.resume(boss, handle.session_id, confirmation=Confirmation("call_1", data="yes"))
    assert (await result_of(again)).output == "done"
    assert results(await history(executor, handle.session_id)) == ['{"fact":"paid"}', "yes"]


async def test_a_new_message_leaves_the_child_behind(world: World) -> None:
    ran: list[str] = []
    script = {"boss": [calls(ask()), "fine"], "finder": [calls(call("pay", text="rent"))]}
    executor = world.executor(script)
    boss = parent(asking(ran))
    handle, result, chunks = await play(executor, boss)
    assert result.status == "paused"
    _, result, more = await play(executor, boss, "never mind", session_id=handle.session_id)
    assert result.output == "fine" and ran == []
    assert len(results(await history(executor, handle.session_id))) == 1
    assert_stream([*chunks, *more])


async def test_a_new_message_ends_the_sub_agents_that_it_leaves(world: World) -> None:
    """One is at work, and one still waits. The message starts its run, and neither sub-agent can do anything any more."""
    ran: list[str] = []
    gate = Gate()
    pay = calls(call("pay", text="rent"))
    script = {"boss": [calls(ask("a"), ask("b")), "fine"], "finder": [pay, pay, gated(gate, "never")]}
    executor = world.executor(script)
    boss = parent(asking(ran))
    handle, result, chunks = await play(executor, boss)
    assert result.status == "paused"
    first, second = of_type(chunks, "tool_approval_request")
    await executor.answer(boss, handle.session_id, Confirmation(first.tool_call_id))
    await gate.reached()
    assert (await executor.sessions.get(handle.session_id)).status == "paused"
    _, result, more = await play(executor, boss, "never mind", session_id=handle.session_id)
    assert result.output == "fine" and ran == ["rent"]

    async def ended() -> bool:
        refs = await executor.sessions.list_sub_sessions(handle.session_id)
        return [(await executor.sessions.get(ref.session_id)).aborted for ref in refs] == [True, True]

    await eventually(ended)
    with pytest.raises(CallNotPendingError):
        await executor.answer(asking(ran), second.agent_id, Confirmation(second.tool_call_id))
    assert ran == ["rent"]
    assert_stream([*chunks, *more])


async def test_a_rewind_leaves_a_paused_sub_agent_and_its_step_begins_another(world: World) -> None:
    """Both belong to the same step, in two lineages, and the parent waits only for the second."""
    first, second = calls(ask()), calls(ask())
    script = {"boss": [first, second], "finder": [calls(call("pay", text=rent)) for rent in ("one", "two")]}
    executor = world.executor(script)
    boss = parent(asking([]))
    handle, _, _ = await play(executor, boss)
    begun = (await executor.sessions.list_checkpoints(handle.session_id)).items[-1]
    again = await executor.resume(boss, handle.session_id, mode="from_checkpoint", checkpoint_id=begun.id)
    assert (await result_of(again)).status == "paused"
    await check_session(executor.store, executor.streams, handle.session_id, at_rest=True)
