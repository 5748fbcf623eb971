"""Long runs and large values through the deployed app. Nothing fails because of its length.

The limits of AWS are measured: 25,000 events per execution, 256 KB per state payload, 400 KB per item.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.cloud_executor import cloud_executor, configure
from tests.support.cloud_agents.plans import call, plan, say, use
from tests.support.cloud_agents.tools import noise
from tests.support.offline_cloud import CloudForTests, until

from helix.core.call_results import MAX_RESULT_BYTES
from helix.core.chunks import CustomEventChunk, ToolEndChunk
from helix.runtime.cloud_settings import variable
from helix.testing.invariants import check_session

PAYLOAD_BYTES, ITEM_BYTES, EVENTS = 256 * 1024, 400 * 1024, 25_000
IDS_AND_COUNTERS = 2_000
"""The bytes that a payload of ids and counters does not exceed."""
ROLL_OVER_EVENTS = variable("roll_over_events")
STEPS_PER_INVOCATION = variable("steps_per_invocation")
ROLLED_AT, STEPS = 320, 10
"""The events after which a run continues in another execution, and the steps per invocation, so that there are many of
both."""


@pytest.fixture
def early_roll_over(cloud: CloudForTests) -> Iterator[None]:
    configure(cloud, "call_model", variables={ROLL_OVER_EVENTS: str(ROLLED_AT), STEPS_PER_INVOCATION: str(STEPS)})
    yield
    configure(cloud, "call_model", variables={ROLL_OVER_EVENTS: "12000", STEPS_PER_INVOCATION: "0"})


@pytest.mark.timeout(900)
async def test_eight_hundred_steps_roll_over(cloud: CloudForTests, early_roll_over: None) -> None:
    """Most steps have inline tools, and one in twenty uses a tool in its own function. The run uses several executions."""
    executor, session = cloud_executor(cloud), "ses_eight_hundred"
    some = [use(call("count", amount=1), times=95), use(call("add", amount=1), times=5)]
    handle = await executor.execute(
        executor.agents.named("talker"), plan(*some * 8, say("Eight hundred.")), session_id=session
    )
    result = await handle.result(timeout_s=880)
    assert (result.status, result.text, result.steps) == ("completed", "Eight hundred.", 801)
    assert (await executor.sessions.get(session)).custom_state["total"] == 800
    assert await executor.sessions.get_message_count(session) == 1602
    (run,) = (await executor.sessions.list_runs(session)).runs
    until(lambda: all(e["status"] == "SUCCEEDED" for e in cloud.executions(session)), "end of the executions")
    executions = cloud.executions(session)
    assert [e["name"].rpartition("__")[2] for e in executions] == [
        run.run_id,
        *(f"part-{n}" for n in range(2, run.part + 1)),
    ]
    assert len(executions) >= 3
    for execution in executions:
        history = cloud.history(execution["executionArn"])
        # The estimate is an upper bound: it triggers the roll-over at the limit, and the real number never exceeds it.
        assert len(history) <= ROLLED_AT + 50 < EVENTS
        assert largest_payload(history) <= IDS_AND_COUNTERS
    await until_sound(cloud, session)


async def test_large_values_pass_end_to_end(cloud: CloudForTests) -> None:
    """A client over WebSocket receives a 1 MB result (cut at 100,000 bytes, as documented), 300 KB of state, a 100 KB chunk
    and 3 MB of conversation."""
    async with cloud.user("sizes") as client:
        steps = [use(call("big", size=1_000_000)), use(call("grow", size=300_000)), use(call("shout", size=99_900))]
        handle = await client.run(
            "talker", plan(*steps, use(*[call("big", size=100_000)] * 4, times=8), say("All of it."))
        )
        chunks = [chunk async for chunk in await handle.stream()]
        result = await handle.result(60)
        assert (result.status, result.text) == ("completed", "All of it.")
        session = handle.session_id
        again = await client.run("talker", plan(say("Still here.")), session_id=session)
        after = await again.result(60)
    ends = [chunk for chunk in chunks if isinstance(chunk, ToolEndChunk)]
    assert (
        str(ends[0].result).endswith("[truncated: 1000000 bytes in all]")
        and len(str(ends[0].result)) > MAX_RESULT_BYTES
    )
    (shouted,) = [chunk for chunk in chunks if isinstance(chunk, CustomEventChunk)]
    assert shouted.data == {"text": noise(99_900)}
    executor = cloud_executor(cloud)
    state = (await executor.sessions.get(session)).custom_state
    assert state["notes"] == {"grown 0": noise(300_000)}
    messages = await executor.sessions.load_conversation_messages(session)
    assert sum(len(message.content or "") for message in messages) > 3_000_000
    # The model received all of it, also in the process that began the next turn.
    assert after.usage.prompt_tokens > 3_000_000
    await until_sound(cloud, session)
    for execution in cloud.executions(session):
        assert largest_payload(cloud.history(execution["executionArn"])) <= IDS_AND_COUNTERS < PAYLOAD_BYTES


async def test_nothing_stored_exceeds_an_item(cloud: CloudForTests) -> None:
    """This includes everything that ran here before, and a state that is larger than an item."""
    async with cloud.user("sizes") as client:
        handle = await client.run(
            "talker", plan(use(call("grow", size=900_000)), use(call("look", topic="x")), say("Done."))
        )
        assert (await handle.result(60)).status == "completed"
    for table in ("sessions", "streams", "control"):
        sizes = {f"{item['pk']['S']} {item['sk']['S']}": item_size(item) for item in cloud.rows(table)}
        assert sizes and max(sizes.values()) <= ITEM_BYTES, max(sizes, key=sizes.__getitem__)
    bucket = cloud.cloud.outputs["BucketName"]
    assert cloud.aws("s3").list_objects_v2(Bucket=bucket, Prefix="overflow/").get("KeyCount", 0) > 0


async def until_sound(cloud: CloudForTests, session_id: str) -> None:
    executor = cloud_executor(cloud)
    until(lambda: cloud.executions(session_id, status="RUNNING") == [], "end of the executions")
    await check_session(executor.store, executor.streams, session_id, at_rest=True)


def largest_payload(history: list[dict[str, Any]]) -> int:
    """Return the bytes of the largest input or output of a state, a task or the execution."""
    details = [part for event in history for part in event.values() if isinstance(part, dict)]
    texts = [
        part[name] for part in details for name in ("input", "output", "parameters") if isinstance(part.get(name), str)
    ]
    return max(len(text.encode()) for text in texts)


def item_size(item: dict[str, Any]) -> int:
    """Return at least the bytes that DynamoDB counts, and not many more."""
    return sum(len(name.encode()) + value_size(value) for name, value in item.items())


def value_size(value: dict[str, Any]) -> int:
    match next(iter(value.items())):
        case "S", str(text):
            return len(text.encode())
        case "B", data:
            return len(data)
        case "N", str(number):
            return 1 + (len(number) + 1) // 2
        case "M", dict(fields):
            return 3 + sum(1 + len(name.encode()) + value_size(inner) for name, inner in fields.items())
        case "L", list(items):
            return 3 + sum(1 + value_size(inner) for inner in items)
        case _:
            return 1
