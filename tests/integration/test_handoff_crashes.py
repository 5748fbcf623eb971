"""A conversation is handed over exactly once, wherever the process dies."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.delivery_stage import Stage, event_of
from tests.support_crash import CONFIG, Answer, Notes, S, Sweep, add, call, finish, fresh, gated, look, model, settle
from tests.support_run import a_tool, agent, calls
from tests.support_run import call as called

from helix import Agent, AgentNotFoundError, LocalExecutor
from helix.adapters.models.scripted import Entry
from helix.core.entries import AssistantRow
from helix.core.status import AT_REST
from helix.engine.placement import IN_WORKERS
from helix.ports.launcher import execution_name
from helix.sessions.session_rows import read_session_rows
from helix.testing.invariants import check_session

NEVER: Entry = "never"
clerk: Agent[Any, Any] = Agent(
    name="clerk",
    system_prompt="Add.",
    tools=[add],
    state_schema=Notes,
    output_schema=Answer,
    llm_config=CONFIG,
    handoffs=["desk"],
)
desk: Agent[Any, Any] = Agent(
    name="desk", system_prompt="Sort.", tools=[look, gated], state_schema=Notes, llm_config=CONFIG, handoffs=[clerk]
)


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    fresh()


async def made_by(workers: Any, session_id: str = S) -> list[str]:
    rows = await read_session_rows(workers.store, session_id)
    session = rows.session
    assert session is not None
    history = rows.history(session.lineage, session.count)
    return [entry.agent or session.agent_type for entry in history if isinstance(entry, AssistantRow)]


async def test_there_and_back_and_there_again() -> None:
    """The invariants hold at each crash point: each step is made by the agent that its history makes active."""
    there: Entry = {"tool_calls": [call("look", topic="a"), call("transfer_to_clerk")]}
    back: Entry = {"tool_calls": [call("add", amount=2), call("transfer_to_desk")]}
    again: Entry = {"tool_calls": [call("transfer_to_clerk")]}
    scripts = {"desk": [there, NEVER, again], "clerk": [NEVER, back, NEVER, finish("done", "a")]}
    sweep = Sweep(desk, model(**scripts))
    found: list[list[str]] = []

    async def act(workers: LocalExecutor) -> None:
        await (await workers.execute(desk, "begin", session_id=S)).result()
        found.append(await made_by(workers))

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
    assert all(state == ({"seen": ["a"], "total": 2}, {"summary": "done", "sources": ["a"]}) for state in sweep.states)
    assert found[-1] == ["desk", "clerk", "desk", "clerk"]


@pytest.mark.parametrize("approve", [True, False])
async def test_beside_an_approval(approve: bool) -> None:
    there: Entry = {"tool_calls": [call("transfer_to_clerk"), call("gated", topic="x")]}
    sweep = Sweep(desk, model(desk=[there], clerk=[NEVER, finish("done")]), approve=approve)

    async def act(workers: LocalExecutor) -> None:
        result = await (await workers.execute(desk, "begin", session_id=S)).result()
        assert result.status == "paused"
        await settle(workers, desk, S, approve=approve)

    await sweep.everywhere(act)
    assert set(sweep.outcomes) == {"completed"}
    assert all(state["seen"] == (["gated x"] if approve else []) for state, _ in sweep.states)


# --- functions --------------------------------------------------------------------------------------------------------


def cast() -> tuple[Agent[Any, Any], Agent[Any, Any], list[str]]:
    """Return an agent without functions of its own, one that has them, and the tools that ran."""
    ran: list[str] = []

    def note(given: Any, ctx: Any) -> str:
        ran.append(ctx.agent_type)
        return "noted"

    roomy = agent("roomy", tools=[a_tool("note", note)], resources={"memory": 2048}, handoffs=["front"])
    front = agent("front", tools=[a_tool("note", note)], handoffs=[roomy])
    return front, roomy, ran


SCRIPT: dict[str, list[Any]] = {
    "front": [calls(called("note"), called("transfer_to_roomy")), "Back."],
    "roomy": [calls(called("note")), calls(called("transfer_to_front"))],
}


async def test_an_agent_with_functions_of_its_own_continues_there() -> None:
    """Its model call and its tools are executed by functions with its rights, also if deliveries are doubled."""
    front, _, ran = cast()
    stage = Stage(SCRIPT, front)
    event = await stage.begin(front)
    profiles, left = [], [event]
    while True:
        told = await stage.follow(left[-1])
        again = await stage.deliver("call_model", left[-1])  # a late duplicate of the part's first delivery
        assert again["next"] == told["next"]
        profiles.append(stage.held.starts[-1].profile)
        if told["next"] != "rolled":
            break
        assert len(ran) == len(profiles), "the other calls of the answer ran before the handoff"
        left.append(event_of(stage.held.starts[-1]))
    assert profiles == ["roomy", "default", "default"] and told["next"] == "finish"
    assert ran == ["front", "roomy"]
    assert {execution_name(part) for part in stage.held.starts} == {
        event["run_id"], f"{event['run_id']}__part-2", f"{event['run_id']}__part-3"
    }  # fmt: skip
    await stage.deliver("finish_run", told)
    assert await made_by(stage, event["session_id"]) == ["front", "roomy", "roomy", "front"]
    await check_session(stage.store, stage.engine.streams, event["session_id"], at_rest=True)


async def test_a_later_run_begins_in_the_functions_of_the_active_agent() -> None:
    front, _, _ = cast()
    stage = Stage({"front": [calls(called("transfer_to_roomy"))], "roomy": ["One.", "Two."]}, front)
    event = await stage.begin(front)
    assert (await stage.follow(event))["next"] == "rolled"
    await stage.end(event_of(stage.held.starts[-1]))
    handle = await stage.executor.execute(front, "more", session_id=event["session_id"])
    part = stage.held.starts[-1]
    assert (part.run_id, part.profile, part.part) == (handle.run_id, "roomy", 1)
    assert (await stage.follow(event_of(part)))["next"] == "finish"


async def test_an_agent_removed_while_its_part_waits_fails_the_run() -> None:
    front, roomy, _ = cast()
    stage = Stage(SCRIPT, front)
    event = await stage.begin(front)
    assert (await stage.follow(event))["next"] == "rolled"
    stage.agents._known.clear()
    stage.agents.registry.replace(agent("front", tools=front.tools))
    told = await stage.follow(event_of(stage.held.starts[-1]))
    await stage.deliver("finish_run", told)
    session = await stage.session(event)
    assert session.error is not None and (session.status, session.error.code) == ("failed", "agent_not_found")
    stage.agents.registry.replace(front)
    await stage.executor.retry(front, event["session_id"])
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] in ("rolled", "finish")
    assert (await stage.session(event)).status in ({"running"} | AT_REST) and roomy.profile == "roomy"


async def test_a_call_of_a_removed_agent_is_not_executed_by_another() -> None:
    """Both agents have a tool of that name."""
    front, _, ran = cast()
    stage = Stage(SCRIPT, front)
    event = await stage.begin(front)
    assert (await stage.follow(event))["next"] == "rolled"
    told = await stage.deliver("call_model", event_of(stage.held.starts[-1]))
    assert told["next"] == "call_tool"
    stage.agents._known.clear()
    stage.agents.registry.replace(agent("front", tools=front.tools))
    with pytest.raises(AgentNotFoundError, match="roomy"):
        await stage.deliver("call_tool", told)
    assert ran == ["front"]


async def test_a_message_waits_for_a_run_whose_agent_is_removed() -> None:
    """The effects of the failed run are applied, and the message is delivered. Its run fails for the same reason."""
    front, _, _ = cast()
    stage = Stage(SCRIPT, front)
    event = await stage.begin(front)
    assert (await stage.follow(event))["next"] == "rolled"
    session_id = event["session_id"]
    waits = await stage.executor.execute(front, "and this?", session_id=session_id, when_running="queue")
    stage.agents._known.clear()
    stage.agents.registry.replace(agent("front", tools=front.tools))
    told = await stage.follow(event_of(stage.held.starts[-1]))
    await stage.deliver("finish_run", told)
    assert (await stage.run(event)).effects == "done"
    begun = event_of(stage.held.starts[-1])
    assert begun["run_id"] == waits.run_id
    await stage.deliver("finish_run", await stage.follow(begun))
    session = await stage.session(begun)
    assert session.error is not None and (session.run_id, session.error.code) == (waits.run_id, "agent_not_found")
    await check_session(stage.store, stage.engine.streams, session_id, at_rest=True)


async def test_workers_execute_every_agent() -> None:
    """Worker processes have no functions of their own, so a handoff does not move the run."""
    front, _, ran = cast()
    stage = Stage(SCRIPT, front)
    stage.engine.placement = IN_WORKERS
    event = await stage.begin(front)
    assert (await stage.follow(event))["next"] == "finish"
    assert ran == ["front", "roomy"] and len(stage.held.starts) == 1
