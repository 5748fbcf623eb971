"""Questions of sub-agents, several questions at once, and other kinds of questions, as an MCP client asks its user."""

from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp_types import ElicitResult
from tests.support_gateway import executor_of
from tests.support_mcp_server import ERAS, Tasks, ask, buyer, client_of, on_http, person, task_of
from tests.support_run import Text, a_tool, agent, call, calls
from tests.support_sub_agents import ask as ask_child
from tests.support_sub_agents import child, finish, parent

from helix.core.rows import Pending
from helix.mcp import app
from helix.mcp.questions import form, verdict
from helix.mcp.runs import Question

YES = ElicitResult(action="accept", content={"approve": True})
NO = ElicitResult(action="accept", content={"approve": False})


def boss(paid: list[str]) -> Any:
    async def pay(asked: Text, context: Any) -> str:
        paid.append(asked.text)
        return f"paid {asked.text}"

    return parent(child(tools=[a_tool("pay", pay, input_schema=Text, require_approval=True)]))


BOSS = {"boss": [calls(ask_child()), "done"], "finder": [calls(call("pay", text="rent")), finish("paid")]}


@ERAS
async def test_a_sub_agents_question_is_asked_and_both_go_on(mode: str) -> None:
    paid: list[str] = []
    fill, asked = person(YES)
    async with executor_of(BOSS, boss(paid)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode, elicitation_callback=fill) as client:
            result = (await client.call_tool("boss", {"message": "go"})).structured_content
    assert (result["status"], result["output"], paid) == ("completed", "done", ["rent"])
    assert asked == ['Allow the call of pay with {"text":"rent"}?']


async def test_a_sub_agents_question_is_of_the_task_and_answered_without_forms_too() -> None:
    paid: list[str] = []
    async with executor_of(BOSS, boss(paid)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="legacy") as client:
            paused = (await client.call_tool("boss", {"message": "go"})).structured_content
            (pending,) = paused["pending"]
            assert pending["session_id"] != paused["session_id"]
            given = {name: paused[name] for name in ("session_id", "run_id")} | {"approved": True}
            given |= {"call_id": pending["call_id"], "call_session_id": pending["session_id"]}
            done = (await client.call_tool("helix__answer", given)).structured_content
    assert (done["status"], done["output"], paid) == ("completed", "done", ["rent"])


TWO = [calls(call("order", text="tea"), call("order", text="milk")), "Both are done."]


@ERAS
async def test_several_questions_are_asked_each_once(mode: str) -> None:
    done: list[str] = []
    fill, asked = person(YES, NO)
    async with executor_of(TWO, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode, elicitation_callback=fill) as client:
            result = (await client.call_tool("buyer", {"message": "go"})).structured_content
    assert (result["output"], len(done), len(asked)) == ("Both are done.", 1, 2)


async def test_a_task_whose_questions_are_answered_one_by_one_asks_for_the_rest() -> None:
    done: list[str] = []
    tasks = Tasks()
    fill, _ = person()
    async with executor_of(TWO, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks], elicitation_callback=fill) as client:
            await client.call_tool("buyer", {"message": "go"})
            task = await task_of(client.session, tasks.made[0], "input_required")
            first, second = task["inputRequests"]
            filled = YES.model_dump(mode="json", by_alias=True, exclude_none=True)
            await ask(client.session, "tasks/update", taskId=tasks.made[0], inputResponses={second: filled})
            left = await task_of(client.session, tasks.made[0], "input_required")
            assert list(left["inputRequests"]) == [first]
            await ask(client.session, "tasks/update", taskId=tasks.made[0], inputResponses={first: filled})
            task = await task_of(client.session, tasks.made[0], "completed")
    assert (task["result"]["structuredContent"]["output"], sorted(done)) == ("Both are done.", ["milk", "tea"])


async def test_a_clients_tool_is_done_by_the_person() -> None:
    who = agent("asker", tools=[a_tool("phone", "client", input_schema=Text)])
    fill, asked = person(ElicitResult(action="accept", content={"result": '{"number": 7}'}))
    async with executor_of([calls(call("phone", text="ada")), "Called."], who) as executor:
        async with on_http(app(executor)) as url, client_of(url, elicitation_callback=fill) as client:
            result = (await client.call_tool("asker", {"message": "go"})).structured_content
        messages = (await executor.sessions.get_messages(result["session_id"])).messages
    assert result["output"] == "Called."
    assert asked == ['The agent needs the result of phone with {"text":"ada"}.']
    assert [message.content for message in messages if message.role == "tool"] == ['{"number":7}']


@pytest.mark.parametrize(
    ("kind", "filled", "said"),
    [
        ("unknown", {"approve": True}, {"approved": True}),
        ("unknown", {"approve": False, "result": "it was"}, {"approved": False, "data": "it was"}),
        ("unknown", {"approve": False, "result": "[1]"}, {"approved": False, "data": [1]}),
        ("unknown", {"result": "it was"}, None),
        ("client", {"result": "text"}, {"approved": True, "data": "text"}),
        ("client", {"approve": True}, None),
        ("approval", {"approve": 1}, None),
        ("approval", {"approve": False, "arguments": '{"a": 1}'}, {"approved": False}),
        ("approval", {"approve": True, "reason": "x" * 9_000}, {"approved": True, "reason": "x" * 2_000}),
    ],
)
def test_only_what_was_filled_in_is_said(kind: Any, filled: Any, said: Any) -> None:
    question = Question("ses_1", "run_1", Pending(call_id="c", tool_name="order", kind=kind))
    assert form(question).params.mode == "form"
    assert verdict(question, ElicitResult(action="accept", content=filled)) == said
    assert verdict(question, ElicitResult(action="decline")) == {"approved": False, "reason": "declined"}
