"""The scenarios of the parity suite in which another agent takes over. `roomy` has functions of its own in the cloud."""

from __future__ import annotations

from typing import Any

from tests.e2e.parity_registry import scenario
from tests.e2e.parity_stage import Stage
from tests.support.cloud_agents.plans import call, plan, say, use

from helix.core.messages import AssistantMessage

THERE, BACK = call("transfer_to_roomy"), call("transfer_to_front")


@scenario
async def a_handoff_and_another_turn(stage: Stage) -> None:
    steps = [use(call("look", topic="before"), THERE), use(call("look", topic="after"), call("count", amount=1))]
    result = await stage.run("front", plan(*steps, say("Taken over.")))
    assert (result.text, result.agent) == ("Taken over.", "roomy")
    run = await stage.executor.sessions.get_run(stage.session, result.run_id)
    assert (run.part, run.part_agent) == ((2, "roomy") if stage.cloud is not None else (1, ""))
    assert (await stage.run("front", plan(say("Still me.")))).agent == "roomy"
    state: Any = (await stage.executor.sessions.get(stage.session)).custom_state
    assert state["seen"] == ["before", "after"]


@scenario
async def a_handoff_there_and_back(stage: Stage) -> None:
    result = await stage.run("front", plan(use(THERE), use(BACK), use(call("add", amount=2)), use(THERE), say("Here.")))
    assert (result.status, result.agent) == ("completed", "roomy")
    messages = await stage.executor.sessions.load_conversation_messages(stage.session)
    made = [m.metadata.get("agent", "front") for m in messages if isinstance(m, AssistantMessage)]
    assert made == ["front", "roomy", "front", "front", "roomy"]


@scenario
async def a_handoff_beside_an_approval(stage: Stage) -> None:
    result = await stage.run("front", plan(use(call("gated", topic="x"), THERE), say("Allowed, and taken over.")))
    assert result.status == "paused" and (await stage.executor.sessions.get(stage.session)).active_agent == "front"
    result = await stage.answer("front", result.pending[0])
    assert (result.status, result.agent) == ("completed", "roomy")


@scenario
async def back_to_before_a_handoff(stage: Stage) -> None:
    front, sessions = stage.agents["front"], stage.executor.sessions
    await stage.run("front", plan(say("Before.")))
    before = (await sessions.get(stage.session)).checkpoint_id
    await stage.run("front", plan(use(THERE), say("After.")))
    handle = await stage.executor.resume(
        front, stage.session, mode="from_checkpoint", checkpoint_id=before, message=plan(say("Again."))
    )
    assert (await stage.end(handle)).agent == "front"
