"""Calls that wait for approval, asked over MCP: by a form, or by a tool if the client has no forms."""

import pytest

pytest.importorskip("mcp")

from mcp_types import ElicitResult
from tests.support_gateway import executor_of
from tests.support_mcp_server import ERAS, ORDER, buyer, client_of, on_http, person

from helix.mcp import app


@ERAS
@pytest.mark.parametrize(
    ("filled", "ordered"),
    [
        (ElicitResult(action="accept", content={"approve": True}), ["tea"]),
        (ElicitResult(action="accept", content={"approve": False, "reason": "no"}), []),
        (ElicitResult(action="decline"), []),
        (ElicitResult(action="accept", content={"approve": True, "arguments": '{"text": "milk"}'}), ["milk"]),
        (ElicitResult(action="accept", content={"approve": True, "arguments": " "}), ["tea"]),
    ],
)
async def test_a_call_asks_the_person_and_goes_on(mode: str, filled: ElicitResult, ordered: list[str]) -> None:
    done: list[str] = []
    fill, asked = person(filled)
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode, elicitation_callback=fill) as client:
            assert "helix__answer" not in [tool.name for tool in (await client.list_tools()).tools]
            result = (await client.call_tool("buyer", {"message": "tea"})).structured_content
    assert (result["output"], done) == ("Tea is on its way.", ordered)
    assert asked == ['Allow the call of order with {"text":"tea"}?']


@ERAS
async def test_without_forms_the_answer_is_a_tool(mode: str) -> None:
    done: list[str] = []
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode) as client:
            paused = (await client.call_tool("buyer", {"message": "tea"})).structured_content
            assert paused["status"] == "paused"
            (pending,) = paused["pending"]
            assert (pending["tool_name"], pending["arguments"]) == ("order", {"text": "tea"})
            place = {name: paused[name] for name in ("session_id", "run_id")}
            wrong = await client.call_tool("helix__answer", {**place, "call_id": "other", "approved": True})
            assert wrong.is_error
            assert done == []
            given = {**place, "call_id": pending["call_id"], "approved": True}
            result = (await client.call_tool("helix__answer", given)).structured_content
            assert (result["status"], result["output"], done) == ("completed", "Tea is on its way.", ["tea"])
            assert (await client.call_tool("helix__answer", given)).is_error


@pytest.mark.parametrize(
    "filled",
    [
        ElicitResult(action="cancel"),
        ElicitResult(action="accept", content={}),
        ElicitResult(action="accept", content={"approve": "yes"}),
        ElicitResult(action="accept", content={"approve": True, "arguments": "{"}),
        ElicitResult(action="accept", content={"approve": True, "arguments": "[]"}),
        ElicitResult(action="accept", content={"approve": True, "arguments": '{"text": 7}'}),
    ],
)
async def test_a_form_that_says_nothing_leaves_the_call_waiting(filled: ElicitResult) -> None:
    done: list[str] = []
    fill, _ = person(filled)
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="legacy", elicitation_callback=fill) as client:
            result = (await client.call_tool("buyer", {"message": "tea"})).structured_content
            assert (result["status"], done) == ("paused", [])
