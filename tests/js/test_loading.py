"""`HelixChatTransport.messages`: a page that loads later shows the same as a page that saw the run live."""

from __future__ import annotations

from typing import Any

import pytest
from tests.js.test_chat import CHAT, Page, refund, texts
from tests.support_gateway import executor_of, served
from tests.support_run import Gate, Text, a_tool, agent, call, calls, gated

from helix import ScriptedModel, create_sub_agent_tool
from helix.adapters.models.scripted import Entry

pytestmark = pytest.mark.slow


async def loaded(typescript: Any, chat: str = CHAT) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await typescript("loaded", page="page", chatId=chat))["messages"]
    return found


async def test_a_conversation_with_tools_approvals_and_a_sub_agent(typescript: Any) -> None:
    """The page also loads while a call waits, in the middle of a run, and after a run that failed."""
    gate = Gate()
    child = agent("child", output_schema=Text, tools=[refund(require_approval=True)])
    tools = [create_sub_agent_tool(child), refund(), a_tool("wait", lambda args, ctx: gate.wait())]
    script: list[Entry] = [
        calls(call("subagent__child", message="go"), call("refund", text="B"), content="You do it. ")
    ]
    script += [calls(call("refund", text="A"), content="I ask."), calls(call("__finish__", text="allowed"))]
    script += ["All done.", calls(call("wait"), call("refund"), content="Wait. "), RuntimeError("broken")]
    executor = executor_of(script, agent("helper", tools=tools))
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        assert await page(["resume"]) == await loaded(typescript) == []
        waiting = await page(["say", "Refund A"])
        assert await loaded(typescript) == waiting
        below = next(part["toolCallId"] for part in waiting[1]["parts"] if "/call_0" in part.get("toolCallId", ""))
        done = await page(["answer", [[below, True]]], ["shows", "All done."], ["ready"])
        assert await loaded(typescript) == done
        shown = await page(["begin", "Go on"], ["shows", "Wait."])
        await gate.reached()
        assert [texts(one) for one in await loaded(typescript)] == [texts(one) for one in shown]
        gate.open()
        failed = await page(["ready"])
        assert page.status == "error" and len(failed) == 4
        assert await loaded(typescript) == failed


async def test_what_was_stopped_steered_and_regenerated(typescript: Any) -> None:
    gate = Gate()
    script: list[Entry] = [
        calls(call("refund", text="A"), content="First. "),
        "One.",
        gated(gate, "Never said."),
        "Two.",
        "Other one.",
    ]
    executor = executor_of(ScriptedModel(script, delta_chars=6), agent("helper", tools=[refund()]))
    async with served(executor) as (gateway, client), Page(typescript, gateway.url) as page:
        await page(["say", "First"], ["begin", "Second"])
        await gate.reached()
        await page(["stop"])
        assert (await (await client.handle(CHAT)).result(10)).status == "interrupted"
        messages = await page(["say", "Third"])
        gate.open()
        shown = [message for message in messages if message["parts"]]
        assert [texts(one) for one in shown if one["role"] == "user"] == ["First", "Second", "Third"]
        assert await loaded(typescript) == shown
        again = await page(["regenerate", messages[0]["id"]])
        assert [texts(one) for one in again] == ["First", "Other one."]
        assert await loaded(typescript) == again


async def test_a_rewind_into_a_message_leaves_what_came_before(typescript: Any) -> None:
    script = [calls(call("refund", text="A"), content="Here. "), "One.", "Another."]
    async with (
        served(executor_of(script, agent("helper", tools=[refund()]))) as (gateway, client),
        Page(typescript, gateway.url) as page,
    ):
        (said, answer) = await page(["say", "First"])
        points: Any = (await client.list_checkpoints(CHAT))["checkpoints"]
        point = next(one["id"] for one in points if one["step"] == 1)
        handle = await client.resume(CHAT, mode="from_checkpoint", checkpoint_id=point)
        await handle.result(10)
        first, cut, fresh = await loaded(typescript)
        assert first == said and cut["id"] == answer["id"]
        assert (texts(cut), texts(fresh)) == ("Here. ", "Another.")
        assert cut["parts"] == answer["parts"][: len(cut["parts"])]


async def test_a_copied_session_has_its_history(typescript: Any) -> None:
    """The session that it was copied from has another stream."""
    script = [calls(call("refund", text="A"), call("look"), content="Here. "), "One.", "Two."]
    tools = [refund(), a_tool("look", lambda args, ctx: 1 / 0)]
    async with (
        served(executor_of(script, agent("helper", tools=tools))) as (gateway, client),
        Page(typescript, gateway.url) as page,
    ):
        messages = await page(["say", "First"])
        copy = await client.branch(CHAT)
        handle = await client.run("helper", "Second", session_id=copy)
        await handle.result(10)
        found = await loaded(typescript, copy)
        assert [texts(one) for one in found] == ["First", "Here. One.", "Second", "Two."]
        for before, after in zip(messages, found, strict=False):
            assert (after["id"], after["role"]) == (before["id"], before["role"])
            assert [(p["type"], p.get("state"), p.get("output"), p.get("errorText")) for p in after["parts"]] == [
                (p["type"], p.get("state"), p.get("output"), p.get("errorText")) for p in before["parts"]
            ]
