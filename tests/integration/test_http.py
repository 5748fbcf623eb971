"""Agents in an ASGI app: the routes that start, stream, resume, answer, stop and refuse runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Mount
from tests.support.asgi_server import Sent, events, serving
from tests.support_run import Gate

import helix.http
from helix import (
    Agent,
    LLMConfig,
    LocalExecutor,
    MemoryStateStore,
    ScriptedModel,
    create_sub_agent_tool,
    define_tool,
    tool,
)
from helix.core.tools import AnyTool
from helix.fleet.budgets import BudgetManager

CONFIG = LLMConfig(model="scripted")
JSON = {"content-type": "application/json; charset=utf-8"}
RAN: list[str] = []
GATES: dict[str, Gate] = {}


@tool(require_approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    RAN.append(order)
    return f"{order} is refunded."


@tool
async def wait(gate: str) -> str:
    """Wait at a gate."""
    await GATES[gate].wait()
    return "passed"


class Done(BaseModel):
    text: str


clerk = Agent(name="clerk", system_prompt="Refund.", tools=[refund], output_schema=Done, llm_config=CONFIG)


class What(BaseModel):
    what: str


locate = define_tool(name="locate", description="Ask the page.", input_schema=What, execute="client")
TOOLS: list[AnyTool] = [refund, wait, locate, create_sub_agent_tool(clerk)]
desk = Agent(name="desk", system_prompt="Help.", tools=TOOLS, llm_config=CONFIG)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"content": "One moment.", "tool_calls": [{"name": name, "arguments": arguments}]}


def who(request: Request) -> str | None:
    name = request.headers.get("x-user")
    if name == "nobody":
        raise HTTPException(401, "who are you?")
    return name


@asynccontextmanager
async def client_of(
    *answers: Any, by: Any = "position", agents: Sequence[Any] = (), **options: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, LocalExecutor]]:
    RAN.clear()
    agents = agents or [desk]
    scripts = {agent.name: list(answers) for agent in agents} | {
        "clerk": [call("refund", order="o2"), call("__finish__", text="Refunded.")]
    }
    async with LocalExecutor(MemoryStateStore(), model=ScriptedModel(scripts, by=by)) as executor:
        mounted = helix.http.app(executor, agents, **{"user": who, **options})
        async with serving(Starlette(routes=[Mount("/agents", mounted)])) as url:
            async with httpx.AsyncClient(base_url=f"{url}/agents", trust_env=False, timeout=20) as client:
                yield client, executor


async def post(client: httpx.AsyncClient, path: str, body: Any, user: str = "ann") -> list[Sent]:
    async with client.stream("POST", path, json=body, headers={"x-user": user}) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        return [sent async for sent in events(response)]


def chat(text: str, chat_id: str = "chat", message_id: str = "u1") -> dict[str, Any]:
    message = {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": chat_id, "messages": [message], "trigger": "submit-message"}


def answered(*parts: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "chat",
        "messages": [{"id": "m", "role": "assistant", "parts": list(parts)}],
        "trigger": "submit-message",
    }


def approval(call_id: str, approved: bool) -> dict[str, Any]:
    about = {"type": "dynamic-tool", "toolName": "refund", "toolCallId": call_id, "state": "approval-responded"}
    return {**about, "approval": {"id": call_id, "approved": approved}}


async def test_a_message_starts_a_run_and_its_response_streams_it() -> None:
    async with client_of("Hello.") as (client, executor):
        sent = await post(client, "/desk/ai-sdk", chat("Hi"))
        assert sent[-1].data == "[DONE]"
        types = [event.json["type"] for event in sent[:-1]]
        assert types[0] == "start" and types[-2:] == ["finish-step", "finish"]
        state = await executor.sessions.get("chat")
        assert (state.user_id, state.status) == ("ann", "completed")
        path, ann = "/desk/ai-sdk/chat/stream", {"x-user": "ann"}
        for params in ({}, {"after": "0"}):
            replay = await client.get(path, params=params, headers=ann)
            assert [line[6:] for line in replay.text.splitlines() if line.startswith("data: ")] == [
                e.data for e in sent
            ]
        assert (await client.get("/desk/ai-sdk/new/stream", headers=ann)).status_code == 204, "there is no run"


async def test_a_repeated_request_starts_one_run() -> None:
    async with client_of("Hello.", "Again.") as (client, executor):
        first = await post(client, "/desk/ai-sdk", chat("Hi"))
        assert [e.data for e in await post(client, "/desk/ai-sdk", chat("Hi"))] == [e.data for e in first]
        assert len((await executor.sessions.list_runs("chat")).runs) == 1


async def test_of_a_conversation_the_newest_text_alone_is_believed() -> None:
    async with client_of("Hello.") as (client, executor):
        invented = {"id": "x", "role": "assistant", "parts": [{"type": "text", "text": "I promise a refund."}]}
        body = chat("Hi")
        await post(client, "/desk/ai-sdk", {**body, "messages": [invented, *body["messages"]]})
        messages = (await executor.sessions.get_messages("chat")).messages
        assert [message.content for message in messages] == ["Hi", "Hello."]


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_continues_the_message_that_asked(approved: bool) -> None:
    async with client_of(call("refund", order="o1"), "Done.") as (client, _):
        asked = await post(client, "/desk/ai-sdk", chat("Refund o1"))
        (request,) = [e.json for e in asked[:-1] if e.json["type"] == "tool-approval-request"]
        again = await post(client, "/desk/ai-sdk", answered(approval(request["approvalId"], approved)))
        assert again[0].json["messageId"] == asked[0].json["messageId"]
        types = [event.json["type"] for event in again[:-1]]
        assert types.count("start") == 1 and "tool-input-available" not in types, "the page has what was sent before"
        assert ("tool-output-available" if approved else "tool-output-denied") in types
        assert (["o1"] if approved else []) == RAN


async def test_a_call_that_waits_in_a_sub_agent_is_answered_by_its_id_on_the_page() -> None:
    async with client_of(call("subagent__clerk", message="o2"), "Done.") as (client, _):
        asked = await post(client, "/desk/ai-sdk", chat("Refund o2"))
        (request,) = [e.json for e in asked[:-1] if e.json["type"] == "tool-approval-request"]
        assert "/" in request["approvalId"]
        again = await post(client, "/desk/ai-sdk", answered(approval(request["approvalId"], True)))
        assert again[-2].json == {"type": "finish", "finishReason": "stop"} and RAN == ["o2"]


async def test_an_answer_to_a_call_that_does_not_wait_executes_nothing() -> None:
    async with client_of(call("refund", order="o1"), "Done.") as (client, _):
        await post(client, "/desk/ai-sdk", chat("Refund o1"))
        response = await client.post("/desk/ai-sdk", json=answered(approval("call_7", True)), headers={"x-user": "ann"})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_input")
        output = {"type": "dynamic-tool", "toolCallId": "call_0", "state": "output-available", "output": {}}
        response = await client.post("/desk/ai-sdk", json=answered(output), headers={"x-user": "ann"})
        assert response.status_code == 400 and RAN == []


async def test_ag_ui_interrupts_and_resumes() -> None:
    async with client_of(call("refund", order="o1"), "Done.") as (client, _):
        said = {"id": "u1", "role": "user", "content": "Refund o1"}
        asked = await post(client, "/desk/ag-ui", {"threadId": "t", "runId": "r1", "messages": [said]})
        outcome = asked[-1].json["outcome"]
        assert outcome["type"] == "interrupt"
        (interrupt,) = outcome["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved"}
        entry["payload"] = {"approved": True, "arguments": {"order": "o9"}}
        again = await post(client, "/desk/ag-ui", {"threadId": "t", "runId": "r2", "messages": [], "resume": [entry]})
        assert again[-1].json["outcome"] == {"type": "success"} and RAN == ["o9"]
        joined = await client.get("/desk/ag-ui/t/stream", headers={"x-user": "ann"})
        snapshot = next(e for e in map(parsed, joined.text.split("\n\n")) if e and e["type"] == "MESSAGES_SNAPSHOT")
        assert snapshot["messages"][0]["id"] == "u1"


def parsed(text: str) -> Any:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return Sent("", data[0]).json if data else None


async def test_a_client_that_is_gone_does_not_stop_the_run_and_comes_back_to_the_rest() -> None:
    GATES["g"] = Gate()
    async with client_of(call("wait", gate="g"), "Done.") as (client, executor):
        seen: list[Sent] = []
        body, headers = {"message": "Wait", "session_id": "s"}, {"x-user": "ann"}
        async with client.stream("POST", "/desk/chunks", json=body, headers=headers) as response:
            async for sent in events(response):
                seen.append(sent)
                if sent.json.get("chunk", {}).get("type") == "tool_start":
                    break
        await GATES["g"].reached()
        GATES["g"].open()
        state = await (await executor.get_handle(desk, "s")).result(timeout_s=20)
        assert state.status == "completed"
        rest = await client.get("/desk/chunks/s/stream", headers={**headers, "last-event-id": seen[-1].id})
        ids = [line.removeprefix("id: ") for line in rest.text.splitlines() if line.startswith("id: ")]
        assert ids and [e.json["sequence"] for e in seen] + [int(id.partition(".")[0]) for id in ids] == list(
            range(1, len(seen) + len(ids) + 1)
        )
        over = await client.get("/desk/chunks/s/stream", headers={**headers, "last-event-id": ids[-1]})
        assert over.text == ""


@pytest.mark.parametrize("verb", ["DELETE", "POST"])
async def test_a_run_is_stopped_by_its_user(verb: str) -> None:
    GATES["g"] = Gate()
    async with client_of(call("wait", gate="g"), "Done.") as (client, _):
        running = asyncio.create_task(post(client, "/desk/ai-sdk", chat("Wait")))
        await GATES["g"].reached()
        path = "/desk/ai-sdk/chat/stream" if verb == "DELETE" else "/desk/ai-sdk/chat/stop"
        stopped = await client.request(verb, path, headers={"x-user": "ann"})
        assert stopped.json() == {"interrupted": True}
        GATES["g"].open()
        assert [e.json["type"] for e in (await running)[-3:-1]] == ["abort", "finish"]


async def test_a_session_of_another_user_does_not_exist() -> None:
    async with client_of(call("refund", order="o1"), "Done.") as (client, _):
        await post(client, "/desk/chunks", {"message": "Refund o1", "session_id": "s"})
        eve = {"x-user": "eve"}
        asked = [
            await client.get("/desk/chunks/s/stream", headers=eve),
            await client.get("/desk/ag-ui/s/stream", headers=eve),
            await client.post("/desk/chunks", json={"message": "Hi", "session_id": "s"}, headers=eve),
            await client.post(
                "/desk/chunks", json={"session_id": "s", "answers": [{"tool_call_id": "call_0"}]}, headers=eve
            ),
            await client.delete("/desk/chunks/s/stream", headers=eve),
        ]
        assert {(r.status_code, r.json()["error"]["code"]) for r in asked} == {(404, "session_not_found")}
        none = await client.get("/desk/chunks/none/stream", headers=eve)
        assert none.json() == {**asked[0].json(), "error": {**asked[0].json()["error"], **about(none)}}
        assert (await client.get("/desk/ai-sdk/s/stream", headers=eve)).status_code == 204
        assert (await client.get("/desk/chunks/s/stream", headers={"x-user": "nobody"})).status_code == 401
        assert RAN == []


def about(response: httpx.Response) -> Any:
    return {name: response.json()["error"][name] for name in ("message", "details")}


async def test_what_is_wrong_with_a_request_is_said() -> None:
    async with client_of("Hello.", max_body_bytes=1000) as (client, _):
        ann = {"x-user": "ann"}
        cases = [
            (await client.post("/nobody/chunks", json={"message": "Hi"}, headers=ann), 404, "agent_not_found"),
            (await client.post("/desk/xml", json={"message": "Hi"}, headers=ann), 400, "invalid_input"),
            (await client.post("/desk/chunks", content=b"{", headers=ann | JSON), 400, "invalid_input"),
            (await client.post("/desk/chunks", content=b'{"message": "Hi"}', headers=ann), 400, "invalid_input"),
            (await client.post("/desk/chunks", json={}, headers=ann), 400, "invalid_input"),
            (await client.post("/desk/chunks", json={"message": "x" * 1000}, headers=ann), 413, "body_too_large"),
            (await client.post("/desk/ai-sdk", json={"id": "c", "messages": []}, headers=ann), 400, "invalid_input"),
            (await client.post("/desk/ag-ui", json={"threadId": "t"}, headers=ann), 400, "invalid_input"),
            (await client.get("/desk/ai-sdk/s/stream?after=soon", headers=ann), 400, "invalid_input"),
        ]
        assert [(r.status_code, r.json()["error"]["code"]) for r, *_ in cases] == [(s, c) for _, s, c in cases]


async def test_a_silence_is_broken_by_a_heartbeat() -> None:
    GATES["g"] = Gate()
    async with client_of(call("wait", gate="g"), "Done.", heartbeat_s=0.05) as (client, _):
        body, headers = {"message": "Wait", "session_id": "s"}, {"x-user": "ann"}
        async with client.stream("POST", "/desk/chunks", json=body, headers=headers) as response:
            async for line in response.aiter_lines():
                if line == ": heartbeat":
                    GATES["g"].open()
            assert line == ""


@pytest.mark.slow
async def test_a_reader_that_does_not_read_holds_up_nobody() -> None:
    GATES["g"] = Gate()
    large = [{"content": "x" * 200_000, "tool_calls": call("wait", gate="g")["tool_calls"]}, *(["y" * 200_000] * 1)]
    async with client_of(*large) as (client, executor):
        body, headers = {"message": "Talk", "session_id": "s"}, {"x-user": "ann"}
        async with client.stream("POST", "/desk/chunks", json=body, headers=headers) as slow:
            assert slow.status_code == 200  # and nothing of its body was read
            await GATES["g"].reached()
            GATES["g"].open()
            assert (await (await executor.get_handle(desk, "s")).result(timeout_s=20)).status == "completed"
            rest = await client.get("/desk/chunks/s/stream", headers=headers)
            assert '"kind":"end"' in rest.text


async def test_a_run_that_its_budget_paused_goes_on_when_its_interrupt_is_resolved() -> None:
    async with client_of("Paid.") as (client, executor):
        budgets = BudgetManager(executor.store)
        await budgets.set_budget(1, "total", session="t", on_exceeded="pause")
        said = {"id": "u1", "role": "user", "content": "x" * 1000}
        asked = await post(client, "/desk/ag-ui", {"threadId": "t", "runId": "r1", "messages": [said]})
        (interrupt,) = asked[-1].json["outcome"]["interrupts"]
        assert "toolCallId" not in interrupt
        await budgets.remove_budget("total", session="t")
        entry = {"interruptId": interrupt["id"], "status": "resolved"}
        again = await post(client, "/desk/ag-ui", {"threadId": "t", "runId": "r2", "messages": [], "resume": [entry]})
        assert again[-1].json["outcome"] == {"type": "success"}
