"""Deliveries of children that outlive their parents, arrive late, or wait for a person.

As in `test_deliveries`, the verbs are the deployed ones, and the test plays the platform.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from tests.support.delivery_stage import Json, Stage, event_of
from tests.support_run import Gate, a_tool, agent, call, calls, gated

from helix import Confirmation, LocalExecutor, ScriptedModel, create_sub_agent_tool
from helix.adapters.models.scripted import Entry
from helix.core.agents import AnyAgent
from helix.testing.clocks import ShiftedClock


class Answer(BaseModel):
    text: str


LOOK = a_tool("look", lambda given, ctx: "seen")
FINDER = agent("finder", output_schema=Answer, tools=[LOOK])


def boss() -> AnyAgent:
    return agent("boss", tools=[create_sub_agent_tool(FINDER, timeout_s=60), LOOK])


ASK = calls(call("subagent__finder", message="find"))
FOUND = {"output": {"text": "found"}}


async def with_child(script: Any) -> tuple[Stage, Json, Json]:
    """Start a run that waits for its child. Return the stage, the event that the run's execution continues with, and the
    child's first event."""
    stage = Stage(script, boss())
    told = await stage.deliver("call_model", await stage.begin(stage.agents.named("boss")))
    assert told["next"] == "start_run"
    assert await stage.deliver("start_run", {**told, "token": "token"}) == {"call": "waits"}
    return stage, told, event_of(stage.held.starts[-1])


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
    assert len({part.session_id for part in stage.held.starts}) == 2, "no second child was started"


async def test_a_child_that_must_be_approved_starts_once_with_what_was_approved() -> None:
    asked = agent("boss", tools=[create_sub_agent_tool(FINDER, require_approval=True)])
    stage = Stage([ASK, FOUND, "Done."], asked)
    told = await stage.follow(await stage.begin(asked))
    session = await stage.session(told)
    assert (told["next"], session.status, len(stage.held.starts)) == ("finish", "paused", 1)
    edit = Confirmation(session.pending[0].call_id, arguments={"message": "look"}, by="ada")
    await stage.executor.answer(asked, told["session_id"], edit)
    told = await stage.deliver("call_model", event_of(stage.held.starts[-1]))
    assert told["next"] == "start_run"
    for token in ("one", "two"):
        assert await stage.deliver("start_run", {**told, "token": token}) == {"call": "waits"}
    assert len({part.session_id for part in stage.held.starts}) == 2
    child = event_of(stage.held.starts[-1])
    assert (await stage.follow(child))["next"] == "finish"
    await stage.deliver("finish_run", child)
    assert (await stage.follow(told))["next"] == "finish"
    assert await stage.results(told) == [('{"text":"found"}', True)]
    first = (await stage.executor.sessions.load_conversation_messages(child["session_id"]))[0]
    assert first.content == "look"


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
    assert await stage.deliver("start_run", {**told, "token": "late"}) == {"call": "over"}
    assert stage.held.woken == ["late"]


async def test_a_child_that_must_not_be_is_a_failed_result() -> None:
    stage = Stage([ASK, "Done."], boss(), max_depth=0)
    told = await stage.deliver("call_model", await stage.begin(stage.agents.named("boss")))
    for token in ("first", "again"):
        assert await stage.deliver("start_run", {**told, "token": token}) == {"call": "done"}
    assert stage.held.woken == ["first", "again"] and len(stage.held.starts) == 1
    assert (await stage.follow(told))["next"] == "finish"
    ((content, success),) = await stage.results(told)
    assert "1 deep already; the limit is 0" in content and not success


async def test_no_child_starts_once_its_parent_is_to_stop() -> None:
    stage = Stage([ASK], boss())
    told = await stage.deliver("call_model", await stage.begin(stage.agents.named("boss")))
    assert await stage.executor.interrupt(told["session_id"])
    assert await stage.deliver("start_run", {**told, "token": "token"}) == {"call": "skipped"}
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
    assert stage.held.woken == ["token"], "the parent learns that no child is left"
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


async def test_a_child_whose_process_died_has_its_time_when_it_goes_on_deployed() -> None:
    """The process that watched its deadline is gone. The run that takes it over has the deadline."""
    gate = Gate()
    stage = Stage({"boss": ["Done."], "finder": ["never"]}, boss())
    script: dict[str, list[Entry]] = {"boss": [ASK], "finder": [gated(gate, "never")]}
    process = LocalExecutor(stage.store, model=ScriptedModel(script), clock=ShiftedClock())
    handle = await process.execute(stage.agents.named("boss"), "go")
    await gate.reached()
    await process.close()  # leaves the rows as a crash does: the run is running, and its claims are not renewed
    stage.clock.ahead_s += 600
    await stage.executor.resume(stage.agents.named("boss"), handle.session_id)
    told = await stage.deliver("call_model", event_of(stage.held.starts[-1]))
    assert told["next"] == "start_run"
    assert await stage.deliver("start_run", {**told, "token": "token"}) == {"call": "waits"}
    taken = await stage.run(event_of(stage.held.starts[-1]))
    assert taken.mode == "takeover" and taken.agent_type == "finder"
    assert taken.deadline is not None and 50 < taken.deadline - stage.clock.now() <= 60
