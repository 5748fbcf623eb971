"""Tasks of MCP's protocol 2025-11-25, message by message over HTTP. tests/mcp_suites tests them with the official
client."""

import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from tests.support_gateway import executor_of, key_for, keyed
from tests.support_mcp_server import ORDER, Older, buyer, older, on_http
from tests.support_run import Gate, World, agent, gated

from helix.core.registry import AgentRegistry
from helix.mcp import app

RELATED = "io.modelcontextprotocol/related-task"
STATUS = "notifications/tasks/status"
METHOD_NOT_FOUND, INVALID_PARAMS = -32601, -32602


async def test_a_call_becomes_a_task_that_is_polled_and_waited_for() -> None:
    gate = Gate()
    async with executor_of([gated(gate, "Done.")]) as executor, on_http(app(executor)) as url, older(url) as client:
        assert client.begun["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        listed = {tool["name"]: tool for tool in (await client.reply("tools/list"))["result"]["tools"]}
        assert listed["helper"]["execution"] == {"taskSupport": "optional"}
        assert "execution" not in listed["helix__wait"]
        task_id = await client.task("helper", message="go")
        await gate.reached()
        task = (await client.reply("tasks/get", taskId=task_id))["result"]
        assert (task["status"], task["ttl"], task["taskId"]) == ("working", None, task_id)
        stream = client.ask("tasks/result", taskId=task_id)
        working = await anext(stream)
        assert (working["method"], working["params"]["status"]) == (STATUS, "working")
        gate.open()
        *changes, result = [frame async for frame in stream]
        assert [change["params"]["status"] for change in changes] == ["completed"]
        assert result["result"]["structuredContent"]["output"] == "Done."
        assert result["result"]["_meta"] == {RELATED: {"taskId": task_id}}
        again = await client.reply("tasks/result", taskId=task_id)
        assert again["result"] == result["result"]


async def answer(client: Older, stream: Any, task_id: str, **filled: Any) -> list[str]:
    """Fill in the form that the stream brings. Return the statuses of the stream."""
    statuses = []
    async for frame in stream:
        if frame.get("method") == STATUS:
            statuses.append(frame["params"]["status"])
        elif frame.get("method") == "elicitation/create":
            assert frame["params"]["_meta"][RELATED] == {"taskId": task_id}
            await client.post({"jsonrpc": "2.0", "id": frame["id"], "result": filled})
        else:
            statuses.append(frame["result"]["structuredContent"]["output"])
    return statuses


async def test_a_task_asks_while_its_result_is_waited_for() -> None:
    done: list[str] = []
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with older(url, elicitation={}) as client:
            task_id = await client.task("buyer", message="tea")
            while (await client.reply("tasks/get", taskId=task_id))["result"]["status"] != "input_required":
                assert done == []
            stream = client.ask("tasks/result", taskId=task_id)
            statuses = await answer(client, stream, task_id, action="accept", content={"approve": True})
    assert (statuses[0], statuses[-2:], done) == ("input_required", ["completed", "Tea is on its way."], ["tea"])


async def test_without_forms_a_task_works_until_the_answer_comes_from_elsewhere() -> None:
    done: list[str] = []
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url, older(url) as client:
        task_id = await client.task("buyer", message="tea")
        stream = client.ask("tasks/result", taskId=task_id)
        while "Allow the call of order" not in (await anext(stream))["params"].get("statusMessage", ""):
            assert done == []
        session_id = task_id.partition("/")[0]
        (waiting,) = (await executor.sessions.get(session_id)).pending
        answered = {"session_id": session_id, "run_id": task_id.partition("/")[2], "call_id": waiting.call_id}
        await client.reply("tools/call", name="helix__answer", arguments={**answered, "approved": True})
        *_, result = [frame async for frame in stream]
        assert (result["result"]["structuredContent"]["output"], done) == ("Tea is on its way.", ["tea"])


async def test_a_task_is_cancelled_once() -> None:
    gate = Gate()
    async with executor_of([gated(gate, "Done.")]) as executor, on_http(app(executor)) as url, older(url) as client:
        task_id = await client.task("helper", message="go")
        await gate.reached()
        assert (await client.reply("tasks/cancel", taskId=task_id))["result"]["status"] == "cancelled"
        refused = (await client.reply("tasks/cancel", taskId=task_id))["error"]
        assert (refused["code"], refused["message"]) == (INVALID_PARAMS, "the task has ended: it is cancelled")


async def test_a_repeat_of_the_request_is_the_same_task_and_a_failed_run_a_failed_task() -> None:
    async with executor_of([ValueError("no")] * 9) as executor, on_http(app(executor)) as url, older(url) as client:
        call: dict[str, Any] = {"name": "helper", "arguments": {"message": "go"}, "task": {}}
        first, again = [await client.reply("tools/call", 50, **call) for _ in range(2)]
        assert first["result"]["task"]["taskId"] == again["result"]["task"]["taskId"]
        assert len((await executor.sessions.list_sessions()).sessions) == 1
        task_id = first["result"]["task"]["taskId"]
        assert (await client.reply("tasks/result", taskId=task_id))["result"]["isError"]
        assert (await client.reply("tasks/get", taskId=task_id))["result"]["status"] == "failed"


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/call", {"name": "helix__wait", "arguments": {}, "task": {}}, METHOD_NOT_FOUND),
        ("tools/call", {"name": "nobody", "arguments": {}, "task": {}}, INVALID_PARAMS),
        ("tools/call", {"name": "helper", "arguments": {"message": 3}, "task": {}}, INVALID_PARAMS),
        ("tasks/get", {"taskId": "nonsense"}, INVALID_PARAMS),
        ("tasks/result", {"taskId": "ses_0/run_0"}, INVALID_PARAMS),
        ("tasks/update", {"taskId": "ses_0/run_0", "inputResponses": {}}, METHOD_NOT_FOUND),
        ("tasks/list", {}, METHOD_NOT_FOUND),
    ],
)
async def test_what_is_refused(method: str, params: dict[str, Any], code: int) -> None:
    async with executor_of([]) as executor, on_http(app(executor)) as url, older(url) as client:
        assert (await client.reply(method, **params))["error"]["code"] == code
        assert not (await executor.sessions.list_sessions()).sessions


async def test_versions_without_tasks_have_none() -> None:
    async with executor_of(["One."]) as executor, on_http(app(executor)) as url:
        async with older(url, version="2025-06-18") as client:
            called = await client.reply("tools/call", name="helper", arguments={"message": "go"}, task={})
            assert called["result"]["structuredContent"]["output"] == "One."
            for method in ("tasks/get", "tasks/result", "tasks/cancel", "helix/tasks/create"):
                refused = await client.reply(method, taskId="ses_0/run_0", name="helper")
                assert refused["error"]["code"] == METHOD_NOT_FOUND


async def test_a_user_lists_their_own_tasks_only() -> None:
    async with executor_of(["One.", "Two.", "Three."]) as executor:
        ada, bob = await key_for(executor, "ada"), await key_for(executor, "bob")
        async with on_http(app(executor, authoriser=keyed(executor))) as url:
            async with older(url, ada) as client:
                assert client.begun["capabilities"]["tasks"]["list"] == {}
                first = await client.task("helper", message="a")
                await client.reply("tasks/result", taskId=first)
                second = await client.task("helper", message="b", session_id=first.partition("/")[0])
                await client.reply("tasks/result", taskId=second)
                other = await client.task("helper", message="c")
                await client.reply("tasks/result", taskId=other)
                listed = (await client.reply("tasks/list"))["result"]
                assert [task["taskId"] for task in listed["tasks"]] == [other, second, first]
                assert {task["status"] for task in listed["tasks"]} == {"completed"}
                assert "nextCursor" not in listed
                assert (await client.reply("tasks/list", cursor="no/such"))["error"]["code"] == INVALID_PARAMS
            async with older(url, bob) as client:
                assert (await client.reply("tasks/list"))["result"]["tasks"] == []
                for method in ("get", "result", "cancel"):
                    refused = await client.reply(f"tasks/{method}", taskId=other)
                    assert refused["error"]["code"] == INVALID_PARAMS


async def test_the_next_server_has_the_task(tmp_path: Path) -> None:
    world, gate, registry = World("sqlite", tmp_path), Gate(), AgentRegistry()
    registry.register(agent("helper"))
    sock = socket.create_server(("127.0.0.1", 0))
    address = sock.getsockname()
    first = world.executor([gated(gate, "Never.")], registry=registry)
    async with on_http(app(first), sock) as url, older(url) as client:
        task_id = await client.task("helper", message="go")
        await gate.reached()
    await first.close()
    async with on_http(app(world.executor(["Done."], registry=registry)), socket.create_server(address)) as url:
        async with older(url) as client:
            result = await client.reply("tasks/result", taskId=task_id)
            assert result["result"]["structuredContent"]["output"] == "Done."
    await world.close()
