"""Hooks: all of them run, in order, and their errors do not affect the run."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support_run import (
    Gate,
    Text,
    World,
    a_tool,
    agent,
    call,
    calls,
    chunks_of,
    gated,
    history,
    of_type,
    play,
    result_of,
)

from helix import Confirmation, Hooks, ModelError, ToolContext, ToolError, create_sub_agent_tool
from helix.ports.state_store import Put
from helix.services import hook_manager as hooks_module

NAMES = [
    "on_agent_start",
    "on_agent_complete",
    "on_agent_fail",
    "before_llm_call",
    "after_llm_call",
    "before_tool",
    "after_tool",
    "before_sub_agent",
    "after_sub_agent",
    "on_state_change",
    "on_message",
]


class Log(BaseModel):
    lines: list[str] = []


class Found(BaseModel):
    fact: str


def write(given: Text, ctx: ToolContext[Log]) -> str:
    if given.text == "bad":
        raise ToolError("no")
    ctx.update_state(lambda s: s.lines.append(given.text))
    return "ok"


WRITE = a_tool("write", write, input_schema=Text)


class Recorder:
    """Hooks that record their calls: (name, payload, context)."""

    def __init__(self, only: set[str] | None = None) -> None:
        self.heard: list[tuple[str, Any, Any]] = []
        self.hooks = {name: self._hook(name) for name in NAMES if only is None or name in only}

    def _hook(self, name: str) -> Any:
        async def hook(payload: Any, context: Any) -> None:
            self.heard.append((name, dict(payload), context))

        return hook

    def names(self, agent_type: str | None = None) -> list[str]:
        return [name for name, _, context in self.heard if agent_type in (None, context.agent_type)]

    def of(self, name: str) -> list[tuple[Any, Any]]:
        return [(payload, context) for heard, payload, context in self.heard if heard == name]


async def test_every_hook_in_order(world: World) -> None:
    heard = Recorder()
    finder = agent("finder", output_schema=Found)
    boss = agent("boss", tools=[WRITE, create_sub_agent_tool(finder)], state_schema=Log)
    script = {
        "boss": [
            calls(call("write", text="a")),
            calls(call("subagent__finder", message="look")),
            {"content": "done", "usage": {"prompt_tokens": 3, "calls": 1}},
        ],
        "finder": [calls(call("__finish__", fact="x"))],
    }
    executor = world.executor(script, hooks=heard.hooks)
    handle, result, _ = await play(executor, boss, user_id="ada", tags=["t"], metadata={"m": 1})
    assert result.output == "done"
    assert heard.names("boss") == [
        "on_agent_start",
        "on_message",
        "on_state_change",
        "before_llm_call",
        "after_llm_call",
        "before_tool",
        "after_tool",
        "on_message",
        "on_message",
        "on_state_change",
        "before_llm_call",
        "after_llm_call",
        "before_sub_agent",
        "after_sub_agent",
        "on_message",
        "on_message",
        "before_llm_call",
        "after_llm_call",
        "on_message",
        "on_agent_complete",
    ]
    assert heard.names("finder") == [
        "on_agent_start",
        "on_message",
        "before_llm_call",
        "after_llm_call",
        "on_message",
        "on_message",
        "on_agent_complete",
    ]
    ids = [context.event_id for _, _, context in heard.heard]
    assert len(set(ids)) == len(ids)
    for _, _, context in heard.heard:
        assert context.stream_id == handle.session_id
        assert (context.user_id, context.tags, context.metadata) == ("ada", ["t"], {"m": 1})
        assert context.parent_session_id == (handle.session_id if context.agent_type == "finder" else None)
    messages = [payload["message"] for payload, context in heard.of("on_message") if context.agent_type == "boss"]
    assert messages == await history(executor, handle.session_id)


async def test_what_hooks_are_told(world: World) -> None:
    heard = Recorder()
    script = [
        calls(call("write", text="a"), call("write", text="bad")),
        {"content": "done", "usage": {"prompt_tokens": 3, "calls": 1}},
    ]
    executor = world.executor(script, hooks=heard.hooks)
    who = agent(tools=[WRITE], state_schema=Log)
    handle, _, _ = await play(executor, who, {"message": "go", "state": {"lines": ["0"]}})
    ((start, context),) = heard.of("on_agent_start")
    assert (start["agent"], start["trigger"], start["input"]["message"]) == ("helper", "execute", "go")
    assert start["initial_state"] == {"lines": ["0"]} == context.get_state()
    assert (context.session_id, context.run_id) == (handle.session_id, handle.run_id)
    before = [(p["step"], p["attempt"], p["model"], len(p["messages"])) for p, _ in heard.of("before_llm_call")]
    assert before == [(1, 1, "scripted", 2), (2, 1, "scripted", 5)]
    after = heard.of("after_llm_call")
    assert after[1][0]["usage"].prompt_tokens == 3 and after[1][0]["result"].content == "done"
    assert [c.get_state()["lines"] for _, c in heard.of("before_llm_call")] == [["0"], ["0", "a"]]
    told = {p["arguments"]["text"]: p for p, _ in heard.of("after_tool")}
    assert told["a"]["success"] and not told["bad"]["success"] and "no" in told["bad"]["result"]
    assert told["a"]["tool_name"] == "write" and told["a"]["tool"] is WRITE and told["a"]["duration_ms"] >= 0
    changes = heard.of("on_state_change")
    assert [p["patches"] for p, _ in changes][1] == [{"op": "add", "path": "/lines/-", "value": "a"}]
    assert changes[1][0]["state"] == {"lines": ["0", "a"]}
    ((end, _),) = heard.of("on_agent_complete")
    assert end["final_state"] == {"lines": ["0", "a"]} and end["step_count"] == 2 and end["duration_ms"] >= 0


async def test_failures_and_stops(world: World) -> None:
    heard = Recorder({"on_agent_start", "on_agent_complete", "on_agent_fail"})
    gate = Gate()
    executor = world.executor([ModelError("down"), gated(gate, "x"), calls(call("ask")), "done"], hooks=heard.hooks)
    who = agent(tools=[a_tool("ask", "client")])
    failed, _, _ = await play(executor, who)
    ((told, _),) = heard.of("on_agent_fail")
    assert told["error"].message == "down" and told["error"].code == "model_error"
    stopped = await failed.retry()
    await gate.reached()
    await stopped.interrupt(wait=True)
    paused = await stopped.resume()
    assert (await result_of(paused)).status == "paused"
    last = await executor.resume(who, failed.session_id, confirmation=Confirmation("call_0", data="yes"))
    await result_of(last)
    assert heard.names() == ["on_agent_start", "on_agent_fail", *["on_agent_start"] * 3, "on_agent_complete"]
    assert [p["trigger"] for p, _ in heard.of("on_agent_start")] == [
        "execute",
        "retry",
        "continue",
        "with_confirmation",
    ]


async def test_an_abort_is_a_failure(world: World) -> None:
    heard = Recorder({"on_agent_fail"})
    gate = Gate()
    executor = world.executor([gated(gate, "x")], hooks=heard.hooks)
    handle = await executor.execute(agent(), "go")
    await gate.reached()
    await handle.abort("no")
    await result_of(handle)
    assert [p["error"].code for p, _ in heard.of("on_agent_fail")] == ["aborted"]


async def test_executor_hooks_first_then_the_agents(quick_world: World) -> None:
    order: list[str] = []

    def say(word: str) -> Any:
        return lambda payload, context: order.append(word)

    async def later(payload: Any, context: Any) -> None:
        order.append("agent 2")

    who = agent(hooks=Hooks(on_agent_start=(say("agent 1"), later)))
    executor = quick_world.executor(["hi"], hooks={"on_agent_start": [say("executor 1"), say("executor 2")]})
    await play(executor, who)
    assert order == ["executor 1", "executor 2", "agent 1", "agent 2"]


async def test_hooks_that_break_do_not_touch_the_run(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks_module, "TIMEOUT_S", 0.5)
    after: list[str] = []

    def broken(payload: Any, context: Any) -> None:
        raise RuntimeError("a bad hook")

    async def stuck(payload: Any, context: Any) -> None:
        await asyncio.Event().wait()

    async def confused(payload: Any, context: Any) -> None:
        raise asyncio.CancelledError

    async def good(payload: Any, context: Any) -> None:
        after.append(context.event_id)

    hooks = {name: [broken, *([stuck] if name == "before_tool" else []), confused, good] for name in NAMES}
    executor = world.executor([calls(call("write", text="a")), "done"], hooks=hooks)
    with caplog.at_level(logging.WARNING, "helix.hooks"):
        _, result, _ = await play(executor, agent(tools=[WRITE], state_schema=Log))
    assert result.output == "done"
    assert len(after) == 14 and len(set(after)) == 14
    assert "RuntimeError at test_hooks.py:" in caplog.text and "a bad hook" not in caplog.text


async def test_hooks_emit(world: World) -> None:
    def sync(payload: Any, context: Any) -> None:
        context.emit_custom("sync", {"at": context.step_count})

    async def awaited(payload: Any, context: Any) -> None:
        context.emit_custom("awaited")
        context.emit_custom("awaited", float("nan"))  # refused, without effect on the run

    names = ["on_agent_start", "before_llm_call", "before_tool", "on_message"]
    executor = world.executor(
        [calls(call("write", text="a")), "done", "again"], hooks={name: [sync, awaited] for name in names}
    )
    who = agent(tools=[WRITE], state_schema=Log)
    handle, _, chunks = await play(executor, who)
    counts = {name: sum(c.event_name == name for c in of_type(chunks, "custom")) for name in ("sync", "awaited")}
    assert counts == {"sync": 8, "awaited": 8}  # start, 2 calls, 1 tool, 4 messages
    second = await executor.execute(who, "more", session_id=handle.session_id)
    more = of_type(await chunks_of(second), "custom")
    assert len(more) == 2 * 4  # start, 1 call, 2 messages


async def test_a_hook_cannot_change_the_state(quick_world: World) -> None:
    def meddle(payload: Any, context: Any) -> None:
        context.get_state()["lines"].append("meddled")

    executor = quick_world.executor(
        [calls(call("write", text="a")), "done"], hooks={"before_tool": meddle, "before_llm_call": meddle}
    )
    handle, _, _ = await play(executor, agent(tools=[WRITE], state_schema=Log))
    assert (await handle.get_state()).custom_state == {"lines": ["a"]}


async def test_messages_of_a_closed_step_are_told(world: World) -> None:
    heard = Recorder({"on_message", "on_state_change"})
    script = [calls(call("ask"), call("write", text="a"), call("ask")), "fine"]
    executor = world.executor(script, hooks=heard.hooks)
    who = agent(tools=[WRITE, a_tool("ask", "client")], state_schema=Log)
    handle, result, _ = await play(executor, who)
    assert result.status == "paused"
    await play(executor, who, "never mind", session_id=handle.session_id)
    messages = [payload["message"] for payload, _ in heard.of("on_message")]
    assert messages == await history(executor, handle.session_id)
    assert [p["state"] for p, _ in heard.of("on_state_change")][-1] == {"lines": ["a"]}


async def test_run_level_hooks_are_called_once(file_world: World) -> None:
    """This holds however often the effects of a run are completed, and by whichever worker."""
    heard = Recorder({"on_agent_start", "on_agent_complete"})
    first = file_world.executor(["one", "two"], hooks=heard.hooks)
    who = agent()
    handle, _, _ = await play(first, who)
    second = file_world.executor(["three"], hooks=heard.hooks)
    row = await second.store.get([_run_key(handle.session_id, handle.run_id)])
    assert row[0] is not None and row[0]["effects"] == "done"
    open_again = {name: value for name, value in row[0].items() if name != "effects"}
    reopened = Put(_run_key(handle.session_id, handle.run_id), open_again)
    await second.store.transact("test", [reopened])  # as if the worker had died before its last write
    await play(second, who, "more", session_id=handle.session_id)
    assert heard.names() == ["on_agent_start", "on_agent_complete"] * 2


def _run_key(session_id: str, run_id: str) -> Any:
    from helix.core.row_keys import run_sort
    from helix.engine.history import row_key

    return row_key(session_id, run_sort(run_id))


async def test_a_hook_may_send_the_next_message(world: World) -> None:
    ended: list[str] = []

    async def go_on(payload: Any, context: Any) -> None:
        ended.append(context.run_id)
        if len(ended) == 1:
            handle = await executor.execute(who, "and now?", session_id=context.session_id)
            assert (await result_of(handle)).output == "two"

    executor = world.executor(["one", "two"], hooks={"on_agent_complete": go_on})
    who = agent()
    handle, _, _ = await play(executor, who)
    assert len(ended) == len(set(ended)) == 2
    assert len(await history(executor, handle.session_id)) == 4


async def test_wrong_hooks_are_refused_when_defined() -> None:
    from helix import DefinitionError

    for wrong in ({"on_start": print}, {"on_message": "print"}):
        with pytest.raises(DefinitionError, match="hooks"):
            agent(hooks=wrong)
