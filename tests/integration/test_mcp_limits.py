"""Hostile, lost and oversized requests over MCP. They leave nothing that grows, and no run that was never started."""

import asyncio
import gc
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client
from mcp_types import ElicitResult
from tests.support.command_line import CommandLine
from tests.support_gateway import executor_of, key_for, keyed
from tests.support_mcp_server import (
    ERAS,
    HEADERS,
    ORDER,
    Tasks,
    buyer,
    client_of,
    older,
    on_http,
    person,
    task_of,
    text_of,
)
from tests.support_run import Gate, agent, gated

from helix.core.functions import AgentClient
from helix.core.registry import AgentRegistry
from helix.mcp import ExecutorSource, app, make_server
from helix.mcp.runs import RunRef

pytestmark = pytest.mark.slow

LARGE = 40_000


def functions(done: list[int]) -> Any:
    client = AgentClient(registry=AgentRegistry())

    @client.agent("repeater")
    async def repeater(text: str, times: int) -> str:
        """Repeats."""
        done.append(times)
        return text * times

    return repeater


@ERAS
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"text": "a"},
        {"text": "a", "times": "many"},
        {"text": ["a"], "times": 1},
        {"text": "a", "times": 1, "more": 1},
        {"text": "x" * 300_000, "times": 1},
    ],
)
async def test_arguments_that_do_not_fit_are_an_error_that_the_model_reads(mode: str, arguments: Any) -> None:
    done: list[int] = []
    async with executor_of([], functions(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode) as client:
            refused = await client.call_tool("repeater", arguments)
            text = text_of(refused)
            assert (refused.is_error, done) == (True, [])
            assert re.search("does not fit|the limit is", text) and len(text) < 500, text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1" * 5_000, "[" * 50_000])
async def test_what_is_no_json_begins_nothing(number: str) -> None:
    async with executor_of([], functions([])) as executor, on_http(app(executor)) as url, older(url) as client:
        params = f'{{"name": "repeater", "arguments": {{"text": "a", "times": {number}}}}}'
        body = f'{{"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {params}}}'
        answer = await client.http.post(url, content=body, headers={**HEADERS, **client.headers})
        assert "error" in answer.text.lower()
        assert not (await executor.sessions.list_sessions()).sessions


@ERAS
async def test_a_large_answer_arrives_whole_and_what_no_run_may_return_is_an_error(mode: str) -> None:
    said = "x" * LARGE
    async with executor_of([said], functions([]), agent("helper")) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode=mode) as client:
            result = await client.call_tool("helper", {"message": "go"})
            assert result.structured_content["output"] == text_of(result) == said
            refused = await client.call_tool("repeater", {"text": "ab", "times": 2 * LARGE})
            assert refused.is_error and "exceeds 100000 bytes" in text_of(refused)


async def test_a_form_that_nobody_fills_in_leaves_the_call_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.mcp.calls.ASK_S", 0.2)
    done: list[str] = []

    async def never(*_: Any) -> ElicitResult:
        await asyncio.sleep(60)
        raise AssertionError("nobody waits so long")

    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="legacy", elicitation_callback=never) as client:
            paused = (await client.call_tool("buyer", {"message": "tea"})).structured_content
            assert (paused["status"], done) == ("paused", [])


async def test_a_form_nested_too_deeply_approves_nothing() -> None:
    done: list[str] = []
    fill, _ = person(ElicitResult(action="accept", content={"approve": True, "arguments": "[" * 100_000}))
    async with executor_of(ORDER, buyer(done)) as executor, on_http(app(executor)) as url:
        async with client_of(url, mode="legacy", elicitation_callback=fill) as client:
            result = (await client.call_tool("buyer", {"message": "tea"})).structured_content
            assert (result["status"], done) == ("paused", [])


async def test_a_request_that_is_lost_and_sent_again_begins_one_run() -> None:
    gate = Gate()
    async with executor_of([gated(gate, "One."), "Two."]) as executor, on_http(app(executor)) as url:
        async with older(url) as client:
            call: dict[str, Any] = {"name": "helper", "arguments": {"message": "go"}}
            lost = asyncio.create_task(client.reply("tools/call", 50, **call))
            await gate.reached()
            lost.cancel()
            await asyncio.wait({lost})
            gate.open()
            again = await client.reply("tools/call", 50, **call)
            assert again["result"]["structuredContent"]["output"] == "One."
            assert len((await executor.sessions.list_sessions()).sessions) == 1


async def test_the_state_of_another_users_request_is_refused() -> None:
    done: list[str] = []
    fill, _ = person()
    async with executor_of(ORDER, buyer(done)) as executor:
        ada, bob = await key_for(executor, "ada"), await key_for(executor, "bob")
        async with on_http(app(executor, authoriser=keyed(executor))) as url:
            async with client_of(url, ada, mode="2026-07-28") as client:
                paused = (await client.call_tool("buyer", {"message": "tea"})).structured_content
            key = f"{paused['session_id']}.approval.{paused['pending'][0]['call_id']}"
            given: Any = {key: ElicitResult(action="accept", content={"approve": True})}
            state = f"{paused['session_id']}/{paused['run_id']}"
            forged: dict[str, Any] = {"request_state": state, "input_responses": given}
            async with client_of(url, bob, mode="2026-07-28", elicitation_callback=fill) as client:
                refused = await client.session.call_tool("buyer", {"message": "tea"}, **forged)
                assert refused.is_error and not done
            async with client_of(url, ada, mode="2026-07-28", elicitation_callback=fill) as client:
                taken = await client.session.call_tool("buyer", {"message": "tea"}, **forged)
                assert (taken.structured_content["status"], done) == ("completed", ["tea"])


async def test_a_client_that_asks_again_for_a_result_has_one_request_that_waits() -> None:
    gate = Gate()
    async with executor_of([gated(gate, "Done.")]) as executor, on_http(app(executor)) as url, older(url) as client:
        task_id = await client.task("helper", message="go")
        first = client.ask("tasks/result", taskId=task_id)
        await anext(first)
        second = client.ask("tasks/result", taskId=task_id)
        await anext(second)
        (refused,) = [frame async for frame in first]
        assert refused["error"]["message"] == "another request of this client waits for the task"
        gate.open()
        *_, result = [frame async for frame in second]
        assert result["result"]["structuredContent"]["output"] == "Done."


async def test_nobody_waits_for_a_result_longer_than_a_token_is_valid() -> None:
    gate = Gate()
    async with executor_of([gated(gate, "Done.")]) as executor:
        key = await key_for(executor, "ada", expires_at=executor.engine.clock.now() + 3)
        async with on_http(app(executor, authoriser=keyed(executor))) as url, older(url, key) as client:
            task_id = await client.task("helper", message="go")
            assert "token has expired" in (await client.reply("tasks/result", taskId=task_id))["error"]["message"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_calls_that_are_over_leave_nothing_in_the_server(mode: Any) -> None:
    def references() -> int:
        gc.collect()
        return sum(isinstance(found, RunRef) for found in gc.get_objects())

    async with executor_of([], functions([])) as executor:
        server, before = make_server(ExecutorSource(executor)), references()
        async with Client(server, mode=mode, extensions=[Tasks()], cache=None) as client:
            for _ in range(6):
                await client.call_tool("repeater", {"text": "a", "times": 1})
                assert (await client.call_tool("repeater", {"text": "a"})).is_error
            tasks = len(asyncio.all_tasks())
            assert references() == before
            await client.call_tool("repeater", {"text": "a", "times": 1})
            assert len(asyncio.all_tasks()) <= tasks


@pytest.mark.slow
async def test_a_server_that_was_killed_leaves_its_task_to_the_next(tmp_path: Path) -> None:
    """SIGKILL in the middle of a run: the next `helix mcp` on the store takes over the run once the lease has expired."""
    cli, began = CommandLine(tmp_path), tmp_path / "began"
    (tmp_path / "slow.py").write_text(
        "import asyncio\nfrom pathlib import Path\nfrom helix.core.functions import AgentClient\n"
        "from helix.core.registry import AgentRegistry\n"
        "@AgentClient(registry=AgentRegistry()).agent('slow')\n"
        "async def slow(began: str) -> str:\n"
        "    again = Path(began).exists()\n    Path(began).touch()\n"
        "    await asyncio.sleep(0 if again else 600)\n    return 'done'\n"
    )
    words = ["-m", "helix.cli", "mcp", "--db", "here.db", "--agent", "slow.py:slow"]
    environment = {**cli.environment, "HELIX_LEASE_SECONDS": "2"}

    async def serving() -> tuple[Any, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, "--http", "0", cwd=cli.folder, stdout=-1, stderr=-2,
            env={**environment, "HELIX_MCP_TOKEN": "t" * 32},
        )  # fmt: skip
        found, output = None, process.stdout
        assert output is not None
        while found is None and (line := (await output.readline()).decode()):
            found = re.search(r"(http://\S+/mcp) ", line)
        assert found is not None
        return process, found[1]

    process, url = await serving()
    try:
        async with older(url, "t" * 32) as before:
            task_id = await before.task("slow", began=str(began))
            while not began.exists():
                await asyncio.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
    process, url = await serving()
    try:
        tasks = Tasks()
        async with client_of(url, "t" * 32, mode="2026-07-28", extensions=[tasks]) as client:
            task = await task_of(client.session, task_id, "completed")
            assert task["result"]["structuredContent"]["output"] == "done"
        async with older(url, "t" * 32) as before:
            assert [task["taskId"] for task in (await before.reply("tasks/list"))["result"]["tasks"]] == [task_id]
    finally:
        process.terminate()
        await process.wait()
