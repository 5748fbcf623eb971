"""Edits and changed answers over `helix.http`: the model's request, the resulting history, and repeated requests."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.integration.test_http import GATES, RAN, call, client_of, post
from tests.support.asgi_server import Sent, events
from tests.support_run import Gate

from helix import LocalExecutor

ANN = {"x-user": "ann"}
UI = ["ai-sdk", "ai-sdk-v6"]
ALL = [*UI, "ag-ui"]


def words(ident: str, text: str) -> dict[str, Any]:
    return {"id": ident, "role": "user", "parts": [{"type": "text", "text": text}]}


class Page:
    """The requests of the clients of each encoding: `useChat` of both versions, and `HttpAgent`."""

    def __init__(self, client: httpx.AsyncClient, encoding: str) -> None:
        self.client, self.encoding, self.runs = client, encoding, 0

    def body(self, *messages: tuple[str, str], edited: bool = False) -> dict[str, Any]:
        if self.encoding == "ag-ui":
            self.runs += 1
            said = [{"id": ident, "role": "user", "content": text} for ident, text in messages]
            return {"threadId": "chat", "runId": f"r{self.runs}", "messages": said}
        body = {"id": "chat", "messages": [words(*m) for m in messages], "trigger": "submit-message"}
        return body | ({"messageId": messages[-1][0]} if edited else {})

    async def send(self, body: dict[str, Any]) -> list[Sent]:
        return await post(self.client, f"/desk/{self.encoding}", body)

    async def say(self, *messages: tuple[str, str]) -> list[Sent]:
        return await self.send(self.body(*messages))

    async def edit(self, *messages: tuple[str, str]) -> list[Sent]:
        return await self.send(self.body(*messages, edited=True))

    async def regenerate(self, *messages: tuple[str, str], answer: str | None = None) -> list[Sent]:
        body = {**self.body(*messages), "trigger": "regenerate-message", "messageId": answer}
        return await self.send({name: value for name, value in body.items() if value is not None})


async def history(executor: LocalExecutor) -> list[str | None]:
    return [message.content for message in (await executor.sessions.get_messages("chat")).messages]


async def run_count(executor: LocalExecutor) -> int:
    return len((await executor.sessions.list_runs("chat")).runs)


def data(sent: list[Sent]) -> str:
    return str([one.data for one in sent])


@pytest.mark.parametrize("encoding", ALL)
async def test_an_edit_rewinds_to_before_its_message_and_asks_the_model(encoding: str) -> None:
    async with client_of("One.", "Two.", "Other.", "Next.", by="queue") as (client, executor):
        page = Page(client, encoding)
        await page.say(("u1", "First"))
        await page.say(("u1", "First"), ("u2", "Second"))
        assert "Other." in data(await page.edit(("u1", "Changed")))
        assert await history(executor) == ["Changed", "Other."]
        await page.say(("u1", "Changed"), ("u3", "Third"))
        assert await history(executor) == ["Changed", "Other.", "Third", "Next."]
        ids = [
            m.metadata.get("id") for m in (await executor.sessions.get_messages("chat")).messages if m.role == "user"
        ]
        assert ids == ["u1", "u3"]


@pytest.mark.parametrize("encoding", ALL)
async def test_an_edit_that_comes_twice_starts_one_run(encoding: str) -> None:
    async with client_of("One.", "Two.", "Three.", by="queue") as (client, executor):
        page = Page(client, encoding)
        await page.say(("u1", "First"))
        body = page.body(("u1", "Changed"), edited=True)
        first, second = await asyncio.gather(page.send(body), page.send(body))
        assert data(first) == data(second) == data(await page.send(body))
        assert (await history(executor), await run_count(executor)) == (["Changed", "Two."], 2)


@pytest.mark.parametrize("encoding", ALL)
async def test_an_edit_back_to_the_first_text_is_an_edit(encoding: str) -> None:
    async with client_of("One.", "Two.", "Three.", by="queue") as (client, executor):
        page = Page(client, encoding)
        original = page.body(("u1", "First"))
        await page.send(original)
        await page.edit(("u1", "Changed"))
        late = data(await page.send(original))  # repeat the first delivery
        assert "One." in late and await history(executor) == ["Changed", "Two."]
        assert "Three." in data(await page.edit(("u1", "First")))
        assert await history(executor) == ["First", "Three."]


@pytest.mark.parametrize("encoding", ALL)
async def test_an_older_message_that_keeps_its_text_is_answered_anew(encoding: str) -> None:
    """The page has removed the messages after it."""
    async with client_of("One.", "Two.", "Three.", by="queue") as (client, executor):
        page = Page(client, encoding)
        await page.say(("u1", "First"))
        await page.say(("u1", "First"), ("u2", "Second"))
        await page.edit(("u1", "First"))
        assert await history(executor) == ["First", "Three."]


@pytest.mark.parametrize("encoding", ALL)
async def test_an_edit_while_a_run_works_is_refused(encoding: str) -> None:
    GATES["g"] = Gate()
    async with client_of("One.", call("wait", gate="g"), "Done.", by="queue") as (client, executor):
        page = Page(client, encoding)
        await page.say(("u1", "First"))
        running = asyncio.create_task(page.say(("u1", "First"), ("u2", "Wait")))
        await GATES["g"].reached()
        body = page.body(("u1", "Changed"), edited=True)
        refused = await client.post(f"/desk/{encoding}", json=body, headers=ANN)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "agent_already_running")
        GATES["g"].open()
        await running
        assert (await history(executor))[0] == "First" and await run_count(executor) == 2


@pytest.mark.parametrize("encoding", ALL)
async def test_edits_of_edits_and_of_a_branch(encoding: str) -> None:
    """Each edit goes back in the lineage of its message. A copied message has no run in its session."""
    async with client_of(*[f"A{n}." for n in range(9)], by="queue") as (client, executor):
        page = Page(client, encoding)
        await page.say(("u1", "1"))
        await page.say(("u1", "1"), ("u2", "2"))
        await page.say(("u1", "1"), ("u2", "2"), ("u3", "3"))
        await page.edit(("u1", "1"), ("u2", "2b"))
        await page.say(("u1", "1"), ("u2", "2b"), ("u4", "4"))
        await page.edit(("u1", "1"), ("u2", "2c"))
        assert await history(executor) == ["1", "A0.", "2c", "A5."]
        await executor.branch("chat", session_id="branch")
        body = {**page.body(("u1", "1d"), edited=True), "id": "branch", "threadId": "branch"}
        await page.send(body)
        copied = (await executor.sessions.get_messages("branch")).messages
        assert [message.content for message in copied] == ["1d", "A6."]
        assert await history(executor) == ["1", "A0.", "2c", "A5."]


@pytest.mark.parametrize("encoding", ALL)
async def test_an_edit_closes_what_waited(encoding: str) -> None:
    async with client_of(call("refund", order="o1"), "Never mind.", by="queue") as (client, executor):
        page = Page(client, encoding)
        await page.say(("u1", "Refund o1"))
        await page.edit(("u1", "Leave it"))
        assert await history(executor) == ["Leave it", "Never mind."]
        assert RAN == [] and (await executor.sessions.get("chat")).pending == []


@pytest.mark.parametrize("encoding", UI)
async def test_regenerate_answers_any_message_anew(encoding: str) -> None:
    async with client_of("One.", "Two.", "Three.", "Four.", "Five.", by="queue") as (client, executor):
        page = Page(client, encoding)
        first = await page.say(("u1", "First"))
        await page.say(("u1", "First"), ("u2", "Second"))
        assert "Three." in data(await page.regenerate(("u1", "First"), ("u2", "Second")))
        assert await history(executor) == ["First", "One.", "Second", "Three."]
        ident = first[0].json["messageId"]
        again = data(await page.regenerate(("u1", "First"), answer=ident))
        assert "Four." in again and data(await page.regenerate(("u1", "First"), answer=ident)) == again
        assert (await history(executor), await run_count(executor)) == (["First", "Four."], 4)
        await page.regenerate(("u1", "Changed by setMessages"))
        assert await history(executor) == ["Changed by setMessages", "Five."]


async def test_regenerate_while_a_run_works_is_refused_unless_it_started_that_run() -> None:
    GATES["g"] = Gate()
    async with client_of("One.", call("wait", gate="g"), "Done.", by="queue") as (client, executor):
        page = Page(client, "ai-sdk")
        await page.say(("u1", "First"))
        running = asyncio.create_task(page.regenerate(("u1", "First")))
        await GATES["g"].reached()
        repeated = {**page.body(("u1", "First")), "trigger": "regenerate-message"}
        # The response begins once the request has found its run, so the gate opens after that.
        async with client.stream("POST", "/desk/ai-sdk", json=repeated, headers=ANN) as repeat:
            assert repeat.status_code == 200, await repeat.aread()
            body = {**page.body(("u1", "Other")), "messageId": "u1"}
            assert (await client.post("/desk/ai-sdk", json=body, headers=ANN)).status_code == 409
            GATES["g"].open()
            assert data(await running) == data([sent async for sent in events(repeat)])
        assert await run_count(executor) == 2
        GATES["g"] = Gate()


async def test_a_message_that_was_refused_is_sent_again() -> None:
    """`sendMessage()` without a message sends the newest one again, with its id as that of an edit."""
    GATES["g"] = Gate()
    async with client_of(call("wait", gate="g"), "Done.", "More.", by="queue") as (client, executor):
        page = Page(client, "ai-sdk")
        running = asyncio.create_task(page.say(("u1", "Wait")))
        await GATES["g"].reached()
        body = {**page.body(("u1", "Wait"), ("u2", "And?")), "when_running": "refuse"}
        refused = await client.post("/desk/ai-sdk", json=body, headers=ANN)
        assert (refused.status_code, refused.json()["error"]["recoverable"]) == (409, True)
        GATES["g"].open()
        await running
        await page.edit(("u1", "Wait"), ("u2", "And?"))
        assert (await history(executor))[-2:] == ["And?", "More."]
