"""The next sweep repairs what the platform loses: a start, an event, a machine's end, the rest of a deletion.

Law: `play.minute()` is called once. If a sweep is what repairs the session, one sweep is enough.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from tests.e2e.crash_play import USER, Play, events_lost, grow_old, play_of
from tests.e2e.iam_bench import FAR, event_of
from tests.e2e.iam_roles import Right, Roles
from tests.support.cloud_agents.plans import ask, call, finish, plan, say, use
from tests.support.offline_cloud import CloudForTests
from tests.support_run import eventually

from helix.cli.cloud.stack import read_stage
from helix.cli.cloud.stopping import Stopping, schedules_off, schedules_on
from helix.core.errors import HelixError
from helix.gateway.authoriser import Principal, prefix_of
from helix.gateway.connections import Connections

PREFIX = prefix_of(str(Principal(USER)))
WAKING_S = 3.0
"""The maximum time in which a sub-agent's end wakes its parent here."""


@pytest.fixture
def play(cloud: CloudForTests, request: pytest.FixtureRequest) -> Play:
    return play_of(cloud, PREFIX + re.sub(r"\W", "_", request.node.name))


async def stop(play: Play, session: str = "") -> None:
    """Stop the execution of this session, as the platform may do."""
    found = [e for e in await play.executions(running=True) if f'"{session or play.session}"' in e["input"]]
    (execution,) = found
    await asyncio.to_thread(play.cloud.stop, execution["executionArn"])


async def child_of(play: Play) -> str:
    (child,) = await play.executor.sessions.list_sub_sessions(play.session)
    return child.session_id


@asynccontextmanager
async def waiting(play: Play, agent: str, *steps: dict[str, Any]) -> AsyncIterator[Any]:
    """Start a run that waits at its gate, and open the gate at the end."""
    who = play.executor.agents.named(agent)
    handle = await play.executor.execute(who, plan(*steps), session_id=play.session)
    await play.reached("gate")
    yield handle


async def test_a_start_that_was_refused(play: Play, cloud: CloudForTests) -> None:
    """The claim remains, and the client was told that an error occurred."""
    async with play.client() as client:
        with Roles(cloud).without(Right("ws_message", "machines", "states:StartExecution")):
            with pytest.raises(HelixError):
                await client.run("talker", plan(say("After all.")), session_id=play.session)
        assert await play.status("running") and not await play.executions()
        await play.minute()
        await play.status("completed")
    await play.quiet()


async def test_a_machine_that_was_stopped(play: Play) -> None:
    """The event arrives, so no sweep is needed."""
    gate = use(call("wait", gate=play.file("gate")))
    async with waiting(play, "talker", use(call("look", topic="x")), gate, say("Never said.")):
        await stop(play)
        await play.status("failed")
        play.open("gate")
    await play.quiet()
    talker = play.executor.agents.named("talker")
    again = await play.executor.retry(talker, play.session)
    assert (await again.result(timeout_s=60)).text == "Never said.", "a failed run can be retried"
    await play.quiet()
    assert not play.repeated()


async def test_a_machine_that_was_stopped_and_nobody_was_told(play: Play, cloud: CloudForTests) -> None:
    gate = use(call("wait", gate=play.file("gate")))
    with events_lost(cloud):
        async with waiting(play, "talker", gate, say("Never said.")) as handle:
            await stop(play)
            play.open("gate")
            await play.until(running(play, 0), "its execution has ended")
            assert await play.status("running")
            await play.minute()
            await play.status("failed")
        result = await handle.result(timeout_s=60)
    assert result.error_code == "runtime_crash"
    await play.quiet()


@pytest.mark.parametrize("told", [True, False])
async def test_a_sub_agent_whose_machine_was_stopped(told: bool, play: Play, cloud: CloudForTests) -> None:
    """Its parent resumes with a failed result, and continues."""
    child = plan(use(call("wait", gate=play.file("gate"))), finish(summary="never"))
    steps = [use(ask("helper", child), call("look", topic="beside")), finish(summary="without it")]
    with nullcontext() if told else events_lost(cloud):
        async with waiting(play, "boss", *steps):
            below = await child_of(play)
            await stop(play, below)
            play.open("gate")
            if not told:
                await play.until(running(play, 1), "the sub-agent's execution has ended")
                await play.minute()
            await play.status("completed")
    await play.quiet()
    assert (await play.executor.sessions.get(below)).status == "failed"
    messages = await play.executor.sessions.load_conversation_messages(play.session)
    assert [m.success for m in messages if m.role == "tool" and m.tool_name == "subagent__helper"] == [False]


@pytest.mark.parametrize("told", [True, False])
async def test_a_parent_whose_machine_was_stopped(told: bool, play: Play, cloud: CloudForTests) -> None:
    """Its sub-agent keeps working. A retry finds that sub-agent, and never creates another one."""
    child = plan(use(call("look", topic="deep")), use(call("wait", gate=play.file("gate"))), finish(summary="deep"))
    boss = play.executor.agents.named("boss")
    with nullcontext() if told else events_lost(cloud):
        async with waiting(play, "boss", use(ask("helper", child)), finish(summary="with it")):
            below = await child_of(play)
            await stop(play)
            if not told:
                await play.until(running(play, 1), "its execution has ended")
                assert await play.status("running")
                await play.minute()
            await play.status("failed")
            again = await play.executor.retry(boss, play.session)
            play.open("gate")
            assert (await again.result(timeout_s=60)).status == "completed"
    await play.quiet()
    assert await child_of(play) == below
    assert (await play.executor.sessions.get(below)).output == {"summary": "deep", "sources": []}
    assert not play.repeated()


@pytest.mark.parametrize("told", [True, False])
async def test_a_stage_that_is_deleted_and_keeps_its_data(
    told: bool, play: Play, cloud: CloudForTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run is left at work: neither the one that waits for its sub-agent, nor the sub-agent's. Both can continue later.
    Between the ends of the two executions there is time to wake the parent."""
    child = plan(use(call("wait", gate=play.file("gate"))), finish(summary="deep"))
    boss = play.executor.agents.named("boss")
    stage = read_stage(cloud.aws("cloudformation"), "helix-test")
    assert stage is not None
    stopping = Stopping(
        cloud.aws, stage, cloud.cloud.function("fail_run"), play.executor.store, play.executor.engine.clock
    )
    states = cloud.aws("stepfunctions")
    stop, pause = states.stop_execution, partial(time.sleep, WAKING_S)
    monkeypatch.setattr(states, "stop_execution", lambda **words: (stop(**words), pause()))
    with nullcontext() if told else events_lost(cloud):
        async with waiting(play, "boss", use(ask("helper", child)), finish(summary="with it")):
            below = await child_of(play)
            with schedules_off(cloud.aws("events"), stage):
                assert {r["State"] for r in schedules(cloud)} == {"DISABLED"}
                assert await stopping.stop() == 0
            schedules_on(cloud.aws("events"), stage)
            assert {r["State"] for r in schedules(cloud)} == {"ENABLED"}
            assert not await play.executions(running=True)
            for session in (play.session, below):
                assert (await play.executor.sessions.get(session)).status == "failed"
            again = await play.executor.retry(boss, play.session)
            play.open("gate")
            assert (await again.result(timeout_s=60)).status == "completed"
    await play.quiet()


def schedules(cloud: CloudForTests) -> list[dict[str, Any]]:
    return [rule for rule in cloud.aws("events").list_rules()["Rules"] if "ScheduleExpression" in rule]


@pytest.mark.parametrize("point", ["begin_delete:after#0", "delete_rows:after#0"])
async def test_a_deletion_that_was_begun(point: str, cloud: CloudForTests, request: pytest.FixtureRequest) -> None:
    """The worker that deletes it dies on the way. The session is gone for every caller, and the sweep deletes its rows and
    objects."""
    play = play_of(cloud, PREFIX + re.sub(r"\W", "_", point), f"ws_message.{point}")
    steps = [use(call("grow", size=900_000)), use(call("look", topic="x")), say("Done.")]
    async with play.client() as client:
        handle = await client.run("talker", plan(*steps), session_id=play.session)
        assert (await handle.result(60)).status == "completed"
    await play.quiet()
    assert objects(cloud, play.session)
    # No client repeats this request.
    connections = Connections(play.executor.store, play.executor.engine.clock)
    await connections.open("deletes=", USER, FAR)
    deletion = event_of("deletes=", {"v": 1, "id": "r1", "action": "delete", "session_id": play.session})
    name, payload = cloud.cloud.function("ws_message"), json.dumps(deletion)
    answer = await asyncio.to_thread(cloud.aws("lambda").invoke, FunctionName=name, Qualifier="live", Payload=payload)
    assert "FunctionError" in answer and play.crashed
    assert not await play.executor.sessions.exists(play.session)
    await asyncio.to_thread(grow_old, cloud, {play.session})
    await asyncio.to_thread(cloud.cloud.tick)

    left: list[Any] = []

    async def nothing_left() -> bool:
        """Check that only rows that expire remain: the keys of its requests, and a row that rejects late writes to its
        stream."""
        rows = [
            row for table in ("sessions", "streams", "control") for row in await asyncio.to_thread(cloud.rows, table)
        ]
        own = (row for row in rows if play.session in str(row) and not row["pk"]["S"].startswith("once#"))
        left[:] = [row for row in own if "buried_at" not in row]
        return not left and not objects(cloud, play.session)

    try:
        await play.until(nothing_left, "nothing is left of it")
    except AssertionError as error:
        error.add_note(str(left)[:2000])
        raise


# --- inside --------------------------------------------------------------------------------------------------------------


def running(play: Play, count: int) -> Callable[[], Awaitable[bool]]:
    async def read_stage() -> bool:
        return len(await play.executions(running=True)) == count

    return read_stage


def objects(cloud: CloudForTests, session: str) -> int:
    """Return the number of the session's objects in the bucket."""
    found = cloud.aws("s3").list_objects_v2(Bucket=cloud.cloud.outputs["BucketName"], Prefix="overflow/")
    return sum(f"/{quote(session, safe='')}/" in one["Key"] for one in found.get("Contents", ()))


async def test_a_wait_that_nobody_answers(play: Play) -> None:
    """The sweep after its deadline denies the call, and starts the run that goes on."""
    talker = play.executor.agents.named("talker")
    await play.executor.execute(talker, plan(use(call("hasty", topic="x")), say("Then not.")), session_id=play.session)
    assert await play.status("paused")
    (pending,) = (await play.executor.sessions.get(play.session)).pending
    assert pending.expires_at is not None
    await asyncio.sleep(max(0.0, pending.expires_at - time.time()) + 0.1)  # the functions have the real clock
    await play.minute()
    await play.status("completed")
    await play.quiet()
    messages = (await play.executor.sessions.get_messages(play.session)).messages
    assert [message.content for message in messages][-2:] == ['{"error":"denied: no answer came in time"}', "Then not."]


async def test_a_sub_agents_wait_that_nobody_answers(play: Play) -> None:
    """The sweep after its deadline denies the sub-agent's call. The sub-agent goes on, and its parent with it."""
    boss = play.executor.agents.named("boss")
    child = plan(use(call("hasty", topic="x")), finish(summary="not done"))
    steps = plan(use(ask("helper", child)), finish(summary="without it"))
    await play.executor.execute(boss, steps, session_id=play.session)
    assert await play.status("paused")
    (waits,) = (await play.executor.sessions.get(play.session)).pending
    below = await child_of(play)
    (pending,) = (await play.executor.sessions.get(below)).pending
    assert (waits.kind, waits.child_session_id, pending.tool_name) == ("child", below, "hasty")
    assert waits.expires_at is None and pending.expires_at is not None
    await asyncio.sleep(max(0.0, pending.expires_at - time.time()) + 0.1)
    await play.minute()
    await play.status("completed")
    await play.quiet()
    messages = (await play.executor.sessions.get_messages(below)).messages
    assert '{"error":"denied: no answer came in time"}' in [message.content for message in messages]
    assert (await play.executor.sessions.get(play.session)).output == {"summary": "without it", "sources": []}


async def test_a_reminder_of_a_call_that_waits(play: Play) -> None:
    """The sweep records it once, on the stream of the paused session and in the call's row."""
    talker = play.executor.agents.named("talker")
    steps = plan(use(call("patient", topic="x")), say("At last."))
    handle = await play.executor.execute(talker, steps, session_id=play.session)
    assert await play.status("paused")
    (pending,) = (await play.executor.sessions.get(play.session)).pending
    assert pending.remind_at is not None and pending.reminded == 0
    await asyncio.sleep(max(0.0, pending.remind_at - time.time()) + 0.1)

    async def reminders() -> list[int]:
        read = await play.executor.streams.read(play.session)
        chunks = [message.chunk for message in read if message.chunk is not None]
        return [int(str(chunk.get("number", 1))) for chunk in chunks if chunk["type"] == "call_reminder"]

    async def shown() -> bool:
        return await reminders() != []

    await play.minute()
    await eventually(shown)
    await play.minute()
    (pending,) = (await play.executor.sessions.get(play.session)).pending
    assert (pending.reminded, pending.remind_at) == (1, None)
    await handle.answer("call_0")
    await play.status("completed")
    await play.quiet()
    assert await reminders() == [1]
