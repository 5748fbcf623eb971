"""Sub-agents: each has its own session, and is on its parent's stream."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from tests.support_run import (
    Gate,
    World,
    agent,
    assert_stream,
    call,
    calls,
    history,
    of_type,
    play,
    results,
    told,
    types,
)
from tests.support_sub_agents import ask, child, finish, only_child, parent

from helix import ModelError, create_sub_agent_tool
from helix.engine.engine import Settings
from helix.sessions.read import get_sub_agent_refs_by_type
from helix.stream.filters import collect_text


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
    """Both are at work before either ends, and their results are in call order."""
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
    """Such a tree cannot be defined. If one exists all the same, its run is stopped."""
    finder = child()
    boss = parent(finder)
    object.__setattr__(finder, "tools", (create_sub_agent_tool(child("boss")),))
    executor = world.executor({"boss": [calls(ask()), "done"], "finder": [calls(ask(name="boss")), finish("x")]})
    handle, result, _ = await play(executor, boss)
    ref = await only_child(executor, handle.session_id)
    assert result.output == "done"
    assert "already at work" in results(await history(executor, ref.session_id))[0]


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
