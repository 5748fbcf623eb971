"""Two concurrent deliveries. One pauses, and the other ends the run before the log has the first one's records."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest
from pydantic import BaseModel
from tests.support.delivery_stage import Stage
from tests.support_run import Gate, a_tool, agent, call, calls

from helix import Confirmation, MemoryStateStore
from helix.core.sequencer import StreamRecord
from helix.ports.state_store import Operation, Row
from helix.services.segments import SegmentStreams
from helix.testing.invariants import check_session
from helix.testing.stream_invariants import read_all

SLOW: ContextVar[str] = ContextVar("SLOW", default="")
"""The transaction after which a delivery pauses."""


class Answer(BaseModel):
    summary: str


class Store(MemoryStateStore):
    """A store that accepts no write of the slow delivery until the gate is open. `then` runs once, after the next query."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.stands = Gate(), False
        self.then: Callable[[], Awaitable[Any]] | None = None

    async def passed(self) -> None:
        if SLOW.get() and self.stands:
            await self.gate.wait()

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        await self.passed()
        await super().transact(name, operations)
        self.stands = self.stands or name == SLOW.get()

    async def query(self, table: Any, partition: str, **options: Any) -> list[Row]:
        rows = await super().query(table, partition, **options)
        if (then := self.then) is not None:
            self.then = None
            await then()
        return list(rows)


class Log(SegmentStreams):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._passed = store.passed

    async def append(self, stream_id: str, records: Sequence[StreamRecord]) -> None:
        await self._passed()
        await super().append(stream_id, records)


class Doubled(Stage):
    def __init__(self, script: Any, *agents: Any, **settings: Any) -> None:
        self.slow_store = Store()
        self.log = Log(self.slow_store)
        super().__init__(script, *agents, store=self.slow_store, streams=self.log, **settings)

    async def stand_still(self, event: dict[str, Any], after: str) -> asyncio.Task[Any]:
        """Deliver `call_model` to a worker that pauses after this transaction."""
        token = SLOW.set(after)
        task = asyncio.create_task(self.deliver("call_model", event))
        SLOW.reset(token)
        await self.slow_store.gate.reached()
        return task

    async def finish(self, event: dict[str, Any], slow: asyncio.Task[Any]) -> list[str]:
        """Play the run to its end, and then the slow delivery. Return the tools whose results are on the stream."""
        await self.end(event)
        self.slow_store.gate.open()
        await asyncio.wait({slow})
        session = await self.session(event)
        assert session.status == "completed"
        await check_session(self.store, self.log, session.session_id, at_rest=True)
        chunks = [message.chunk or {} for message in await read_all(self.log, session.stream_id)]
        return sorted(str(chunk["tool_name"]) for chunk in chunks if chunk.get("type") == "tool_end")


async def test_a_call_that_a_policy_closed_meanwhile_has_its_result_on_the_stream() -> None:
    """This was walk 585 of the protocol machine. It happens between two reads of a wide step by the delivery that folds
    it."""
    begun = Gate()

    async def once(given: Any, ctx: Any) -> str:
        await begun.wait()  # it hangs forever
        return "never"

    look = a_tool("look", lambda given, ctx: "seen", inline=True, on_unknown="skip")
    helper = agent("helper", tools=[a_tool("once", once, inline=True, on_unknown="skip"), look])
    stage = Doubled([calls(call("once"), call("look")), "Done."], helper, calls_at_once=1)
    event = await stage.begin(helper)
    dead = asyncio.create_task(stage.deliver("call_model", event))
    await begun.reached()
    dead.cancel()
    await asyncio.wait({dead})
    slow: list[asyncio.Task[Any]] = []

    async def close() -> None:
        slow.append(await stage.stand_still(event, "claim_call"))

    stage.slow_store.then = close
    told = await stage.deliver("call_model", event)
    assert await stage.finish(told, slow[0]) == ["look", "once"]


async def test_a_call_that_was_approved_meanwhile_has_its_result_on_the_stream() -> None:
    """The delivery that bought the step saw the call wait for a person, and another delivery executed it."""
    busy = Gate()

    async def wait(given: Any, ctx: Any) -> str:
        await busy.wait()
        return "done"

    act = a_tool("act", lambda given, ctx: "acted", inline=True, require_approval=True)
    helper = agent("helper", tools=[act, a_tool("wait", wait, inline=True)])
    stage = Doubled([calls(call("act"), call("wait")), "Done."], helper)
    event = await stage.begin(helper)
    first = asyncio.create_task(stage.deliver("call_model", event))
    await busy.reached()
    rows = await stage.engine.history.open_rows(await stage.session(event))
    assert rows is not None
    (call_id,) = await stage.engine.history.waiting_calls(rows)
    await stage.executor.answer(helper, event["session_id"], Confirmation(call_id, True))
    slow = await stage.stand_still(event, "call_result")
    busy.open()
    assert await stage.finish(await first, slow) == ["act", "wait"]


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_a_step_without_calls_that_another_delivery_committed_is_final_on_the_stream(meanwhile: bool) -> None:
    """This happens before the delivery that buys the next step begins, or while it is about to claim the same step."""
    helper = agent("helper", output_schema=Answer)
    stage = Doubled(["a text", calls(call("__finish__", summary="x"))], helper)
    event = await stage.begin(helper)
    slow: list[asyncio.Task[Any]] = []

    async def commit() -> None:
        slow.append(await stage.stand_still(event, "commit"))

    if meanwhile:
        stage.slow_store.then = commit
    else:
        await commit()
    assert (await stage.deliver("call_model", event, left_s=900))["next"] == "finish"
    assert await stage.finish(event, slow[0]) == []
