"""Input that `helix.http` either honours or refuses by name, and never drops: edited arguments, parts, AG-UI's extras,
foreign pages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from tests.integration.test_http import GATES, RAN, answered, approval, call, chat, client_of, post
from tests.support_run import Gate

from helix import Agent, LLMConfig, ToolContext, tool

ANN = {"x-user": "ann"}
CONFIG = LLMConfig(model="scripted")
SAID = {"id": "u1", "role": "user", "content": "Hi"}
AGUI = {"threadId": "chat", "runId": "r1", "messages": [SAID]}


def edited(approved: bool = True, **given: Any) -> dict[str, Any]:
    return answered({**approval("call_0", approved), **given})


@pytest.mark.parametrize("encoding", ["ai-sdk", "ai-sdk-v6"])
@pytest.mark.parametrize(
    ("body", "executed"),
    [
        (edited(input={"order": "o9"}), ["o9"]),
        ({**edited(input={"order": "o1"}), "arguments": {"call_0": {"order": "o9"}}}, ["o9"]),
        (edited(input={"order": "o1"}), ["o1"]),
        (edited(), ["o1"]),
        (edited(False, input={"order": "o9"}), []),
    ],
    ids=["in the part", "as the body", "unchanged", "not sent", "denied"],
)
async def test_arguments_that_the_user_edited_are_executed(encoding: str, body: Any, executed: list[str]) -> None:
    async with client_of(call("refund", order="o1"), "Done.") as (client, _):
        await post(client, f"/desk/{encoding}", chat("Refund o1"))
        await post(client, f"/desk/{encoding}", body)
        assert executed == RAN


@pytest.mark.parametrize(
    "body",
    [
        edited(input={"order": 7}),
        edited(input="o9"),
        edited(input=[]),
        {**edited(), "arguments": {"call_0": {"order": None}}},
        {**edited(), "arguments": {"call_0": "o9"}},
        {**edited(), "arguments": {"call_7": {"order": "o9"}}},
        {**edited(), "arguments": ["o9"]},
    ],
)
async def test_arguments_that_cannot_be_executed_are_refused_and_the_call_waits(body: Any) -> None:
    async with client_of(call("refund", order="o1"), "Done.") as (client, executor):
        await post(client, "/desk/ai-sdk", chat("Refund o1"))
        refused = await client.post("/desk/ai-sdk", json=body, headers=ANN)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_input"), refused.text
        assert (await executor.sessions.get("chat")).status == "paused" and RAN == []


PAID: list[int | float] = []


@tool(require_approval=True)
async def pay(cents: int, rate: float, note: dict[str, Any]) -> str:
    """Pay."""
    PAID.append(cents)
    return "paid"


payer = Agent(name="payer", system_prompt="Pay.", tools=[pay], llm_config=CONFIG)


async def test_numbers_that_javascript_rounds_are_not_edits() -> None:
    """A page reads 2^53+1 as 2^53, and sends 1.0 as 1."""
    PAID.clear()
    given = {"cents": 2**53 + 1, "rate": 1.0, "note": {"deep": [None, True, 10**30, -0.0]}}
    shown = {"cents": 2**53, "rate": 1, "note": {"deep": [None, True, 1e30, 0]}}
    async with client_of(call("pay", **given), "Done.", agents=[payer]) as (client, _):
        await post(client, "/payer/ai-sdk", chat("Pay"))
        await post(client, "/payer/ai-sdk", answered({**approval("call_0", True), "input": shown}))
        assert PAID == [2**53 + 1]


TEXT = {"type": "text", "text": "Look"}


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        (
            "ai-sdk-v6",
            {**chat(""), "messages": [{"id": "u1", "role": "user", "parts": [TEXT, {"type": "source-url"}]}]},
            "'source-url'",
        ),
        (
            "ai-sdk",
            {**chat(""), "messages": [{"id": "u1", "role": "user", "parts": [TEXT, {"type": "data-x"}]}]},
            "data-x",
        ),
        ("ag-ui", {**AGUI, "messages": [{**SAID, "content": [TEXT, {"type": "table"}]}]}, "'table'"),
        ("ag-ui", {**AGUI, "messages": [{**SAID, "content": [TEXT, "text"]}]}, "'None'"),
        ("ag-ui", {**AGUI, "context": [{"description": "page", "value": "1"}]}, "context"),
        ("ag-ui", {**AGUI, "forwardedProps": {"model": "x"}}, "forwardedProps"),
        ("ag-ui", {**AGUI, "state": {"count": 1}}, "state"),
        ("ag-ui", {**AGUI, "state": [1]}, "state"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(path: str, body: Any, name: str) -> None:
    async with client_of("Hello.") as (client, executor):
        refused = await client.post(f"/desk/{path}", json=body, headers=ANN)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], name in error["message"]) == (400, "invalid_input", True), error
        assert not await executor.sessions.exists("chat")
        empty: dict[str, Any] = (
            {"tools": [], "context": [], "forwardedProps": {}, "state": {}} if path == "ag-ui" else {}
        )
        await post(client, f"/desk/{path}", {**(AGUI if path == "ag-ui" else chat("Hi")), **empty})


class Counted(BaseModel):
    count: int = 0


@tool
async def count(ctx: ToolContext[Any]) -> str:
    """Count."""

    def change(state: Counted) -> None:
        state.count += 1

    ctx.update_state(change)
    return "counted"


counter = Agent(name="counter", system_prompt="Count.", tools=[count], state_schema=Counted, llm_config=CONFIG)


async def test_the_state_that_a_client_was_sent_comes_back() -> None:
    """`HttpAgent` sends its copy with each request. It may be an older state, from an interrupted stream, but it is always
    one that the server sent."""
    script = [call("count"), "One.", call("count"), "Two.", "Three."]
    async with client_of(*script, agents=[counter]) as (client, _):
        said = [{**SAID, "id": f"u{n}"} for n in range(3)]
        await post(client, "/counter/ag-ui", {**AGUI, "messages": said[:1], "state": {}})
        await post(client, "/counter/ag-ui", {**AGUI, "runId": "r2", "messages": said[:2], "state": {"count": 1}})
        forged = {**AGUI, "runId": "r3", "messages": said, "state": {"count": 3}}
        assert (await client.post("/counter/ag-ui", json=forged, headers=ANN)).status_code == 400
        await post(client, "/counter/ag-ui", {**forged, "state": {"count": 1}})


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
async def test_a_page_of_another_site_stops_no_run(kind: str | None) -> None:
    """The browser's headers name the origin of a request. A request without a body may have no content type."""
    GATES["g"] = Gate()
    async with client_of(call("wait", gate="g"), "Done.") as (client, executor):
        running = asyncio.create_task(post(client, "/desk/ai-sdk", chat("Wait")))
        await GATES["g"].reached()
        typed = {} if kind is None else {"content-type": kind}
        for said in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
            refused = await client.post("/desk/ai-sdk/chat/stop", headers={**ANN, **typed, **said})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_input")
        assert (await executor.sessions.get("chat")).status == "running"
        own = str(client.base_url.copy_with(path="/")).rstrip("/")
        typed = {"content-type": "application/json"} if kind else {"origin": own}
        assert (await client.post("/desk/ai-sdk/chat/stop", headers={**ANN, **typed})).json() == {"interrupted": True}
        GATES["g"].open()
        await running


@pytest.mark.parametrize("encoding", ["ai-sdk", "ai-sdk-v6", "ag-ui"])
async def test_the_history_that_is_sent_along_counts_by_itself(encoding: str) -> None:
    """The body may have 8 MB in this test (the default is 32), of which the messages may use 4 MB."""
    async with client_of("Hello.", max_body_bytes=8_000_000) as (client, executor):
        body: Any = AGUI if encoding == "ag-ui" else chat("Hi")
        (newest,) = body["messages"]
        part = {"type": "text", "text": "x" * 1_500_000}
        filled = [{"id": f"a{n}", "role": "assistant", "content": part["text"], "parts": [part]} for n in range(2)]
        await post(client, f"/desk/{encoding}", {**body, "messages": [*filled, newest]})
        assert [m.content for m in (await executor.sessions.get_messages("chat")).messages][-1] == "Hello."
        large = {**newest, "content": "x" * 4_100_000, "parts": [{"type": "text", "text": "x" * 4_100_000}]}
        for messages in ([large], [*filled, large], filled * 2):
            refused = await client.post(f"/desk/{encoding}", json={**body, "messages": messages}, headers=ANN)
            assert (refused.status_code, refused.json()["error"]["code"]) == (413, "body_too_large")
