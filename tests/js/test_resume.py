"""A page that resumes over WebSocket: after the end of a run, and while a sub-agent is going to start another one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.js.test_chat import CHAT, Page, call_parts, refund, texts
from tests.support_gateway import executor_of, served
from tests.support_run import Gate, Text, agent, call, calls, gated

from helix import Confirmation, ScriptedModel, create_sub_agent_tool
from helix.adapters.models.scripted import Entry

pytestmark = pytest.mark.slow


async def test_a_page_that_resumes_after_the_end_is_exact(typescript: Any) -> None:
    executor = executor_of(["One.", "Two."])
    async with (
        served(executor) as (gateway, _),
        Page(typescript, gateway.url) as page,
        Page(typescript, gateway.url, "other tab") as other,
    ):
        assert await other(["resume"]) == []
        messages = await page(["say", "First"], ["say", "Second"])
        assert await page(["resume"]) == messages, "in place of the message with the same id"
        assert await other(["resume"]) == messages[-1:]
        assert (page.status, other.status) == ("ready", "ready")


async def test_a_response_has_the_run_that_a_sub_agent_starts_when_it_ends(typescript: Any) -> None:
    """The run above waits for another answer, too. It continues when the sub-agent has ended, and pauses again."""
    gate = Gate()
    child = agent("child", output_schema=Text, tools=[refund(require_approval=True)])
    tools = [create_sub_agent_tool(child), refund(require_approval=True)]
    helper = agent("helper", tools=tools)
    done = calls(call("__finish__", text="allowed"))
    scripts: dict[str, list[Entry]] = {
        "helper": [calls(call("subagent__child", message="go"), call("refund", text="B"))],
        "child": [calls(call("refund", text="A")), gated(gate, done)],
    }
    executor = executor_of(ScriptedModel(scripts, by="position"), helper)
    async with served(executor) as (gateway, _), Page(typescript, gateway.url) as page:
        messages = await page(["say", "Refund both"])
        below = next(name for name, _ in call_parts(messages[1]) if "/" in name)
        await executor.answer(helper, below.partition("/")[0], Confirmation(below.partition("/")[2]))
        await gate.reached()
        await page(["resume without waiting"])
        gate.open()
        shown = await page(["shows", "allowed"], ["ready"])
        assert page.problems == [] and texts(shown[1]) == ""
        assert dict(call_parts(shown[1]))["call_1"] == "approval-requested"
        assert [run.status for run in (await executor.sessions.list_runs(CHAT)).runs] == ["paused", "superseded"]
