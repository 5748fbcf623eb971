"""A worker is dead or believed to be dead: its claims are released, another continues at once, and nothing is done
twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.fleet.conftest import MakeYard
from tests.support_fleet import PATIENCE_S, Yard
from tests.support_notes import Answer
from tests.support_run import Gate, a_tool, agent, call, calls, gated

from helix import create_sub_agent_tool
from helix.adapters.models.scripted import Entry
from helix.core.handles import AgentExecutionHandle
from helix.engine.calls.tool import MAX_DEATHS as MAX_CALL_DEATHS
from helix.engine.claims.liveness import expire_claims
from helix.fleet.budgets import BudgetManager
from helix.ports.state_store import Value
from helix.services.work_queue import Work, WorkQueue
from helix.workers.execution import MAX_DEATHS, Execution


async def begun(
    yard: Yard, worker: str, who: Any, gate: Gate
) -> tuple[AgentExecutionHandle[Any], Work, asyncio.Task[Any]]:
    """Start a run that `worker` executes up to the gate."""
    handle = await yard.executor.execute(who, "go")
    engine, _, queue = yard.composed()
    work = await queue.claim(worker, lambda value: True)
    assert work is not None
    playing = asyncio.get_running_loop().create_task(Execution(engine, queue, work).play())
    await gate.reached()
    return handle, work, playing


async def died(playing: asyncio.Task[Any]) -> None:
    """Stop the execution as SIGKILL does: it does nothing more and gives nothing back."""
    playing.cancel()
    await asyncio.wait({playing})


async def test_a_model_call_of_a_dead_worker_is_asked_again_at_once(make: MakeYard) -> None:
    gate = Gate()
    who = agent()
    yard = make(who, script=[gated(gate, "Never told."), "Done."])
    await BudgetManager(yard.engine.store).set_budget(1_000_000, "total", unit="tokens")
    handle, _, playing = await begun(yard, "w1", who, gate)
    await died(playing)
    assert await yard.queue.release_dead_worker("w1", died=True)
    yard.serve(yard.worker("w2"))
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.output, result.run_id) == ("completed", "Done.", handle.run_id)
    await yard.check(handle.session_id)
    run = await yard.engine.history.run(handle.session_id, handle.run_id)
    assert [block.assumed > 0 for block in run.blocks] == [True]  # the usage of the dead call is unknown


@pytest.mark.parametrize(
    ("on_unknown", "times", "status"), [("retry", 2, "completed"), ("skip", 1, "completed"), ("ask", 1, "paused")]
)
async def test_a_call_of_a_dead_worker_has_an_unknown_outcome(
    make: MakeYard, on_unknown: Any, times: int, status: str
) -> None:
    gate, ran = Gate(), []

    async def act(given: Any, ctx: Any) -> str:
        ran.append("act")
        if len(ran) == 1:
            await gate.wait()
        return "acted"

    who = agent(tools=[a_tool("act", act, on_unknown=on_unknown)])
    yard = make(who, script=[calls(call("act")), "Done."])
    handle, _, playing = await begun(yard, "w1", who, gate)
    await died(playing)
    await yard.queue.release_dead_worker("w1", died=True)
    yard.serve(yard.worker("w2"))
    result = await handle.result(PATIENCE_S)
    assert (result.status, len(ran)) == (status, times)
    await yard.check(handle.session_id)


@pytest.mark.parametrize("nested", [False, True], ids=["", "of a sub-agent"])
async def test_a_call_that_killed_three_workers_is_not_started_again(make: MakeYard, nested: bool) -> None:
    """The run continues, and a worker that was ended on purpose does not count."""
    began: asyncio.Queue[str] = asyncio.Queue()

    async def act(given: Any, ctx: Any) -> str:
        began.put_nowait("act")
        await asyncio.Event().wait()
        return "never"

    acting = agent("acting", tools=[a_tool("act", act)], output_schema=Answer)
    script: list[Entry] = [calls(call("act")), calls(call("__finish__", summary="Done.", score=1))]
    who = acting
    if nested:
        who = agent("boss", tools=[create_sub_agent_tool(acting)])
        script = [calls(call("subagent__acting", message="go")), *script, "All done."]
    yard = make(who, script=script)
    handle = await yard.executor.execute(who, "go")
    for number in range(MAX_CALL_DEATHS + 1):
        serving = yard.serve(yard.worker(f"w{number}"))
        await asyncio.wait_for(began.get(), PATIENCE_S)
        await died(serving)
        await yard.queue.release_dead_worker(f"w{number}", died=number != 1)
    yard.serve(yard.worker("last"))
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.run_id, began.empty()) == ("completed", handle.run_id, True)
    told = str(yard.model.requests[-2 if nested else -1].messages)
    assert "tool_crashed" in told and f"started {MAX_CALL_DEATHS} times" in told
    await yard.check(handle.session_id)


async def test_a_silent_worker_is_taken_over_when_its_lease_ends(make: MakeYard) -> None:
    """The worker's death is not reported. When its lease ends, its claims end too."""
    gate = Gate()
    who = agent()
    yard = make(who, script=[gated(gate, "Never told."), "Done."])
    handle = await yard.executor.execute(who, "go")
    engine, _, queue = yard.composed(lease_s=0.3)
    work = await queue.claim("w1", lambda value: True)
    assert work is not None
    playing = asyncio.get_running_loop().create_task(Execution(engine, queue, work).play())
    await gate.reached()
    yard.serve(yard.worker("w2"))
    assert (await handle.result(PATIENCE_S)).output == "Done."
    await died(playing)
    await yard.check(handle.session_id)


async def test_a_worker_that_was_not_dead_is_refused(make: MakeYard) -> None:
    """The worker gets its answer after another has continued, and the answer is not added to the history."""
    gate = Gate()
    who = agent()
    yard = make(who, script=[gated(gate, "Of a dead man."), "Done."])
    handle, work, playing = await begun(yard, "w1", who, gate)
    await yard.queue.release_dead_worker("w1", died=True)
    yard.serve(yard.worker("w2"))
    assert (await handle.result(PATIENCE_S)).output == "Done."
    gate.open()
    assert await asyncio.wait_for(playing, PATIENCE_S) == "ended"
    assert not await yard.queue.finish(work)
    messages = (await yard.executor.sessions.get_messages(handle.session_id)).messages
    assert [message.content for message in messages] == ["go", "Done."]
    await yard.check(handle.session_id)


async def test_only_the_dead_workers_claims_are_let_go(make: MakeYard) -> None:
    gate = Gate()
    who = agent()
    yard = make(who, script=[gated(gate, "Done.")])
    handle, _, playing = await begun(yard, "w1", who, gate)
    before = await yard.engine.history.existing(handle.session_id)
    assert await expire_claims(yard.engine, handle.session_id, "w") == 0
    assert await expire_claims(yard.engine, handle.session_id, "w2") == 0
    assert await yard.engine.history.existing(handle.session_id) == before
    assert await expire_claims(yard.engine, handle.session_id, "w1") == 1
    assert await expire_claims(yard.engine, handle.session_id, "w1") == 0
    await died(playing)


async def test_a_run_that_outlived_too_many_workers_fails(make: MakeYard) -> None:
    who = agent()
    yard = make(who, script=["Never."])
    handle = await yard.executor.execute(who, "go")
    for number in range(MAX_DEATHS):
        assert await yard.queue.claim(f"w{number}", lambda value: True)
        await yard.queue.release_dead_worker(f"w{number}", died=True)
    yard.serve(yard.worker("last"))
    result = await handle.result(PATIENCE_S)
    assert (result.status, result.error_code, result.recoverable) == ("failed", "runtime_crash", True)
    assert yard.model.requests == []
    await yard.check(handle.session_id)


async def test_a_worker_that_leaves_hands_over_between_steps(make: MakeYard) -> None:
    gate, ran = Gate(), []

    async def act(given: Any, ctx: Any) -> str:
        ran.append("act")
        await gate.wait()
        return "acted"

    who = agent(tools=[a_tool("act", act)])
    yard = make(who, script=[calls(call("act")), "Done."])
    worker = yard.worker("w1")
    serving = yard.serve(worker)
    handle = await yard.executor.execute(who, "go")
    await gate.reached()
    worker.leave()
    gate.open()
    await asyncio.wait_for(serving, PATIENCE_S)
    (row,) = await yard.queue.open_work()
    assert (row.value["owner"], row.value["former"], row.value["deaths"], ran) == (None, "w1", 0, ["act"])
    yard.serve(yard.worker("w2"))
    assert ((await handle.result(PATIENCE_S)).output, ran) == ("Done.", ["act"])
    await yard.check(handle.session_id)


async def test_a_worker_that_is_told_to_leave_while_it_claims_hands_over(make: MakeYard) -> None:
    """The worker does not begin the run that it claims at that moment."""
    who = agent()
    yard = make(who, script=["Done."])
    worker = yard.worker("w1")

    class Interrupted(WorkQueue):
        async def claim(self, name: str, wanted: Callable[[Value], bool]) -> Work | None:
            work = await super().claim(name, wanted)
            worker.leave()
            return work

    worker.queue = Interrupted(worker.engine.store, worker.engine.clock)
    await yard.executor.execute(who, "go")
    await asyncio.wait_for(yard.serve(worker), PATIENCE_S)
    (row,) = await yard.queue.open_work()
    assert (row.value["owner"], row.value["former"], yard.model.requests) == (None, "w1", [])


async def test_a_worker_that_drains_finishes_what_it_has(make: MakeYard) -> None:
    gate = Gate()
    who = agent()
    yard = make(who, script=[gated(gate, "Done."), "Not by this one."])
    worker = yard.worker("w1")
    serving = yard.serve(worker)
    first = await yard.executor.execute(who, "go")
    await gate.reached()
    worker.drain()
    second = await yard.executor.execute(who, "go")
    gate.open()
    await asyncio.wait_for(serving, PATIENCE_S)
    assert (await first.result(PATIENCE_S)).output == "Done."
    (row,) = await yard.queue.open_work()
    assert (row.value["run_id"], row.value["owner"]) == (second.run_id, None)
