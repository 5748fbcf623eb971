"""Handoffs: the next step of the same run is made by the other agent, and every way back finds the right one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.command_line import CommandLine
from tests.support_run import World, a_tool, agent, call, calls, history, of_type, play, result_of

from helix import (
    Agent,
    Handoff,
    LLMConfig,
    LocalExecutor,
    ScriptedModel,
    create_sub_agent_tool,
)
from helix.core.handles import Confirmation
from helix.core.initial import AgentInput
from helix.core.messages import AssistantMessage, ToolResultMessage
from helix.core.usage_parts import shares
from helix.ports.model import LLMGenerateInput
from helix.runtime.edits import edit
from helix.testing.invariants import check_session

S = "talk"


class Refund(BaseModel):
    amount: int


def desk(**fields: Any) -> tuple[Agent[Any, Any], Agent[Any, Any]]:
    """Return an agent that hands over to billing, and billing, which may hand back."""
    billing = agent(
        "billing",
        system_prompt="You bill.",
        description="Knows invoices.",
        tools=[a_tool("invoice", lambda given, ctx: f"invoice by {ctx.agent_type}")],
        llm_config=LLMConfig(model="billing-model"),
        handoffs=["triage"],
        **fields,
    )
    triage = agent(
        "triage",
        system_prompt="You sort.",
        tools=[
            a_tool("look", lambda given, ctx: f"looked as {ctx.agent_type}"),
            a_tool("gated", lambda given, ctx: "gated", require_approval=True),
        ],
        llm_config=LLMConfig(model="triage-model"),
        handoffs=[Handoff(billing, when="The customer asks about money.")],
        max_steps=6,
    )
    return triage, billing


def to_billing(*before: dict[str, Any]) -> dict[str, Any]:
    return calls(*before, call("transfer_to_billing"))


async def speakers(executor: Any, session_id: str = S) -> list[str]:
    found = [m for m in await history(executor, session_id) if isinstance(m, AssistantMessage)]
    return [str(m.metadata.get("agent", "")) for m in found]


async def active(executor: Any, session_id: str = S) -> str:
    return (await executor.sessions.get(session_id)).active_agent


@pytest.fixture
def asked() -> list[LLMGenerateInput]:
    return []


def model(asked: list[LLMGenerateInput], **scripts: Any) -> ScriptedModel:
    def keep(entry: Any) -> Any:
        def answer(request: LLMGenerateInput) -> Any:
            asked.append(request)
            return entry

        return answer

    return ScriptedModel({name: [keep(entry) for entry in script] for name, script in scripts.items()})


async def test_the_next_step_is_the_other_agents(world: World, asked: list[LLMGenerateInput]) -> None:
    triage, _ = desk()
    script = {"triage": [to_billing()], "billing": [calls(call("invoice")), "Paid.", "Again."]}
    executor = world.executor(model(asked, **script))
    _, result, chunks = await play(executor, triage, "Money!", session_id=S)
    assert (result.text, result.agent, result.steps) == ("Paid.", "billing", 3)
    first, second, third = asked
    assert [t.name for t in first.tools] == ["look", "gated", "transfer_to_billing"]
    (tool,) = [t for t in first.tools if t.name == "transfer_to_billing"]
    assert tool.description == "Hand the conversation over to billing. The customer asks about money."
    assert [t.name for t in second.tools] == ["invoice", "transfer_to_triage"]
    assert (second.messages[0].content, second.config.model) == ("You bill.", "billing-model")
    assert [m.role for m in second.messages] == ["system", "user", "assistant", "tool"]
    assert second.messages[-1].content == '{"transferred_to":"billing"}'
    assert third.messages[-1].content == "invoice by billing"
    assert [c.agent for c in of_type(chunks, "agent_changed")] == ["billing"]
    assert [c.agent_type for c in of_type(chunks, "step_committed")] == ["triage", "billing", "billing"]
    assert await speakers(executor) == ["", "billing", "billing"]
    assert await active(executor) == "billing"
    _, again, chunks = await play(executor, triage, "More!", session_id=S)  # the same call of the application
    assert (again.text, again.agent) == ("Again.", "billing")
    assert {c.agent_type for c in chunks} == {"billing"}
    await check_session(executor.store, executor.streams, S, at_rest=True)


async def test_it_hands_back(world: World, asked: list[LLMGenerateInput]) -> None:
    triage, _ = desk()
    script = {"triage": [to_billing(), "Welcome back."], "billing": [calls(call("transfer_to_triage"))]}
    executor = world.executor(model(asked, **script))
    _, result, _ = await play(executor, triage, session_id=S)
    assert (result.text, result.agent, await active(executor)) == ("Welcome back.", "triage", "triage")
    assert await speakers(executor) == ["", "billing", "triage"]
    await check_session(executor.store, executor.streams, S, at_rest=True)


async def test_other_calls_of_the_answer_are_finished_first_and_by_their_agent(
    world: World, asked: list[LLMGenerateInput]
) -> None:
    triage, _ = desk()
    script = {"triage": [calls(call("transfer_to_billing"), call("gated"), call("look"))], "billing": ["Paid."]}
    executor = world.executor(model(asked, **script))
    _, result, _ = await play(executor, triage, session_id=S)
    assert result.status == "paused" and await active(executor) == "triage"
    (waits,) = result.pending
    assert waits.tool_name == "gated"
    answered = await executor.answer(triage, S, Confirmation(waits.call_id))
    assert answered.claimed is not None
    result = await result_of(await executor.get_handle(triage, S))
    assert result.text == "Paid." and await active(executor) == "billing"
    assert [m.content for m in asked[-1].messages[-3:]] == ['{"transferred_to":"billing"}', "gated", "looked as triage"]
    await check_session(executor.store, executor.streams, S, at_rest=True)


async def test_a_message_instead_of_an_answer_goes_to_the_agent_of_the_handoff(
    world: World, asked: list[LLMGenerateInput]
) -> None:
    triage, _ = desk()
    script = {"triage": [calls(call("transfer_to_billing"), call("gated"))], "billing": ["Paid."]}
    executor = world.executor(model(asked, **script))
    _, result, _ = await play(executor, triage, session_id=S)
    assert result.status == "paused"
    _, result, chunks = await play(executor, triage, "Never mind.", session_id=S)
    assert (result.text, result.agent) == ("Paid.", "billing")
    assert [c.agent for c in of_type(chunks, "agent_changed")] == ["billing"]
    await check_session(executor.store, executor.streams, S, at_rest=True)


async def test_the_first_of_two_handoffs_wins(world: World, asked: list[LLMGenerateInput]) -> None:
    billing, refunds = agent("billing"), agent("refunds")
    triage = agent("triage", handoffs=[billing, refunds])
    both = calls(call("transfer_to_billing"), call("transfer_to_refunds"))
    executor = world.executor(model(asked, triage=[both], billing=["Paid."], refunds=[]))
    _, result, _ = await play(executor, triage, session_id=S)
    assert result.text == "Paid."
    refused = asked[-1].messages[-1]
    assert refused.content == '{"error":"the conversation is handed over to \'billing\' already"}'


async def test_an_output_beside_a_handoff_ends_the_run_without_it(world: World) -> None:
    triage = agent("triage", output_schema=Refund, handoffs=[agent("billing")])
    both = calls(call("transfer_to_billing"), call("__finish__", amount=3))
    executor = world.executor({"triage": [both], "billing": []})
    _, result, _ = await play(executor, triage, session_id=S)
    assert result.output == Refund(amount=3) and await active(executor) == "triage"


async def test_the_output_is_of_the_agent_that_ends_the_run(world: World) -> None:
    billing = agent("billing", output_schema=Refund)
    triage = agent("triage", handoffs=[billing])
    executor = world.executor({"triage": [to_billing()], "billing": [{"output": {"amount": 7}}]})
    _, result, _ = await play(executor, triage, session_id=S)
    assert result.output == Refund(amount=7)
    other = world.executor({"triage": [], "billing": []})
    assert (await (await other.get_handle(triage, S)).result()).output == Refund(amount=7)


async def test_an_invalid_output_beside_a_handoff_does_not_count(world: World) -> None:
    """The other agent has all of its own retries."""
    billing = agent("billing", output_schema=Refund, max_completion_retries=1)
    triage = agent("triage", output_schema=Refund, max_completion_retries=0, handoffs=[billing])
    wrong, right = call("__finish__", amount="much"), {"output": {"amount": 7}}
    executor = world.executor({"triage": [to_billing(wrong)], "billing": [calls(wrong), right]})
    _, result, _ = await play(executor, triage, session_id=S)
    assert (result.output, result.agent) == (Refund(amount=7), "billing")
    await check_session(executor.store, executor.streams, S, at_rest=True)


async def test_a_loop_of_handoffs_ends_at_max_steps_of_the_sessions_agent(world: World) -> None:
    triage, _ = desk()
    script = {"triage": [to_billing()] * 3, "billing": [calls(call("transfer_to_triage"))] * 3}
    executor = world.executor(script)
    _, result, _ = await play(executor, triage, session_id=S)
    assert (result.status, result.error_code, result.steps) == ("failed", "max_steps", 6)


# --- time travel ------------------------------------------------------------------------------------------------------


async def test_every_way_back_finds_the_agent_of_that_time(world: World, asked: list[LLMGenerateInput]) -> None:
    triage, _ = desk()
    script = {
        "triage": ["Hello.", to_billing(), "I again.", "I too."],
        "billing": ["Paid.", "Paid again.", "Paid thrice."],
    }
    executor = world.executor(model(asked, **script))
    await play(executor, triage, "1", session_id=S)
    before = (await executor.sessions.get(S)).checkpoint_id
    await play(executor, triage, "2", session_id=S)
    after = (await executor.sessions.get(S)).checkpoint_id
    for name, point, expected in (("then", before, "triage"), ("now", after, "billing")):
        await executor.branch(S, point, session_id=name)
        assert await active(executor, name) == expected
        await check_session(executor.store, executor.streams, name, at_rest=True)
    _, result, _ = await play(executor, triage, "3", session_id="now")
    assert result.agent == "billing"
    handle = await executor.resume(triage, S, mode="from_checkpoint", checkpoint_id=before, message="2b")
    assert (await result_of(handle)).agent == "triage" and await active(executor) == "triage"
    handle = await executor.resume(triage, S, mode="from_checkpoint", checkpoint_id=after, message="3b")
    assert (await result_of(handle)).agent == "billing" and await active(executor) == "billing"
    await check_session(executor.store, executor.streams, S, at_rest=True)


async def test_a_retry_from_the_start_begins_with_the_agent_of_the_start(world: World) -> None:
    triage, _ = desk()
    failed = RuntimeError("gone")

    def fail(request: LLMGenerateInput) -> Any:
        raise failed

    executor = world.executor({"triage": [to_billing(), "No more."], "billing": [fail, "never"]})
    _, result, _ = await play(executor, triage, session_id=S)
    assert result.status == "failed" and (result.agent, await active(executor)) == ("billing", "billing")
    again = await executor.retry(triage, S, mode="from_start")
    assert ((await result_of(again)).text, await active(executor)) == ("No more.", "triage")
    await check_session(executor.store, executor.streams, S, at_rest=True)


@pytest.mark.parametrize("place", [S, "copy"])
async def test_an_edited_message_is_answered_by_the_agent_of_its_time(world: World, place: str) -> None:
    """Also in a copy, which has no row of the run that the message began."""
    triage, _ = desk()
    executor = world.executor({"triage": ["Hello.", to_billing(), "I again."], "billing": ["Paid.", "Paid again."]})
    for number in ("1", "2", "3"):
        given = AgentInput(message=number, metadata={"id": f"m{number}"})
        await result_of(await executor.execute(triage, given, session_id=S))
    if place == "copy":
        await executor.branch(S, session_id=place)
    for number, expected in (("3", "billing"), ("2", "triage")):
        changed = AgentInput(message=f"{number} changed", metadata={"id": f"m{number}"})
        handle = await edit(executor, triage, place, changed, user_id=None, key=f"key-{number}")
        result = await result_of(handle)
        assert (result.agent, await active(executor, place)) == (expected, expected)
        await check_session(executor.store, executor.streams, place, at_rest=True)


async def test_an_import_continues_with_the_active_agent(tmp_path: Path) -> None:
    helix = CommandLine(tmp_path)
    triage, _ = desk()
    script: dict[str, list[Any]] = {"triage": [to_billing()], "billing": ["Paid.", "Paid again."]}
    async with LocalExecutor(str(tmp_path / "a.db"), model=ScriptedModel(script)) as executor:
        await play(executor, triage, session_id=S)

    def move() -> list[str]:
        assert helix("export", S, "--db", "a.db", "--to", "a.jsonl").code == 0
        text = (tmp_path / "a.jsonl").read_text()
        forged = text.replace('"active_agent": "billing"', '"active_agent": "triage"')
        (tmp_path / "forged.jsonl").write_text(forged)
        assert helix("import", "a.jsonl", "--db", "b.db").code == 0
        return [text, forged, helix("import", "forged.jsonl", "--db", "c.db").refusal]

    text, forged, refusal = await asyncio.to_thread(move)
    assert text != forged and "active agent" in refusal
    async with LocalExecutor(
        str(tmp_path / "b.db"), model=ScriptedModel({"triage": [], "billing": ["Again."]})
    ) as executor:
        _, result, _ = await play(executor, triage, "more", session_id=S)
        assert (result.text, result.agent) == ("Again.", "billing")


# --- who observes -----------------------------------------------------------------------------------------------------


async def test_each_agents_hooks_observe_its_own_steps(world: World) -> None:
    seen: list[str] = []

    def told(name: str) -> dict[str, Any]:
        def note(payload: Any, context: Any) -> None:
            seen.append(f"{name} {context.agent_type} {payload['message'].role}")

        return {"on_message": note, "on_agent_complete": lambda payload, context: seen.append(f"{name} done")}

    billing = agent("billing", hooks=told("b"))
    triage = agent("triage", hooks=told("t"), handoffs=[billing])
    executor = world.executor({"triage": [to_billing()], "billing": ["Paid."]})
    await play(executor, triage, session_id=S)
    assert seen == ["t triage user", "t triage assistant", "t triage tool", "b billing assistant", "b done"]


@pytest.mark.parametrize(("outputs", "told"), [((None, Refund), '{"amount":4}'), ((Refund, None), "Four.")])
async def test_a_sub_agent_may_hand_over_too(world: World, outputs: tuple[Any, Any], told: str) -> None:
    """Its parent gets the output, or the text, of the agent that ends the sub-agent's run."""
    second = agent("second", output_schema=outputs[1])
    first = agent("first", output_schema=outputs[0], handoffs=[second])
    boss = agent("boss", tools=[create_sub_agent_tool(first)])
    script = {
        "boss": [calls(call("subagent__first", message="go")), "Good."],
        "first": [calls(call("transfer_to_second"))],
        "second": [{"output": {"amount": 4}} if outputs[1] else "Four."],
    }
    executor = world.executor(script)
    handle, result, _ = await play(executor, boss, session_id=S)
    assert result.text == "Good."
    (found,) = [m for m in await history(executor, S) if isinstance(m, ToolResultMessage)]
    assert found.content == told
    (ref,) = await executor.sessions.list_sub_sessions(handle.session_id)
    assert (ref.agent_type, await active(executor, ref.session_id)) == ("first", "second")
    await check_session(executor.store, executor.streams, S, at_rest=True)


async def test_usage_of_the_other_model_is_a_part_of_the_run(world: World) -> None:
    triage, _ = desk()
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "calls": 1}
    script = {"triage": [{**to_billing(), "usage": usage, "model": "triage-model"}]}
    script["billing"] = [{"content": "Paid.", "usage": usage, "model": "billing-model"}]
    executor = world.executor(script)
    _, result, _ = await play(executor, triage, session_id=S)
    run = await executor.sessions.get_run(S, result.run_id)
    assert run.usage.prompt_tokens == 20
    assert {share.model: share.usage.prompt_tokens for share in shares(run)} == {
        "triage-model": 10,
        "billing-model": 10,
    }
