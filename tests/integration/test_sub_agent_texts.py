"""A sub-agent without an output schema returns its text. Its parent gets that text unchanged, also after a crash."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.delivery_stage import Stage, event_of
from tests.support_run import PATIENCE_S, World, a_tool, agent, call, calls, history, of_type, play, results
from tests.support_sub_agents import WRITE, ask, child, only_child, parent

from helix import Agent, AgentClient, AgentRegistry, LocalExecutor, MemoryStateStore, ScriptedModel
from helix.adapters.models.scripted import Entry
from helix.core.errors import SessionNotFoundError
from helix.engine.engine import Settings
from helix.engine.session_cache import SessionCache
from helix.ports.state_store import StateStore
from helix.ports.streams import StreamManager
from helix.testing.clocks import ShiftedClock
from helix.testing.crash import CrashPoints, Point, crash_everywhere, writes
from helix.testing.invariants import check_session

FINDER = agent("finder", tools=[WRITE])


@pytest.mark.parametrize("text", ["It is blue.", "5", '{"fact": "blue"}', "null"])
async def test_the_text_of_the_last_answer_is_the_result(world: World, text: str) -> None:
    finder = [calls(call("write", text="x"), content="Looking."), text]
    executor = world.executor({"boss": [calls(ask()), "Done."], "finder": finder})
    handle, result, chunks = await play(executor, parent(FINDER))
    assert result.text == "Done."
    assert results(await history(executor, handle.session_id)) == [text]
    (ended,) = of_type(chunks, "subagent_end")
    told = [c for c in of_type(chunks, "tool_end") if c.tool_name == "subagent__finder"]
    assert (ended.result, [c.result for c in told]) == (text, [text])
    ref = await only_child(executor, handle.session_id)
    for session_id in (handle.session_id, ref.session_id):
        await check_session(executor.store, executor.streams, session_id, at_rest=True)


async def test_an_answer_without_text_is_an_empty_result(world: World) -> None:
    finder = agent("finder", tools=[WRITE], stop_when=lambda step: bool(step.tool_calls))
    script = {"boss": [calls(ask()), "Done."], "finder": [calls(call("write", text="x"))]}
    executor = world.executor(script)
    handle, _, _ = await play(executor, parent(finder))
    assert results(await history(executor, handle.session_id)) == [""]


async def test_the_result_of_a_finishing_tool_is_the_result(world: World) -> None:
    give = a_tool("give", lambda given, ctx: {"fact": "blue"}, finish_with=True)
    script = {"boss": [calls(ask()), "Done."], "finder": [calls(call("give"), content="Here.")]}
    executor = world.executor(script)
    handle, _, chunks = await play(executor, parent(agent("finder", tools=[give])))
    assert results(await history(executor, handle.session_id)) == ['{"fact":"blue"}']
    assert [c.result for c in of_type(chunks, "subagent_end")] == [{"fact": "blue"}]


async def test_with_a_schema_a_run_without_output_returns_null_as_before(world: World) -> None:
    finder = child(stop_when=lambda step: True)
    script = {"boss": [calls(ask()), "Done."], "finder": [calls(call("write", text="x"), content="Looking.")]}
    executor = world.executor(script)
    handle, _, _ = await play(executor, parent(finder))
    assert results(await history(executor, handle.session_id)) == ["null"]


async def test_a_function_agent_can_be_a_sub_agent_without_a_schema(world: World) -> None:
    class Order(BaseModel):
        article: str

    @AgentClient(registry=AgentRegistry()).agent(name="finder")
    async def finder(article: str) -> str:
        """Find an article."""
        return f"{article}: 3 left"

    script = {"boss": [calls(call("subagent__finder", article="nut")), "Done."]}
    executor = world.executor(script)
    boss = parent(finder, options={"input_schema": Order})
    handle, _, _ = await play(executor, boss)
    assert results(await history(executor, handle.session_id)) == ["nut: 3 left"]


async def test_the_text_arrives_after_a_crash_at_any_write() -> None:
    boss: Agent[Any, Any] = parent(FINDER)
    script: dict[str, list[Entry]] = {
        "boss": [calls(ask()), "Done."],
        "finder": [calls(call("write", text="x"), content="Looking."), "It is blue."],
    }

    def executor(store: StateStore, streams: StreamManager, later: float = 0) -> LocalExecutor:
        model, clock = ScriptedModel(script, by="position"), ShiftedClock(later)
        settings = Settings(stop_poll_s=0.01)
        registry = AgentRegistry()
        return LocalExecutor(store, streams=streams, model=model, registry=registry, clock=clock, settings=settings)

    async def act(store: StateStore, streams: StreamManager, points: CrashPoints) -> None:
        handle = await executor(store, streams).execute(boss, "Go.", session_id="s")

        async def end() -> None:
            await handle.result(PATIENCE_S)

        await points.unless_crashed(end())

    async def recover(store: StateStore, streams: StreamManager, point: Point) -> None:
        later = executor(store, streams, 60)
        later.agents.know(boss)
        try:
            session = await later.sessions.get("s")
        except SessionNotFoundError:
            return
        handle = await (later.get_handle if session.status == "completed" else later.resume)(boss, "s")
        assert (await handle.result(PATIENCE_S)).text == "Done."
        assert results(await history(later, "s")) == ["It is blue."]
        await check_session(store, streams, "s", at_rest=True)

    covered = await crash_everywhere(MemoryStateStore, act, recover, choose=writes)
    assert {"transact:report_to_parent:before", "transact:report_to_parent:after"} <= {name for name, _ in covered}


async def test_on_a_stage_another_function_reports_the_text() -> None:
    boss = parent(FINDER)
    stage = Stage({"boss": [calls(ask()), "Done."], "finder": ["It is blue."]}, boss)
    told = await stage.deliver("call_model", await stage.begin(boss))
    assert await stage.deliver("start_run", {**told, "token": "token"}) == {"call": "waits"}
    below = event_of(stage.held.starts[-1])
    assert (await stage.follow(below))["next"] == "finish"
    stage.engine.history.cache = SessionCache()  # the function that ends a run has read nothing of it
    await stage.deliver("finish_run", below)
    assert (await stage.follow(told))["next"] == "finish"
    assert await stage.results(told) == [("It is blue.", True)]
