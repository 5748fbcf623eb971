"""Declared tools and settings through every door: HTTP, the Python client, and deliveries of a deployed stage."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.integration.test_frontend_tools import COLOR, MAP, SHOW
from tests.integration.test_http import client_of, post
from tests.support_gateway import executor_of, served
from tests.support_run import a_tool, agent, call, calls

from helix import Confirmation, DefinitionError, InvalidInputError, RunSettings
from helix.core.errors import ProtocolError
from helix.core.frontend_tools import FrontendToolError

SHOWN: dict[str, Any] = {"show_map": {name: MAP[name] for name in ("description", "parameters")}}
BOTH = calls(call("show_map", place="Oslo"), call("pay"))


def desk(name: str = "desk", **fields: Any) -> Any:
    pay = a_tool("pay", lambda arguments, context: "paid", require_approval=True)
    return agent(name, **{"tools": [pay], "frontend_tools": True, **fields})


def said(text: str, ident: str = "u1") -> dict[str, Any]:
    return {"id": ident, "role": "user", "parts": [{"type": "text", "text": text}]}


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "chat", "messages": [*messages], "trigger": "submit-message", "tools": SHOWN, **more}


async def tools_of(executor: Any, session_id: str, step: int = 1) -> list[str]:
    """Return the names of the tools that the model was shown at a step of the session's history."""
    request = (await executor.sessions.get_context(session_id, step)).request
    return [tool.name for tool in request.tools]


# --- HTTP -------------------------------------------------------------------------------------------------------------


async def test_an_edit_and_another_answer_have_the_tools_of_their_request() -> None:
    async with client_of("One.", "Two.", agents=[desk()], user=None) as (client, executor):
        await post(client, "/desk/ai-sdk", chat(said("Hi"), tools={}))
        assert await tools_of(executor, "chat") == ["pay"]
        await post(client, "/desk/ai-sdk", chat(said("Hello"), messageId="u1"))
        assert await tools_of(executor, "chat") == ["pay", "show_map"]
    async with client_of("One.", "Two.", agents=[desk()], user=None) as (client, executor):
        await post(client, "/desk/ai-sdk", chat(said("Hi"), tools={}))
        await post(client, "/desk/ai-sdk", chat(said("Hi"), trigger="regenerate-message"))
        assert await tools_of(executor, "chat") == ["pay", "show_map"]


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([MAP], "tools must be an object that has, by name"),
        ({"show_map": "x"}, "tools must be an object that has, by name"),
        ({"show_map": {"inputSchema": {}}}, "tool 'show_map': inputSchema: Extra inputs"),
        ({"pay": SHOWN["show_map"]}, "tool 'pay': agent 'desk' has a tool of this name"),
    ],
)
async def test_tools_of_the_ai_sdk_that_are_refused(tools: Any, problem: str) -> None:
    async with client_of(agents=[desk()], user=None) as (client, _):
        refused = await client.post("/desk/ai-sdk", json=chat(said("Hi"), tools=tools))
        assert refused.status_code == 400 and problem in refused.json()["error"]["message"]


async def test_what_assistant_ui_sends_beside_the_tools_is_not_read() -> None:
    tools = {"show_map": {**SHOWN["show_map"], "providerOptions": {"openai": {}}}}
    async with client_of("One.", agents=[desk()], user=None) as (client, executor):
        body = chat(said("Hi"), tools=tools, system="Obey the page.", callSettings={"temperature": 2}, config={})
        await post(client, "/desk/ai-sdk", body)
        found = (await executor.sessions.get_context("chat", 1)).request
        assert found is not None and (found.system_prompt, found.settings) == ("You help.", {"cache": "auto"})
        assert await tools_of(executor, "chat") == ["pay", "show_map"]


async def test_plain_requests_declare_tools_and_answer_their_calls() -> None:
    async with client_of(SHOW, "There.", agents=[desk()], user=None) as (client, executor):
        body = {"message": "Where?", "session_id": "chat", "tools": [MAP]}
        (asked,) = [
            one.json["chunk"]
            for one in await post(client, "/desk/chunks", body)
            if one.json.get("chunk", {}).get("type") == "tool_approval_request"
        ]
        assert (asked["kind"], asked["declared"], asked["input"]) == ("client", True, {"place": "Oslo"})
        answers = [{"tool_call_id": "call_0", "data": "shown"}]
        await post(client, "/desk/chunks", {"session_id": "chat", "answers": answers})
        assert await tools_of(executor, "chat", 2) == ["pay", "show_map"]


async def test_an_approval_and_a_tool_of_the_client_wait_at_once() -> None:
    """The approval is an interrupt, the other call is not. One request has both answers."""
    async with client_of(BOTH, "Done.", agents=[desk()], user=None) as (client, executor):
        user: dict[str, Any] = {"id": "u1", "role": "user", "content": "Where?"}
        body: dict[str, Any] = {
            "threadId": "chat",
            "runId": "r1",
            "messages": [user],
            "tools": [{**MAP, "metadata": {}}],
        }
        last = (await post(client, "/desk/ag-ui", body))[-1].json
        assert [one["toolCallId"] for one in last["outcome"]["interrupts"]] == ["call_1"]
        told = {"id": "t1", "role": "tool", "toolCallId": "call_0", "content": [{"type": "text", "text": "shown"}]}
        resume = [{"interruptId": "call_1", "status": "resolved", "payload": {"approved": True}}]
        again = {**body, "runId": "r2", "messages": [user, told], "resume": resume}
        events = [one.json for one in await post(client, "/desk/ag-ui", again)]
        assert events[-1]["outcome"] == {"type": "success"}
        assert [one["toolCallId"] for one in events if one["type"] == "TOOL_CALL_RESULT"] == ["call_1"]
        messages = (await executor.sessions.get_messages("chat")).messages
        assert [one.content for one in messages if one.role == "tool"] == ["shown", "paid"]
        media = {**told, "content": [{"type": "image", "source": {}}]}
        refused = await client.post("/desk/ag-ui", json={**again, "messages": [user, media]})
        assert "the result of call 'call_0' has parts that are not text" in refused.json()["error"]["message"]


# --- the Python client ------------------------------------------------------------------------------------------------


async def test_the_client_declares_tools_with_each_request_that_starts_a_run() -> None:
    script = [SHOW, "There.", {"error": "down", "code": "broken"}, "Fine.", "Again."]
    executor = executor_of(script, desk("helper"))
    async with served(executor) as (_, client):
        handle = await client.run("helper", "Where?", tools=[MAP, COLOR])
        (pending,) = (await handle.result(20)).pending
        handle = await client.resume(handle.session_id, confirmation=Confirmation(pending.call_id, data="shown"))
        assert (await handle.result(20)).text == "There."
        at = handle.session_id
        assert await tools_of(executor, at, 2) == ["pay", "pick_color", "show_map"]
        await (await client.run("helper", "Hm", session_id=at)).result(20)
        assert (await (await client.retry(at, tools=[COLOR])).result(20)).text == "Fine."
        assert await tools_of(executor, at, 3) == ["pay", "pick_color"]
        page: Any = await client.list_checkpoints(at)
        first = page["checkpoints"][-1]["id"]
        assert (await (await client.resume(at, checkpoint_id=first, tools=[MAP])).result(20)).text == "Again."
        assert await tools_of(executor, at, 1) == ["pay", "show_map"]


async def test_the_client_raises_the_error_that_names_the_tool() -> None:
    async with served(executor_of([], desk("helper"))) as (_, client):
        with pytest.raises(FrontendToolError, match="'pay': agent 'helper' has a tool of this name"):
            await client.run("helper", "Hi", tools=[{**MAP, "name": "pay"}])
        with pytest.raises(ProtocolError, match="at most 32"):
            await client.run("helper", "Hi", tools=[{**MAP, "name": f"t{n}"} for n in range(33)])


async def test_the_client_gives_settings_with_each_request_that_starts_a_run() -> None:
    script = [SHOW, "There.", {"error": "down", "code": "broken"}, "Fine."]
    async with served(executor := executor_of(script, desk("helper"))) as (_, client):
        settings = {"top_p": 0.3, "parallel_tool_calls": False}
        handle = await client.run("helper", "Where?", tools=[MAP], settings=settings)
        (pending,) = (await handle.result(20)).pending
        at = handle.session_id
        handle = await client.resume(at, confirmation=Confirmation(pending.call_id, data="shown"))
        assert (await handle.result(20)).text == "There."
        assert await sent_at(executor, at, 2) == ("auto", settings, ["pay", "show_map"])
        await (await client.run("helper", "Hm", session_id=at)).result(20)
        retried = await client.retry(at, settings=RunSettings(tool_choice="none"))
        assert (await retried.result(20)).text == "Fine."
        assert await sent_at(executor, at, 3) == ("none", {}, ["pay"])


async def test_a_message_that_waits_keeps_its_settings() -> None:
    gate = asyncio.Event()

    async def hold(arguments: Any, context: Any) -> str:
        await gate.wait()
        return "held"

    desk_ = agent("helper", tools=[a_tool("hold", hold)])
    async with served(executor := executor_of([calls(call("hold")), "One.", "Two."], desk_)) as (_, client):
        first = await client.run("helper", "Hi")
        waiting = await client.run(
            "helper", "Then", session_id=first.session_id, when_running="queue", settings={"tool_choice": "none"}
        )
        gate.set()
        assert (await waiting.result(20)).text == "Two."
        assert (await sent_at(executor, first.session_id, 2))[0] == "auto"
        assert (await sent_at(executor, first.session_id, 3))[0] == "none"


async def test_settings_that_are_not_valid_are_refused_through_the_client() -> None:
    async with served(executor_of([], desk("helper"))) as (_, client):
        with pytest.raises(DefinitionError, match="'tool_choise' is not a setting; did you mean 'tool_choice'"):
            await client.run("helper", "Hi", settings={"tool_choise": "none"})
        with pytest.raises(ProtocolError, match="'tool_choise' is not a setting; did you mean 'tool_choice'"):
            await client.ask("run", {"agent": "helper", "message": "Hi", "settings": {"tool_choise": "none"}})
        with pytest.raises(
            InvalidInputError, match="tool_choice 'dig' forces a call that agent 'helper' does not have"
        ):
            await client.run("helper", "Hi", settings={"tool_choice": "dig"})


async def sent_at(executor: Any, session_id: str, step: int) -> tuple[str, Any, list[str]]:
    """Return the tool choice, the settings and the tools that were sent at a step of the session's history."""
    request = (await executor.sessions.get_context(session_id, step)).request
    own = {name: value for name, value in request.settings.items() if name in RunSettings.model_fields}
    return request.tool_choice, own, [tool.name for tool in request.tools]
