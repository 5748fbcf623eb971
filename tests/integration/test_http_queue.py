"""Messages that arrive over HTTP while a run works: each waits for its own turn, and its response streams only that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.integration.test_http import GATES, call, client_of, post
from tests.integration.test_http_edits import ALL, ANN, Page, history, run_count
from tests.support_run import Gate, eventually

from helix import LocalExecutor


@pytest.fixture(autouse=True)
def gate() -> Gate:
    GATES["g"] = Gate()
    return GATES["g"]


async def working(page: Page, gate: Gate) -> asyncio.Task[Any]:
    """Return the response of a run that waits at the gate."""
    running = asyncio.create_task(page.say(("u1", "Wait")))
    await gate.reached()
    return running


def follow_up(page: Page, text: str = "And?", **options: Any) -> dict[str, Any]:
    body = page.body(("u1", "Wait"), ("u2", text))
    return {**body, "forwardedProps": options} if page.encoding == "ag-ui" else {**body, **options}


def told(sent: list[Any]) -> str:
    """Return the text of a response."""
    return "".join(str(event.json.get("delta", "")) for event in sent if event.data != "[DONE]")


async def waits(executor: LocalExecutor, count: int = 1) -> list[Any]:
    async def found() -> bool:
        return len(await executor.sessions.get_inbox("chat")) == count

    await eventually(found)
    return await executor.sessions.get_inbox("chat")


@pytest.mark.parametrize("encoding", ALL)
async def test_a_message_during_a_run_is_queued_and_its_response_streams_its_own_turn(
    encoding: str, gate: Gate
) -> None:
    async with client_of(call("wait", gate="g"), "First done.", "Second done.", by="queue") as (client, executor):
        page = Page(client, encoding)
        running = await working(page, gate)
        second = asyncio.create_task(page.send(follow_up(page)))
        (message,) = await waits(executor)
        repeated = asyncio.create_task(page.send(follow_up(page))) if encoding != "ag-ui" else second
        listed = (await client.get(f"/desk/{encoding}/chat/inbox", headers=ANN)).json()["inbox"]
        assert [(one["id"], one["content"], one["mode"]) for one in listed] == [(message.id, "And?", "queue")]
        await waits(executor)
        gate.open()
        first, sent = await running, await second
        assert "First done." in told(first) and "Second done." not in told(first)
        events = [event.json for event in sent if event.data != "[DONE]"]
        assert told(sent) == "Second done.", "no text of the first run is repeated as an event"
        if encoding != "ag-ui":
            assert told(await repeated) == told(sent), "a repeat finds the message, or its run"
        assert (await history(executor))[-2:] == ["And?", "Second done."]
        assert (await run_count(executor), await executor.sessions.get_inbox("chat")) == (2, [])
        if encoding == "ag-ui":
            assert [one["type"] for one in events[:3]] == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]
            assert "First done." in str(events[2]), "its reader lacks what another response brought meanwhile"
        else:
            notice = events[0]
            assert (notice["type"], notice["transient"]) == ("data-message-queued", True)
            assert (notice["data"]["queued_id"], notice["data"]["state"]) == (message.id, "waiting")
            assert events[1]["type"] == "start" and events[1]["messageId"] == message.run_id


@pytest.mark.parametrize("encoding", ALL)
async def test_a_steering_message_joins_the_run_and_its_response_ends(encoding: str, gate: Gate) -> None:
    async with client_of(call("wait", gate="g"), "As you say.", by="queue") as (client, executor):
        page = Page(client, encoding)
        running = await working(page, gate)
        steering = asyncio.create_task(page.send(follow_up(page, when_running="steer")))
        (message,) = await waits(executor)
        gate.open()
        first, second = await running, await steering
        assert "As you say." in told(first) and "As you say." not in told(second)
        assert await history(executor) == ["Wait", "One moment.", "passed", "And?", "As you say."]
        last = [event.json for event in second if event.data != "[DONE]"]
        fate = last[1]["value"] if encoding == "ag-ui" else last[-1]["data"]
        assert (fate["queued_id"], fate["state"], fate["mode"]) == (message.id, "delivered", "steer")
        shown = [event.json for event in first if event.data != "[DONE]"]
        if encoding == "ag-ui":
            assert [one["type"] for one in last] == ["RUN_STARTED", "CUSTOM", "RUN_FINISHED"]
            (snapshot,) = [one for one in shown if one["type"] == "MESSAGES_SNAPSHOT"]
            assert snapshot["messages"][-1] == {"id": "u2", "role": "user", "content": "And?"}
        else:
            (part,) = [p for p in shown if p["type"] == "data-message-queued" and p["data"]["state"] == "delivered"]
            assert (part["id"], part["data"]["message_id"], "transient" in part) == (message.id, "u2", False)
            loaded = (await client.get(f"/desk/{encoding}/chat/messages", headers=ANN)).json()["messages"]
            assert [one["role"] for one in loaded] == ["user", "assistant", "user"]
            assert part in loaded[1]["parts"] and loaded[2]["id"] == "u2"
        again = await page.send(follow_up(page, when_running="steer"))
        assert "As you say." not in told(again) and await run_count(executor) == 1, "a repeat does not rewind"


@pytest.mark.parametrize("encoding", ALL)
async def test_a_waiting_message_can_be_withdrawn(encoding: str, gate: Gate) -> None:
    async with client_of(call("wait", gate="g"), "Done.", by="queue") as (client, executor):
        page = Page(client, encoding)
        running = await working(page, gate)
        second = asyncio.create_task(page.send(follow_up(page)))
        (message,) = await waits(executor)
        path = f"/desk/{encoding}/chat/inbox/{message.id}"
        assert (await client.delete(path, headers={"x-user": "bob"})).status_code == 404
        assert (await client.delete(path, headers=ANN)).json() == {"withdrawn": "withdrawn"}
        sent = await second
        assert "'withdrawn'" in str([event.json for event in sent if event.data != "[DONE]"])
        gate.open()
        await running
        assert (await client.delete(path, headers=ANN)).json() == {"withdrawn": "not_found"}
        assert "And?" not in await history(executor)


async def test_the_plain_encoding_refuses_unless_the_caller_says_otherwise(gate: Gate) -> None:
    async with client_of(call("wait", gate="g"), "Done.", "Second.", by="queue") as (client, executor):
        running = asyncio.create_task(post(client, "/desk/chunks", {"session_id": "chat", "message": "Wait"}))
        await gate.reached()
        plain = {"session_id": "chat", "message": "And?"}
        assert (await client.post("/desk/chunks", json=plain, headers=ANN)).status_code == 409
        refused = await client.post("/desk/chunks", json={**plain, "when_running": "later"}, headers=ANN)
        assert refused.status_code == 400 and "steer" in refused.json()["error"]["message"]
        queued = {**plain, "when_running": "queue"}
        async with client.stream("POST", "/desk/chunks", json=queued, headers=ANN) as response:
            (message,) = await waits(executor)
            assert response.headers["x-helix-queued"] == message.id
            assert response.headers["x-helix-run"] == message.run_id
            gate.open()
            text = (await response.aread()).decode()
        assert text.startswith("event: message_queued\ndata: ") and "Second." in text and "Done." not in text
        await running


@pytest.mark.parametrize("encoding", ["ai-sdk", "ag-ui"])
async def test_a_stop_with_a_message_waiting_ends_its_response(encoding: str, gate: Gate) -> None:
    """The message stays, is shown by a page that loads, and is delivered before the next message."""
    async with client_of(call("wait", gate="g"), "Second.", "Third.", by="queue") as (client, executor):
        page = Page(client, encoding)
        running = await working(page, gate)
        second = asyncio.create_task(page.send(follow_up(page)))
        (message,) = await waits(executor)
        stopped = await client.post(f"/desk/{encoding}/chat/stop", json={}, headers=ANN)
        assert stopped.json() == {"interrupted": True}
        gate.open()
        async with asyncio.timeout(10):
            sent = await second
        assert "'waiting'" in str([event.json for event in sent if event.data != "[DONE]"])
        await running
        if encoding == "ai-sdk":
            loaded = (await client.get("/desk/ai-sdk/chat/messages", headers=ANN)).json()["messages"]
            assert (loaded[-1]["id"], loaded[-1]["metadata"]) == ("u2", {"queuedId": message.id, "state": "waiting"})
        third = await page.say(("u1", "Wait"), ("u2", "And?"), ("u3", "Go on"))
        assert "Third." in told(third)
        assert [text for text in await history(executor) if text in ("And?", "Go on")] == ["And?", "Go on"]


async def test_a_message_while_a_person_is_asked_closes_the_calls_unless_others_wait(gate: Gate) -> None:
    """A page that waits for its response cannot send an approval, so the response does not wait for one."""
    answers = [call("refund", order="o1"), "Anything else?", call("wait", gate="g"), call("refund", order="o2"), "x"]
    async with client_of(*answers, by="queue") as (client, executor):
        page = Page(client, "ai-sdk")
        await page.say(("u1", "Refund"))
        closed = await page.say(("u1", "Refund"), ("u2", "Leave it"))
        assert "Anything else?" in told(closed)
        running = asyncio.create_task(page.say(("u3", "Wait")))
        await gate.reached()
        queued = asyncio.create_task(page.say(("u4", "One")))
        await waits(executor)
        gate.open()
        async with asyncio.timeout(10):
            await asyncio.gather(running, queued)  # the run waits for an approval
            await page.say(("u5", "Two"))
        assert [m.content for m in await waits(executor, 2)] == ["One", "Two"], "older messages keep their place"


async def test_an_edit_of_a_waiting_message_replaces_it(gate: Gate) -> None:
    async with client_of(call("wait", gate="g"), "Done.", "Second.", by="queue") as (client, executor):
        page = Page(client, "ai-sdk")
        running = await working(page, gate)
        first = asyncio.create_task(page.send(follow_up(page)))
        await waits(executor)
        edit = asyncio.create_task(page.edit(("u1", "Wait"), ("u2", "Rather this")))

        async def replaced() -> bool:
            return [m.content for m in await executor.sessions.get_inbox("chat")] == ["Rather this"]

        await eventually(replaced)
        gate.open()
        await asyncio.gather(running, first)
        assert "Second." in told(await edit)
        assert (await history(executor))[-2:] == ["Rather this", "Second."] and await run_count(executor) == 2


async def test_a_message_that_steered_cannot_be_edited(gate: Gate) -> None:
    """An edit goes back to the beginning of a run, so it would remove the run's own message too."""
    async with client_of(call("wait", gate="g"), "Done.", by="queue") as (client, executor):
        page = Page(client, "ai-sdk")
        running = await working(page, gate)
        steering = asyncio.create_task(page.send(follow_up(page, when_running="steer")))
        await waits(executor)
        gate.open()
        await asyncio.gather(running, steering)
        body = page.body(("u1", "Wait"), ("u2", "Other"), edited=True)
        refused = await client.post("/desk/ai-sdk", json=body, headers=ANN)
        assert refused.status_code == 400 and "steered run" in refused.json()["error"]["message"]
