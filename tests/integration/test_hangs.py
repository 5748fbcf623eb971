"""Workers that hang. Their execution waits for an answer, and the sweep starts the run's next part.

The stage's clock is moved ahead of a worker to make it silent, because it renews its claim by the real clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.support.delivery_stage import Json, Stage, event_of
from tests.support_run import Gate, Text, a_tool, agent, call, calls, gated

from helix import create_sub_agent_tool
from helix.core.agents import AnyAgent
from helix.core.entries import CallRow
from helix.core.errors import StoreError, WorkInProgressError
from helix.core.json import loads
from helix.engine.engine import Settings
from helix.engine.placement import IN_WORKERS
from helix.engine.steps.ask import MAX_LATE
from helix.ports.launcher import Part, execution_name
from helix.ports.state_store import Operation
from helix.testing.crash import Crash, CrashPoints

CLAIM_S, SKEW_S, MINUTE_S = Settings().claim_s, Settings().skew_s, 60.0
LOOK = a_tool("look", lambda given, ctx: "seen")
BACKOFF_S = 120.0
"""The longest pause of the state machine between two deliveries (infra/definition.py)."""


def parts(stage: Stage, run_id: str) -> list[int]:
    """Return the run's parts, without repeated starts."""
    return sorted({part.part for part in stage.held.starts if part.run_id == run_id})


@asynccontextmanager
async def hung(stage: Stage, verb: str, event: Json, gate: Gate) -> AsyncIterator[asyncio.Task[Any]]:
    """Start a delivery that waits at the gate."""
    worker = asyncio.create_task(stage.deliver(verb, event))
    try:
        await gate.reached()
        yield worker
    finally:
        worker.cancel()
        await asyncio.wait({worker})


async def calls_of(stage: Stage, event: Json) -> list[CallRow]:
    rows = await stage.engine.history.open_rows(await stage.session(event))
    return [row for row in rows.calls if row is not None] if rows is not None else []


def stubborn(gate: Gate, ran: list[str], **options: Any) -> AnyAgent:
    """An agent whose tool hangs at its first call."""

    async def act(given: Any, ctx: Any) -> str:
        ran.append("act")
        if len(ran) == 1:
            await gate.wait()
        return f"run {len(ran)}"

    return agent("helper", tools=[a_tool("act", act, timeout_s=900, **options), LOOK])


# --- a step -----------------------------------------------------------------------------------------------------------


async def test_a_hang_at_the_model_is_noticed_within_95_seconds() -> None:
    gate, helper = Gate(), agent("helper")
    stage = Stage([gated(gate, "From the dead."), "Done."], helper)
    event = await stage.begin(helper)
    begun = stage.clock.now()
    async with hung(stage, "call_model", event, gate) as worker:
        held = (await stage.session(event)).claim
        assert held is not None
        stage.clock.ahead_s = CLAIM_S + SKEW_S - 1
        assert await stage.deliver("sweep") == {"running": 1}
        stage.clock.ahead_s = CLAIM_S + SKEW_S + MINUTE_S  # the latest time of the next one
        assert stage.clock.now() - begun < 96
        assert await stage.deliver("sweep") == {"silent": 1}
        assert stage.held.starts[1:] == [replace(stage.held.starts[0], part=2, step=1)]
        assert (await stage.deliver("call_model", event))["next"] == "rolled", "what the old execution delivers"
        told = await stage.follow(event_of(stage.held.starts[-1]))
        assert told["next"] == "finish" and (await stage.session(event)).status == "completed"
        gate.open()
        ended = (await asyncio.gather(worker, return_exceptions=True))[0]
        assert isinstance(ended, WorkInProgressError) or (
            not isinstance(ended, BaseException) and ended["next"] == "finish"
        )
    await stage.deliver("fail_run", {**event, "error": {"Error": "Sandbox.Timedout"}})
    await stage.deliver("finish_run", told)
    messages = await stage.executor.sessions.load_conversation_messages(event["session_id"])
    assert [m.content for m in messages] == ["go", "Done."]
    run = await stage.run(event)
    assert (run.status, run.part, len(stage.model.requests)) == ("completed", 2, 2)
    assert run.late_calls == 1, "its answer was paid for"


async def test_a_claim_that_has_lapsed_starts_one_part_however_long_that_waits() -> None:
    """The new execution may wait hours for a free Lambda environment."""
    gate, helper = Gate(), agent("helper")
    stage = Stage([gated(gate, "Never."), "Done."], helper)
    event = await stage.begin(helper)
    async with hung(stage, "call_model", event, gate):
        stage.clock.ahead_s = 60
        found = []
        for _ in range(5):
            found.append(await stage.deliver("sweep"))
            stage.clock.ahead_s += 60
    assert found == [{"silent": 1}, *[{"running": 1}] * 4] and parts(stage, event["run_id"]) == [1, 2]
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] == "finish"


async def test_a_worker_that_comes_back_before_its_work_is_taken_writes_nothing() -> None:
    """Its part has ended, and so has its attempt."""
    gate, helper = Gate(), agent("helper")
    stage = Stage([gated(gate, "From the dead."), "Done."], helper)
    event = await stage.begin(helper)
    ask = stage.engine.store.transact
    async with hung(stage, "call_model", event, gate) as worker:
        stage.clock.ahead_s = 60
        assert await stage.deliver("sweep") == {"silent": 1}
        wrote: list[str] = []

        async def noted(name: str, operations: Sequence[Operation]) -> None:
            await ask(name, operations)
            wrote.append(name)

        stage.engine.store.transact = noted  # type: ignore[method-assign]
        gate.open()
        with pytest.raises(WorkInProgressError):
            await worker
    assert not {"stage", "commit"} & {*wrote}
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] == "finish"
    messages = await stage.executor.sessions.load_conversation_messages(event["session_id"])
    assert [m.content for m in messages] == ["go", "Done."]


async def test_a_step_that_hangs_three_workers_fails_its_run() -> None:
    helper = agent("helper")
    gates = [Gate() for _ in range(MAX_LATE)]
    stage = Stage([*(gated(gate, "Never.") for gate in gates), "Done."], helper)
    event = await stage.begin(helper)
    workers = []
    for gate in gates:
        workers.append(asyncio.create_task(stage.deliver("call_model", event_of(stage.held.starts[-1]))))
        await gate.reached()
        stage.clock.ahead_s += 60
        assert await stage.deliver("sweep") == {"silent": 1}
    told = await stage.follow(event_of(stage.held.starts[-1]))
    assert told["next"] == "finish" and len(stage.model.requests) == MAX_LATE
    session = await stage.session(event)
    assert session.error is not None and (session.status, session.error.code) == ("failed", "model_timed_out")
    assert "silent" in session.error.message
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)
    await stage.executor.retry(helper, event["session_id"])
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] == "finish"
    assert (await stage.session(event)).status == "completed", "each run counts anew"


async def test_a_delivery_that_failed_is_left_to_the_machines_retry() -> None:
    """It released its claim, so the pause before the retry does not count as silence."""
    helper = agent("helper")
    stage = Stage(["Lost.", "Done."], helper)
    event = await stage.begin(helper)
    transact = stage.engine.store.transact

    async def fails(name: str, operations: Sequence[Operation]) -> None:
        if name == "commit":
            raise StoreError("the table does not answer")
        await transact(name, operations)

    stage.engine.store.transact = fails  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        await stage.deliver("call_model", event)
    stage.engine.store.transact = transact  # type: ignore[method-assign]
    for _ in range(3):
        stage.clock.ahead_s += BACKOFF_S
        assert await stage.deliver("sweep") == {"running": 1}
    assert parts(stage, event["run_id"]) == [1]
    assert (await stage.follow(event))["next"] == "finish"


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "times"), [("retry", 2), ("skip", 1), ("ask", 1)])
@pytest.mark.parametrize("inline", [True, False])
async def test_a_hang_in_a_tool_is_an_unknown_outcome_as_after_a_crash(policy: str, times: int, inline: bool) -> None:
    ran: list[str] = []
    gate = Gate()
    helper = stubborn(gate, ran, on_unknown=policy, inline=inline)
    stage = Stage([calls(call("act")), "Done."], helper)
    event, verb = await stage.begin(helper), "call_model"
    if not inline:
        event, verb = await stage.deliver("call_model", event), "call_tool"
    async with hung(stage, verb, event, gate) as worker:
        stage.clock.ahead_s = 60
        assert await stage.deliver("sweep") == {"silent": 1}
        assert (await stage.deliver("call_model", event))["next"] == "rolled"
        told = await stage.follow(event_of(stage.held.starts[-1]))
        assert told["next"] == "finish" and len(ran) == times
        if policy == "retry":
            assert await stage.results(event) == [("run 2", True)]
        session = await stage.session(event)
        assert session.status == ("paused" if policy == "ask" else "completed")
        gate.open()  # it returns with a result that no execution waits for
        await asyncio.gather(worker, return_exceptions=True)
        if policy == "retry":
            assert await stage.results(event) == [("run 2", True)], "the first recorded result stands"
    assert parts(stage, event["run_id"]) == [1, 2] and len(ran) == times


async def test_a_tool_that_hangs_three_workers_is_not_started_again() -> None:
    ran: list[str] = []

    async def act(given: Any, ctx: Any) -> str:
        ran.append("act")
        began.set()
        await asyncio.Event().wait()
        return "never"

    began = asyncio.Event()
    helper = agent("helper", tools=[a_tool("act", act, timeout_s=900)])
    stage = Stage([calls(call("act")), "Done."], helper)
    told = await stage.deliver("call_model", await stage.begin(helper))
    workers = []
    for _ in range(3):
        began.clear()
        workers.append(asyncio.create_task(stage.deliver("call_tool", told)))
        await began.wait()
        stage.clock.ahead_s += 60
        assert await stage.deliver("sweep") == {"silent": 1}
        told = await stage.deliver("call_model", event_of(stage.held.starts[-1]))
    assert (await stage.deliver("call_tool", told)) == {"call": "done"} and len(ran) == 3
    assert (await stage.follow(told))["next"] == "finish"
    ((content, success),) = await stage.results(told)
    assert (loads(content)["code"], success) == ("tool_crashed", False)
    for worker in workers:
        worker.cancel()
    await asyncio.wait(workers)


async def test_of_parallel_calls_the_silent_ones_start_one_part_and_the_others_go_on() -> None:
    ran, gates = list[str](), {name: Gate() for name in ("a", "b", "c")}

    def held_at(name: str) -> Any:
        async def act(given: Any, ctx: Any) -> str:
            ran.append(name)
            if ran.count(name) == 1:
                await gates[name].wait()
            return f"{name}{ran.count(name)}"

        return a_tool(name, act, timeout_s=900)

    helper = agent("helper", tools=[held_at(name) for name in gates])
    stage = Stage([calls(*(call(name) for name in gates)), "Done."], helper)
    told = await stage.deliver("call_model", await stage.begin(helper))
    workers = {}
    for name, one in zip(gates, told["calls"], strict=True):
        if name == "c":  # it was claimed later than the others, so it is alive
            stage.clock.ahead_s = 60
        workers[name] = asyncio.create_task(stage.deliver("call_tool", {**told, "call": one}))
        await gates[name].reached()
    assert [row.deadline is not None for row in await calls_of(stage, told)] == [True] * 3
    assert await stage.deliver("sweep") == {"silent": 1}
    assert [row.deadline == 0 for row in await calls_of(stage, told)] == [True, True, False]
    again = await stage.deliver("call_model", event_of(stage.held.starts[-1]))
    assert [one["id"] for one in again["calls"]] == [one["id"] for one in told["calls"]]
    with pytest.raises(WorkInProgressError):  # its worker is alive, and its result counts
        await stage.deliver("call_tool", {**again, "call": again["calls"][2]})
    for one in again["calls"][:2]:
        assert await stage.deliver("call_tool", {**again, "call": one}) == {"call": "done"}
    for gate in gates.values():
        gate.open()
    await asyncio.gather(*workers.values())
    assert await stage.deliver("call_tool", {**again, "call": again["calls"][2]}) == {"call": "done"}
    assert (await stage.deliver("call_model", told))["next"] == "rolled"
    assert (await stage.follow(again))["next"] == "finish"
    assert await stage.results(told) == [("a2", True), ("b2", True), ("c1", True)]
    assert sorted(ran) == ["a", "a", "b", "b", "c"] and parts(stage, told["run_id"]) == [1, 2]


async def test_a_result_that_comes_while_the_sweep_looks_is_no_silence() -> None:
    ran: list[str] = []
    gate = Gate()
    helper = stubborn(gate, ran, on_unknown="skip")
    stage = Stage([calls(call("act")), "Done."], helper)
    told = await stage.deliver("call_model", await stage.begin(helper))
    transact = stage.engine.store.transact
    async with hung(stage, "call_tool", told, gate) as worker:
        stage.clock.ahead_s = 60

        async def overtaken(name: str, operations: Sequence[Operation]) -> None:
            if name == "roll_over_silent":
                gate.open()
                await worker
            await transact(name, operations)

        stage.engine.store.transact = overtaken  # type: ignore[method-assign]
        assert await stage.deliver("sweep") == {"running": 1}
    assert parts(stage, told["run_id"]) == [1] and (await stage.run(told)).part == 1
    assert (await stage.follow(told))["next"] == "finish" and await stage.results(told) == [("run 1", True)]


async def test_a_call_whose_worker_ended_in_order_is_left_to_the_machines_retry() -> None:
    ran: list[str] = []
    gate = Gate()
    helper = stubborn(gate, ran)
    stage = Stage([calls(call("act")), "Done."], helper)
    told = await stage.deliver("call_model", await stage.begin(helper))
    async with hung(stage, "call_tool", told, gate):
        pass
    for _ in range(3):
        stage.clock.ahead_s += BACKOFF_S
        assert await stage.deliver("sweep") == {"running": 1}
    assert parts(stage, told["run_id"]) == [1]
    assert (await stage.follow(told))["next"] == "finish" and len(ran) == 2


# --- crashes, sub-agents, worker processes ----------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["before", "after"])
async def test_a_sweep_that_dies_is_made_up_for_by_the_next(place: str) -> None:
    gate, helper = Gate(), agent("helper")
    stage = Stage([gated(gate, "Never."), "Done."], helper)
    event = await stage.begin(helper)
    async with hung(stage, "call_model", event, gate):
        stage.clock.ahead_s = 60
        whole = stage.engine
        stage.engine = replace(
            whole, store=CrashPoints(at=(f"transact:roll_over_silent:{place}", 0)).store(whole.store)
        )
        with pytest.raises(Crash):
            await stage.deliver("sweep")
        stage.engine = whole
        assert parts(stage, event["run_id"]) == [1]
        stage.clock.ahead_s += 60
        assert await stage.deliver("sweep") == ({"silent": 1} if place == "before" else {"started": 1})
        second = stage.held.starts[-1]
        assert (second.part, execution_name(second)) == (2, f"{event['run_id']}__part-2")
        stage.clock.ahead_s += 60
        assert await stage.deliver("sweep") == {"running": 1}
    assert (await stage.follow(event_of(second)))["next"] == "finish" and parts(stage, event["run_id"]) == [1, 2]


async def test_two_sweeps_at_once_start_one_part() -> None:
    gate, helper = Gate(), agent("helper")
    stage = Stage([gated(gate, "Never."), "Done."], helper)
    event = await stage.begin(helper)
    async with hung(stage, "call_model", event, gate):
        stage.clock.ahead_s = 60
        await asyncio.gather(stage.deliver("sweep"), stage.deliver("sweep"))
        assert set(parts(stage, event["run_id"])) == {1, 2} and (await stage.run(event)).part == 2
    assert (await stage.follow(event_of(stage.held.starts[-1])))["next"] == "finish"


async def test_a_parent_that_waits_is_not_silent_and_its_sub_agent_that_hangs_is() -> None:
    gate = Gate()
    child = agent("child", output_schema=Text)
    parent = agent("parent", tools=[create_sub_agent_tool(child, timeout_s=600)])
    asks, found = calls(call("subagent__child", message="find")), {"output": {"text": "found"}}
    stage = Stage([asks, gated(gate, "Never."), found, "Done."], parent, child)
    told = await stage.deliver("call_model", await stage.begin(parent))
    assert told["next"] == "start_run"
    assert await stage.deliver("start_run", {**told, "token": "token-1"}) == {"call": "waits"}
    begun: Part = stage.held.starts[-1]
    assert begun.run_id != told["run_id"]
    async with hung(stage, "call_model", event_of(begun), gate):
        stage.clock.ahead_s = 60
        assert await stage.deliver("sweep") == {"silent": 1, "running": 1}
        assert parts(stage, told["run_id"]) == [1] and parts(stage, begun.run_id) == [1, 2]
        await stage.end(event_of(stage.held.starts[-1]))
    assert stage.held.woken == ["token-1"]
    assert (await stage.follow(told))["next"] == "finish" and (await stage.session(told)).status == "completed"


async def test_worker_processes_have_leases_for_this() -> None:
    """Another worker takes over the same execution, so the run needs no other part."""
    gate, helper = Gate(), agent("helper")
    stage = Stage([gated(gate, "Never."), "Done."], helper)
    stage.engine.placement = IN_WORKERS
    event = await stage.begin(helper)
    async with hung(stage, "call_model", event, gate):
        stage.clock.ahead_s = 60
        assert await stage.deliver("sweep") == {"running": 1}
    assert parts(stage, event["run_id"]) == [1]
