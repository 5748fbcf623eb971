"""Sub-agents under limits: a tree works in its root's slot, and never waits for itself."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.contracts.slots_races import at_rest
from tests.support.delivery_stage import Json, Stage, event_of
from tests.support.state_machine import Machines, StateMachine
from tests.support_run import a_tool, agent, call, calls

from helix import Confirmation, ScriptedModel, create_sub_agent_tool
from helix.core.agents import AnyAgent
from helix.core.handles import AgentExecutionHandle
from helix.engine.runs.intake import set_limit

Handle = AgentExecutionHandle[Any]


class Answer(BaseModel):
    text: str


FOUND = {"output": {"text": "found"}}
RISKY = a_tool("risky", lambda given, ctx: "done it", require_approval=True)


def finder(limit: int, **fields: Any) -> AnyAgent:
    return agent("finder", output_schema=Answer, resources={"max": limit}, **fields)


def above(child: AnyAgent, name: str = "boss", **fields: Any) -> AnyAgent:
    return agent(name, tools=[create_sub_agent_tool(child, timeout_s=600)], **fields)


def ask(child: str = "finder") -> dict[str, Any]:
    return call(f"subagent__{child}", message="find")


async def follow(on: Stage, event: Json) -> Json:
    """Play until the run is over or waits for its children, which are not played."""
    told: Json = await on.deliver("call_model", event)
    while told["next"] != "finish":
        if told["next"] == "start_run":
            answer = await on.deliver("start_run", {**told, "token": f"token of {told['session_id']}"})
            if answer["call"] == "waits":
                return told
        elif told["next"] == "call_tool":
            await on.deliver("call_tool", told)
        told = await on.deliver("call_model", told)
    await on.deliver("finish_run", told)
    return told


def starts(on: Stage, session_id: str) -> list[Json]:
    return [event_of(part) for part in on.held.starts if part.session_id == session_id]


# --- the deployed machine ---------------------------------------------------------------------------------------------


async def test_a_parent_with_more_children_than_slots_finishes() -> None:
    """The parent's limit and the children's limit are one slot each, and another run has the children's slot."""
    helper = agent("helper", output_schema=Answer)
    find = finder(1)
    who = agent(
        "boss",
        tools=[create_sub_agent_tool(find, timeout_s=600), create_sub_agent_tool(helper, timeout_s=600)],
        resources={"max": 1},
    )
    step = calls(ask(), ask(), ask("helper"), ask())
    script = {
        "boss": ScriptedModel([step, step, "Done.", step, step, "Done."]),
        "finder": ScriptedModel([FOUND], repeat=True),
        "helper": ScriptedModel([FOUND], repeat=True),
    }
    on = Stage(ScriptedModel([]), who, find, helper, queue={"account_limit": 2})
    on.engine.models = lambda which: script[which.name]
    machines = Machines(StateMachine(on.deliver))
    on.engine.launcher = on.held
    (alone,) = [await on.executor.execute(find, "alone")]  # this run holds the finders' one slot, and is not played
    on.engine.launcher = machines
    first, second = [await on.executor.execute(who, "go") for _ in range(2)]
    await machines.ended()
    for handle in (first, second):
        assert (await handle.result(timeout_s=5)).status == "completed"
    assert len(machines.executions) == 2 + 2 * 8
    roots = [name for name in machines.started if name in (first.run_id, second.run_id)]
    assert roots == [first.run_id, second.run_id]
    on.engine.launcher = on.held
    await follow(on, starts(on, alone.session_id)[0])
    assert await at_rest(on.slots)


# --- agents that continue without their root -----------------------------------------------------------------------


async def paused_tree(on: Stage, *, levels: int) -> tuple[Handle, list[str]]:
    """Pause a tree whose leaf waits for a person. Return its root's handle, and the sessions from the root down."""
    handle = await on.executor.execute(on.agents.named("boss"), "go")
    place, line = event_of(on.held.starts[-1]), [handle.session_id]
    parents = []
    for _ in range(levels - 1):
        parents.append(await follow(on, place))
        place = event_of(on.held.starts[-1])
        line.append(place["session_id"])
    await follow(on, place)
    for told in reversed(parents):
        await follow(on, told)
    for session_id in line:
        assert (await on.executor.sessions.get(session_id)).status == "paused"
    return handle, line


async def answered(on: Stage, handle: Handle, leaf: str) -> None:
    pending = (await on.executor.sessions.get(leaf)).pending[0]
    word = Confirmation(tool_call_id=pending.call_id, approved=True)
    await on.executor.answer(on.agents.named("boss"), handle.session_id, word)


def small_tree(boss_limit: int, finder_limit: int, **options: Any) -> Stage:
    find = finder(finder_limit, tools=[RISKY])
    script = {
        "boss": [calls(ask()), "Done."],
        "finder": [calls(call("risky")), FOUND],
        "other": ["Done."],
    }
    who = above(find, resources={"max": boss_limit})
    return Stage(script, who, find, agent("other"), **options)


async def test_a_paused_tree_holds_no_slot_and_queues_again() -> None:
    """The answered sub-agent works in its own slot, because its root does not hold a slot. The root waits for its turn."""
    on = small_tree(1, 1)
    handle, (root, leaf) = await paused_tree(on, levels=2)
    assert await at_rest(on.slots)
    await on.slots.set_limit("boss", 0)
    await answered(on, handle, leaf)
    assert len(starts(on, leaf)) == 2 and len(starts(on, root)) == 1
    assert [holder.session_id for holder in await on.slots.holders("finder")] == [leaf]
    assert [ticket.candidate.session_id for ticket in await on.slots.queue("boss")] == [root]
    await follow(on, starts(on, leaf)[-1])
    await set_limit(on.engine, "boss", None)
    await follow(on, starts(on, root)[-1])
    assert (await on.executor.sessions.get(root)).status == "completed" and await at_rest(on.slots)


async def test_a_sub_agent_that_waits_alone_goes_with_its_root() -> None:
    """The root is served first. The sub-agent that it waits for works in the root's slot, and its own ticket is deleted."""
    on = small_tree(1, 1)
    handle, (root, leaf) = await paused_tree(on, levels=2)
    await on.slots.set_limit("finder", 0)
    await answered(on, handle, leaf)
    assert len(starts(on, leaf)) == 1 and len(starts(on, root)) == 2
    assert [ticket.candidate.session_id for ticket in await on.slots.queue("finder")] == [leaf]
    waits = await follow(on, starts(on, root)[-1])
    assert len(starts(on, leaf)) == 2 and await on.slots.queue("finder") == []
    await follow(on, starts(on, leaf)[-1])
    await follow(on, waits)
    assert (await on.executor.sessions.get(root)).status == "completed" and await at_rest(on.slots)


@pytest.mark.parametrize("limit", [1, 0])
async def test_between_an_answer_and_its_root_nobody_works_without_a_slot(limit: int) -> None:
    """There are three levels. The middle one is claimed too, and the root's execution starts it once the root has a
    slot."""
    find = agent("finder", output_schema=Answer, tools=[RISKY])
    middle = above(find, "middle", output_schema=Answer)
    who = above(middle, resources={"max": 1})
    script = {
        "boss": [calls(ask("middle")), "Done."],
        "middle": [calls(ask()), FOUND],
        "finder": [calls(call("risky")), FOUND],
    }
    on = Stage(script, who, middle, find)
    handle, (root, mid, leaf) = await paused_tree(on, levels=3)
    await on.slots.set_limit("boss", limit)
    await answered(on, handle, leaf)
    assert (len(starts(on, root)), len(starts(on, mid)), len(starts(on, leaf))) == (1 + limit, 1, 2)
    on.clock.ahead_s = 30
    swept = await on.deliver("sweep")
    assert (len(starts(on, root)), len(starts(on, mid))) == (1 + limit, 1 + limit), swept
    await set_limit(on.engine, "boss", 1)
    waits = await follow(on, starts(on, root)[-1])
    assert len(starts(on, mid)) >= 2
    await follow(on, starts(on, leaf)[-1])
    await follow(on, starts(on, mid)[-1])
    await follow(on, waits)
    assert (await on.executor.sessions.get(root)).status == "completed" and await at_rest(on.slots)


@pytest.mark.parametrize("lost", [True, False])
async def test_a_root_that_worked_before_there_was_a_limit_goes_on_with_its_children(lost: bool) -> None:
    """The root has no slot, but its execution is at work. It starts its children, and a sweep does so if the start was
    lost."""
    find = agent("finder", output_schema=Answer)
    on = Stage({"boss": [calls(ask()), "Done."], "finder": [FOUND]}, above(find), find)
    await on.executor.execute(on.agents.named("boss"), "go")
    await on.slots.set_limit("boss", 0)
    told = await follow(on, event_of(on.held.starts[0]))
    assert len(on.held.starts) == 2
    child = event_of(on.held.starts[-1])
    on.clock.ahead_s = 30
    if lost:
        del on.held.states[child["run_id"]]
        assert await on.deliver("sweep") == {"running": 1, "started": 1}
    await follow(on, child)
    await follow(on, told)
    assert (await on.executor.sessions.get(told["session_id"])).status == "completed" and await at_rest(on.slots)
