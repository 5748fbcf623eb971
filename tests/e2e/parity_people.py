"""The scenarios of the parity suite in which people or guards take part, each written once for every runtime."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.parity_registry import LONG, scenario
from tests.e2e.parity_stage import Stage
from tests.support.cloud_agents.plans import ask, call, finish, plan, say, use

from helix import CallEndedError

# --- people --------------------------------------------------------------------------------------------------------------


@scenario
async def an_approval(stage: Stage) -> None:
    result = await stage.run("talker", plan(use(call("gated", topic="x"), call("look", topic="y")), say("Allowed.")))
    assert result.status == "paused"
    assert (await stage.answer("talker", result.pending[0], data={"by": "me"})).status == "completed"


@scenario
async def an_approval_with_other_arguments(stage: Stage) -> None:
    result = await stage.run("talker", plan(use(call("gated", topic="x")), say("Allowed.")))
    parameters: list[Any] = [pending.parameters["properties"] for pending in result.pending]
    assert [asked.keys() for asked in parameters] == [{"topic"}]
    changed = {"arguments": {"topic": "z"}, "by": "me"}
    assert (await stage.answer("talker", result.pending[0], **changed)).status == "completed"


@scenario
async def a_denial(stage: Stage) -> None:
    result = await stage.run("talker", plan(use(call("gated", topic="x")), say("As you wish.")))
    assert (await stage.answer("talker", result.pending[0], approved=False, reason="no")).status == "completed"


@scenario
async def two_approvals_one_after_the_other(stage: Stage) -> None:
    result = await stage.run("talker", plan(use(call("gated", topic="x"), call("gated", topic="y")), say("Both.")))
    first, second = result.pending
    assert (await stage.answer("talker", second)).status == "paused"
    assert (await stage.answer("talker", first, approved=False)).status == "completed"


@scenario
async def an_approval_in_a_sub_agent(stage: Stage) -> None:
    child = plan(use(call("gated", topic="deep")), finish(summary="allowed"))
    result = await stage.run("boss", plan(use(ask("helper", child), call("look", topic="y")), finish(summary="done")))
    assert result.status == "paused"
    assert (await stage.answer("boss", "call_0")).status == "completed"


@scenario
async def a_message_instead_of_an_answer(stage: Stage) -> None:
    await stage.run("talker", plan(use(call("gated", topic="x"), call("look", topic="y")), say("Never said.")))
    handle = await stage.executor.resume(stage.agents["talker"], stage.session, message=plan(say("Never mind, then.")))
    assert (await stage.end(handle)).status == "completed"


@scenario
async def questions_of_a_tool(stage: Stage) -> None:
    result = await stage.run("talker", plan(use(call("survey"), call("look", topic="y")), say("Noted.")))
    assert [question.text for question in result.pending[0].questions] == ["Which colour?"]
    assert (await stage.answer("talker", result.pending[0], data="blue", round=1)).status == "paused"
    assert (await stage.answer("talker", "call_0", data=[3, "it fits"])).status == "completed"
    seen: Any = (await stage.executor.sessions.get(stage.session)).custom_state["seen"]
    assert sorted(seen) == ["3 blue", "y"]


@scenario
async def a_tool_of_the_client(stage: Stage) -> None:
    result = await stage.run("talker", plan(use(call("form", question="colour?")), say("Noted.")))
    assert (await stage.answer("talker", result.pending[0], data={"colour": "blue"})).status == "completed"


MAP: dict[str, Any] = {
    "name": "show_map",
    "description": "Shows a place on the user's map.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}
BELL = {"name": "ring_bell", "description": "Rings the bell of the page."}


@scenario
async def tools_of_the_page(stage: Stage) -> None:
    calls = [call("show_map", place="Oslo"), call("look", topic="y"), call("show_map"), call("ring_bell")]
    steps = plan(use(*calls), use(call("show_map", place="Bergen")), say("Seen."))
    result = await stage.run("talker", steps, tools=[MAP, BELL])
    assert [pending.tool_name for pending in result.pending] == ["show_map", "ring_bell"]
    result = await stage.answer("talker", result.pending[1], data="rang")
    result = await stage.answer("talker", result.pending[0], data={"shown": True})
    assert [pending.arguments for pending in result.pending] == [{"place": "Bergen"}]
    assert (await stage.answer("talker", result.pending[0], approved=False, reason="no map")).status == "completed"
    assert (await stage.run("talker", plan(use(call("show_map", place="Oslo")), say("Gone.")))).text == "Gone."


@scenario
async def a_guard_judges_the_result_of_the_page(stage: Stage) -> None:
    result = await stage.run("careful", plan(use(call("show_map", place="Oslo")), say("Seen.")), tools=[MAP])
    assert (await stage.answer("careful", result.pending[0], data="The password is 1234.")).text == "Seen."
    messages = (await stage.executor.sessions.get_messages(stage.session)).messages
    assert [one.content for one in messages if one.role == "tool"] == ["The password is ****."]


@scenario
async def a_call_that_ends_elsewhere(stage: Stage) -> None:
    message = plan(use(call("ship", place=stage.file("token")), call("look", topic="y")), say("Shipped."))
    result = await stage.run("talker", message)
    assert [pending.kind for pending in result.pending] == ["elsewhere"]
    token = Path(stage.file("token")).read_text("utf-8")
    assert await stage.executor.prolong_call(token) == pytest.approx(time.time() + 600, abs=60)
    for _ in range(2):
        await stage.executor.complete_call(token, {"parcel": 7})
    result = await stage.end(await stage.executor.get_handle(stage.agents["talker"], stage.session))
    assert result.text == "Shipped."
    with pytest.raises(CallEndedError):
        await stage.executor.fail_call(token, "too late")
    state: Any = (await stage.executor.sessions.get(stage.session)).custom_state
    assert sorted(state["seen"]) == ["shipped", "y"]


# --- messages to a run that works ----------------------------------------------------------------------------------------


@scenario
async def a_message_that_is_queued_and_one_that_is_withdrawn(stage: Stage) -> None:
    first = await stage.begin("talker", plan(say(LONG, gate=stage.file("gate"))), "gate")
    talker, at = stage.agents["talker"], stage.session
    queued = await stage.executor.execute(
        talker, plan(use(call("look", topic="x")), say("Next.")), session_id=at, when_running="queue"
    )
    unwanted = await stage.executor.execute(talker, plan(say("Never said.")), session_id=at, when_running="queue")
    assert unwanted.queued_id is not None
    assert await stage.executor.withdraw(stage.session, unwanted.queued_id) == "withdrawn"
    stage.open("gate")
    assert (await first.result()).text == LONG
    assert (await stage.end(queued)).text == "Next."


@scenario
async def a_message_that_steers(stage: Stage) -> None:
    message = plan(use(call("wait", gate=stage.file("gate"))), say("Never said."))
    first = await stage.begin("talker", message, "gate")
    talker, wish = stage.agents["talker"], plan(say("As you wish."))
    same = await stage.executor.execute(talker, wish, session_id=stage.session, when_running="steer")
    assert same.run_id == first.run_id
    stage.open("gate")
    assert (await stage.end(first)).text == "As you wish."


# --- guards --------------------------------------------------------------------------------------------------------------


@scenario
async def guards_of_calls_and_outputs(stage: Stage) -> None:
    calls = [call("boom"), call("look", topic="secret"), call("add", amount=500)]
    result = await stage.run("careful", plan(use(*calls), say("The password is 1234.")))
    assert [(pending.tool_name, pending.reason) for pending in result.pending] == [("add", "it is much")]
    assert (await stage.answer("careful", result.pending[0])).text == "The password is ****."
    state: Any = (await stage.executor.sessions.get(stage.session)).custom_state
    assert (state["seen"], state["total"]) == (["public"], 500)
