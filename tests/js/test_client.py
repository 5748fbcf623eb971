"""The TypeScript client against a real WebSocket server: every call, and its failures."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.support_gateway import WORDS, DeafSockets, FaultySockets, executor_of, key_for, keyed, served
from tests.support_run import Text, a_tool, agent, call, calls

from helix import File, Image, LocalExecutor, ScriptedModel
from helix.core.files import Content
from helix.gateway.loopback import LoopbackGateway

pytestmark = pytest.mark.slow


QUICK = {"requestMs": 5_000, "openMs": 2_000, "giveUpMs": 5_000, "backoffMs": 10, "backoffMaxMs": 50}
QUICK |= {"reorderMs": 10, "quietMs": 200}


async def play(typescript: Any, url: str, message: Any = "go", **given: Any) -> Any:
    return await typescript("play", url=url, agent="helper", message=message, settings=QUICK, **given)


async def log_of(executor: LocalExecutor, session_id: str) -> list[dict[str, Any]]:
    return [message.model_dump(mode="json") for message in await executor.streams.read(session_id, 0, 10_000)]


async def test_a_run_is_the_run_that_the_executor_sees(typescript: Any) -> None:
    tool = a_tool("look", lambda args, ctx: "It rains.")
    executor = executor_of([calls(call("look"), content=WORDS), "Take a coat."], agent("helper", tools=[tool]))
    async with served(executor) as (gateway, _):
        played = await play(typescript, gateway.url, options={"tags": ["t"], "metadata": {"m": 1}})
        session_id = played["handle"]["session_id"]
        assert played["messages"] == await log_of(executor, session_id)
        near = await (await executor.get_handle(executor.agents.named("helper"), session_id)).result()
        assert played["result"] == near.model_dump(mode="json")
        assert (played["result"]["status"], played["result"]["text"]) == ("completed", "Take a coat.")
        state = await executor.sessions.get(session_id)
        assert (state.tags, state.metadata) == (["t"], {"m": 1})


async def test_every_call(typescript: Any) -> None:
    gated = a_tool("refund", lambda args, ctx: f"refunded {args.text}", input_schema=Text, require_approval=True)
    script = ["Hello.", calls(call("refund", text="A7")), "It is done.", "Again.", "Once more."]
    async with served(executor_of(script, agent("helper", tools=[gated]))) as (gateway, _):
        place = "anonymous:mine"
        made = [
            ["whoami"],  # 0
            ["run", "helper", "Hello", {"session_id": place}],  # 1
            ["result@1"],
            ["run", "helper", "Refund A7", {"session_id": place, "key": "one"}],  # 3
            ["result@3"],
            ["run", "helper", "Refund A7", {"session_id": place, "key": "one"}],  # 5
            ["answer@3", "call_0"],  # 6
            ["result@6"],
            ["answer", place, "call_0"],  # 8
            ["resume", place],  # 9
            ["canResume", place],  # 10
            ["getSession", place],
            ["getMessages", place, {"limit": 2}],  # 12
            ["listSessions", {"titles": True}],
            ["listCheckpoints", place, {"limit": 2}],  # 14
            ["readStream", place, {"after": 3, "limit": 2}],
            ["getSnapshot", place],  # 16
            ["branch", place],
            ["clone", place, {"target": "anonymous:copy", "message_index": 2}],  # 18
            ["handle", place],
            ["stream@19"],  # 20
            ["stream@19", {"after": 20}],
            ["interrupt", place],  # 22
            ["abort", place],
            ["delete", "anonymous:copy"],  # 24
            ["delete", "anonymous:copy"],
            ["getSession", "nobody:none"],  # 26
            ["ping"],
            ["retry", place],  # 28
            ["run", "nobody", "Hello"],
            ["run", "helper", "x" * 140_000],  # 30
            ["ask", "get_session", {"session_id": 7}],
            ["ask", "read_rows", {"session_id": place, "limit": 2}],  # 32
            ["getState@3"],
            ["listAgents"],  # 34
            ["getCost", place],
            ["getBudgets", place],  # 36
            ["getUsage", {"hours": 1}],
            ["getStep", place, 2],  # 38
            ["getCheckpoint", place],
            ["ask", "list_checkpoints", {"session_id": place, "limit": 100}],  # 40
            ["getContext", place, {"step": 1}],
            ["compact", place, "the refund"],  # 42
        ]
        answer = await typescript("calls", url=gateway.url, calls=made, settings=QUICK)
    found = answer["results"]
    assert place.startswith(found[0]["prefix"])
    assert (found[2]["text"], found[4]["status"]) == ("Hello.", "paused")
    assert [call["call_id"] for call in found[4]["pending"]] == ["call_0"]
    assert found[5]["run_id"] == found[3]["run_id"] and found[6]["turn"] == 3
    assert found[7]["text"] == "It is done."
    assert (found[8]["error"]["code"], found[9]["error"]["code"]) == ("call_not_pending", "cannot_resume")
    assert found[9]["error"]["details"]["reason"] == "completed" and found[10]["reason"] == "completed"
    assert (found[11]["session_id"], found[11]["status"]) == (place, "completed")
    assert len(found[12]["messages"]) == 2 and found[12]["offset"] > 0
    assert found[13]["sessions"][0]["title"] == "Hello"
    assert len(found[14]["checkpoints"]) == 2 and [m["sequence"] for m in found[15]["messages"]] == [4, 5]
    assert found[16]["sequence"] > 0 and found[17] != place and found[18] == "anonymous:copy"
    assert found[20] and [c["sequence"] for c in found[21]] == [c["sequence"] for c in found[20] if c["sequence"] > 20]
    assert (found[22], found[23], found[24], found[25]) == (False, None, True, False)
    assert found[26]["error"]["code"] == "session_not_found" and isinstance(found[27], float)
    assert found[28]["error"]["code"] == "cannot_resume" and found[29]["error"]["code"] == "agent_not_found"
    for place_of_error, field in ((30, "body"), (31, "session_id")):
        assert found[place_of_error]["error"]["code"] == "invalid_message"
        assert found[place_of_error]["error"]["details"]["field"] == field
    assert len(found[32]["rows"]) == 2 and found[33]["session_id"] == place
    assert [agent["name"] for agent in found[34]["agents"]] == ["helper"]
    assert (
        found[35]["session_id"] == place
        and found[36]["budgets"] == []
        and found[37]["error"]["code"] == "invalid_input"
    )
    assert len(found[38]["attempts"]) == 1 and found[38]["calls"][0]["tool_name"] == "refund"
    assert (found[41]["step"], found[41]["count"]) == (1, 1) and found[42] is None
    assert found[39]["id"] == found[40]["checkpoints"][0]["id"] and found[39]["custom_state"] == {}


async def test_what_changed_between_two_checkpoints(typescript: Any) -> None:
    executor = executor_of(["One.", "Two."])
    async with served(executor) as (gateway, client):
        handle = await client.run("helper", "First")
        await handle.result()
        await (await client.run("helper", "Second", session_id=handle.session_id)).result()
        points: dict[str, Any] = await client.list_checkpoints(handle.session_id)
        last = points["checkpoints"][-1]["id"]
        made = [["diffCheckpoints", handle.session_id, last, {"limit": 5}]]
        answer = await typescript("calls", url=gateway.url, calls=made, settings=QUICK)
        (diff,) = answer["results"]
        assert diff == await client.diff_checkpoints(handle.session_id, last, limit=5)
        assert [message["content"] for message in diff["messages"]] == ["One.", "Second", "Two."]


async def test_a_long_request_goes_in_parts(typescript: Any) -> None:
    """Like API Gateway, the gateway closes a connection on a frame above 32 KB."""
    text = "große Frage 😀 " * 6_000
    executor = executor_of(["Done."])
    async with served(executor) as (gateway, _):
        played = await play(typescript, gateway.url, text)
        assert played["connections"] == 1
        (asked, _answer) = (await executor.sessions.get_messages(played["handle"]["session_id"])).messages
        assert asked.content == text


FILES = [
    "Compare 😀",
    {"text": "one", "name": "one.txt", "type": "text/plain"},
    "with",
    {"url": "https://a.test/b.png"},
]


@pytest.mark.parametrize("user", ["ada", None])
async def test_a_message_with_files_is_stored_as_python_stores_it(user: str | None, typescript: Any) -> None:
    executor = executor_of(["Seen.", "Seen again."])
    token = None if user is None else await key_for(executor, user)
    authoriser = None if user is None else keyed(executor)
    async with executor, LoopbackGateway(executor, authoriser=authoriser) as gateway:
        given = {"url": gateway.url, "token": token, "agent": "helper", "content": FILES, "settings": QUICK}
        sent = await typescript("files", **given)
        near: Content = ["Compare 😀", File(b"one", "text/plain", "one.txt"), "with", Image("https://a.test/b.png")]
        handle = await executor.execute(executor.agents.named("helper"), near)
        await handle.result()
        (wanted, _answer) = (await executor.sessions.get_messages(handle.session_id)).messages
    message, expected = sent["message"], wanted.model_dump(mode="json")
    assert message["content"] == expected["content"] == "Compare 😀\nwith"
    assert message["files"] == expected["files"]
    assert [file["after_text"] for file in message["files"]] == [9, 14]
    assert sent["bytes"] == [["one", "attachment; filename=\"one.txt\"; filename*=UTF-8''one.txt"]]
    chosen = re.fullmatch("ses_[0-9a-f]{32}", sent["handle"]["session_id"]) is not None
    assert chosen == (user is None), "the client chooses the session's id only if the files belong to the session"


async def test_a_file_that_breaks_a_limit_starts_no_run(typescript: Any) -> None:
    executor = executor_of(["Seen."])
    async with served(executor) as (gateway, _):
        broken = {"text": "GIF89a", "name": "a.gif", "type": "image/gif"}
        answer = await typescript("files", url=gateway.url, agent="helper", content=[broken], settings=QUICK)
        assert answer["error"]["code"] == "invalid_file" and answer["error"]["message"].startswith("file 'a.gif' ")
        found = await typescript("calls", url=gateway.url, calls=[["listSessions"]], settings=QUICK)
        assert found["results"][0]["sessions"] == []


async def test_a_large_message_comes_whole(typescript: Any) -> None:
    big = "große Dinge " * 7_000
    executor = executor_of([calls(call("look")), "Seen."], agent("helper", tools=[a_tool("look", lambda a, c: big)]))
    async with served(executor) as (gateway, _):
        played = await play(typescript, gateway.url)
        assert played["messages"] == await log_of(executor, played["handle"]["session_id"])


async def test_a_token_is_proved_as_a_browser_does_and_another_is_refused(typescript: Any) -> None:
    executor = executor_of(["Hello."])
    key = await key_for(executor, "ada")
    async with executor, LoopbackGateway(executor, authoriser=keyed(executor)) as gateway:
        answer = await typescript("calls", url=gateway.url, token=key, calls=[["whoami"]], settings=QUICK)
        assert answer["results"][0]["principal"] == "ada"
        settings = QUICK | {"openMs": 200}
        for wrong in ("helix_nobody", None):
            refused = await typescript("calls", url=gateway.url, token=wrong, calls=[], settings=settings)
            assert refused["error"]["code"] == "connection_lost"
        odd = await typescript("calls", url=gateway.url, token="no token", calls=[], settings=settings)
        assert odd["error"]["code"] == "invalid_input"


async def test_a_token_that_expired_is_renewed(typescript: Any) -> None:
    """The connection stays open, and each request is answered."""
    executor = executor_of(["Hello.", "Again."])
    key = await key_for(executor, "ada")
    async with executor, LoopbackGateway(executor, authoriser=keyed(executor)) as gateway:
        real = gateway.gateway.connect

        async def expired(connection_id: str, principal: str | None, expires_at: float, **rights: bool) -> None:
            await real(connection_id, principal, executor.engine.clock.now() - 1, **rights)

        gateway.gateway.connect = expired  # type: ignore[method-assign]
        made = [["run", "helper", "Hi"], ["result@0"]]
        answer = await typescript("calls", url=gateway.url, token=[key], calls=made, settings=QUICK)
        assert (answer["results"][1]["text"], answer["connections"], answer["asked"]) == ("Hello.", 1, 2)
        once = await typescript("calls", url=gateway.url, token=key, calls=[["ping"]], settings=QUICK)
        assert once["results"][0]["error"]["code"] == "not_authenticated"


async def test_where_nobody_answers_the_error_is_typed(typescript: Any) -> None:
    settings = QUICK | {"openMs": 200}
    answer = await typescript("calls", url="ws://127.0.0.1:9", token="t", calls=[], settings=settings)
    assert (answer["error"]["code"], answer["error"]["recoverable"]) == ("connection_lost", True)
    answer = await typescript("calls", url="nowhere", token="t", calls=[], settings=settings)
    assert answer["error"]["code"] == "invalid_input"


async def test_a_connection_cut_before_the_answer_repeats_the_request_and_starts_one_run(typescript: Any) -> None:
    executor = executor_of(["Hello.", "Hello twice."])
    async with executor, LoopbackGateway(executor, sockets=DeafSockets()) as gateway:
        played = await play(typescript, gateway.url)
        session_id = played["handle"]["session_id"]
        assert (played["result"]["text"], played["connections"]) == ("Hello.", 2)
        assert len((await executor.sessions.list_runs(session_id)).runs) == 1


async def test_connections_are_replaced_when_they_are_old(typescript: Any) -> None:
    executor = executor_of(ScriptedModel([WORDS], delta_chars=4))
    async with served(executor) as (gateway, _):
        settings = QUICK | {"maxAgeMs": 20, "heartbeatMs": 10}
        made: list[list[Any]] = [["run", "helper", "Hi"], *[["ping"]] * 200, ["stream@0"], ["result@0"]]
        answer = await typescript("calls", url=gateway.url, calls=made, settings=settings)
        assert answer["results"][-1]["text"] == WORDS
        assert "".join(c["delta"] for c in answer["results"][-2] if c["type"] == "text_delta") == WORDS
        assert answer["connections"] > 1


@pytest.mark.parametrize("cut", [3, 5, 8])
async def test_a_new_connection_asks_for_what_is_read_at_once(cut: int, typescript: Any) -> None:
    """It does not wait until the stream has been quiet for long."""
    executor = executor_of(ScriptedModel([WORDS], delta_chars=8))
    async with executor, LoopbackGateway(executor, sockets=FaultySockets(cut_after=[cut])) as gateway:
        settings = QUICK | {"quietMs": 3_600_000}
        played = await typescript("play", url=gateway.url, agent="helper", message="go", settings=settings)
        assert played["messages"] == await log_of(executor, played["handle"]["session_id"])
        assert played["connections"] == 2
