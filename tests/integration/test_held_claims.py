"""Heartbeats during other work: long hooks, transactions in flight, claims lost together, clocks set back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

import pytest
from tests import support_protocol as protocol
from tests.support.delivery_stage import Stage
from tests.support_run import PATIENCE_S, Gate, a_tool, agent, call, calls, gated, result_of

from helix import LocalExecutor, MemoryStateStore, ScriptedModel
from helix.core.delivery import Delivery
from helix.core.errors import AccessDeniedError
from helix.core.registry import AgentRegistry
from helix.engine.claims.claim import claim
from helix.engine.claims.liveness import Claim, HeldClaim, LostClaimError, run_claim
from helix.engine.engine import Over, Settings
from helix.engine.history import History, session_key
from helix.engine.steps import buy
from helix.engine.steps.buy import buy_step
from helix.engine.writing import advance, at_version, session_put
from helix.ports.state_store import Key, Operation, Value
from helix.services.claim_input import ClaimInput
from helix.services.hook_manager import HookManager

SHORT = Settings(stop_poll_s=0.01, claim_s=0.3)


class Beats(MemoryStateStore):
    """A store that counts heartbeats, and lets something happen right after a transaction was applied."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.changed = asyncio.Condition()
        self.after: dict[str, Any] = {}

    async def transact(self, name: str, operations: Sequence[Operation]) -> None:
        try:
            await super().transact(name, operations)
        finally:
            if name == "heartbeat":
                async with self.changed:
                    self.count += 1
                    self.changed.notify_all()
        if (happens := self.after.pop(name, None)) is not None:
            await happens()

    async def more(self, beats: int) -> None:
        wanted = self.count + beats
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: self.count >= wanted)


def on(store: MemoryStateStore, script: Any, **options: Any) -> LocalExecutor:
    return LocalExecutor(store, model=ScriptedModel(script), settings=SHORT, registry=AgentRegistry(), **options)


async def test_a_hook_after_a_tool_may_take_longer_than_a_heartbeat() -> None:
    """The call's result is stored, so its claim has ended and needs no heartbeat."""
    store = Beats()
    heard = []

    async def slow(payload: Any, context: Any) -> None:
        await store.more(4)
        heard.append(payload["tool_name"])

    helper = agent("helper", tools=[a_tool("look", lambda given, ctx: "seen")])
    async with on(store, [calls(call("look")), "done"], hooks={"after_tool": slow}) as executor:
        result = await result_of(await executor.execute(helper, "go"))
    assert (result.status, result.output, heard) == ("completed", "done", ["look"])


async def test_a_worker_that_may_not_renew_its_claim_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The delivery fails with the denial, which is retried twice. A lost claim would be retried for a long time."""

    class Denying(Beats):
        async def transact(self, name: str, operations: Sequence[Operation]) -> None:
            if name == "heartbeat":
                raise AccessDeniedError("dynamodb:UpdateItem", "stage-sessions")
            await super().transact(name, operations)

    begun = 0

    async def wait(given: Any, ctx: Any) -> str:
        nonlocal begun
        begun += 1
        return str(await asyncio.Event().wait())

    helper = agent("helper", tools=[a_tool("wait", wait)])
    stage = Stage([calls(call("wait"))], helper, store=Denying(), claim_s=0.3)
    told = await stage.deliver("call_model", await stage.begin(helper))
    with pytest.raises(AccessDeniedError, match="dynamodb:UpdateItem on stage-sessions"):
        async with asyncio.timeout(PATIENCE_S):
            await stage.deliver("call_tool", told)
    assert begun == 1
    assert "dynamodb:UpdateItem on stage-sessions" in caplog.text


async def test_a_hook_before_a_tool_may_take_longer_than_a_claim() -> None:
    """Heartbeats moved the deadline meanwhile, and the tool starts under its current claim."""
    store = Beats()
    heard = []

    async def slow(payload: Any, context: Any) -> None:
        heard.append(payload["tool_name"])
        await store.more(8)

    helper = agent("helper", tools=[a_tool("look", lambda given, ctx: "seen")])
    async with on(store, [calls(call("look")), "done"], hooks={"before_tool": slow}) as executor:
        result = await result_of(await executor.execute(helper, "go"))
    assert (result.output, heard) == ("done", ["look"])


async def test_the_end_of_a_run_goes_on_beside_the_next_run() -> None:
    """The session's lease belongs to the next run, which another process claimed. The process that finishes the first run
    has no lease to lose."""
    store, gate, helper, heard = Beats(), Gate(), agent("helper"), []

    async def slow(payload: Any, context: Any) -> None:
        await store.more(6)
        heard.append(payload["step_count"])

    beating = on(store, [gated(gate, "two")])
    await beating.execute(helper, "beat", session_id="another")
    executor = on(store, ["one"], hooks={"on_agent_complete": slow})

    async def next_message() -> None:
        await claim(executor.engine, helper, "s", ClaimInput("execute", "again"), Delivery("elsewhere"))

    store.after["commit"] = next_message
    handle = await executor.execute(helper, "go", session_id="s")
    await result_of(handle)
    assert heard == [1]
    assert (await executor.engine.history.run("s", handle.run_id)).effects == "done"
    await beating.close()
    await executor.close()


async def test_a_heartbeat_beside_this_workers_own_transaction_loses_nothing() -> None:
    """The answer is staged, but its acknowledgement has not arrived yet. The heartbeat is refused, and the claim is not
    lost."""
    store = Beats()

    async def slowly() -> None:
        await store.more(1)
        for _ in range(20):
            await asyncio.sleep(0)

    store.after["stage"] = slowly
    helper = agent("helper", tools=[a_tool("look", lambda given, ctx: "seen", inline=True)])
    stage = Stage([calls(call("look")), "done"], helper, store=store, claim_s=0.3)
    event = await stage.begin(helper)
    assert (await stage.follow(event))["next"] == "finish"
    assert await stage.results(event) == [("seen", True)] and not store.after


class Slow(MemoryStateStore):
    """A store that answers the reads of one task when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.reader: asyncio.Task[Any] | None = None
        self.looked, self.answered = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def get(self, keys: Sequence[Key]) -> list[Value | None]:
        found = await super().get(keys)
        if asyncio.current_task() is self.reader:
            self.looked.release()
            await self.answered.acquire()
        return found


async def test_a_late_look_does_not_bring_an_older_row_back() -> None:
    """Another writer refused a heartbeat. The row that it then read arrives after this worker claimed the step."""
    store, world = Slow(), protocol.World(["done"])
    world.engine.store, world.engine.history = store, History(store)
    worker = world.worker()
    run_id = (await world.claim(protocol.SOLO, message="go", delivery=worker)).run.run_id
    run = await world.context(protocol.SOLO, run_id, worker)

    async def late(payload: Any, context: Any) -> None:
        store.answered.release()
        again = asyncio.create_task(store.looked.acquire())
        await asyncio.wait({beat, again}, return_when=asyncio.FIRST_COMPLETED)
        again.cancel()

    world.engine.hooks = HookManager({"before_llm_call": late})
    written = advance(run.session, run.now())
    await store.transact("other", [session_put(written, at_version(run.session))])
    beat = store.reader = asyncio.ensure_future(run_claim(run).move(run.now() + 30))
    await store.looked.acquire()
    assert await buy_step(run, 1) == Over("completed")
    store.answered.release()
    assert await beat
    await run.stream.close()


async def test_both_claims_of_a_task_may_be_lost_at_once() -> None:
    """The loss of the sub-agent's claim is handled by the sub-agent, but not the loss of its parent's claim."""
    stage, moving, taken = Stage([], claim_s=0.2), asyncio.Semaphore(0), asyncio.Event()

    async def lost(until: float) -> bool:
        moving.release()
        await taken.wait()
        return False

    def held(what: str) -> Any:
        now = stage.clock.now()
        return HeldClaim(stage.engine, Claim(what, lambda: now + 0.2, lost))

    async def parent() -> None:
        async with held("the parent"):
            with contextlib.suppress(LostClaimError):
                async with held("the sub-agent"):
                    await asyncio.Event().wait()
            await asyncio.Event().wait()

    async def take() -> None:
        await moving.acquire()
        await moving.acquire()
        taken.set()

    taking, working = asyncio.create_task(take()), asyncio.create_task(parent())
    await asyncio.wait({taking, working}, timeout=PATIENCE_S / 5)
    assert working.done() and isinstance(working.exception(), LostClaimError)


async def test_a_holder_moves_a_deadline_from_before_the_clock_was_set_back() -> None:
    stage, moved = Stage([]), asyncio.Event()
    deadline = stage.clock.now() + 3600

    async def move(until: float) -> bool:
        nonlocal deadline
        deadline = until
        moved.set()
        return True

    async with asyncio.timeout(PATIENCE_S), HeldClaim(stage.engine, Claim("it", lambda: deadline, move)):
        await moved.wait()
    assert deadline <= stage.clock.now() + stage.engine.settings.claim_s


async def test_the_claim_of_a_step_keeps_the_deadline_of_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat comes after the step's row was copied from the session's, and before it is written."""
    store, ahead = MemoryStateStore(), 500.0
    claim_step, left = buy._claim_step, list[float]()

    async def after_a_heartbeat(run: Any, *given: Any) -> bool:
        assert await run_claim(run).move(run.now() + ahead)
        return await claim_step(run, *given)

    async def look(request: Any) -> str:
        (row,) = await store.get([session_key("s")])
        assert row is not None
        left.append(row["lease_expires"] - time.time())
        return "done"

    monkeypatch.setattr(buy, "_claim_step", after_a_heartbeat)
    executor = LocalExecutor(store, model=ScriptedModel([look]), registry=AgentRegistry())
    await result_of(await executor.execute(agent(), "go", session_id="s"))
    assert [round(one / ahead) for one in left] == [1]
    await executor.close()
