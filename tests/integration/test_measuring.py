"""The engine measures calls, tools and runs once, in the process that executes them, and the measures agree with the
rows."""

from __future__ import annotations

from typing import Any

from tests.support.delivery_stage import Stage
from tests.support_measures import Heard, says, used
from tests.support_run import Gate, Text, World, a_tool, agent, call, calls, eventually, gated, play, result_of

from helix import AgentClient, LLMConfig, create_sub_agent_tool
from helix.core.entries import AssistantRow
from helix.core.errors import ModelError
from helix.core.registry import AgentRegistry
from helix.sessions.session_rows import read_session_rows


async def test_the_measures_of_a_run_are_what_its_rows_say(quick_world: World) -> None:
    heard = Heard()
    who = agent("helper", tools=[a_tool("look", lambda _, __: "found"), a_tool("break", _breaks)])
    first = {**calls(call("look"), call("break")), "usage": used(200, 20, 900, cached_tokens=50).model_dump()}
    executor = quick_world.executor([first, says("Done.", used(300, 30, 1200))], metrics=heard)
    handle, result, _ = await play(executor, who, user_id="ada")
    assert result.status == "completed"

    rows = await read_session_rows(executor.store, handle.session_id)
    answers = [entry for entry in rows.entries.values() if isinstance(entry, AssistantRow)]
    assert heard.total("ModelCalls") == len(answers) == 2
    assert heard.total("InputTokens") == sum(a.usage.prompt_tokens for a in answers) == 500
    assert heard.total("OutputTokens") == sum(a.usage.completion_tokens for a in answers) == 50
    assert heard.total("TotalTokens") == 550 and heard.total("CachedTokens") == 50
    assert round(heard.total("CostUsd") * 1_000_000) == sum(a.usage.cost_micros for a in answers) == 2100
    assert heard.total("ModelErrors") == heard.total("ModelThrottles") == 0
    places = [(m.details["step"], m.details["attempt"], m.details["run_id"]) for m in heard.with_("ModelCalls")]
    assert places == [(a.step, a.attempt, a.run_id) for a in answers]
    assert all(m.agent == "helper" and m.details["model"] == "scripted" for m in heard.with_("ModelCalls"))
    for measured in heard.with_("ModelCalls"):
        assert 0 <= measured.values["TimeToFirstToken"] <= measured.values["ModelLatency"] < 10_000

    assert (heard.total("ToolCalls"), heard.total("ToolErrors")) == (2, 1)
    assert len(heard.with_("ToolLatency")) == 2
    (started,), (ended,) = heard.with_("RunsStarted"), heard.with_("RunsCompleted")
    run = rows.runs[handle.run_id]
    assert run.ended_at is not None
    assert ended.values["RunDuration"] == (run.ended_at - run.started_at) * 1000
    assert started.details["run_id"] == ended.details["run_id"] == handle.run_id
    assert ended.details["status"] == "completed"


async def _breaks(_: Any, __: Any) -> str:
    raise ValueError("no")


async def test_the_first_piece_of_a_tool_call_is_a_first_token(quick_world: World) -> None:
    heard = Heard()
    who = agent("helper", tools=[a_tool("look", lambda _, __: "found")])
    await play(quick_world.executor([calls(call("look")), "Done."], metrics=heard), who)
    assert len(heard.with_("TimeToFirstToken")) == 2


ONCE = LLMConfig(model="scripted", max_retries=0)


async def test_a_failed_call_has_no_first_token_and_a_throttled_one_no_latency(quick_world: World) -> None:
    heard = Heard()
    throttled = {"error": "slow down", "code": "rate_limited", "retryable": True}
    broken = {"error": "broken", "code": "server_error"}
    raising = ModelError("no", retryable=False)
    for entry in (throttled, broken, raising):
        _, result, _ = await play(quick_world.executor([entry], metrics=heard), agent("helper", llm_config=ONCE))
        assert result.status == "failed"
    first, second, third = heard.with_("ModelCalls")
    assert (first.values["ModelErrors"], first.values["ModelThrottles"]) == (1, 1)
    assert (second.values["ModelErrors"], second.values["ModelThrottles"]) == (1, 0)
    assert (third.values["ModelErrors"], third.values["ModelThrottles"]) == (1, 0)
    assert "ModelLatency" not in first.values and "ModelLatency" in second.values and "ModelLatency" in third.values
    assert not heard.with_("TimeToFirstToken")
    assert heard.total("RunsFailed") == 3 and heard.total("RunsCompleted") == 0
    assert heard.with_("RunsFailed")[0].details["error"] == "rate_limited"


async def test_a_call_that_a_stop_ends_is_a_call_without_error_or_latency(quick_world: World) -> None:
    heard, gate = Heard(), Gate()
    executor = quick_world.executor([gated(gate, "late")], metrics=heard)
    handle = await executor.execute(agent("helper"), "go")
    await gate.reached()
    assert await handle.interrupt("enough")
    assert (await result_of(handle)).status == "interrupted"
    (cancelled,) = heard.with_("ModelCalls")
    assert cancelled.details["outcome"] == "cancelled" and cancelled.values["ModelErrors"] == 0
    assert "ModelLatency" not in cancelled.values
    assert (heard.total("RunsStopped"), heard.total("RunsFailed")) == (1, 0)


async def test_an_abort_is_no_failure(quick_world: World) -> None:
    heard, gate = Heard(), Gate()
    executor = quick_world.executor([gated(gate, "late")], metrics=heard)
    handle = await executor.execute(agent("helper"), "go")
    await gate.reached()
    await handle.abort("enough")
    assert (await result_of(handle)).status == "failed"

    async def told() -> bool:
        return heard.total("RunsStopped") == 1

    await eventually(told)
    assert heard.total("RunsFailed") == 0


async def test_deliveries_that_find_their_work_done_tell_nothing() -> None:
    heard = Heard()
    who = agent("helper", tools=[a_tool("look", lambda _, __: "found")])
    stage = Stage([calls(call("look")), says("Done.", used())], who)
    stage.engine.metrics = heard
    event = await stage.begin(who)
    last = await stage.follow(event)
    for _ in range(2):
        await stage.deliver("call_model", event)
        await stage.deliver("finish_run", last)
    told = {name: heard.total(name) for name in ("RunsStarted", "ModelCalls", "ToolCalls", "RunsCompleted")}
    assert told == {"RunsStarted": 1, "ModelCalls": 2, "ToolCalls": 1, "RunsCompleted": 1}


async def test_a_sub_agents_calls_are_measured_as_its_own(quick_world: World) -> None:
    heard = Heard()
    script = {
        "parent": [calls(call("subagent__child", message="do")), says("All done.", used(10, 1, 5))],
        "child": [{"output": {"text": "done"}, "usage": used(70, 7, 35).model_dump()}],
    }
    who = agent("parent", tools=[create_sub_agent_tool(agent("child", output_schema=Text))])
    _, result, _ = await play(quick_world.executor(script, metrics=heard), who)
    assert result.status == "completed"
    by_agent = {m.agent: m.values["InputTokens"] for m in heard.with_("InputTokens") if m.values["InputTokens"]}
    assert by_agent == {"parent": 10, "child": 70}
    assert sorted(str(m.agent) for m in heard.with_("RunsCompleted")) == ["child", "parent"]
    assert heard.total("ToolCalls") == 0


async def test_a_function_agent_has_no_model_to_measure(quick_world: World) -> None:
    client = AgentClient(registry=AgentRegistry())

    @client.agent("adder")
    async def add(a: int, b: int) -> int:
        return a + b

    heard = Heard()
    _, result, _ = await play(quick_world.executor([], metrics=heard), add, {"a": 1, "b": 2})
    assert result.status == "completed"
    assert heard.total("ModelCalls") == 0 and heard.total("ToolCalls") == 1 and heard.total("RunsCompleted") == 1
