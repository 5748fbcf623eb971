"""The actions of the WebSocket gateway on runs and streams: the effect of each, and the error when it fails."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support_gateway import ADA, BOB, Desk, desk_of, started
from tests.support_run import Gate, Text, a_tool, agent, call, calls, gated

from helix import LLMConfig, create_sub_agent_tool
from helix.core.errors import ModelError
from helix.core.functions import AgentClient
from helix.core.registry import AgentRegistry
from helix.gateway import reads
from helix.gateway.authoriser import prefix_of

# --- runs ---------------------------------------------------------------------------------------------------------------


async def test_a_run_makes_a_session_of_its_principal_and_subscribes(desk: Desk) -> None:
    place = await started(desk, tags=["t"], metadata={"m": 1}, state={})
    assert set(place) == {"session_id", "run_id", "turn", "stream_id", "after", "replay"}
    assert (place["turn"], place["after"], place["replay"]) == (1, 0, False)
    state = await desk.executor.sessions.get(place["session_id"])
    assert (state.user_id, state.tags, state.metadata, state.status) == (ADA, ["t"], {"m": 1}, "completed")
    (subscriber,) = await desk.connections.subscribers(place["stream_id"])
    assert (subscriber.connection_id, subscriber.principal, subscriber.lagging) == ("ada", ADA, False)


async def test_the_next_message_goes_on_behind_what_is_on_the_stream(desk: Desk) -> None:
    first = await started(desk)
    info = await desk.executor.streams.info(first["stream_id"])
    assert info is not None
    second = await started(desk, session_id=first["session_id"])
    assert (second["turn"], second["after"]) == (2, info.latest_sequence)
    assert second["session_id"] == first["session_id"] and second["run_id"] != first["run_id"]


async def test_a_message_with_edits_takes_the_place_of_the_one_with_its_id() -> None:
    desk = desk_of(["One.", "Two.", "Other.", "New."])
    async with desk.executor:
        await desk.connect("ada", ADA)
        await desk.connect("bob", BOB)
        place = await started(desk, message="First", message_id="u1", session_id=f"{prefix_of(ADA)}x")
        about = {"session_id": place["session_id"], "message_id": "u1", "edits": True}
        await started(desk, message="Second", message_id="u2", session_id=place["session_id"])
        edited = await started(desk, message="Changed", key="e1", **about)
        assert (await started(desk, message="Changed", key="e1", **about))["run_id"] == edited["run_id"]
        assert (await started(desk, message="Changed", key="e2", **about))["run_id"] == edited["run_id"]
        await started(desk, message="New", key="e3", **{**about, "message_id": "u9"})
        messages = (await desk.executor.sessions.get_messages(place["session_id"])).messages
        assert [message.content for message in messages] == ["Changed", "Other.", "New", "New."]
        error = await desk.error("ada", "run", agent="helper", message="x", edits=True)
        assert error["code"] == "invalid_message" and "message_id" in error["message"]
        stranger = await desk.error("bob", "run", agent="helper", message="x", **about)
        assert stranger["code"] == "session_not_found"


async def test_without_subscribe_nothing_is_posted(desk: Desk) -> None:
    place = await started(desk, subscribe=False)
    assert await desk.connections.subscribers(place["stream_id"]) == []


async def test_a_run_that_cannot_be_leaves_no_subscription(desk: Desk) -> None:
    error = await desk.error("ada", "run", agent="helper", message=" ", session_id=f"{prefix_of(ADA)}x")
    assert error["code"] == "invalid_input" and "message is empty" in error["message"]
    assert await desk.connections.subscribers(f"{prefix_of(ADA)}x") == []


async def test_an_unknown_agent_is_refused_and_none_is_listed(desk: Desk) -> None:
    error = await desk.error("ada", "run", agent="nobody", message="hi")
    assert (error["code"], error["message"]) == ("agent_not_found", "there is no agent 'nobody' here")


async def test_a_busy_session_refuses_the_second_message() -> None:
    gate = Gate()
    desk = desk_of([gated(gate, "Done.")])
    async with desk.executor:
        await desk.connect("ada", ADA)
        place = await desk.result("ada", "run", agent="helper", message="hi")
        await gate.reached()
        error = await desk.error("ada", "run", agent="helper", message="more", session_id=place["session_id"])
        assert (error["code"], error["recoverable"]) == ("agent_already_running", True)
        assert error["details"] == {"session_id": place["session_id"], "run_id": place["run_id"]}
        gate.open()
        assert (await desk.ended(place["session_id"]))["text"] == "Done."


@pytest.mark.parametrize("session_id", [None, f"{prefix_of(ADA)}mine"])
async def test_the_same_request_twice_is_one_run(desk: Desk, session_id: str | None) -> None:
    """The network or the sender repeats a message. The answers are the same, and one run was bought."""
    request = {"v": 1, "action": "run", "id": "same", "agent": "helper", "message": "hi"}
    request |= {"session_id": session_id} if session_id else {}
    both = await asyncio.gather(*(desk.gateway.handle("ada", json.dumps(request)) for _ in range(2)))
    assert both == [None, None]
    replies = [frame["result"] for frame in desk.mailbox.read("ada")]
    assert len(replies) == 2 and replies[0]["run_id"] == replies[1]["run_id"]
    await desk.ended(replies[0]["session_id"])
    (late,) = await desk.say("ada", json.dumps(request))
    assert late["result"]["run_id"] == replies[0]["run_id"] and late["result"]["replay"]
    page = await desk.executor.sessions.list_runs(replies[0]["session_id"])
    assert len(page.runs) == 1
    assert len((await desk.executor.sessions.list_sessions(user_id=ADA)).sessions) == 1


async def test_a_key_finds_its_run_from_another_connection_and_behind_later_runs(desk: Desk) -> None:
    await desk.connect("ada2", ADA)
    first = await started(desk, key="k1")
    await started(desk, session_id=first["session_id"])
    again = await desk.result("ada2", "run", agent="helper", message="hi", session_id=first["session_id"], key="k1")
    assert (again["run_id"], again["turn"], again["after"], again["replay"]) == (first["run_id"], 1, 0, True)
    other = await started(desk, "bob", key="k1")
    assert other["session_id"] != first["session_id"]  # a key belongs to its principal


async def test_resume_and_retry() -> None:
    gate = Gate()
    script = [gated(gate, "never"), "Resumed.", ModelError("provider is down"), "Retried."]
    desk = desk_of(script, agent("helper", llm_config=LLMConfig(model="scripted", max_retries=0)))
    async with desk.executor:
        await desk.connect("ada", ADA)
        place = await desk.result("ada", "run", agent="helper", message="hi")
        session_id = place["session_id"]
        await gate.reached()
        assert await desk.result("ada", "interrupt", session_id=session_id, reason="wait") == {"interrupted": True}
        assert (await desk.ended(session_id))["status"] == "interrupted"
        assert await desk.result("ada", "interrupt", session_id=session_id) == {"interrupted": False}
        resumed = await desk.result("ada", "resume", session_id=session_id, key="r")
        assert resumed["turn"] == 2 and (await desk.ended(session_id))["text"] == "Resumed."
        assert (await desk.result("ada", "resume", session_id=session_id, key="r"))["run_id"] == resumed["run_id"]
        error = await desk.error("ada", "resume", session_id=session_id)
        assert (error["code"], error["details"]["reason"]) == ("cannot_resume", "completed")
        await desk.result("ada", "run", agent="helper", message="more", session_id=session_id)
        assert (await desk.ended(session_id))["status"] == "failed"
        retried = await desk.result("ada", "retry", session_id=session_id, key="t")
        assert retried["turn"] == 4 and (await desk.ended(session_id))["text"] == "Retried."
        assert (await desk.result("ada", "retry", session_id=session_id, key="t"))["run_id"] == retried["run_id"]


async def test_abort_is_for_good_and_may_be_repeated() -> None:
    gate = Gate()
    desk = desk_of([gated(gate, "never")])
    async with desk.executor:
        await desk.connect("ada", ADA)
        place = await desk.result("ada", "run", agent="helper", message="hi")
        await gate.reached()
        for _ in range(2):
            assert await desk.result("ada", "abort", session_id=place["session_id"], reason="enough") == {}
        found = await desk.result("ada", "get_session", session_id=place["session_id"], run_id=place["run_id"])
        assert (found["run"]["status"], found["run"]["error_code"]) == ("failed", "aborted")
        assert (await desk.error("ada", "retry", session_id=place["session_id"]))["code"] == "cannot_resume"


async def test_an_answer_starts_the_run_that_acts_on_it_and_the_first_one_counts() -> None:
    tool = a_tool("refund", lambda args, ctx: "refunded", require_approval=True)
    desk = desk_of([calls(call("refund")), "It is done."], agent("helper", tools=[tool]))
    async with desk.executor:
        await desk.connect("ada", ADA)
        place = await started(desk)
        found = await desk.result("ada", "get_session", session_id=place["session_id"], run_id=place["run_id"])
        assert found["can_resume"] == {"can_resume": True, "reason": "pending_confirmation"}
        (pending,) = found["run"]["pending"]
        answered = await desk.result("ada", "answer", session_id=place["session_id"], tool_call_id=pending["call_id"])
        assert (answered["resumed"], answered["turn"]) == (True, 2)
        assert (await desk.ended(place["session_id"]))["text"] == "It is done."
        error = await desk.error("ada", "answer", session_id=place["session_id"], tool_call_id=pending["call_id"])
        assert error["code"] == "call_not_pending"


async def test_an_approver_reads_the_schema_and_may_change_the_arguments() -> None:
    """The executed arguments are stored with the user who changed them, whatever the client claims."""
    ran: list[str] = []
    tool = a_tool(
        "refund", lambda args, ctx: ran.append(args.text), input_schema=Text, require_approval=lambda given: "dear"
    )
    desk = desk_of([calls(call("refund", text="A7")), "It is done."], agent("helper", tools=[tool]))
    async with desk.executor:
        await desk.connect("ada", ADA)
        await desk.connect("bob", BOB)
        place = await started(desk)
        found = await desk.result("ada", "get_session", session_id=place["session_id"], run_id=place["run_id"])
        for (pending,) in (found["run"]["pending"], found["session"]["pending"]):
            shown = (pending["arguments"], pending["reason"], pending["parameters"])
            assert shown == ({"text": "A7"}, "dear", tool.parameters)
        asked = {"session_id": place["session_id"], "tool_call_id": pending["call_id"]}
        foreign = await desk.error("bob", "answer", **asked, arguments={"text": "B"})
        wrong = await desk.error("ada", "answer", **asked, arguments={"text": 5})
        shape = await desk.error("ada", "answer", **asked, arguments=[5])
        assert (foreign["code"], wrong["code"], shape["code"]) == (
            "session_not_found",
            "invalid_input",
            "invalid_message",
        )
        assert "invalid arguments for 'refund': text" in wrong["message"]
        forged = await desk.error("ada", "answer", **asked, arguments={"text": "A8"}, by="bob")
        assert forged["code"] == "invalid_message"
        await desk.result("ada", "answer", **asked, arguments={"text": "A8"})
        assert (await desk.ended(place["session_id"]))["text"] == "It is done." and ran == ["A8"]
        found = await desk.result("ada", "get_session", session_id=place["session_id"], messages=10)
        edited = next(message["metadata"]["edited"] for message in found["messages"] if message["role"] == "tool")
        assert (edited["by"], edited["arguments"]) == (ADA, {"text": "A8"})


async def test_sub_agents_sessions_belong_through_their_root_and_are_no_roots() -> None:
    tool = a_tool("refund", lambda args, ctx: "refunded", require_approval=True)
    child = agent("desk", tools=[tool], output_schema=Text)
    boss = agent("boss", tools=[create_sub_agent_tool(child)])
    script = {
        "boss": [calls(call("subagent__desk", message="refund it")), "All done."],
        "desk": [calls(call("refund")), calls(call("__finish__", text="Refunded."))],
    }
    desk = desk_of(script, boss)
    async with desk.executor:
        await desk.connect("ada", ADA)
        await desk.connect("bob", BOB)
        place = await desk.result("ada", "run", agent="boss", message="go")
        paused = await desk.ended(place["session_id"])
        child_id = paused["pending"][0]["child_session_id"]
        session = (await desk.result("ada", "get_session", session_id=child_id))["session"]
        assert (session["agent_type"], session["parent_session_id"]) == ("desk", place["session_id"])
        stranger = await desk.error("bob", "get_session", session_id=child_id)
        assert stranger["code"] == "session_not_found"
        for action, more in {
            "run": {"agent": "desk", "message": "x"},
            "branch": {},
            "clone": {},
            "delete": {},
        }.items():
            error = await desk.error("ada", action, session_id=child_id, **more)
            assert error["code"] == "invalid_input" and place["session_id"] in error["message"]
        followed = await desk.result("ada", "subscribe", session_id=child_id)
        assert followed["stream_id"] == place["stream_id"]
        call_id = session["pending"][0]["call_id"]
        answered = await desk.result("ada", "answer", session_id=place["session_id"], tool_call_id=call_id)
        assert answered["resumed"] and answered["run_id"] != place["run_id"]
        assert (await desk.ended(place["session_id"]))["text"] == "All done."


async def test_a_function_agent_takes_parameters() -> None:
    client = AgentClient(registry=AgentRegistry())

    @client.agent(name="adder")
    async def adder(a: int, b: int) -> int:
        return a + b

    desk = desk_of([], client.registry.resolve("adder"))
    async with desk.executor:
        await desk.connect("ada", ADA)
        place = await desk.result("ada", "run", agent="adder", input={"a": 2, "b": 3})
        assert (await desk.ended(place["session_id"]))["output"] == 5


# --- following ----------------------------------------------------------------------------------------------------------


async def test_subscribe_replays_what_is_behind_a_sequence_and_says_how_far(desk: Desk) -> None:
    place = await started(desk, subscribe=False)
    info = await desk.executor.streams.info(place["stream_id"])
    assert info is not None
    await desk.connections.subscribe("ada", place["stream_id"])
    await desk.connections.mark_lagging(place["stream_id"], "ada")
    request = {"v": 1, "action": "subscribe", "id": "s", "stream_id": place["stream_id"], "after": 2}
    told = await desk.say("ada", json.dumps(request))
    sequences = [m["sequence"] for frame in told if frame["type"] == "messages" for m in frame["messages"]]
    assert sequences == list(range(3, info.latest_sequence + 1))
    wanted = {"stream_id": place["stream_id"], "caught_up": info.latest_sequence, "complete": True}
    assert told[-1]["type"] == "reply" and told[-1]["result"] == wanted
    (subscriber,) = await desk.connections.subscribers(place["stream_id"])
    assert not subscriber.lagging
    await desk.result("ada", "unsubscribe", session_id=place["session_id"])
    assert await desk.connections.subscribers(place["stream_id"]) == []


async def test_a_connection_that_is_too_slow_for_the_replay_is_told_where_it_stands(desk: Desk) -> None:
    place = await started(desk, subscribe=False)
    desk.mailbox.fates["ada"] = iter(["slow"])
    request = {"v": 1, "action": "subscribe", "id": "s", "stream_id": place["stream_id"]}
    told = await desk.say("ada", json.dumps(request))
    assert [frame["type"] for frame in told] == ["lagging", "reply"]
    assert told[0]["after"] == 0
    assert told[1]["result"] == {"stream_id": place["stream_id"], "caught_up": 0, "complete": False}
    (subscriber,) = await desk.connections.subscribers(place["stream_id"])
    assert subscriber.lagging


async def test_a_connection_that_is_gone_is_closed_where_it_shows(desk: Desk) -> None:
    place = await started(desk)
    desk.mailbox.fates["ada"] = iter(["gone"])
    request = {"v": 1, "action": "subscribe", "id": "s", "stream_id": place["stream_id"]}
    assert await desk.say("ada", json.dumps(request)) == []
    assert await desk.connections.get("ada") is None
    assert await desk.connections.subscribers(place["stream_id"]) == []
    desk.mailbox.fates["bob"] = iter(["gone"])
    assert await desk.say("bob", '{"v":1,"action":"ping","id":"p"}') == []
    assert await desk.connections.get("bob") is None


async def test_a_long_answer_comes_in_parts(desk: Desk) -> None:
    place = await desk.result("ada", "run", agent="helper", message="é" * 40_000)
    await desk.ended(place["session_id"])
    request = {"v": 1, "action": "get_session", "id": "g", "session_id": place["session_id"], "messages": 2}
    await desk.gateway.handle("ada", json.dumps(request))
    assert len(desk.mailbox.frames["ada"]) > 2
    (answer,) = desk.mailbox.read("ada")
    assert answer["result"]["messages"][0]["content"] == "é" * 40_000


# --- what goes wrong ----------------------------------------------------------------------------------------------------


async def test_what_is_no_request_is_answered_by_a_typed_error(desk: Desk) -> None:
    for body, ident in (("{", None), ('{"v":1,"action":"fly","id":"f"}', "f"), (b"\xff", None)):
        (answer,) = await desk.say("ada", body)
        assert (answer["type"], answer["id"], answer["error"]["code"]) == ("error", ident, "invalid_message")
    assert desk.counted[-3:] == [("none", "invalid_message")] * 3


async def test_what_fails_inside_says_nothing_of_itself_and_is_logged_under_the_requests_id(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the prompt was: secret")

    monkeypatch.setattr(reads, "find_sessions", broken)
    answer = await desk.ask("ada", "list_sessions")
    assert answer["error"]["code"] == "internal_error" and "secret" not in json.dumps(answer)
    (record,) = [record for record in caplog.records if record.name == "helix.gateway"]
    assert record.exc_info is None and answer["id"] in record.getMessage()
    assert "RuntimeError at test_gateway.py:" in record.getMessage() and "secret" not in caplog.text
    assert desk.counted[-1] == ("list_sessions", "internal_error")


async def test_every_message_is_counted(desk: Desk) -> None:
    await desk.ask("ada", "ping")
    await desk.ask("ada", "get_session", session_id="x")
    assert desk.counted == [("ping", "ok"), ("get_session", "session_not_found")]
