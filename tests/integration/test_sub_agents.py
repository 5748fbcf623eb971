"""Sub-agents: sessions of their own, on their parent's stream."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_run import (
    Gate,
    Nothing,
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
    told,
    types,
)

from helix import Agent, Confirmation, ModelError, ToolContext, create_sub_agent_tool
from helix.core.errors import CannotResumeError
from helix.engine.engine import Settings
from helix.engine.sessions import get_sub_agent_refs_by_type
from helix.stream.filters import collect_text


class Found(BaseModel):
    fact: str


class Notes(BaseModel):
    lines: list[str] = []


def write(given: Text, ctx: ToolContext[Notes]) -> str:
    ctx.update_state(lambda s: s.lines.append(given.text))
    return "ok"


WRITE = a_tool("write", write, input_schema=Text)


def child(name: str = "finder", **fields: Any) -> Agent[Any, Any]:
    fields.setdefault("tools", [WRITE])
    return agent(name, output_schema=Found, state_schema=Notes, **fields)


def parent(*children: Agent[Any, Any], **fields: Any) -> Agent[Any, Any]:
    tools = [*(create_sub_agent_tool(c, **fields.pop("options", {})) for c in children), WRITE]
    return agent("boss", tools=tools, state_schema=Notes, **fields)


def ask(message: str = "find it", name: str = "finder") -> dict[str, Any]:
    return call(f"subagent__{name}", message=message)


def finish(fact: str) -> dict[str, Any]:
    return calls(call("__finish__", fact=fact))


async def only_child(executor: Any, session_id: str) -> Any:
    (ref,) = await executor.sessions.list_sub_sessions(session_id)
    return ref


async def test_a_child_has_its_own_session(world: World) -> None:
    script = {
        "boss": [calls(ask(), call("write", text="boss"), content="Asking."), "The boss is done."],
        "finder": [calls(call("write", text="finder"), content="Looking."), finish("blue")],
    }
    executor = world.executor(script)
    handle, result, _ = await play(executor, parent(child()), metadata={"a": 1}, user_id="u1", tags=["t"])
    assert result.output == "The boss is done."
    assert (await handle.get_state()).custom_state == {"lines": ["boss"]}
    ref = await only_child(executor, handle.session_id)
    assert (ref.agent_type, ref.parent_tool_call_id, ref.status) == ("finder", "call_0", "completed")
    state = await executor.sessions.get(ref.session_id)
    assert state.custom_state == {"lines": ["finder"]} and state.parent_session_id == handle.session_id
    assert state.stream_id == handle.session_id and (state.user_id, state.tags, state.metadata) == (
        "u1",
        ["t"],
        {"a": 1},
    )
    assert told(await history(executor, ref.session_id))[0] == "user: find it"
    assert told(await history(executor, handle.session_id)) == [
        "user: go",
        "assistant: Asking.[subagent__finder, write]",
        'tool: {"fact":"blue"}',
        "tool: ok",
        "assistant: The boss is done.",
    ]
    assert get_sub_agent_refs_by_type([ref], "finder") == [ref] and not get_sub_agent_refs_by_type([ref], "boss")
    sessions = await executor.sessions.list_sessions(user_id="u1")
    assert [s.session_id for s in sessions.sessions] == [handle.session_id]  # roots only


async def test_the_parents_stream_has_it_all(world: World) -> None:
    script = {
        "boss": [calls(ask(), content="Asking."), "Done."],
        "finder": [calls(call("write", text="x"), content="Looking."), finish("blue")],
    }
    executor = world.executor(script)
    handle, _, chunks = await play(executor, parent(child()))
    ref = await only_child(executor, handle.session_id)
    assert_stream(chunks)
    assert {(c.agent_id, c.agent_type) for c in chunks} == {(handle.session_id, "boss"), (ref.session_id, "finder")}
    mine = [c for c in chunks if c.agent_id == handle.session_id]
    assert types(mine)[2:7] == ["step_committed", "tool_start", "subagent_start", "subagent_end", "tool_end"]
    (start,), (end,) = of_type(chunks, "subagent_start"), of_type(chunks, "subagent_end")
    assert (start.sub_agent_id, start.sub_agent_type, start.parent_tool_call_id) == (ref.session_id, "finder", "call_0")
    assert (end.status, end.result, end.error) == ("completed", {"fact": "blue"}, None)
    order = [c.sequence for c in chunks if c.agent_id == ref.session_id]
    assert start.sequence < min(order) and max(order) < end.sequence
    assert of_type(chunks, "output")[0].agent_id == ref.session_id

    async def replay(who: str | None) -> str:
        async def source() -> Any:
            for chunk in chunks:
                yield chunk

        return await collect_text(source(), agent_id=who)

    assert await replay(handle.session_id) == "Asking.Done."
    assert await replay(None) == "Asking.Looking.Done."


async def test_input_is_validated_and_told(world: World) -> None:
    class Query(BaseModel):
        topic: str
        depth: int = 1

    tool = create_sub_agent_tool(child(), Query)
    boss = agent("boss", tools=[tool])
    script = {
        "boss": [
            calls(call("subagent__finder", topic="sky", depth="deep")),
            calls(call("subagent__finder", topic="sky")),
            "ok",
        ],
        "finder": [finish("blue")],
    }
    executor = world.executor(script)
    handle, _, chunks = await play(executor, boss)
    first, second = results(await history(executor, handle.session_id))
    assert "depth" in first and second == '{"fact":"blue"}'
    ref = await only_child(executor, handle.session_id)
    assert told(await history(executor, ref.session_id))[0] == 'user: {"topic":"sky","depth":1}'
    assert [e.code for e in of_type(chunks, "error")] == ["invalid_tool_call"]


async def test_several_children_at_once(world: World) -> None:
    """Both are at work before either ends; results are in call order."""
    gates = {"a": Gate(), "b": Gate()}

    async def answer(request: Any) -> Any:
        name = request.messages[1].content
        gates[name].open()
        other = gates["b" if name == "a" else "a"]
        await other.opened.wait()
        return finish(f"fact {name}")

    executor = world.executor({"boss": [calls(ask("a"), ask("b")), "done"], "finder": [answer, answer]})
    handle, result, chunks = await play(executor, parent(child()))
    assert result.output == "done"
    assert results(await history(executor, handle.session_id)) == ['{"fact":"fact a"}', '{"fact":"fact b"}']
    assert len({c.sub_agent_id for c in of_type(chunks, "subagent_end")}) == 2
    assert_stream(chunks)


async def test_a_failed_child_is_a_failed_result(world: World) -> None:
    executor = world.executor({"boss": [calls(ask()), "noted"], "finder": [ModelError("no connection")]})
    handle, result, chunks = await play(executor, parent(child()))
    assert result.output == "noted"
    assert results(await history(executor, handle.session_id)) == ['{"error":"no connection"}']
    (end,) = of_type(chunks, "subagent_end")
    assert (end.status, end.result, end.error) == ("failed", None, "no connection")
    errors = [e for e in of_type(chunks, "error") if not e.recoverable]
    assert [e.agent_type for e in errors] == ["finder"]


async def test_usage_of_children_counts(world: World) -> None:
    used = {"usage": {"prompt_tokens": 10, "completion_tokens": 1, "cost_micros": 5, "calls": 1}}
    script = {
        "boss": [calls(ask()) | used, {"content": "done"} | used],
        "finder": [{"content": "hm"} | used, finish("x") | used],
    }
    executor = world.executor(script)
    handle, result, _ = await play(executor, parent(child()))
    assert (result.usage.calls, result.usage.prompt_tokens, result.usage.cost_micros) == (4, 40, 20)
    assert (await handle.get_state()).usage == result.usage


async def test_depth_is_limited(world: World) -> None:
    executor = world.executor(
        {"boss": [calls(ask(name="mid")), "done"], "mid": [calls(ask()), calls(call("__finish__", fact="alone"))]},
        settings=Settings(stop_poll_s=0.01, max_depth=1),
    )
    mid = child("mid", tools=[create_sub_agent_tool(child())])
    handle, result, chunks = await play(executor, parent(mid))
    assert result.output == "done"
    ref = await only_child(executor, handle.session_id)
    assert "limit is 1" in results(await history(executor, ref.session_id))[0]
    assert len(of_type(chunks, "subagent_start")) == 1
    assert_stream(chunks)


async def test_an_agent_is_not_its_own_ancestor(world: World) -> None:
    """Such a tree cannot be defined; one that came about all the same is stopped."""
    finder = child()
    boss = parent(finder)
    object.__setattr__(finder, "tools", (create_sub_agent_tool(child("boss")),))
    executor = world.executor({"boss": [calls(ask()), "done"], "finder": [calls(ask(name="boss")), finish("x")]})
    handle, result, _ = await play(executor, boss)
    ref = await only_child(executor, handle.session_id)
    assert result.output == "done"
    assert "already at work" in results(await history(executor, ref.session_id))[0]


# --- stops --------------------------------------------------------------------------------------------------------


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
    """The child's worker loses its session by the heartbeat; the parent's run goes on all the same."""
    gate = Gate()

    async def deaf(given: Nothing, ctx: ToolContext[Any]) -> str:
        await gate.wait()
        return "late"

    finder = child(tools=[a_tool("deaf", deaf)])
    settings = Settings(stop_poll_s=0.01, lease_s=0.3)
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


# --- approvals ----------------------------------------------------------------------------------------------------


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
    assert types(child_ends)[-1] == "output"  # the child is seen live on the parent's new run


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


async def test_delete_takes_the_tree(world: World) -> None:
    script = {
        "boss": [calls(ask(name="mid")), "done"],
        "mid": [calls(ask()), calls(call("__finish__", fact="x"))],
        "finder": [finish("y")],
    }
    executor = world.executor(script)
    mid = child("mid", tools=[create_sub_agent_tool(child())])
    handle, _, _ = await play(executor, parent(mid))
    ids = [handle.session_id]
    for _ in range(2):
        ids.append((await only_child(executor, ids[-1])).session_id)
    assert await executor.delete(handle.session_id) is True
    assert [await executor.sessions.exists(i) for i in ids] == [False] * 3
    assert await executor.delete(handle.session_id) is False
