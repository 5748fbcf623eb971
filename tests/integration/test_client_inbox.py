"""Messages to a run that works, through the gateway: over a socket, from another process than the run's."""

from __future__ import annotations

import asyncio

import pytest
from tests.support_gateway import PATIENCE_S, executor_of, served, told
from tests.support_run import Gate, Nothing, a_tool, agent, call, calls, gated, text_of

from helix.core.errors import ProtocolError, RunNotFoundError
from helix.core.inbox import MAX_WAITING, InboxFullError


async def test_steer_queue_and_withdraw_from_afar() -> None:
    gate = Gate()

    async def work(given: Nothing, ctx: object) -> str:
        await gate.wait()
        return "worked"

    executor = executor_of([calls(call("work")), "one", "two"], agent("helper", tools=[a_tool("work", work)]))
    async with served(executor) as (_, client):
        handle = await client.run("helper", "1", session_id="mine")
        await gate.reached()
        assert handle.queued_id is None
        steer = await client.run("helper", "2", session_id="mine", when_running="steer")
        queue = await client.run("helper", "3", session_id="mine", when_running="queue", key="k")
        again = await client.run("helper", "3", session_id="mine", when_running="queue", key="k")
        oops = await client.run("helper", "4", session_id="mine", when_running="queue")
        assert steer.run_id == handle.run_id and (again.run_id, again.queued_id) == (queue.run_id, queue.queued_id)
        inbox = (await client.get_session("mine")).inbox
        assert [(m.id, m.content) for m in inbox] == [
            (steer.queued_id, "2"), (queue.queued_id, "3"), (oops.queued_id, "4")
        ]  # fmt: skip
        assert (await client.get_snapshot("mine"))["inbox"][1]["mode"] == "queue"  # type: ignore[index,call-overload]
        later = await client.handle("mine", queue.run_id)
        assert (queue.turn, later.turn) == (0, 0)
        streamed = [asyncio.ensure_future(told(await one.stream())) for one in (queue, later)]
        assert oops.queued_id is not None and queue.queued_id is not None
        assert await client.withdraw("mine", oops.queued_id) == "withdrawn"
        with pytest.raises(RunNotFoundError):
            await oops.result(PATIENCE_S)
        gate.open()
        assert (await handle.result(PATIENCE_S)).text == "one"
        assert [(await one.result(PATIENCE_S)).text for one in (queue, later, again)] == ["two"] * 3
        assert [text_of(chunks) for chunks in await asyncio.gather(*streamed)] == ["two", "two"]
        assert await client.withdraw("mine", queue.queued_id) == "delivered"
        messages = (await client.get_messages("mine"))["messages"]
        users = [m["content"] for m in messages if m["role"] == "user"]  # type: ignore[index,union-attr,call-overload]
        assert users == ["1", "2", "3"]


async def test_what_cannot_wait_is_refused() -> None:
    gate = Gate()
    executor = executor_of([gated(gate, "one")])
    async with served(executor) as (_, client):
        handle = await client.run("helper", "1", session_id="mine")
        await gate.reached()
        with pytest.raises(ProtocolError, match="has no state"):
            await client.run("helper", "2", session_id="mine", state={"a": 1}, when_running="queue")
        with pytest.raises(ProtocolError, match="when_running"):
            await client.run("helper", "2", session_id="mine", when_running="later")  # type: ignore[arg-type]
        for n in range(MAX_WAITING):
            await client.run("helper", str(n), session_id="mine", when_running="queue")
        with pytest.raises(InboxFullError, match=f"{MAX_WAITING} messages wait in session 'mine'"):
            await client.run("helper", "more", session_id="mine", when_running="queue")
        await handle.abort()
        gate.open()
