"""The client against a real WebSocket server: every call, and who may make it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from tests.support_gateway import (
    BRISK,
    PATIENCE_S,
    FaultySockets,
    check_frame,
    executor_of,
    key_for,
    keyed,
    served,
    told,
)
from tests.support_run import Gate, Text, a_tool, agent, call, calls, gated, text_of, types

from helix import LLMConfig, ModelError, create_sub_agent_tool
from helix.client import HelixClient
from helix.core.errors import (
    AgentAlreadyRunningError,
    AgentNotFoundError,
    CallNotPendingError,
    CannotResumeError,
    InvalidInputError,
    NotAuthenticatedError,
    ProtocolError,
    SessionNotFoundError,
)
from helix.core.handles import CanResumeResult
from helix.gateway.loopback import LoopbackGateway

# --- every call ---------------------------------------------------------------------------------------------------------


async def test_a_run_from_afar_is_the_run_that_the_executor_sees() -> None:
    tool = a_tool("look", lambda args, ctx: "It rains.")
    executor = executor_of([calls(call("look")), "Take a coat."], agent("helper", tools=[tool]))
    async with served(executor) as (_, client):
        handle = await client.run("helper", "May I go out?", tags=["t"], metadata={"m": 1})
        chunks = await told(await handle.stream())
        result = await handle.result(PATIENCE_S)
        near = await executor.get_handle(executor.agents.named("helper"), handle.session_id)
        assert chunks == await told(await near.stream())
        assert result.model_dump() == {**(await near.result()).model_dump(), "usage": result.usage.model_dump()}
        assert (result.status, result.text, result.steps) == ("completed", "Take a coat.", 2)
        assert [m.kind for m in await told(await handle.messages())][-1] == "end"
        again = await client.handle(handle.session_id)
        assert (again.run_id, again.turn) == (handle.run_id, 1)
        assert await told(await again.stream()) == chunks
        assert [c.sequence for c in await told(await again.stream(after=3))] == [
            c.sequence for c in chunks if c.sequence > 3
        ]


async def test_the_loop_of_calls() -> None:
    executor = executor_of(["One.", "Two.", "Three."])
    async with served(executor) as (_, client):
        who = await client.whoami()
        assert (who["principal"], who["prefix"]) == (None, "")
        assert await client.ping() > 0
        first = await client.run("helper", {"message": "hi", "state": {}}, session_id="mine")
        assert (await first.result(PATIENCE_S)).text == "One."
        second = await client.run("helper", "more", session_id="mine")
        assert (await second.result(PATIENCE_S)).text == "Two."
        assert types(await told(await second.stream()))[0] == "checkpoint_created"
        assert (await client.get_session("mine")).message_count == 4
        assert (await second.get_state()).turn == 2
        assert await second.can_resume() == CanResumeResult(can_resume=False, reason="completed")
        page = await client.get_messages("mine", limit=3)
        assert (page["offset"], len(page["messages"])) == (1, 3)  # type: ignore[arg-type]
        assert len((await client.get_snapshot("mine"))["messages"]) == 4  # type: ignore[arg-type]
        points = (await client.list_checkpoints("mine"))["checkpoints"]
        assert isinstance(points, list) and len(points) == 4
        copied, branched = await client.clone("mine", message_index=2), await client.branch("mine", target="twig")
        assert branched == "twig" and (await client.get_session(copied)).message_count == 2
        back = await client.resume("mine", checkpoint_id=str(points[-2]["id"]), mode="from_checkpoint", message="again")  # type: ignore[index,call-overload]
        assert (await back.result(PATIENCE_S)).text == "Three."
        listed = (await client.list_sessions())["sessions"]
        assert {s["session_id"] for s in listed} == {"mine", "twig", copied}  # type: ignore[union-attr,index,call-overload]
        assert await client.delete("twig") and not await client.delete("twig")


async def test_stopping_answering_and_trying_again() -> None:
    gate = Gate()
    tool = a_tool("refund", lambda args, ctx: "refunded", require_approval=True)
    config = LLMConfig(model="scripted", max_retries=0)
    script = [gated(gate, "never"), calls(call("refund")), "Done.", ModelError("down"), "Better."]
    executor = executor_of(script, agent("helper", tools=[tool], llm_config=config))
    async with served(executor) as (_, client):
        handle = await client.run("helper", "hi")
        await gate.reached()
        assert await handle.interrupt("wait", wait=True)
        assert (await handle.result()).status == "interrupted" and not await handle.interrupt()
        resumed = await handle.resume()
        paused = await resumed.result(PATIENCE_S)
        assert (paused.status, [p.tool_name for p in paused.pending]) == ("paused", ["refund"])
        answered = await resumed.answer(paused.pending[0].call_id)
        chunks = await told(await answered.stream())
        assert text_of(chunks) == "Done." and (await answered.result()).status == "completed"
        with pytest.raises(CallNotPendingError):
            await answered.answer(paused.pending[0].call_id)
        failed = await client.run("helper", "more", session_id=handle.session_id)
        assert (await failed.result(PATIENCE_S)).error_code == "model_error"
        assert (await (await failed.retry()).result(PATIENCE_S)).text == "Better."
        await failed.abort()


async def test_a_denial_carries_its_reason_and_a_client_tool_its_data() -> None:
    tools = [a_tool("refund", lambda a, c: "refunded", require_approval=True), a_tool("where", "client")]
    executor = executor_of([calls(call("refund"), call("where")), "So be it."], agent("helper", tools=tools))
    async with served(executor) as (_, client):
        handle = await client.run("helper", "hi")
        paused = await handle.result(PATIENCE_S)
        by_name = {p.tool_name: p.call_id for p in paused.pending}
        await client.answer(handle.session_id, by_name["refund"], approved=False, reason="too much")
        last = await client.answer(handle.session_id, by_name["where"], data={"at": "home"})
        assert (await last.result(PATIENCE_S)).status == "completed"
        messages = (await client.get_messages(handle.session_id))["messages"]
        results = [m["content"] for m in messages if m["role"] == "tool"]  # type: ignore[union-attr,index,call-overload]
        assert "too much" in str(results[0]) and json.loads(str(results[1])) == {"at": "home"}


async def test_what_a_client_may_look_at() -> None:
    """Each request about agents, steps, checkpoints and costs has its method, and its result fits the schema."""
    tool = a_tool("refund", lambda a, c: a.text, input_schema=Text, require_approval=True)
    who = agent("helper", description="Helps.", tools=[tool])
    executor = executor_of([calls(call("refund", text="A7")), "So be it."], who)
    async with served(executor, authoriser=keyed(executor), token=await key_for(executor, "ada")) as (_, client):
        handle = await client.run("helper", "hi")
        paused = await handle.result(PATIENCE_S)
        assert paused.pending[0].parameters == tool.parameters
        with pytest.raises(InvalidInputError, match="invalid arguments"):
            await handle.answer(paused.pending[0].call_id, arguments={"text": 7})
        answered = await handle.answer(paused.pending[0].call_id, arguments={"text": "A8"})
        assert (await answered.result(PATIENCE_S)).status == "completed"
        session_id = handle.session_id
        points: Any = (await client.list_checkpoints(session_id))["checkpoints"]
        looks: dict[str, Any] = {
            "list_agents": await client.list_agents(),
            "get_step": await client.get_step(session_id, 1, run_id=handle.run_id),
            "get_context": await client.get_context(session_id, 1),
            "get_checkpoint": {"checkpoint": await client.get_checkpoint(session_id)},
            "diff_checkpoints": await client.diff_checkpoints(session_id, points[-1]["id"], limit=1),
            "get_cost": await client.get_cost(session_id),
            "get_budgets": await client.get_budgets(session_id),
            "get_usage": await client.get_usage(hours=1),
        }
        for action, found in looks.items():
            check_frame({"v": 1, "type": "reply", "id": "r", "action": action, "result": found})
        assert [card["name"] for card in looks["list_agents"]["agents"]] == ["helper"]
        assert looks["get_step"]["calls"][0]["edited"]["by"] == "ada"
        context = looks["get_context"]
        assert (context["run_id"], context["count"], context["view"]) == (handle.run_id, 1, None)
        assert [message["content"] for message in context["messages"]] == ["hi"] and context["system_prompt"]
        assert looks["get_checkpoint"]["checkpoint"]["count"] == 4 and len(looks["diff_checkpoints"]["messages"]) == 1
        assert looks["get_usage"]["user"] == "ada" and looks["get_cost"]["session_id"] == session_id


async def test_errors_arrive_as_their_own_classes() -> None:
    gate = Gate()
    async with served(executor_of([gated(gate, "Done.")])) as (_, client):
        with pytest.raises(AgentNotFoundError):
            await client.run("nobody", "hi")
        with pytest.raises(SessionNotFoundError) as missing:
            await client.get_session("nothing")
        assert missing.value.session_id == "nothing"
        with pytest.raises(ProtocolError) as wrong:
            await client.get_session("not an id")
        assert wrong.value.field == "session_id"
        with pytest.raises(ProtocolError, match="limit"):
            await client.run("helper", "x" * 200_000)
        handle = await client.run("helper", "hi")
        with pytest.raises(AgentAlreadyRunningError) as busy:
            await client.run("helper", "more", session_id=handle.session_id)
        assert busy.value.run_id == handle.run_id
        gate.open()
        await handle.result(PATIENCE_S)
        with pytest.raises(CannotResumeError) as cannot:
            await client.resume(handle.session_id)
        assert cannot.value.reason == "completed"


async def test_a_tree_of_agents_is_one_stream_and_a_key_is_one_run() -> None:
    child = agent("desk", output_schema=Text)
    boss = agent("boss", tools=[create_sub_agent_tool(child)])
    script = {
        "boss": [calls(call("subagent__desk", message="look")), "All done."],
        "desk": [calls(call("__finish__", text="Looked."))],
    }
    executor = executor_of(script, boss)
    async with served(executor) as (_, client):
        handle = await client.run("boss", "go", key="once")
        chunks = await told(await handle.stream())
        assert {chunk.agent_type for chunk in chunks} == {"boss", "desk"}
        same = await client.run("boss", "go", key="once")
        assert same.run_id == handle.run_id and await told(await same.stream()) == chunks


async def test_following_goes_on_across_runs() -> None:
    async with served(executor_of(["One.", "Two."])) as (_, client):
        handle = await client.run("helper", "hi")
        await handle.result(PATIENCE_S)
        seen = []
        following = await client.follow(handle.session_id)
        async with asyncio.timeout(PATIENCE_S):
            async for message in following:
                seen.append(message)
                if message.kind == "end" and message.turn == 1:
                    await client.run("helper", "more", session_id=handle.session_id)
                elif message.kind == "end":
                    break
        assert [m.sequence for m in seen] == list(range(1, len(seen) + 1))


async def test_a_session_that_was_deleted_beside_the_gateway_streams_again_under_its_id() -> None:
    executor = executor_of(["One.", "Two."])
    async with served(executor, settings=replace(BRISK, quiet_s=1000)) as (_, client):
        assert text_of(await told(await (await client.run("helper", "hi", session_id="s")).stream())) == "One."
        follower = next(task for task in asyncio.all_tasks() if "_follow" in repr(task.get_coro()))
        await executor.delete("s")
        await asyncio.wait({follower}, timeout=PATIENCE_S)
        assert text_of(await told(await (await client.run("helper", "hi", session_id="s")).stream())) == "Two."


# --- who it is ----------------------------------------------------------------------------------------------------------


async def test_a_wrong_token_is_refused_at_the_door() -> None:
    executor = executor_of([])
    async with executor, LoopbackGateway(executor, authoriser=keyed(executor)) as server:
        for token in (None, "helix_wrong", "a.b.c"):
            with pytest.raises(NotAuthenticatedError):
                async with HelixClient(server.url, token, settings=BRISK):
                    pass


async def test_a_function_gives_the_token_for_each_connection_and_renews_an_expired_one() -> None:
    executor = executor_of(["Hello."])
    keys = [await key_for(executor, "ada") for _ in range(3)]
    given: list[str] = []

    async def token() -> str:
        given.append(keys[len(given)])
        return given[-1]

    sockets = FaultySockets()
    async with served(executor, authoriser=keyed(executor), token=token, sockets=sockets) as (server, client):
        assert (await client.whoami())["principal"] == "ada"
        (connection_id,) = sockets.open
        await server.connections.renew(connection_id, "ada", 1.0)  # the credentials have expired
        assert (await (await client.run("helper", "hi")).result(PATIENCE_S)).text == "Hello."
        await sockets.cut_all()
        assert await client.ping() > 0
        assert len(given) == 3


async def test_strangers_see_nothing_of_each_other() -> None:
    executor = executor_of(["Hello."])
    token, other = await key_for(executor, "ada"), await key_for(executor, "bob")
    async with served(executor, authoriser=keyed(executor), token=token) as (server, client):
        handle = await client.run("helper", "hi", session_id="ada:notes")
        await handle.result(PATIENCE_S)
        async with HelixClient(server.url, other, settings=BRISK) as stranger:
            for attempt in (
                stranger.handle("ada:notes"),
                stranger.follow("ada:notes"),
                stranger.run("helper", "hi", session_id="ada:notes"),
                stranger.interrupt("ada:notes"),
            ):
                with pytest.raises(SessionNotFoundError):
                    await attempt
            assert (await stranger.list_sessions())["sessions"] == []


def test_the_client_needs_neither_aws_nor_model_libraries_nor_the_engine() -> None:
    code = (
        "import sys, helix.client\n"
        "heavy = {'boto3', 'botocore', 'litellm', 'aws_lambda_powertools', 'jwt', 'helix.engine', 'helix.runtime.executor',"
        " 'helix.gateway', 'helix.adapters.aws'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def _waiting(gate: Gate) -> Any:
    async def wait(args: Any, ctx: Any) -> str:
        await gate.wait()
        return "waited"

    return wait
