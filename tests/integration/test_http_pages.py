"""A page that loads, reloads or was left alone shows all messages, the text of a stopped run, and calls that never ran."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.integration.test_http import GATES, answered, call, chat, client_of, desk, post
from tests.support_run import Gate

from helix.adapters.models.playback import notify
from helix.core.usage import Usage
from helix.ports.model import LLMGenerateInput

ANN = {"x-user": "ann"}
UI = ["ai-sdk", "ai-sdk-v6"]
SAID = {"id": "u1", "role": "user", "content": "Hi"}


async def messages(client: httpx.AsyncClient, encoding: str, session_id: str = "chat") -> list[Any]:
    found = await client.get(f"/desk/{encoding}/{session_id}/messages", headers=ANN)
    assert found.status_code == 200, found.text
    return list(found.json()["messages"])


def halfway(gate: Gate, text: str) -> Callable[[LLMGenerateInput], Awaitable[str]]:
    """Return an answer whose first half is streamed before the gate."""

    async def entry(request: LLMGenerateInput) -> str:
        await notify(request.callbacks.on_text_delta, text[: len(text) // 2])
        await gate.wait()
        return text

    return entry


async def shown(client: httpx.AsyncClient, path: str, text: str) -> None:
    """Wait until the stream has this text."""
    async with asyncio.timeout(20):
        async with client.stream("GET", path, headers=ANN) as response:
            async for line in response.aiter_lines():
                if text in line:
                    return


@pytest.mark.parametrize("encoding", UI)
async def test_a_page_that_loads_has_all_messages(encoding: str) -> None:
    async with client_of("Hello.", call("wait", gate="g"), "Done.") as (client, _):
        assert await messages(client, encoding) == []
        await post(client, f"/desk/{encoding}", chat("Hi"))
        GATES["g"] = Gate()
        GATES["g"].open()
        await post(client, f"/desk/{encoding}", chat("Wait", message_id="u2"))
        first, answer, second, waited = await messages(client, encoding)
        assert [one["id"] for one in (first, second)] == ["u1", "u2"]
        assert first["parts"] == [{"type": "text", "text": "Hi"}]
        assert [part.get("text") for part in answer["parts"]] == [None, "Hello."]
        assert [part["type"] for part in waited["parts"]] == [
            "step-start",
            "text",
            "dynamic-tool",
            "step-start",
            "text",
        ]
        assert waited["parts"][2]["output"] == "passed"
        assert [one["role"] for one in await messages(client, "ag-ui")] == [
            *("user", "assistant", "user", "assistant", "tool", "assistant")
        ]


async def test_messages_of_another_user_and_of_no_session_are_none() -> None:
    async with client_of("Hello.") as (client, _):
        await post(client, "/desk/ai-sdk", chat("Hi"))
        for path, user in (("chat", "eve"), ("none", "ann")):
            found = await client.get(f"/desk/ai-sdk/{path}/messages", headers={"x-user": user})
            assert found.json() == {"messages": []}
        refused = await client.get("/desk/chunks/chat/messages", headers=ANN)
        assert refused.status_code == 400 and "'chunks'" in refused.json()["error"]["message"]


async def test_an_approval_that_a_new_message_closed_waits_no_more() -> None:
    async with client_of(call("refund", order="o1"), "Something else, then.") as (client, _):
        await post(client, "/desk/ai-sdk", chat("Refund o1"))
        await post(client, "/desk/ai-sdk", chat("Never mind", message_id="u2"))
        for encoding in UI:
            closed = (await messages(client, encoding))[1]["parts"][-1]
            assert closed["state"] == ("output-denied" if encoding == "ai-sdk" else "output-error")


@pytest.mark.parametrize("encoding", UI)
async def test_what_was_read_of_a_stopped_run_stays(encoding: str) -> None:
    gate = Gate()
    async with client_of(halfway(gate, "Half an answer"), "Another.") as (client, _):
        running = asyncio.create_task(post(client, f"/desk/{encoding}", chat("Hi")))
        await gate.reached()
        await shown(client, f"/desk/{encoding}/chat/stream", "Half an")
        await client.delete(f"/desk/{encoding}/chat/stream", headers=ANN)
        types = [one.json["type"] for one in (await running)[:-1]]
        gate.open()
        assert "reset-step" not in types and types[-2:] == ["abort", "finish"]
        replay = await client.get(f"/desk/{encoding}/chat/stream", headers=ANN)
        assert "Half an" in replay.text
        (_, stopped) = await messages(client, encoding)
        assert stopped["parts"][-1] == {"type": "text", "text": "Half an", "state": "done"}
        joined = await client.get("/desk/ag-ui/chat/stream", headers=ANN)
        assert "Half an" in joined.text and '"cancelled"' in joined.text
        await post(client, f"/desk/{encoding}", chat("Go on", message_id="u2"))
        assert (await messages(client, encoding))[1] == stopped, "also after the next message"


@pytest.mark.parametrize("encoding", [*UI, "ag-ui"])
async def test_an_agent_that_keeps_what_was_cut_off_says_where(encoding: str) -> None:
    gate, keeper = Gate(), replace(desk, keep_partial=True)
    body: dict[str, Any] = chat("Hi") if encoding in UI else {"threadId": "chat", "runId": "r1", "messages": [SAID]}
    async with client_of(halfway(gate, "Half an answer"), "Another.", agents=[keeper]) as (client, executor):
        running = asyncio.create_task(post(client, f"/desk/{encoding}", body))
        await gate.reached()
        await shown(client, f"/desk/{encoding}/chat/stream", "Half an")
        await client.delete(f"/desk/{encoding}/chat/stream", headers=ANN)
        sent = await running
        found = await messages(client, encoding)
        if encoding == "ag-ui":
            (cut,) = [one.json["value"] for one in sent if one.json.get("name") == "helix.answer_cut"]
            assert [(one["id"], one["content"]) for one in found[1:]] == [(cut["messageId"], "Half an")]
        else:
            assert found[1]["parts"][1:] == [
                {"type": "text", "text": "Half an", "state": "done"},
                {"type": "data-answer-cut", "data": {"step": 1}},
            ]
        stored = (await executor.sessions.get_messages("chat")).messages
        assert stored[-1].content == "Half an"


async def test_a_call_that_is_refused_is_shown_with_its_error() -> None:
    wrong = {
        "tool_calls": [{"name": "nobody", "arguments": {"a": 1}}, {"name": "refund", "arguments": {"ordre": "o1"}}]
    }
    async with client_of(wrong, "Sorry.", wrong, "Sorry.") as (client, _):
        for version in UI:
            sent = await post(client, f"/desk/{version}", chat("Refund", chat_id=version))
            (_, answer) = await messages(client, version, version)
            unknown, invalid = (part for part in answer["parts"] if part["type"] == "dynamic-tool")
            assert (unknown["state"], unknown["toolName"], unknown["input"]) == ("output-error", "nobody", {"a": 1})
            assert "nobody" in unknown["errorText"] and "order" in invalid["errorText"]
            errors = [one.json for one in sent[:-1] if one.json["type"] == "tool-output-error"]
            assert [error["errorText"] for error in errors] == [unknown["errorText"], invalid["errorText"]]
            conversation = await messages(client, "ag-ui", version)
            assert [one["role"] for one in conversation] == ["user", "assistant", "tool", "tool", "assistant"]


async def test_the_end_of_a_run_says_what_it_used() -> None:
    used = Usage(prompt_tokens=10, completion_tokens=4, reasoning_tokens=1, calls=1).model_dump()
    script = [{**call("wait", gate="g"), "usage": used}, {"content": "Done.", "usage": used}]
    GATES["g"] = Gate()
    GATES["g"].open()
    async with client_of(*script, *script) as (client, _):
        sent = await post(client, "/desk/ai-sdk", chat("Wait"))
        total = {"inputTokens": 20, "outputTokens": 8, "totalTokens": 28, "reasoningTokens": 2}
        assert sent[-2].json["messageMetadata"] == {"usage": total}
        assert (await messages(client, "ai-sdk"))[1]["metadata"]["usage"] == total
        said = {"id": "u1", "role": "user", "content": "Wait"}
        events = await post(client, "/desk/ag-ui", {"threadId": "t", "runId": "r1", "messages": [said]})
        assert events[-1].json["usage"] == [{"model": "scripted", **total}]


async def test_a_heartbeat_breaks_a_silence_and_nothing_else() -> None:
    GATES["g"] = Gate()
    GATES["g"].open()
    async with client_of(call("wait", gate="g"), "Done, after a while.") as (client, _):
        response = await client.post("/desk/ai-sdk", json=chat("Wait"), headers=ANN)
        assert response.text.count("data: ") > 10 and ": heartbeat" not in response.text


async def test_an_error_of_a_tool_of_the_page_is_told_in_its_own_words() -> None:
    async with client_of({"tool_calls": [{"name": "locate", "arguments": {"what": "me"}}]}, "Sorry.") as (
        client,
        executor,
    ):
        await post(client, "/desk/ai-sdk", chat("Where am I?"))
        about = {"type": "dynamic-tool", "toolName": "locate", "toolCallId": "call_0", "state": "output-error"}
        sent = await post(client, "/desk/ai-sdk", answered({**about, "errorText": "the user forbids it"}))
        (error,) = [one.json for one in sent[:-1] if one.json["type"] == "tool-output-error"]
        assert error["errorText"] == "the user forbids it"
        results = [one.content for one in (await executor.sessions.get_messages("chat")).messages if one.role == "tool"]
        assert results == ['{"error":"the user forbids it"}']
