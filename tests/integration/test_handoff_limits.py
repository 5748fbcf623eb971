"""Handoffs to agents that are not there, definitions that are refused, and guards of handoffs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_handoffs import S, active, model, to_billing
from tests.integration.test_handoffs import asked as asked
from tests.support_run import World, a_tool, agent, call, calls, play, result_of

from helix import (
    AgentNotFoundError,
    Block,
    DefinitionError,
    Guard,
    Handoff,
)
from helix.core.registry import AgentRegistry
from helix.ports.model import LLMGenerateInput
from helix.testing.invariants import check_session

# --- agents that are not there ----------------------------------------------------------------------------------------


async def test_an_unknown_target_is_an_error_that_the_model_reads(world: World, asked: list[LLMGenerateInput]) -> None:
    lonely = agent("lonely", handoffs=["nobody"])
    executor = world.executor(model(asked, lonely=[calls(call("transfer_to_nobody")), "I stay."]))
    _, result, _ = await play(executor, lonely, session_id=S)
    assert (result.text, result.agent) == ("I stay.", "lonely")
    assert asked[-1].messages[-1].content == '{"error":"not handed over: agent \'nobody\' is not deployed here"}'


async def test_a_removed_agent_stops_the_claim_and_the_session_stays_runnable(world: World) -> None:
    registry = AgentRegistry()
    registry.register(agent("billing"))
    triage = agent("triage", handoffs=["billing"])
    executor = world.executor({"triage": [to_billing()], "billing": ["Paid.", "Paid."]}, registry=registry)
    await play(executor, triage, session_id=S)
    before = (await executor.sessions.get(S)).version
    registry.unregister("billing")
    with pytest.raises(AgentNotFoundError, match="billing"):
        await executor.execute(triage, "more", session_id=S)
    assert (await executor.sessions.get(S)).version == before
    registry.register(agent("billing"))
    _, result, _ = await play(executor, triage, "more", session_id=S)
    assert result.text == "Paid."


async def test_an_agent_removed_during_the_run_fails_it_and_a_retry_goes_on(world: World) -> None:
    registry = AgentRegistry()
    registry.register(agent("billing"))

    def remove(given: Any, ctx: Any) -> str:
        registry.unregister("billing")
        return "removed"

    triage = agent("triage", handoffs=["billing"], tools=[a_tool("remove", remove)])
    script = {"triage": [to_billing(call("remove"))], "billing": ["Paid."]}
    executor = world.executor(script, registry=registry)
    _, result, _ = await play(executor, triage, session_id=S)
    assert (result.status, result.error_code) == ("failed", "agent_not_found")
    assert "'billing'" in str(result.error)
    await check_session(executor.store, executor.streams, S, at_rest=True)
    registry.register(agent("billing"))
    assert (await result_of(await executor.retry(triage, S))).text == "Paid."
    await check_session(executor.store, executor.streams, S, at_rest=True)


# --- definitions ------------------------------------------------------------------------------------------------------


class Notes(BaseModel):
    seen: list[str] = []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"handoffs": "billing"}, "must be a list"),
        ({"handoffs": [3]}, "is neither an agent nor the name of one"),
        ({"handoffs": ["me"]}, "cannot hand over to itself"),
        ({"handoffs": [agent("a"), Handoff("a")]}, "two tools are named 'transfer_to_a'"),
        (
            {"handoffs": [Handoff("a", name="look")], "tools": [a_tool("look", lambda *_: 1)]},
            "two tools are named 'look'",
        ),
        ({"handoffs": [agent("a")], "state_schema": Notes}, "has another state_schema"),
    ],
)
def test_a_wrong_definition_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        agent("me", **fields)


def test_the_fingerprint_shows_a_change_of_the_other_agent() -> None:
    one, two = (agent("triage", handoffs=[agent("billing", system_prompt=text)]) for text in ("A.", "B."))
    assert one.fingerprint() != two.fingerprint()


# --- guards -----------------------------------------------------------------------------------------------------------


async def test_a_guard_may_block_a_handoff(world: World, asked: list[LLMGenerateInput]) -> None:
    guard = Guard(name="stay", call=lambda arguments, context: Block("stay here"))
    triage = agent("triage", handoffs=[agent("billing")], guards=[guard])
    executor = world.executor(model(asked, triage=[to_billing(), "I stay."], billing=[]))
    _, result, _ = await play(executor, triage, session_id=S)
    assert (result.text, await active(executor)) == ("I stay.", "triage")
    await check_session(executor.store, executor.streams, S, at_rest=True)
