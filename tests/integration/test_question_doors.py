"""Questions of tools, answered by pages of the AI SDK and AG-UI, MCP clients, HelixClient and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_http import answered, chat, client_of, post
from tests.support.command_line import CommandLine
from tests.support_gateway import executor_of, served
from tests.support_run import agent, call, calls, result_of

from helix import Agent, LLMConfig, Question, ToolContext, tool
from helix.core.errors import CallNotPendingError, InvalidInputError


class Order(BaseModel):
    size: str
    count: int


@tool
async def book(ctx: ToolContext) -> str:
    """Book."""
    seat = await ctx.ask(Question("Which seat?", choices=["window", "aisle"]))
    order, note = await ctx.ask(Question("Which meal?", schema=Order), Question("A note?"))
    return f"{seat}, {order.count} {order.size}, {note}"


desk = Agent(name="desk", system_prompt="Help.", tools=[book], llm_config=LLMConfig(model="scripted"))
ASK = {"content": "One moment.", "tool_calls": [{"name": "book", "arguments": {}}]}
WANTED = "aisle, 2 large, thanks"


def result_part(call_id: str, output: Any, tool_name: str = "question") -> dict[str, Any]:
    about = {"type": "dynamic-tool", "toolName": tool_name, "toolCallId": call_id}
    return {**about, "state": "output-available", "input": {}, "output": output}


@pytest.mark.parametrize("encoding", ["ai-sdk", "ai-sdk-v6"])
async def test_a_page_answers_a_question_as_a_tool_of_its_own(encoding: str) -> None:
    async with client_of(ASK, "Done.", agents=[desk]) as (client, executor):
        sent = [e.json for e in (await post(client, f"/desk/{encoding}", chat("Book")))[:-1]]
        (question,) = [p for p in sent if p.get("toolName") == "question"]
        assert question["toolCallId"] == "call_0?1"
        assert question["input"]["questions"][0]["text"] == "Which seat?"
        assert question["input"]["questions"][0]["schema"]["enum"] == ["window", "aisle"]
        (waits,) = [p for p in sent if p["type"] == "tool-output-available"]
        assert (waits["toolCallId"], waits["output"]) == ("call_0", {"status": "paused"}), "a page goes on by itself"

        parts = [result_part("call_0", {"status": "paused"}, "book"), result_part("call_0?1", "aisle")]
        again = [e.json for e in (await post(client, f"/desk/{encoding}", answered(*parts)))[:-1]]
        assert {"type": "tool-output-available", "toolCallId": "call_0?1", "output": "aisle", "dynamic": True} in again
        (question,) = [p for p in again if p.get("toolName") == "question"]
        assert [q["text"] for q in question["input"]["questions"]] == ["Which meal?", "A note?"]

        refused = [*parts, result_part("call_0?2", [{"size": "large"}, "thanks"])]
        response = await client.post(f"/desk/{encoding}", json=answered(*refused), headers={"x-user": "ann"})
        assert response.status_code == 400 and "count: is missing" in response.text
        parts.append(result_part("call_0?2", [{"size": "large", "count": 2}, "thanks"]))
        last = [e.json for e in (await post(client, f"/desk/{encoding}", answered(*parts)))[:-1]]
        assert {"type": "tool-output-available", "toolCallId": "call_0", "output": WANTED, "dynamic": True} in last
        assert [m.content for m in (await executor.sessions.get_messages("chat")).messages][-1] == "Done."


async def test_ag_ui_interrupts_with_the_schema_of_the_answer() -> None:
    async with client_of(ASK, "Done.", agents=[desk]) as (client, _):
        said = {"id": "u1", "role": "user", "content": "Book"}
        asked = await post(client, "/desk/ag-ui", {"threadId": "t", "runId": "r1", "messages": [said]})
        (interrupt,) = asked[-1].json["outcome"]["interrupts"]
        assert (interrupt["id"], interrupt["toolCallId"], interrupt["reason"]) == (
            "call_0?1",
            "call_0",
            "helix:question",
        )
        assert (interrupt["message"], interrupt["responseSchema"]["enum"]) == ("Which seat?", ["window", "aisle"])
        entry: dict[str, Any] = {"interruptId": "call_0?1", "status": "resolved", "payload": "aisle"}
        body = {"threadId": "t", "messages": [], "resume": [entry]}
        asked = await post(client, "/desk/ag-ui", {**body, "runId": "r2"})
        (interrupt,) = asked[-1].json["outcome"]["interrupts"]
        assert interrupt["id"] == "call_0?2" and interrupt["responseSchema"]["type"] == "array"
        entry |= {"interruptId": "call_0?2", "payload": [{"size": "large", "count": 2}, "thanks"]}
        last = await post(client, "/desk/ag-ui", {**body, "runId": "r3"})
        assert last[-1].json["outcome"] == {"type": "success"}
        assert WANTED in [e.json.get("content") for e in last]


async def test_an_answer_that_looks_like_an_approval_is_an_answer() -> None:
    class Plan(BaseModel):
        approved: bool

    @tool
    async def plan(ctx: ToolContext) -> str:
        """Plan."""
        return f"approved={(await ctx.ask(Question('Is the plan approved?', schema=Plan))).approved}"

    planner = Agent(name="planner", system_prompt="Plan.", tools=[plan], llm_config=LLMConfig(model="scripted"))
    script = {"content": "One moment.", "tool_calls": [{"name": "plan", "arguments": {}}]}
    async with client_of(script, "Done.", agents=[planner]) as (client, _):
        said = {"id": "u1", "role": "user", "content": "Plan"}
        await post(client, "/planner/ag-ui", {"threadId": "t", "runId": "r1", "messages": [said]})
        entry = {"interruptId": "call_0?1", "status": "resolved", "payload": {"approved": False}}
        last = await post(client, "/planner/ag-ui", {"threadId": "t", "runId": "r2", "messages": [], "resume": [entry]})
        assert "approved=False" in [e.json.get("content") for e in last]


async def test_a_plain_request_names_the_call_or_its_round() -> None:
    async with client_of(ASK, "Done.", agents=[desk]) as (client, executor):
        await post(client, "/desk/chunks", {"message": "Book", "session_id": "s"})
        first = {"tool_call_id": "call_0", "data": "aisle"}
        await post(client, "/desk/chunks", {"session_id": "s", "answers": [first]})
        again = {"session_id": "s", "answers": [{"tool_call_id": "call_0?1", "data": "aisle"}]}
        response = await client.post("/desk/chunks", json=again, headers={"x-user": "ann"})
        assert response.status_code == 400, "its round is over"
        second = {"tool_call_id": "call_0?2", "data": [{"size": "large", "count": 2}, "thanks"]}
        await post(client, "/desk/chunks", {"session_id": "s", "answers": [second]})
        assert WANTED in [m.content for m in (await executor.sessions.get_messages("s")).messages]


async def test_helix_client_answers() -> None:
    who = agent("desk", tools=[book])
    async with served(executor_of([calls(call("book")), "Done."], who)) as (_, client):
        handle = await client.run("desk", "Book")
        (waits,) = (await result_of(handle)).pending
        assert (waits.kind, waits.round, [q.text for q in waits.questions]) == ("question", 1, ["Which seat?"])
        with pytest.raises(InvalidInputError, match="must be one of 'window', 'aisle'"):
            await client.answer(handle.session_id, "call_0", data="roof", round=1)
        again = await client.answer(handle.session_id, "call_0", data="aisle", round=1)
        await result_of(again)
        with pytest.raises(CallNotPendingError):
            await client.answer(handle.session_id, "call_0", data="aisle", round=1)
        last = await again.answer("call_0", data=[{"size": "large", "count": 2}, "thanks"], round=2)
        assert (await result_of(last)).output == "Done."


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_mcp_client_shows_a_field_for_each_answer(mode: str) -> None:
    pytest.importorskip("mcp")
    from mcp_types import ElicitResult
    from tests.support_mcp_server import client_of as mcp_client
    from tests.support_mcp_server import on_http

    from helix.mcp import app

    schemas: list[Any] = []
    forms = [{"answer": "aisle"}, {"size": "large", "count": 2, "answer_2": "thanks"}]

    async def fill(context: Any, params: Any) -> ElicitResult:
        schemas.append((params.message, params.requested_schema))
        return ElicitResult(action="accept", content=forms[len(schemas) - 1])

    who = agent("desk", tools=[book])
    async with executor_of([calls(call("book")), "Done."], who) as executor, on_http(app(executor)) as url:
        async with mcp_client(url, mode=mode, elicitation_callback=fill) as client:
            result = (await client.call_tool("desk", {"message": "go"})).structured_content
    assert (result["status"], result["output"]) == ("completed", "Done.")
    assert [message for message, _ in schemas] == ["Which seat?", "Which meal?\nA note?"]
    assert schemas[0][1]["properties"]["answer"]["enum"] == ["window", "aisle"]
    assert list(schemas[1][1]["properties"]) == ["size", "count", "answer_2"]
    assert schemas[1][1]["required"] == ["size", "count", "answer_2"]


async def test_an_mcp_client_without_forms_gets_the_questions() -> None:
    pytest.importorskip("mcp")
    from tests.support_mcp_server import client_of as mcp_client
    from tests.support_mcp_server import on_http

    from helix.mcp import app

    who = agent("desk", tools=[book])
    async with executor_of([calls(call("book")), "Done."], who) as executor, on_http(app(executor)) as url:
        async with mcp_client(url, mode="legacy") as client:
            paused = (await client.call_tool("desk", {"message": "go"})).structured_content
            for data in ("aisle", [{"size": "large", "count": 2}, "thanks"]):
                (pending,) = paused["pending"]
                given = {"session_id": paused["session_id"], "run_id": paused["run_id"], "call_id": pending["call_id"]}
                given |= {"approved": True, "data": data}
                refused = await client.call_tool("helix__answer", given)
                assert refused.is_error and f"asks round {pending['round']} now" in getattr(
                    refused.content[0], "text", ""
                )
                for late in (pending["round"] - 1, pending["round"] + 1):
                    refused = await client.call_tool("helix__answer", {**given, "round": late})
                    text = f"round {late} of call 'call_0' does not wait, and nothing was stored"
                    assert refused.is_error and text in getattr(refused.content[0], "text", "")
                answer = {**given, "round": pending["round"]}
                paused = (await client.call_tool("helix__answer", answer)).structured_content
    assert [each["text"] for each in pending["questions"]] == ["Which meal?", "A note?"]
    assert (paused["status"], paused["output"]) == ("completed", "Done.")


AGENTS = '''
from pydantic import BaseModel

from helix import Agent, Question, ToolContext, tool


class Order(BaseModel):
    size: str
    count: int


@tool
async def book(ctx: ToolContext) -> str:
    """Book."""
    seat = await ctx.ask(Question("Which seat?", choices=["window", "aisle"]))
    order, note = await ctx.ask(Question("Which meal?", schema=Order), Question("A note?"))
    return f"{seat}, {order.count} {order.size}, {note}"


desk = Agent(name="desk", system_prompt="Help.", tools=[book], model="openai/gpt-4o-mini")
'''


@pytest.fixture
def helix(tmp_path: Path) -> CommandLine:
    made = CommandLine(tmp_path, HELIX_LEASE_SECONDS="2")
    (tmp_path / "asks.py").write_text(AGENTS, "utf-8")
    return made


def test_the_command_line_answers(helix: CommandLine) -> None:
    paused = helix("run", "asks.py:desk", "Book", "--session", "s")
    assert paused.code == 4 and "Which seat?" in paused.out
    assert "--approve call_0 --data ANSWER" in paused.out
    refused = helix("resume", "asks.py:desk", "s", "--approve", "call_0", "--data", "roof")
    assert refused.code == 2 and "must be one of 'window', 'aisle'" in refused.err
    assert "Which seat?" in helix("show", "s").out
    assert helix("resume", "asks.py:desk", "s", "--approve", "call_0", "--data", "aisle").code == 4
    data = json.dumps([{"size": "large", "count": 2}, "thanks"])
    done = helix("answer", "asks.py:desk", "s", "call_0", "--data", data)
    assert done.code == 0 and WANTED in done.out


def test_a_chat_asks_until_the_answer_fits(helix: CommandLine) -> None:
    typed = ["Book", "roof", "aisle", '{"size": "large"}', '{"size": "large", "count": 2}', "thanks"]
    done = helix("chat", "asks.py:desk", "--session", "s", "--plain", stdin="\n".join([*typed, ""]))
    assert done.code == 0 and WANTED in done.out
    assert "must be one of 'window', 'aisle'" in done.err and "count: is missing" in done.err
