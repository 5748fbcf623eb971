"""The same trace for a run that is executed by deliveries, which pass on only ids."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.delivery_stage import Stage, event_of
from tests.support_run import Gate, Text, a_tool, agent, call, calls
from tests.support_traces import Traces

from helix import create_sub_agent_tool
from helix.core.errors import WorkInProgressError


def stage(script: Any, *agents: Any) -> tuple[Stage, Traces]:
    made, traces = Stage(script, *agents), Traces()
    made.engine.tracer = traces.tracer
    return made, traces


def echo(**fields: Any) -> Any:
    return a_tool("echo", lambda given, context: given.text, input_schema=Text, **fields)


async def to_end(made: Stage, event: dict[str, Any]) -> None:
    told = await made.follow(event)
    assert told["next"] == "finish", told
    await made.deliver("finish_run", told)


async def test_deliveries_make_one_tree() -> None:
    who = agent(tools=[echo()])
    made, traces = stage([calls(call("echo", text="a")), "done"], who)
    await to_end(made, await made.begin(who))
    assert traces.trees() == [
        [
            "run helper",
            "  invoke_agent helper",
            "    chat scripted",
            "    execute_tool echo",
            "    chat scripted",
        ]
    ]


async def test_a_delivery_that_dies_leaves_an_attempt_and_the_next_is_marked() -> None:
    async def stuck(request: Any) -> Any:
        await asyncio.Event().wait()

    who = agent()
    made, traces = stage([stuck, "done"], who)
    event = await made.begin(who)
    with pytest.raises(WorkInProgressError):
        await made.deliver("call_model", event, left_s=15.05)
    made.clock.ahead_s += 60
    await to_end(made, event)
    first, second = traces.all("chat scripted")
    assert first.context.span_id != second.context.span_id
    assert (first.attributes["helix.attempt"], first.attributes["error.type"]) == (1, "deadline_exceeded")
    assert (second.attributes["helix.attempt"], second.attributes["helix.retry"]) == (2, True)
    assert "helix.retry" not in first.attributes


async def test_a_repeated_tool_has_a_span_for_each_claim() -> None:
    gate = Gate()

    async def work(arguments: Any, context: Any) -> str:
        await gate.wait()
        return "worked"

    who = agent(tools=[a_tool("work", work, on_unknown="retry")])
    made, traces = stage([calls(call("work")), "done"], who)
    told = await made.deliver("call_model", await made.begin(who))
    dying = asyncio.create_task(made.deliver("call_tool", told))
    await gate.reached()
    dying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dying
    made.clock.ahead_s += 2000
    gate.open()
    await made.deliver("call_tool", told)
    first, second = traces.all("execute_tool work")
    assert (first.attributes["helix.attempt"], first.attributes["error.type"]) == (1, "cancelled")
    assert (second.attributes["helix.attempt"], second.attributes["helix.retry"]) == (2, True)
    assert "error.type" not in second.attributes


async def test_a_child_is_in_its_roots_trace_below_the_call() -> None:
    inner = agent("inner", output_schema=Text)
    outer = agent("outer", tools=[create_sub_agent_tool(inner)])
    script = {
        "outer": [calls(call("subagent__inner", message="do it")), "done"],
        "inner": [calls(call("__finish__", text="found"))],
    }
    made, traces = stage(script, inner, outer)
    told = await made.deliver("call_model", await made.begin(outer))
    await made.deliver("start_run", {**told, "token": "token"})
    child = made.held.starts[-1]
    await to_end(made, {"session_id": child.session_id, "run_id": child.run_id, "step": 1})
    await to_end(made, told)
    assert traces.trees() == [
        [
            "run outer",
            "  invoke_agent outer",
            "    chat scripted",
            "    execute_tool inner",
            "      run inner",
            "        invoke_agent inner",
            "          chat scripted",
            "    chat scripted",
        ]
    ]


async def test_who_finishes_again_tells_the_same_spans() -> None:
    who = agent()
    made, traces = stage(["done"], who)
    told = await made.follow(await made.begin(who))
    run = await made.run(told)

    transact = made.store.transact

    async def dies_last(name: str, operations: Any) -> None:
        if name == "effects_done":
            raise asyncio.CancelledError
        await transact(name, operations)

    made.store.transact = dies_last  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await made.deliver("finish_run", told)
    made.store.transact = transact  # type: ignore[method-assign]
    await made.deliver("finish_run", told)
    once, twice = traces.all("run helper")
    assert once.context.span_id == twice.context.span_id and once.context.trace_id == twice.context.trace_id
    assert (once.start_time, once.end_time, dict(once.attributes)) == (
        twice.start_time,
        twice.end_time,
        dict(twice.attributes),
    )
    assert once.start_time == round(run.started_at * 1_000_000) * 1_000


async def test_a_run_that_waited_for_a_slot_shows_it() -> None:
    who = agent(resources={"max": 1})
    made, traces = stage(["one", "two"], who)
    first = await made.begin(who)
    await made.executor.execute(who, "go")
    assert len(made.held.starts) == 1, "there is one slot"
    await to_end(made, first)
    await to_end(made, event_of(made.held.starts[-1]))
    assert traces.trees() == [
        ["run helper", "  invoke_agent helper", "    chat scripted"],
        ["run helper", "  invoke_agent helper", "    chat scripted", "  queue wait"],
    ]
    wait, run = traces.named("queue wait"), traces.all("run helper")[1]
    assert (wait.start_time, wait.attributes["helix.run.id"]) == (run.start_time, run.attributes["helix.run.id"])
    assert wait.end_time <= traces.all("chat scripted")[1].start_time
