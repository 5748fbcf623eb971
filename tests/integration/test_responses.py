"""The people who responded to calls that waited: what is stored, and what each reader shows after a reload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_http import answered, chat, client_of, post
from tests.integration.test_question_doors import ASK, WANTED, desk, result_part
from tests.support.command_line import CommandLine
from tests.support_gateway import executor_of, key_for, keyed, served
from tests.support_run import Text, World, a_tool, agent, call, calls, history, play, result_of

from helix import Confirmation, Question, ToolContext, tool
from helix.client import HelixClient
from helix.core.conversation.conversation import Conversation
from helix.core.entries import CallRow, read_waits
from helix.core.errors import ProtocolError
from helix.core.messages import ToolResultMessage

MEAL = [{"size": "large", "count": 2}, "thanks"]


@tool
async def seat(ctx: ToolContext) -> str:
    """Ask twice."""
    return f"{await ctx.ask(Question('Which seat?'))} {await ctx.ask(Question('Which meal?'))}"


def pay(**options: Any) -> Any:
    return a_tool("pay", lambda given, ctx: f"paid {given.text}", input_schema=Text, require_approval=True, **options)


async def result_rows(executor: Any, session_id: str) -> list[CallRow]:
    session = await executor.engine.history.existing(session_id)
    lineage = await executor.engine.history.lineage(session_id, session.lineage)
    entries = await executor.engine.history.entries(session_id, lineage, 0, session.count)
    return [entry for entry in entries if isinstance(entry, CallRow)]


async def answered_by(executor: Any, who: Any, session_id: str, confirmation: Confirmation) -> Any:
    """Answer as a door does that has proved who the person is, and wait for the run."""
    await executor.answer(who, session_id, confirmation)
    return await result_of(await executor.get_handle(who, session_id))


async def test_each_response_is_stored_with_its_person_and_time(world: World) -> None:
    who = agent(tools=[pay(), a_tool("locate", "client", input_schema=Text), seat])
    script = [calls(call("pay", text="rent"), call("pay", text="fine"), call("locate", text="x"), call("seat")), "done"]
    executor = world.executor(script)
    handle, _, _ = await play(executor, who)
    before, session_id = executor.engine.clock.now(), handle.session_id
    for confirmation in (
        Confirmation("call_0", by="ann"),
        Confirmation("call_1", False, reason="no", by="ben"),
        Confirmation("call_2", data="here", by="page"),
        Confirmation("call_3", data="aisle", by="ann"),
    ):
        await answered_by(executor, who, session_id, confirmation)
    result = await answered_by(executor, who, session_id, Confirmation("call_3", False, by="ben"))
    assert result.output == "done"
    rows = await result_rows(executor, session_id)
    given = [[(one.kind, one.approved, one.by) for one in row.responses] for row in rows]
    assert given == [
        [("approval", True, "ann")],
        [("approval", False, "ben")],
        [("client", True, "page")],
        [("question", False, "ben")],
    ]
    asked = [(q.text, q.round, q.answered, q.by) for q in rows[3].questions]
    assert asked == [("Which seat?", 1, True, "ann"), ("Which meal?", 2, False, None)]
    assert all(before <= one.at <= executor.engine.clock.now() for row in rows for one in row.responses)
    assert before <= (rows[3].questions[0].at or 0) <= executor.engine.clock.now()
    results = [one for one in await history(executor, session_id) if isinstance(one, ToolResultMessage)]
    assert [read_waits(one) for one in results] == [(row.questions, row.responses) for row in rows]


async def test_a_reloaded_conversation_shows_what_the_live_one_showed(world: World) -> None:
    who = agent(tools=[pay(), seat])
    executor = world.executor([calls(call("pay", text="rent")), calls(call("seat")), "done"])
    handle, _, _ = await play(executor, who)
    session_id = handle.session_id
    await answered_by(executor, who, session_id, Confirmation("call_0", by="ann"))
    await answered_by(executor, who, session_id, Confirmation("call_1", data="aisle", by="ann"))
    await answered_by(executor, who, session_id, Confirmation("call_1", data="soup", by="ben"))
    live, loaded = Conversation(session_id), Conversation(session_id)
    for message in await executor.streams.read(session_id):
        live.take(message)
    loaded.load(await history(executor, session_id), {})
    for call_id in ("call_0", "call_1"):
        one, other = live.calls[call_id], loaded.calls[call_id]
        assert [*one.questions] == [*other.questions] and [*one.responses] == [*other.responses]
    assert [(q.text, q.data, q.by) for q in loaded.calls["call_1"].questions] == [
        ("Which seat?", "aisle", "ann"),
        ("Which meal?", "soup", "ben"),
    ]
    assert [(given.approved, given.by) for given in loaded.calls["call_0"].responses] == [(True, "ann")]


async def test_a_call_that_waits_for_nobody_stores_nothing_more(world: World) -> None:
    who = agent(tools=[a_tool("look", lambda given, ctx: "seen", input_schema=Text)])
    executor = world.executor([calls(call("look", text="x")), "done"])
    handle, _, _ = await play(executor, who)
    (row,) = await result_rows(executor, handle.session_id)
    assert not {"responses", "questions", "remind_at", "reminders"} & row.dump().keys()


async def test_a_stage_stores_the_person_that_it_proved() -> None:
    who = agent("desk", tools=[pay()])
    executor = executor_of([calls(call("pay", text="rent")), "Done."], who)
    key = await key_for(executor, "ann")
    async with served(executor, token=key, authoriser=keyed(executor)) as (_, client):
        handle = await client.run("desk", "Pay")
        await result_of(handle)
        forged = {"session_id": handle.session_id, "tool_call_id": "call_0", "subscribe": False, "by": "eve"}
        await forge(client, forged)
        last = await client.answer(handle.session_id, "call_0")
        await result_of(last)
        (row,) = await result_rows(executor, handle.session_id)
        assert [one.by for one in row.responses] == ["ann"]


async def forge(client: HelixClient, request: dict[str, Any]) -> None:
    """Send an answer that names another person. It is refused as a whole."""
    with pytest.raises(ProtocolError, match="by: Extra inputs"):
        await client.ask("answer", request)


@pytest.mark.parametrize("encoding", ["ai-sdk", "ai-sdk-v6"])
async def test_a_page_that_loads_shows_past_questions(encoding: str) -> None:
    async with client_of(ASK, "Done.", agents=[desk]) as (client, executor):
        await post(client, f"/desk/{encoding}", chat("Book"))
        parts = [result_part("call_0", {"status": "paused"}, "book"), result_part("call_0?1", "aisle")]
        await post(client, f"/desk/{encoding}", answered(*parts))
        sent = await post(client, f"/desk/{encoding}", answered(*parts, result_part("call_0?2", MEAL)))
        people = {"call_0?1": "ann", "call_0?2": "ann"}
        named = [e.json["messageMetadata"] for e in sent[:-1] if e.json["type"] == "message-metadata"]
        assert named[-1] == {"answeredBy": people}
        await executor.branch(
            "chat", session_id="copy"
        )  # its messages come from history, those of "chat" from the stream
        for session_id in ("chat", "copy"):
            found = await client.get(f"/desk/{encoding}/{session_id}/messages", headers={"x-user": "ann"})
            (shown,) = [m for m in found.json()["messages"] if m["role"] == "assistant"]
            asked = {p["toolCallId"]: p for p in shown["parts"] if p.get("toolName") == "question"}
            texts = {key: [q["text"] for q in part["input"]["questions"]] for key, part in asked.items()}
            assert texts == {"call_0?1": ["Which seat?"], "call_0?2": ["Which meal?", "A note?"]}, session_id
            assert {key: part["output"] for key, part in asked.items()} == {"call_0?1": "aisle", "call_0?2": MEAL}
            assert shown["metadata"]["answeredBy"] == people, session_id


async def test_ag_ui_shows_past_questions_live_and_when_it_loads() -> None:
    async with client_of(ASK, "Done.", "Hello.", agents=[desk]) as (client, _):
        said = {"id": "u1", "role": "user", "content": "Book"}
        await post(client, "/desk/ag-ui", {"threadId": "t", "runId": "r1", "messages": [said]})
        live: list[Any] = []
        for number, payload in ((1, "aisle"), (2, MEAL)):
            entry = {"interruptId": f"call_0?{number}", "status": "resolved", "payload": payload}
            body = {"threadId": "t", "messages": [], "resume": [entry], "runId": f"r{number + 1}"}
            live += [e.json for e in await post(client, "/desk/ag-ui", body)]
        started = [e["toolCallId"] for e in live if e["type"] == "TOOL_CALL_START" and e["toolCallName"] == "question"]
        results = {e["toolCallId"]: e["content"] for e in live if e["type"] == "TOOL_CALL_RESULT"}
        assert started == ["call_0?1", "call_0?2"]
        (first,) = json.loads(results["call_0?1"])
        assert (first["answer"], first["by"]) == ("aisle", "ann") and first["at"] > 0
        assert [one["answer"] for one in json.loads(results["call_0?2"])] == MEAL and results["call_0"] == WANTED
        loaded = (await client.get("/desk/ag-ui/t/messages", headers={"x-user": "ann"})).json()["messages"]
        made = [one["function"]["name"] for m in loaded for one in m.get("toolCalls", [])]
        assert made == ["book", "question", "question"]
        assert {m["toolCallId"]: m["content"] for m in loaded if m["role"] == "tool"} == results


AGENTS = '''
from helix import Agent, Question, ToolContext, tool


@tool(require_approval=True)
async def pay(ctx: ToolContext) -> str:
    """Pay."""
    return await ctx.ask(Question("For whom?"))


desk = Agent(name="desk", system_prompt="Help.", tools=[pay], model="openai/gpt-4o-mini")
'''


def test_the_command_line_shows_who_answered(tmp_path: Path) -> None:
    helix = CommandLine(tmp_path, HELIX_LEASE_SECONDS="2")
    (tmp_path / "asks.py").write_text(AGENTS, "utf-8")
    assert helix("run", "asks.py:desk", "Pay", "--session", "s").code == 4
    assert helix("resume", "asks.py:desk", "s", "--approve", "call_0").code == 4
    assert helix("answer", "asks.py:desk", "s", "call_0", "--data", "Ada").code == 0
    shown = helix("show", "s").out
    assert "? For whom?: Ada (20" in shown and "? pay: approved (20" in shown
    page = tmp_path / "s.html"
    assert helix("show", "s", "--html", str(page)).code == 0
    assert "For whom?" in page.read_text() and "approved (20" in page.read_text()
