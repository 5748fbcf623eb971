"""Tools that a page declares: `useChat` and AG-UI agents, over HTTP and over WebSocket, and `answerCalls`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.integration.test_http import client_of
from tests.js.test_agent import front, said
from tests.js.test_chat import Page, call_parts, texts
from tests.js.test_client import QUICK
from tests.support.front_ends import JS, install, stored_conversation
from tests.support_gateway import executor_of, served
from tests.support_run import a_tool, agent, call, calls

pytestmark = pytest.mark.slow
SHOW = calls(call("show_map", place="Oslo"), content="Look. ")
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
MAP: dict[str, Any] = {"description": "Shows a place on the map.", "parameters": SCHEMA}
DECLARED = {"name": "show_map", **MAP}


def page_agent(name: str = "helper", **fields: Any) -> Any:
    refund = a_tool("refund", lambda arguments, context: "refunded")
    return agent(name, **{"tools": [refund], "frontend_tools": True, **fields})


async def test_use_chat_and_http_agent_execute_the_tools_that_they_declare() -> None:
    """Both packages are unmodified. The chat sends its tools as assistant-ui does."""
    install()
    script = [SHOW, "There.", SHOW, "Sorry."]
    async with client_of(*script, user=None, agents=[page_agent("desk")]) as (client, executor):
        node = await asyncio.create_subprocess_exec(
            *(JS / "node_modules/.bin/node", JS / "page_tools.mjs", str(client.base_url).rstrip("/")),
            stdout=asyncio.subprocess.PIPE,
        )
        found = json.loads((await node.communicate())[0])
        for name in ("ui", "ui6"):
            shown = found[name]
            assert shown["called"] == [["show_map", {"place": "Oslo"}]]
            _, told = shown["messages"]
            (part,) = [part for part in told["parts"] if part["type"] == "dynamic-tool"]
            assert (part["state"], part["output"]) == ("output-available", {"shown": "Oslo"})
            assert texts(told) == "Look. There."
            (error,) = shown["errors"]
            assert json.loads(error)["error"]["code"] == "invalid_frontend_tool" and "refund" in error
        ended = found["agent"]
        assert ended["waiting"] == [], "a call of the client's own tool is no interrupt"
        assert ended["outcomes"] == [["success", ["call_0"]], ["success", []], ["success", ["call_1"]], ["success", []]]
        assert [(one["role"], one.get("content")) for one in ended["messages"]] == [
            *(("user", "Where is Oslo?"), ("assistant", "Look. "), ("tool", "shown"), ("assistant", "There.")),
            *(("user", "And Bergen?"), ("assistant", "Look. "), ("tool", ""), ("assistant", "Sorry.")),
        ]
        results = [one["content"] for one in await stored_conversation(executor, "thread") if one["role"] == "tool"]
        assert results == ["shown", '{"error":"no map"}']


async def test_use_chat_over_the_socket(typescript: Any) -> None:
    executor = executor_of([SHOW, "There."], page_agent())
    given: Any = {"tools": {"show_map": MAP}, "results": {"show_map": {"shown": True}}}
    async with served(executor) as (gateway, _), Page(typescript, gateway.url, **given) as page:
        messages = await page(["say", "Where?"], ["shows", "There."], ["ready"])
        assert (page.problems, call_parts(messages[1])) == ([], [("call_0", "output-available")])
        assert texts(messages[1]) == "Look. There."


async def test_another_answer_and_an_edit_declare_the_tools_again(typescript: Any) -> None:
    executor = executor_of([SHOW, "There.", SHOW, "Here.", SHOW, "Nowhere."], page_agent())
    given: Any = {"tools": {"show_map": MAP}, "results": {"show_map": {"shown": True}}}
    async with served(executor) as (gateway, _), Page(typescript, gateway.url, **given) as page:
        first = await page(["say", "Where?"], ["shows", "There."], ["ready"])
        again = await page(["regenerate", first[1]["id"]], ["shows", "Here."], ["ready"])
        assert call_parts(again[1]) == [("call_0", "output-available")]
        edited = await page(["edit", first[0]["id"], "Where, please?"], ["shows", "Nowhere."], ["ready"])
        assert (page.problems, len(edited)) == ([], 2)
        assert call_parts(edited[1]) == [("call_0", "output-available")]


async def test_a_tool_that_the_agent_has_is_refused_on_the_page(typescript: Any) -> None:
    executor = executor_of([], page_agent())
    async with served(executor) as (gateway, _), Page(typescript, gateway.url, tools={"refund": MAP}) as page:
        await page(["say", "Where?"])
        (problem,) = page.problems
        assert problem["code"] == "invalid_frontend_tool" and "'refund'" in problem["message"]


async def test_an_ag_ui_agent_over_the_socket(typescript: Any) -> None:
    executor = executor_of([SHOW, "There."], page_agent())
    result = {"id": "t1", "role": "tool", "toolCallId": "call_0", "content": "shown"}
    async with served(executor) as (gateway, _):
        steps: list[Any] = [
            ["load", [{"id": "u1", "role": "user", "content": "Where?"}]],
            ["run with", {"tools": [DECLARED]}],
        ]
        found = await front(typescript, gateway.url, *steps, ["add", result], ["run with", {"tools": [DECLARED]}])
        assert (found["problems"], found["pendingInterrupts"]) == ([], [])
        expected = [("user", "Where?"), ("assistant", "Look. "), ("tool", "shown"), ("assistant", "There.")]
        assert said(found) == expected
        assert "TOOL_CALL_RESULT" not in found["events"], "the client has its own result"


async def test_answer_calls_executes_tools_until_the_run_ends(typescript: Any) -> None:
    both = calls(call("show_map", place="Oslo"), call("beep"), call("later"))
    executor = executor_of([both, SHOW, "There."], page_agent())
    tools = {
        "show_map": {**MAP, "result": {"shown": True}},
        "beep": {"throws": "no sound"},
        "later": {"description": "x"},
    }
    given: Any = {"agent": "helper", "message": "Where?", "tools": tools, "settings": QUICK}
    async with served(executor) as (gateway, client):
        found = await typescript("execute", url=gateway.url, **given)
        assert [name for name, *_ in found["called"]] == ["show_map", "beep"]
        result = found["result"]
        assert [one["tool_name"] for one in result["pending"]] == ["later"]
        handle = await client.answer(result["session_id"], result["pending"][0]["call_id"], data=None)
        paused = await handle.result(20)
        assert [one.tool_name for one in paused.pending] == ["show_map"]
        handle = await client.answer(result["session_id"], paused.pending[0].call_id, data="ok")
        assert (await handle.result(20)).text == "There."
        messages = (await executor.sessions.get_messages(result["session_id"])).messages
        contents = [one.content for one in messages if one.role == "tool"]
        assert contents == ['{"shown":true}', '{"error":"no sound"}', "null", "ok"]
