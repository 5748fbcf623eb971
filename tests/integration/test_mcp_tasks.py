"""Tasks of MCP's protocol 2026-07-28: polled, answered, cancelled, listened to, and found by the next server."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

import httpx2
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from tests.support_gateway import executor_of, key_for, keyed
from tests.support_mcp_server import ORDER, Tasks, ask, buyer, client_of, frames, listening, on_http, person, task_of
from tests.support_run import Gate, World, agent, gated

from helix.core.registry import AgentRegistry
from helix.mcp import app
from helix.mcp.tasks import EXTENSION

pytestmark = pytest.mark.slow

LONG = (f"{'x' * 3_000}/run_0", f"ses_0/{'x' * 2_000}")


async def test_a_task_is_polled_asked_and_answered() -> None:
    done: list[str] = []
    tasks = Tasks()
    fill, _ = person()
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks], elicitation_callback=fill) as client:
            await client.call_tool("buyer", {"message": "tea"})
            (task_id,) = tasks.made
            task = await task_of(client.session, task_id, "input_required")
            ((key, form),) = task["inputRequests"].items()
            assert form["method"] == "elicitation/create"
            for useless in ({"other": {"action": "accept"}}, {key: {"action": "accept"}}, {key: "yes"}, {}):
                await ask(client.session, "tasks/update", taskId=task_id, inputResponses=useless)
            again = await task_of(client.session, task_id, "input_required")
            assert (list(again["inputRequests"]), done) == ([key], [])
            given = {key: {"action": "accept", "content": {"approve": True}}}
            await ask(client.session, "tasks/update", taskId=task_id, inputResponses=given)
            task = await task_of(client.session, task_id, "completed")
            assert task["result"]["structuredContent"]["output"] == "Tea is on its way."
            assert done == ["tea"]
            await ask(client.session, "tasks/update", taskId=task_id, inputResponses=given)
            await ask(client.session, "tasks/cancel", taskId=task_id)
            assert await task_of(client.session, task_id, "completed") == task


async def test_a_task_that_is_cancelled_interrupts_its_run() -> None:
    gate, tasks = Gate(), Tasks()
    async with executor_of([gated(gate, "Done.")]) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks]) as client:
            await client.call_tool("helper", {"message": "go"})
            await gate.reached()
            await ask(client.session, "tasks/cancel", taskId=tasks.made[0])
            await task_of(client.session, tasks.made[0], "cancelled")


async def test_tasks_are_for_long_runs_and_for_those_who_declare_them() -> None:
    tasks = Tasks()
    async with executor_of(["One.", "Two."]) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks]) as client:
            short = await client.call_tool("helper", {"message": "go"})
            assert (short.structured_content["output"], tasks.made) == ("One.", [])
        async with client_of(url, mode="2026-07-28") as client:
            result = (await client.call_tool("helper", {"message": "go"})).structured_content
            task_id = f"{result['session_id']}/{result['run_id']}"
            with pytest.raises(MCPError, match="for clients that declare"):
                await ask(client.session, "tasks/get", taskId=task_id)


async def test_another_users_task_is_not_found() -> None:
    gate = Gate()
    async with executor_of([gated(gate, "One.")]) as executor:
        ada, bob = await key_for(executor, "ada"), await key_for(executor, "bob")
        async with on_http(app(executor, authoriser=keyed(executor))) as url:
            tasks = Tasks()
            async with client_of(url, ada, mode="2026-07-28", extensions=[tasks]) as client:
                await client.call_tool("helper", {"message": "go"})
                gate.open()
                await task_of(client.session, tasks.made[0], "completed")
            async with client_of(url, bob, mode="2026-07-28", extensions=[Tasks()]) as client:
                for task_id in (tasks.made[0], "ses_0/run_0", "nonsense", "", "/", "a/b/c", *LONG):
                    methods: dict[str, dict[str, Any]] = {"get": {}, "update": {"inputResponses": {}}, "cancel": {}}
                    for method, more in methods.items():
                        with pytest.raises(MCPError) as raised:
                            await ask(client.session, f"tasks/{method}", taskId=task_id, **more)
                        assert raised.value.error.code == INVALID_PARAMS


async def test_a_task_survives_a_restart_of_the_server_in_the_midst_of_its_run(tmp_path: Path) -> None:
    world, gate, tasks = World("sqlite", tmp_path), Gate(), Tasks()
    sock = socket.create_server(("127.0.0.1", 0))
    address = sock.getsockname()
    registry = AgentRegistry()
    registry.register(agent("helper"))
    first = world.executor([gated(gate, "Never.")], registry=registry)
    async with on_http(app(first), sock) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks]) as client:
            await client.call_tool("helper", {"message": "go"})
            await gate.reached()
    await first.close()
    second = world.executor(["Done."], registry=registry)
    async with on_http(app(second), socket.create_server(address)) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks]) as client:
            task = await task_of(client.session, tasks.made[0], "completed")
            assert task["result"]["structuredContent"]["output"] == "Done."
            place = {name: task["result"]["structuredContent"][name] for name in ("session_id", "run_id")}
        async with client_of(url, mode="legacy") as client:
            found = (await client.call_tool("helix__wait", place)).structured_content
            assert (found["status"], found["output"]) == ("completed", "Done.")
    await world.close()


async def test_who_listens_receives_each_change_until_the_task_ends() -> None:
    done: list[str] = []
    tasks, fill = Tasks(), person()[0]
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with (
            client_of(url, mode="2026-07-28", extensions=[tasks], elicitation_callback=fill) as client,
            httpx2.AsyncClient(timeout=20) as http,
        ):
            await client.call_tool("buyer", {"message": "tea"})
            (task_id,) = tasks.made
            await task_of(client.session, task_id, "input_required")
            asked, headers = listening(task_id, "ses_0/run_0", "nonsense", task_id)
            stream = frames(http, url, asked, **headers)
            acknowledged = await anext(stream)
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"]["notifications"] == {"taskIds": [task_id]}
            waiting = (await anext(stream))["params"]
            assert waiting["status"] == "input_required"
            given = {key: {"action": "accept", "content": {"approve": True}} for key in waiting["inputRequests"]}
            await ask(client.session, "tasks/update", taskId=task_id, inputResponses=given)
            rest = [frame async for frame in stream]
            task = await ask(client.session, "tasks/get", taskId=task_id)
            (*_, ended), result = [frame["params"] for frame in rest[:-1]], rest[-1]
            meta = {"io.modelcontextprotocol/subscriptionId": 7}
            assert ended.pop("_meta") == acknowledged["params"]["_meta"] == meta
            assert ended == {name: task[name] for name in task if name not in ("_meta", "resultType")} | {"ttlMs": None}
            assert {frame["method"] for frame in rest[:-1]} == {"notifications/tasks"}
            assert (ended["status"], done) == ("completed", ["tea"])
            assert result["result"]["_meta"].items() >= meta.items()


async def test_only_the_owner_of_a_task_who_declares_tasks_listens() -> None:
    gate, tasks = Gate(), Tasks()
    async with executor_of([gated(gate, "One.")]) as executor, httpx2.AsyncClient(timeout=20) as http:
        ada, bob = await key_for(executor, "ada"), await key_for(executor, "bob")
        async with on_http(app(executor, authoriser=keyed(executor))) as url:
            async with client_of(url, ada, mode="2026-07-28", extensions=[tasks]) as client:
                await client.call_tool("helper", {"message": "go"})
            asked, headers = listening(tasks.made[0], token=bob)
            acknowledged, result = [frame async for frame in frames(http, url, asked, **headers)]
            assert acknowledged["params"]["notifications"] == {}
            assert result["result"]["resultType"] == "complete"
            asked, headers = listening(tasks.made[0], declared=False, token=ada)
            (refused,) = [frame async for frame in frames(http, url, asked, **headers)]
            assert refused["error"]["code"] == -32021
            assert EXTENSION in refused["error"]["data"]["requiredCapabilities"]["extensions"]


async def test_a_stream_ends_with_its_token() -> None:
    gate, tasks = Gate(), Tasks()
    async with executor_of([gated(gate, "One.")]) as executor, httpx2.AsyncClient(timeout=20) as http:
        key = await key_for(executor, "ada", expires_at=executor.engine.clock.now() + 3)
        async with on_http(app(executor, authoriser=keyed(executor))) as url:
            async with client_of(url, key, mode="2026-07-28", extensions=[tasks]) as client:
                await client.call_tool("helper", {"message": "go"})
            asked, headers = listening(tasks.made[0], token=key)
            _, working, result = [frame async for frame in frames(http, url, asked, **headers)]
            assert (working["params"]["status"], "result" in result) == ("working", True)


async def test_streams_are_limited_and_one_that_is_left_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.mcp.tasks.MAX_STREAMS", 1)
    gate, tasks = Gate(), Tasks()
    async with executor_of([gated(gate, "One.")]) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="2026-07-28", extensions=[tasks]) as client:
            await client.call_tool("helper", {"message": "go"})
        asked, headers = listening(tasks.made[0])
        async with httpx2.AsyncClient(timeout=20) as http:
            stream = frames(http, url, asked, **headers)
            await anext(stream)
            async with httpx2.AsyncClient(timeout=20) as other:
                (refused,) = [frame async for frame in frames(other, url, asked, **headers)]
                assert "poll with tasks/get" in refused["error"]["message"]
            await stream.aclose()
        async with asyncio.timeout(20), httpx2.AsyncClient(timeout=20) as http:
            while "error" in await anext(frames(http, url, asked, **headers)):
                await asyncio.sleep(0.05)
