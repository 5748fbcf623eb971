"""Deliveries off the usual path: parts, late events, children that outlive their parents, inline tools, sweeps.

The verbs are the deployed ones; the test plays the platform: it holds what would be started, and delivers when it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.delivery_stage import Json, Stage, event_of
from tests.support_run import Gate, a_tool, agent, call, calls

from helix import Confirmation, create_sub_agent_tool
from helix.core.agents import AnyAgent
from helix.core.errors import WorkInProgressError
from helix.core.messages import AssistantMessage
from helix.engine.open_runs import PARTITIONS
from helix.engine.sweeping import _open_rows
from helix.ports.launcher import execution_name


class Answer(BaseModel):
    text: str


LOOK = a_tool("look", lambda given, ctx: "seen")
FINDER = agent("finder", output_schema=Answer, tools=[LOOK])


def boss(**fields: Any) -> AnyAgent:
    return agent("boss", tools=[create_sub_agent_tool(FINDER, timeout_s=60), LOOK], **fields)


ASK = calls(call("subagent__finder", message="find"))
FOUND = {"output": {"text": "found"}}


async def with_child(script: Any, *, token: str = "token") -> tuple[Stage, Json, Json]:
    """A run that waits for its child: the stage, the event that its execution goes on with, and the child's first one."""
    stage = Stage(script, boss())
    told = await stage.deliver("call_model", await stage.begin(stage.agents.named("boss")))
    assert told["next"] == "start_run"
    assert await stage.deliver("start_run", {**told, "token": token}) == {"told": "waits"}
    return stage, told, event_of(stage.held.starts[-1])


# --- parts ------------------------------------------------------------------------------------------------------------


async def test_a_run_goes_on_in_parts_and_no_part_hurts_another() -> None:
    helper = agent("helper", tools=[LOOK])
    stage = Stage([*[calls(call("look"))] * 5, "Done."], helper, roll_over_events=30)
    first = await stage.begin(helper)
    late = []
    event = first
    while (told := await stage.follow(event))["next"] == "rolled":
        late.append(told)
        event = event_of(stage.held.starts[-1])
    assert told["next"] == "finish" and [part.part for part in stage.held.starts] == [1, 2, 3]
    assert [part.step for part in stage.held.starts] == [1, 3, 5]
    requests, starts = len(stage.model.requests), list(stage.held.starts)
    assert requests == 6, "nothing was bought twice"
    for old in late:
        assert (await stage.deliver("call_model", old))["next"] == "rolled"
        await stage.deliver("fail_run", {**old, "error": {"Error": "Late"}})
    assert stage.held.starts == starts and len(stage.model.requests) == requests
    assert (await stage.session(first)).status == "completed"
    assert await stage.results(first) == [("seen", True)] * 5


async def test_while_a_part_is_at_work_the_older_ones_end_starts_it_again() -> None:
    helper = agent("helper", tools=[LOOK])
    stage = Stage([calls(call("look")), "Done."], helper, roll_over_events=50)
    event = {**await stage.begin(helper), "events": 50}
    both = await asyncio.gather(stage.deliver("call_model", event), stage.deliver("call_model", event))
    assert [told["next"] for told in both] == ["rolled", "rolled"] and (await stage.run(event)).part == 2
    await stage.deliver("fail_run", event)
    assert (await stage.session(event)).status == "running"
    assert {execution_name(part) for part in stage.held.starts[1:]} == {f"{event['run_id']}__part-2"}
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] == "finish"


async def test_the_parts_own_end_fails_the_run_and_a_retry_goes_on() -> None:
    helper = agent("helper", tools=[LOOK])
    stage = Stage([calls(call("look")), "Done."], helper, roll_over_events=50)
    event = await stage.begin(helper)
    told = await stage.deliver("call_model", event)
    await stage.deliver("call_tool", told)
    await stage.deliver("call_model", {**told, "events": 50})
    second = event_of(stage.held.starts[-1])
    for _ in range(2):
        await stage.deliver("fail_run", {**second, "error": {"Error": "States.Timeout"}})
    session = await stage.session(event)
    assert session.error is not None and (session.status, session.error.code) == ("failed", "runtime_crash")
    assert "States.Timeout" in session.error.message
    await stage.executor.retry(helper, event["session_id"])
    again = event_of(stage.held.starts[-1])
    assert (again["part"], again["step"]) == (1, 1) and again["run_id"] != event["run_id"], "it adopts the open step"
    assert (await stage.follow(again))["next"] == "finish" and len(stage.model.requests) == 2


async def test_a_failure_of_an_unknown_run_changes_nothing() -> None:
    helper = agent("helper")
    stage = Stage(["Done."], helper)
    event = await stage.begin(helper)
    unknown = {**event, "run_id": "run_000009_UNKNOWN"}
    for verb in ("fail_run", "finish_run", "call_model"):
        await stage.deliver(verb, unknown)
    assert (await stage.session(event)).status == "running" and len(stage.held.starts) == 1


async def test_an_agent_that_was_deployed_anew_is_noted_once() -> None:
    helper = agent("helper", tools=[LOOK])
    stage = Stage([calls(call("look")), calls(call("look")), "Done."], helper)
    told = await stage.deliver("call_model", await stage.begin(helper))
    await stage.deliver("call_tool", told)
    stage.agents.registry.replace(agent("helper", tools=[LOOK], system_prompt="You help better."))
    stage.agents._known.clear()
    assert (await stage.follow(told))["next"] == "finish"
    run = await stage.run(told)
    assert [step for step, _ in run.editions] == [2] and run.editions[0][1] != run.fingerprint


# --- children ---------------------------------------------------------------------------------------------------------


async def test_a_child_that_ends_after_its_parent_leaves_its_result_to_the_retry() -> None:
    stage, told, child = await with_child([ASK, FOUND, "Done."])
    await stage.deliver("fail_run", {**told, "error": {"Error": "States.Timeout"}})
    assert (await stage.session(told)).status == "failed"
    assert (await stage.follow(child))["next"] == "finish"
    for _ in range(2):
        await stage.deliver("finish_run", child)
    assert stage.held.woken == ["token"] and (await stage.session(told)).status == "failed"
    await stage.executor.retry(stage.agents.named("boss"), told["session_id"])
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] == "finish"
    assert await stage.results(told) == [('{"text":"found"}', True)]
    assert len({part.session_id for part in stage.held.starts}) == 2, "there was never a second child"


async def test_a_child_beyond_its_time_is_ended_by_whoever_comes_first() -> None:
    for comes in ("call_model", "sweep"):
        stage, told, child = await with_child([ASK, "Done."])
        stage.clock.ahead_s = 61
        if comes == "sweep":
            assert await stage.deliver("sweep") == {"running": 1, "late": 1}
        else:
            assert (await stage.deliver("call_model", child))["next"] == "finish"
            await stage.deliver("finish_run", child)
        ended = await stage.session(child)
        assert (ended.status, ended.aborted) == ("failed", True), comes
        assert stage.held.woken == ["token"]
        assert (await stage.follow(told))["next"] == "finish"
        ((content, success),) = await stage.results(told)
        assert "took longer than 60 s" in content and not success


async def test_a_child_of_a_deleted_session_keeps_nobody_waiting() -> None:
    stage, told, child = await with_child([ASK])
    await stage.deliver("fail_run", told)
    await stage.executor.delete(told["session_id"])
    assert (await stage.deliver("call_model", child))["next"] in ("finish", "rolled")
    await stage.deliver("finish_run", child)
    stage.held.woken.clear()
    assert await stage.deliver("start_run", {**told, "token": "late"}) == {"told": "over"}
    assert stage.held.woken == ["late"]


async def test_a_child_that_must_not_be_is_a_failed_result() -> None:
    stage = Stage([ASK, "Done."], boss(), max_depth=0)
    told = await stage.deliver("call_model", await stage.begin(stage.agents.named("boss")))
    for token in ("first", "again"):
        assert await stage.deliver("start_run", {**told, "token": token}) == {"told": "done"}
    assert stage.held.woken == ["first", "again"] and len(stage.held.starts) == 1
    assert (await stage.follow(told))["next"] == "finish"
    ((content, success),) = await stage.results(told)
    assert "1 deep already; the limit is 0" in content and not success


async def test_no_child_starts_once_its_parent_is_to_stop() -> None:
    stage = Stage([ASK], boss())
    told = await stage.deliver("call_model", await stage.begin(stage.agents.named("boss")))
    assert await stage.executor.interrupt(told["session_id"])
    assert await stage.deliver("start_run", {**told, "token": "token"}) == {"told": "skipped"}
    assert stage.held.woken == ["token"] and len(stage.held.starts) == 1
    assert (await stage.deliver("call_model", told))["next"] == "finish"
    assert (await stage.session(told)).status == "interrupted"


async def test_a_child_that_waits_for_a_person_lets_its_parent_wait_too() -> None:
    risky = a_tool("risky", lambda given, ctx: "done it", require_approval=True)
    finder = agent("finder", output_schema=Answer, tools=[risky])
    who = agent("boss", tools=[create_sub_agent_tool(finder, timeout_s=60)])
    stage = Stage({"boss": [ASK, "Done."], "finder": [calls(call("risky")), FOUND]}, who)
    told = await stage.deliver("call_model", await stage.begin(who))
    await stage.deliver("start_run", {**told, "token": "token"})
    child = event_of(stage.held.starts[-1])
    assert (await stage.follow(child))["next"] == "finish"
    await stage.deliver("finish_run", child)
    assert stage.held.woken == ["token"], "the parent is told that there is nothing to wait for"
    assert (await stage.follow(told))["next"] == "finish"
    await stage.deliver("finish_run", told)
    paused = await stage.session(told)
    assert paused.status == "paused" and paused.pending[0].kind == "child"
    pending = (await stage.session(child)).pending[0]
    await stage.executor.answer(who, told["session_id"], Confirmation(tool_call_id=pending.call_id, approved=True))
    starts = stage.held.starts[2:]
    assert starts[0].session_id == child["session_id"]
    again = event_of(starts[0])
    assert (await stage.follow(again))["next"] == "finish"
    await stage.deliver("finish_run", again)
    parent = event_of(stage.held.starts[-1])
    assert parent["session_id"] == told["session_id"] and parent["run_id"] != told["run_id"]
    assert (await stage.follow(parent))["next"] == "finish"
    assert (await stage.session(told)).status == "completed"


# --- inline tools -----------------------------------------------------------------------------------------------------


async def test_an_inline_tool_that_must_be_approved_waits_and_then_runs_in_call_model() -> None:
    ran: list[str] = []
    tool = a_tool("act", lambda given, ctx: ran.append("act") or "ok", inline=True, require_approval=True)
    helper = agent("helper", tools=[tool])
    stage = Stage([calls(call("act")), "Done."], helper)
    told = await stage.follow(await stage.begin(helper))
    assert told["next"] == "finish" and not ran
    session = await stage.session(told)
    assert session.status == "paused"
    answer = Confirmation(tool_call_id=session.pending[0].call_id, approved=True)
    await stage.executor.answer(helper, told["session_id"], answer)
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] == "finish"
    assert ran == ["act"] and (await stage.session(told)).status == "completed"


@pytest.mark.parametrize(("policy", "times"), [("retry", 2), ("skip", 1)])
async def test_an_inline_tool_whose_function_died_is_an_unknown_outcome(policy: str, times: int) -> None:
    ran, gate = [], Gate()

    async def act(given: Any, ctx: Any) -> str:
        ran.append("act")
        if len(ran) == 1:
            await gate.wait()  # for ever
        return "ok"

    helper = agent("helper", tools=[a_tool("act", act, inline=True, on_unknown=policy, timeout_s=5)])
    stage = Stage([calls(call("act")), "Done."], helper)
    event = await stage.begin(helper)
    dead = asyncio.create_task(stage.deliver("call_model", event))
    await gate.reached()
    with pytest.raises(WorkInProgressError):
        await stage.deliver("call_model", event)
    stage.clock.ahead_s = 60
    assert (await stage.follow(event))["next"] == "finish"
    assert len(ran) == times and len(stage.model.requests) == 2
    ((_, success),) = await stage.results(event)
    assert success == (policy == "retry")
    dead.cancel()
    await asyncio.wait({dead})


async def test_an_inline_tool_beside_others_is_done_before_they_are_asked_for() -> None:
    order: list[str] = []
    tools = [
        a_tool(name, lambda given, ctx: order.append(ctx.tool_name) or "ok", inline=inline)
        for name, inline in (("slow", False), ("quick", True))
    ]
    helper = agent("helper", tools=tools)
    stage = Stage([calls(call("slow"), call("quick")), "Done."], helper)
    told = await stage.deliver("call_model", await stage.begin(helper))
    assert told["next"] == "call_tool" and order == ["quick"]
    assert (await stage.deliver("call_model", told))["next"] == "call_tool", "a step is folded once all of it is done"
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] == "finish"
    assert order == ["quick", "slow"]


# --- sweep ------------------------------------------------------------------------------------------------------------


async def test_a_sweep_starts_what_was_claimed_and_never_started() -> None:
    helper = agent("helper")
    stage = Stage(["Done."], helper)
    event = await stage.begin(helper)
    stage.held.states.clear()  # the start was lost
    assert await stage.deliver("sweep") == {"young": 1}
    stage.clock.ahead_s = 30
    assert await stage.deliver("sweep") == {"started": 1}
    assert len(stage.held.starts) == 2 and stage.held.starts[0] == stage.held.starts[1]
    assert (await stage.follow(event))["next"] == "finish"
    stage.held.states[event["run_id"]] = "ended"  # FinishRun was lost
    assert await stage.deliver("sweep") == {"finished": 1}
    assert (await stage.run(event)).effects == "done"
    assert await stage.deliver("sweep") == {}


async def test_a_sweep_without_time_leaves_the_rest_and_one_it_cannot_look_at_holds_up_no_other() -> None:
    helper, gone = agent("helper"), agent("gone")
    stage = Stage([], helper, gone)
    await stage.begin(gone)
    await stage.begin(helper)
    stage.clock.ahead_s = 30
    assert await stage.deliver("sweep", left_s=1) == {"left for the next sweep": 1}
    stage.agents._known.clear()
    stage.agents.registry.clear()
    stage.agents.registry.register(helper)
    stage.held.states.clear()
    assert await stage.deliver("sweep") == {"failed": 1, "started": 1}


async def test_what_nobody_expected_of_one_run_holds_up_no_other_and_is_raised() -> None:
    """Factories that raise: the others are swept, and the sweep fails for all to see."""
    helper = agent("helper")
    stage = Stage([], *(agent(f"gone{n}") for n in range(4)), helper)
    for name in ("gone0", "gone1", "helper", "gone2", "gone3"):
        await stage.begin(stage.agents.named(name))
    stage.clock.ahead_s = 30
    stage.agents._known.clear()
    stage.agents.registry.clear()
    stage.agents.registry.register(helper)
    for n in range(4):
        stage.agents.registry.register_factory(f"gone{n}", lambda context: {}["no such template"])
    begun = len(stage.held.starts)
    stage.held.states.clear()
    with pytest.raises(KeyError, match="no such template"):
        await stage.deliver("sweep")
    assert len(stage.held.starts) == begun + 1


async def test_each_minute_another_run_is_looked_at_first() -> None:
    """So none waits for ever behind more of them than a sweep has time for."""
    helper = agent("helper")
    stage = Stage([], helper)
    for _ in range(40):
        await stage.begin(helper)
    begun, firsts = len(stage.held.starts), set()
    for minute in range(1, PARTITIONS + 1):
        stage.clock.ahead_s = 60.0 * minute
        order = [row.key.sort async for row, _ in _open_rows(stage.engine, {})]
        assert len(order) == len(set(order)) == begun
        firsts.add(order[0])
    assert len(firsts) > 1


async def test_what_asks_and_what_answers_stay_in_their_order() -> None:
    """The history of a run whose every delivery came twice."""
    helper = agent("helper", tools=[LOOK])
    stage = Stage([calls(call("look"), call("look")), "Done."], helper)
    event = await stage.begin(helper)
    for _ in range(2):
        told = await stage.deliver("call_model", event)
    for one in reversed(told["calls"]):
        for _ in range(2):
            assert await stage.deliver("call_tool", {**told, "call": one}) == {"told": "done"}
    for _ in range(2):
        last = await stage.deliver("call_model", told)
    assert last["next"] == "finish"
    messages: Sequence[Any] = await stage.executor.sessions.load_conversation_messages(event["session_id"])
    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    asked = messages[1]
    assert isinstance(asked, AssistantMessage)
    assert [m.tool_call_id for m in messages[2:4]] == [request.id for request in asked.tool_calls]
