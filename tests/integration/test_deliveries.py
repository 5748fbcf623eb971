"""Deliveries off the usual path: parts, late events, inline tools, sweeps.

The verbs are the deployed ones. The test plays the platform: it holds back starts, and delivers them when it wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.support.delivery_stage import Stage, event_of
from tests.support_run import Gate, a_tool, agent, call, calls, chunks_of, text_of

from helix import Confirmation
from helix.core.agents import AnyAgent
from helix.core.errors import WorkInProgressError
from helix.core.json import loads
from helix.core.messages import AssistantMessage
from helix.engine.calls.tool import MAX_DEATHS
from helix.fleet.budgets import BudgetManager
from helix.ports.launcher import execution_name
from helix.services.open_runs import PARTITIONS
from helix.sessions.sweep import _open_rows
from helix.testing.crash import Crash, CrashPoints

LOOK = a_tool("look", lambda given, ctx: "seen")


# --- parts ------------------------------------------------------------------------------------------------------------


async def test_a_run_goes_on_in_parts_and_no_part_hurts_another() -> None:
    helper = agent("helper", tools=[LOOK])
    stage = Stage([*[calls(call("look"))] * 5, "Done."], helper, roll_over_events=140)
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
    stage = Stage([calls(call("look")), "Done."], helper, roll_over_events=100)
    event = {**await stage.begin(helper), "events": 100}
    both = await asyncio.gather(stage.deliver("call_model", event), stage.deliver("call_model", event))
    assert [told["next"] for told in both] == ["rolled", "rolled"] and (await stage.run(event)).part == 2
    await stage.deliver("fail_run", event)
    assert (await stage.session(event)).status == "running"
    assert {execution_name(part) for part in stage.held.starts[1:]} == {f"{event['run_id']}__part-2"}
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] == "finish"


async def test_the_parts_own_end_fails_the_run_and_a_retry_goes_on() -> None:
    helper = agent("helper", tools=[LOOK])
    stage = Stage([calls(call("look")), "Done."], helper, roll_over_events=100)
    event = await stage.begin(helper)
    told = await stage.deliver("call_model", event)
    await stage.deliver("call_tool", told)
    await stage.deliver("call_model", {**told, "events": 100})
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
            await gate.wait()  # it hangs forever
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


@pytest.mark.parametrize("inline", [True, False])
async def test_a_call_whose_worker_died_three_times_is_not_started_again(inline: bool) -> None:
    """A worker that shuts down in order releases its claim, and does not count as a death."""
    began: asyncio.Queue[str] = asyncio.Queue()

    async def act(given: Any, ctx: Any) -> str:
        began.put_nowait("act")
        await asyncio.Event().wait()
        return "never"

    helper = agent("helper", tools=[a_tool("act", act, inline=inline, timeout_s=900)])
    stage = Stage([calls(call("act")), "Done."], helper)
    event, verb = await stage.begin(helper), "call_model"
    if not inline:
        event, verb = await stage.deliver("call_model", event), "call_tool"
    workers = []
    for death in range(MAX_DEATHS + 1):
        worker = asyncio.create_task(stage.deliver(verb, event))
        await began.get()
        workers.append(worker)
        if death == 1:
            await ended(worker)
        stage.clock.ahead_s += 60
    assert (await stage.follow(event))["next"] == "finish"
    ((content, success),) = await stage.results(event)
    assert (loads(content)["code"], success, began.empty()) == ("tool_crashed", False, True)
    assert (await stage.session(event)).status == "completed"
    for worker in workers:
        await ended(worker)


async def ended(worker: asyncio.Task[Any]) -> None:
    worker.cancel()
    await asyncio.wait({worker})


async def die(stage: Stage, event: dict[str, Any], point: str) -> None:
    """Deliver `call_model` to a worker that dies at this point. Its log writes text at intervals, as Kinesis does."""
    whole, points = stage.engine, CrashPoints(at=(point, 0))
    streams: Any = points.streams(whole.streams)
    streams.coalesces = True
    stage.engine = replace(whole, store=points.store(whole.store), streams=streams)
    with pytest.raises(Crash):
        await stage.deliver("call_model", event)
    stage.engine = whole


@pytest.mark.parametrize("policy", ["skip", "ask"])
async def test_an_inline_tool_that_its_worker_never_began_is_executed(policy: str) -> None:
    """The worker died between the answer and its call, so no outcome is unknown."""
    ran: list[str] = []
    act = a_tool("act", lambda given, ctx: ran.append("act") or "ok", inline=True, on_unknown=policy)
    helper = agent("helper", tools=[act])
    stage = Stage([calls(call("act")), "Done."], helper)
    event = await stage.begin(helper)
    await die(stage, event, "transact:stage:after")
    stage.clock.ahead_s = 60
    assert (await stage.follow(event))["next"] == "finish"
    assert ran == ["act"] and await stage.results(event) == [("ok", True)]


async def test_an_answer_is_on_the_stream_before_it_is_staged() -> None:
    """The worker dies right after the append. The next worker has the answer, and does not stream its text again."""
    helper = agent("helper", tools=[LOOK])
    words = "Let me look. " * 10
    stage = Stage([{**calls(call("look"), content=words), "delta_delay_s": 0.001}, "Done."], helper)
    event = await stage.begin(helper)
    await die(stage, event, "transact:stage:after")
    stage.clock.ahead_s = 60
    await stage.end(event)
    handle = await stage.executor.get_handle(helper, event["session_id"])
    assert text_of(await chunks_of(handle)) == f"{words}Done." and len(stage.model.requests) == 2


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
    assert (await stage.deliver("call_model", told))["next"] == "call_tool", (
        "a step is folded once all its calls are done"
    )
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] == "finish"
    assert order == ["quick", "slow"]


def inline(execute: Any) -> AnyAgent:
    return agent("helper", tools=[a_tool("act", execute, inline=True)])


async def test_a_stop_between_two_steps_of_an_invocation_comes_before_the_next_model_call() -> None:
    stage: Stage

    async def act(given: Any, ctx: Any) -> str:
        await stage.executor.interrupt(ctx.session_id)
        return "ok"

    helper = inline(act)
    stage = Stage([calls(call("act")), "Never asked."], helper, stop_poll_s=60)
    told = await stage.deliver("call_model", await stage.begin(helper), left_s=900)
    assert told["next"] == "finish" and len(stage.model.requests) == 1
    assert (await stage.session(told)).status == "interrupted" and await stage.results(told) == [("ok", True)]


async def test_a_budget_that_is_set_between_two_steps_of_an_invocation_bounds_the_next() -> None:
    stage: Stage

    async def act(given: Any, ctx: Any) -> str:
        await BudgetManager(stage.store).set_budget(1, "total")
        return "ok"

    helper = inline(act)
    stage = Stage([calls(call("act")), "Never asked."], helper)
    told = await stage.deliver("call_model", await stage.begin(helper), left_s=900)
    assert told["next"] == "finish" and len(stage.model.requests) == 1
    run = await stage.run(told)
    assert run.error is not None and run.error.code == "budget_exceeded"


async def test_another_delivery_that_takes_the_run_on_between_two_steps_is_seen_before_the_next_model_call() -> None:
    """The first delivery knows the step that it wrote. When it claims the next step, it finds that the session has moved
    on."""
    helper = inline(lambda given, ctx: "ok")
    stage = Stage([calls(call("act")), calls(call("act")), "Done."], helper)
    event = await stage.begin(helper)
    transact, seen = stage.store.transact, list[str]()

    async def overtaken(name: str, operations: Any) -> None:
        seen.append(name)
        if seen.count("claim_step") == 2 and name == "claim_step":
            assert (await stage.deliver("call_model", event, left_s=900))["next"] == "finish"
        await transact(name, operations)

    stage.store.transact = overtaken  # type: ignore[method-assign]
    assert (await stage.deliver("call_model", event, left_s=900))["next"] == "finish"
    assert len(stage.model.requests) == 3, "each step was bought once"
    assert await stage.results(event) == [("ok", True)] * 2
    assert (await stage.run(event)).status == "completed"


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


async def test_a_sweep_leaves_the_end_of_a_run_to_its_execution_for_a_while() -> None:
    helper = agent("helper")
    stage = Stage(["Done."], helper)
    event = await stage.begin(helper)
    stage.clock.ahead_s = 30
    assert (await stage.follow(event))["next"] == "finish"
    assert await stage.deliver("sweep") == {"running": 1}
    assert (await stage.run(event)).effects == "open"
    stage.clock.ahead_s = 60  # it hangs
    assert await stage.deliver("sweep") == {"finished": 1}
    assert (await stage.run(event)).effects == "done"


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
    """Two factories raise. The sweep handles the other runs, and then fails visibly."""
    helper = agent("helper")
    stage = Stage([], *(agent(f"gone{n}") for n in range(4)), helper)
    for name in ("gone0", "gone1", "helper", "gone2", "gone3"):
        await stage.begin(stage.agents.named(name))
    stage.clock.ahead_s = 30
    stage.agents._known.clear()
    stage.agents.registry.clear()
    stage.agents.registry.register(helper)
    templates: dict[str, AnyAgent] = {}
    for n in range(4):
        stage.agents.registry.register_factory(f"gone{n}", lambda context: templates["no such template"])
    begun = len(stage.held.starts)
    stage.held.states.clear()
    with pytest.raises(KeyError, match="no such template"):
        await stage.deliver("sweep")
    assert len(stage.held.starts) == begun + 1


async def test_each_minute_another_run_is_looked_at_first() -> None:
    """So no run waits forever behind more runs than a sweep has time for."""
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
    """Every delivery of the run came twice, and its history is still in order."""
    helper = agent("helper", tools=[LOOK])
    stage = Stage([calls(call("look"), call("look")), "Done."], helper)
    event = await stage.begin(helper)
    for _ in range(2):
        told = await stage.deliver("call_model", event)
    for one in reversed(told["calls"]):
        for _ in range(2):
            assert await stage.deliver("call_tool", {**told, "call": one}) == {"call": "done"}
    for _ in range(2):
        last = await stage.deliver("call_model", told)
    assert last["next"] == "finish"
    messages: Sequence[Any] = await stage.executor.sessions.load_conversation_messages(event["session_id"])
    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    asked = messages[1]
    assert isinstance(asked, AssistantMessage)
    assert [m.tool_call_id for m in messages[2:4]] == [request.id for request in asked.tool_calls]
