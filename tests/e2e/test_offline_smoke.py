"""The deployed app offline: a client over WebSocket, a run through every part, and the separation of users."""

from __future__ import annotations

import json
from typing import Any

import pytest
import websockets
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.offline_cloud import CloudForTests, until

from helix.core.chunks import TextDeltaChunk
from helix.core.errors import SessionNotFoundError


async def test_a_run_goes_through_the_deployed_app(cloud: CloudForTests) -> None:
    async with cloud.user("smoke") as client:
        handle = await client.run("talker", plan(use(call("look", topic="a"), call("add", amount=2)), say("All done.")))
        chunks = [chunk async for chunk in await handle.stream()]
        result = await handle.result(30)
    assert (result.status, result.text, result.steps) == ("completed", "All done.", 2)
    assert "".join(chunk.delta for chunk in chunks if isinstance(chunk, TextDeltaChunk)) == "All done."
    sequences = [chunk.sequence for chunk in chunks]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences))), "dense"
    (execution,) = cloud.executions(handle.session_id)
    until(lambda: cloud.describe(execution["executionArn"])["status"] == "SUCCEEDED", "end of the execution")


async def test_an_approver_changes_the_arguments_and_looks_at_all_there_is(cloud: CloudForTests) -> None:
    """The deployed function does this with its real rights."""
    async with cloud.user("smoke") as client, cloud.user("eve") as eve:
        handle = await client.run("talker", plan(use(call("gated", topic="x")), say("Allowed.")))
        (pending,) = (await handle.result(30)).pending
        assert pending.arguments == {"topic": "x"} and "topic" in str(pending.parameters)
        answered = await client.answer(handle.session_id, pending.call_id, arguments={"topic": "z"})
        assert (await answered.result(30)).text == "Allowed."
        session_id = handle.session_id
        points: Any = (await client.list_checkpoints(session_id))["checkpoints"]
        step: Any = await client.get_step(session_id, 1)
        cost: Any = await client.get_cost(session_id)
        diff: Any = await client.diff_checkpoints(session_id, points[-1]["id"])
        usage, budgets = await client.get_usage(hours=2), await client.get_budgets(session_id)
        names: Any = (await client.list_agents(limit=100))["agents"]
        asked = {"session_id": session_id, "before": points[-1]["id"], "step": 1}
        for action, fields in {"get_step": ["step"], "diff_checkpoints": ["before"], "get_cost": []}.items():
            with pytest.raises(SessionNotFoundError):
                await eve.ask(action, {name: asked[name] for name in ("session_id", *fields)})
    assert step["calls"][0]["edited"]["by"] == usage["user"] == "smoke"
    assert {"Lambda", "DynamoDB", "Step Functions"} <= {line["service"] for line in cost["lines"]} and cost["left_out"]
    assert diff["added"] == len(diff["messages"]) > 0
    assert budgets["session_id"] == session_id and "talker" in {card["name"] for card in names}


async def test_a_step_with_one_tool_takes_three_transitions(cloud: CloudForTests) -> None:
    async with cloud.user("smoke") as client:
        handle = await client.run("talker", plan(use(call("look", topic="a"), times=2), say("Done.")))
        await handle.result(30)
    (execution,) = cloud.executions(handle.session_id)
    until(lambda: cloud.describe(execution["executionArn"])["status"] == "SUCCEEDED", "end of the execution")
    entered = cloud.transitions(execution["executionArn"])
    assert entered.count("CallTool") == 2
    second = entered.index("CallModel", 1)
    assert len(entered[:second]) <= 3, entered


async def test_steps_with_inline_tools_are_taken_in_one_invocation(cloud: CloudForTests) -> None:
    """They share an invocation until the first step with a tool that is not inline. That tool runs in another
    invocation."""
    steps = [use(call("look", topic="a"), call("add", amount=1), times=3), say("Done.")]
    async with cloud.user("smoke") as client:
        inline = await client.run("swift", plan(*steps))
        mixed = await client.run("talker", plan(use(call("count", amount=1), times=2), steps[0], steps[-1]))
        assert [(await handle.result(30)).steps for handle in (inline, mixed)] == [4, 6]
    entered = []
    for handle in (inline, mixed):
        (execution,) = cloud.executions(handle.session_id)
        arn = execution["executionArn"]
        until(lambda arn=arn: cloud.describe(arn)["status"] == "SUCCEEDED", "end of the execution")  # type: ignore[misc]
        entered.append(cloud.transitions(arn))
    assert entered[0] == ["CallModel", "Route", "FinishRun"]
    assert (entered[1].count("CallModel"), entered[1].count("Calls")) == (4, 3)


async def test_an_agent_with_resources_of_its_own_runs_in_its_own_functions(cloud: CloudForTests) -> None:
    async with cloud.user("smoke") as client:
        handle = await client.run("roomy", plan(say("There is room.")))
        assert (await handle.result(30)).text == "There is room."
    assert len(cloud.executions(handle.session_id, profile="roomy")) == 1
    assert (
        cloud.aws("lambda").get_function_configuration(FunctionName="helix-test-roomy-call_model")["MemorySize"] == 2048
    )


async def test_strangers_learn_nothing(cloud: CloudForTests) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect(cloud.url, additional_headers={"Authorization": "Bearer helix_nobody"})
    assert refused.value.response.status_code in (401, 403)
    async with cloud.user("smoke") as client, cloud.user("eve") as eve:
        handle = await client.run("talker", plan(say("Mine.")))
        await handle.result(30)
        with pytest.raises(SessionNotFoundError):
            await eve.get_session(handle.session_id)


async def test_a_browser_connects_with_its_key_as_a_subprotocol(cloud: CloudForTests) -> None:
    """A browser cannot set the Authorization header. Its messages are answered, however deeply they are nested."""
    key = cloud.key("browser")
    page = websockets.Origin("http://localhost:5173")  # an origin of the developer's own server
    offered = [websockets.Subprotocol("helix.v1"), websockets.Subprotocol(f"bearer.{key}")]
    async with websockets.connect(cloud.url, origin=page, subprotocols=offered) as browser:
        assert browser.subprotocol == "helix.v1"
        for text in ("[" * 30_000, '{"a":' * 6_000, f'{{"v": 1, "action": "ping", "id": "x", "a": {"[" * 30_000}'):
            await browser.send(text)
            answer = json.loads(await browser.recv())
            assert (answer["type"], answer["error"]["code"]) == ("error", "invalid_message"), answer
        await browser.send('{"v": 1, "action": "whoami", "id": "1"}')
        assert json.loads(await browser.recv())["id"] == "1"
    with pytest.raises(websockets.InvalidStatus) as refused:
        offered[1] = websockets.Subprotocol("bearer.helix_nobody_secret")
        await websockets.connect(cloud.url, subprotocols=offered)
    assert refused.value.response.status_code == 403


async def test_a_message_of_120_kb_arrives(cloud: CloudForTests) -> None:
    """It arrives in frames of 32 KB. A single frame of this size would end the connection."""
    text = plan(say("Done.")) + " " * 120_000
    async with cloud.user("smoke") as client:
        handle = await client.run("talker", text)
        assert (await handle.result(30)).text == "Done."
        told: dict[str, Any] = await client.get_messages(handle.session_id)
        assert told["messages"][0]["content"] == text
    async with websockets.connect(
        cloud.url, additional_headers={"Authorization": f"Bearer {cloud.key('smoke')}"}
    ) as one:
        with pytest.raises(websockets.ConnectionClosed):
            await one.send(text)
            await one.recv()
        assert one.close_code == 1009


async def test_a_schedule_calls_the_sweep(cloud: CloudForTests) -> None:
    async with cloud.user("awake") as client:  # a session at rest would refuse this
        await (await client.run("talker", plan(say("Well.")))).result(60)
    before = len(cloud.log.of("sweep"))
    assert cloud.cloud.tick() >= 1
    until(lambda: len(cloud.log.of("sweep")) > before, "sweep")
