"""Defects in the engine that the protocol machine, or its author while writing it, found. Each is a readable scenario."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.properties.protocol_play import SETTINGS
from tests.support_protocol import BOSS, CONFIG, HELPER, SOLO, Death, World, calls, kid

from helix.adapters.system import SystemClock
from helix.core.agents import Agent, AnyAgent
from helix.core.claim_plan import OpenRows
from helix.core.context import ToolContext
from helix.core.delivery import Position
from helix.core.entries import CallRow
from helix.core.errors import AgentAlreadyRunningError, SessionExistsError, WorkInProgressError
from helix.core.handles import Confirmation
from helix.core.rows import StopRow
from helix.core.tools import tool
from helix.engine.calls.children import attach
from helix.engine.calls.tool import call_tool, claimed, may_start, view_step
from helix.engine.claims.claim import Claimed, claim
from helix.engine.claims.confirm import answer
from helix.engine.claims.liveness import Claim, HeldClaim, LostClaimError, run_claim
from helix.engine.engine import Settings
from helix.engine.facts import RunClaimed
from helix.engine.history import session_key
from helix.engine.observers import show
from helix.engine.runs.ends import abort, fail_lapsed, fail_run, finish_run
from helix.engine.steps.buy import buy_step
from helix.engine.verbs import execute_run
from helix.engine.writing import entry_put
from helix.ports.state_store import Update
from helix.services.claim_input import ClaimInput
from helix.sessions.copies import clone_session
from helix.sessions.deletion import delete_session


async def test_closing_a_step_keeps_a_result_that_came_after_it_was_read() -> None:
    """The guarantee is result_immutable. The claim of a new message reads the call as running, its result arrives, then the
    claim writes."""
    working, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def slow(ctx: ToolContext) -> str:
        """Takes its time."""
        working.set()
        await go_on.wait()
        return "slow done"

    agent: AnyAgent = Agent(name="solo", system_prompt="work", tools=[slow], llm_config=CONFIG)
    world = World([calls("slow"), "later"])
    run = (await world.claim(agent, message="go")).run.run_id
    await world.model(agent, run, 1)
    at_work = asyncio.create_task(world.tool(agent, run, 1, "call_0"))
    await working.wait()
    await abort(world.engine, agent, "s", None, world.delivery())

    async def result_arrives() -> None:
        go_on.set()
        assert await at_work == "done"

    world.store.before["claim_execute"] = result_arrives
    claimed_run = await world.claim(agent, message="go on")
    row = await world.call(2)
    assert (row.by, row.content) == ("tool", "slow done")
    context = await world.context(agent, claimed_run.run.run_id)
    show(context, RunClaimed(claimed_run))
    await context.stream.close()
    assert await world.tool_ends() == ["call_0"]  # reported by the run that closed the step: no turn was open


async def test_an_answer_that_came_in_between_is_not_closed_over() -> None:
    world = World([calls("gated"), "later"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.model(SOLO, run, 1)
    await world.tool(SOLO, run, 1, "call_0")
    await fail_run(world.engine, SOLO, Position("s", run, 1, 1), world.delivery())

    async def denied() -> None:
        await answer(world.engine, SOLO, "s", Confirmation("call_0", approved=False), world.delivery())

    world.store.before["claim_execute"] = denied
    await world.claim(SOLO, message="go on")
    assert (await world.call(2)).by == "answer"


async def test_an_answer_beside_a_working_run_is_told_by_its_fold() -> None:
    world = World([calls("gated", "free"), "done"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.model(SOLO, run, 1)
    await world.tool(SOLO, run, 1, "call_0")
    await answer(world.engine, SOLO, "s", Confirmation("call_0", approved=False), world.delivery())
    await world.tool(SOLO, run, 1, "call_1")
    await world.model(SOLO, run, 2)
    assert sorted(await world.tool_ends()) == ["call_0", "call_1"]


async def test_the_end_of_a_run_that_never_spoke_does_not_make_the_stream_forget() -> None:
    """The effects of an aborted run reported pending results before its turn had begun on the stream. Without the position
    of the turn, the stream forgot which calls had ended and reported them again."""
    world = World([calls("free", "gated"), "done"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.model(SOLO, run, 1)
    await world.tool(SOLO, run, 1, "call_0")
    await world.tool(SOLO, run, 1, "call_1")
    await world.model(SOLO, run, 2)
    await finish_run(world.engine, SOLO, "s", run, world.delivery())
    await answer(world.engine, SOLO, "s", Confirmation("call_1"), world.delivery())  # its claimer dies here
    await abort(world.engine, SOLO, "s", None, world.delivery())
    last = await world.claim(SOLO, message="go on")
    context = await world.context(SOLO, last.run.run_id)
    show(context, RunClaimed(last))
    await context.stream.close()
    assert sorted(await world.tool_ends()) == ["call_0", "call_1"]


async def test_a_session_without_a_lease_does_not_lapse() -> None:
    """Deliveries with deadlines execute it. No process may take it over, fail it or delete it while it runs."""
    world = World(["hello"])
    await world.claim(SOLO, message="go")
    world.clock.time += 1000
    with pytest.raises(AgentAlreadyRunningError):
        await world.claim(SOLO, "takeover", delivery=world.worker())
    assert not await fail_lapsed(world.engine, SOLO, "s", world.worker())
    with pytest.raises(AgentAlreadyRunningError):
        await delete_session(world.engine, "s")
    assert (await world.session()).status == "running"


async def test_a_renewed_lease_keeps_its_session_from_being_deleted() -> None:
    world = World(["hello"])
    await world.claim(SOLO, message="go", delivery=world.worker())
    world.clock.time += 20

    async def heartbeat() -> None:
        update = Update(session_key("s"), set={"lease_expires": world.clock.time + 15})
        await world.store.transact("heartbeat", [update])

    world.store.before["begin_delete"] = heartbeat
    with pytest.raises(AgentAlreadyRunningError):
        await delete_session(world.engine, "s")


async def test_a_child_that_was_taken_over_has_not_failed() -> None:
    """The dead worker's run fails, but the child continues. The run that ends the child reports to its parent once."""
    world = World({"boss": [{"tool_calls": [kid("call_0")]}], "helper": [calls("gated")]})
    worker = world.worker()
    run = (await world.claim(BOSS, message="go", delivery=worker)).run.run_id
    await world.model(BOSS, run, 1, worker)
    view = await view_step(world.engine, "s", run, 1)
    assert view is not None
    request, ref = view.rows.answer.tool_calls[0], view.rows.answer.children["call_0"]
    started = await attach(await world.context(BOSS, run, world.worker()), view, request, ref)
    assert isinstance(started, Claimed)
    world.clock.time += 20
    taken = await claim(world.engine, HELPER, ref.session_id, ClaimInput("takeover"), world.worker())
    assert taken.ended == started.run.run_id
    await finish_run(world.engine, HELPER, ref.session_id, taken.ended, world.worker())
    again = await view_step(world.engine, "s", run, 1)
    assert again is not None and again.rows.calls[0] is not None and again.rows.calls[0].state == "claimed"


async def test_an_answer_finds_the_call_that_waits_although_an_ancestor_has_one_of_that_id() -> None:
    """Call ids are unique only within their session."""
    free_and_kid = {"tool_calls": [{"id": "call_0", "name": "free", "arguments": {}}, kid("call_1")]}
    world = World({"boss": [free_and_kid], "helper": [calls("gated")]})
    worker = world.worker()
    run = (await world.claim(BOSS, message="go", delivery=worker)).run.run_id
    await world.model(BOSS, run, 1, worker)
    await world.tool(BOSS, run, 1, "call_0", worker)
    view = await view_step(world.engine, "s", run, 1)
    assert view is not None
    ref = view.rows.answer.children["call_1"]
    context = await world.context(BOSS, run, world.worker())
    started = await attach(context, view, view.rows.answer.tool_calls[1], ref)
    assert isinstance(started, Claimed)
    await execute_run(world.engine, HELPER, started, world.worker())
    answered = await answer(world.engine, BOSS, "s", Confirmation("call_0"), world.worker())
    assert answered.session_id == ref.session_id


async def test_a_holder_starts_no_tool_close_to_its_deadline() -> None:
    """Clocks of two machines differ. Within the margin before its deadline, the holder does not start what it claimed."""
    world = World([calls("free"), "done"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    context = await world.context(SOLO, run)
    taken = claimed(context, CallRow(call_id="c", tool_name="free", step=1, state="asked"))
    assert taken.deadline is not None and taken.deadline - world.clock.time == pytest.approx(SETTINGS.claim_s, abs=0.1)
    assert may_start(context, taken.deadline)
    world.clock.time = taken.deadline - SETTINGS.margin_s
    assert not may_start(context, taken.deadline)


async def test_a_holder_whose_claim_died_before_the_model_call_asks_no_model() -> None:
    """The guarantee is no_answer_rebought. The process was paused before the call, and another may buy the step now."""
    world = World([calls("free"), "done"])
    run = (await world.claim(SOLO, message="go")).run.run_id

    async def stands_still() -> None:
        world.clock.time += SETTINGS.claim_s

    world.store.before["claim_step"] = stands_still
    with pytest.raises(WorkInProgressError):
        await world.model(SOLO, run, 1)
    session = await world.session()
    assert session.claim is not None and session.open is None


async def test_a_dead_attempt_at_a_step_is_not_brought_back() -> None:
    """The guarantee is no_answer_rebought. A heartbeat does not change the version, so a taker that has read the dead claim
    would not notice it."""
    world = World(["done"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    worker = world.delivery()
    context = await world.context(SOLO, run, worker)

    async def stands_still() -> None:
        world.clock.time += SETTINGS.claim_s

    world.store.before["claim_step"] = stands_still
    with pytest.raises(WorkInProgressError):
        await buy_step(context, 1)
    await context.stream.close()
    assert not await run_claim(context).move(world.clock.time + SETTINGS.claim_s)
    session = await world.session()
    assert session.claim is not None and session.claim.deadline < world.clock.time


async def test_a_holder_stops_although_the_store_never_answers_its_heartbeat() -> None:
    world = World([])
    world.engine.clock, world.engine.settings = SystemClock(), Settings(claim_s=0.2)
    deadline = world.engine.clock.now() + 0.2

    async def never(until: float) -> bool:
        await asyncio.Event().wait()
        return True

    with pytest.raises(LostClaimError):
        async with asyncio.timeout(5), HeldClaim(world.engine, Claim("it", lambda: deadline, never)):
            await asyncio.Event().wait()
    assert world.engine.clock.now() < deadline


async def test_a_cancellation_while_a_claim_is_left_is_not_swallowed() -> None:
    world = World([])
    world.engine.clock, world.engine.settings = SystemClock(), Settings(claim_s=0.2)
    moving, leaving, went_on = asyncio.Event(), asyncio.Event(), False

    async def slow(until: float) -> bool:
        moving.set()
        try:
            await asyncio.Event().wait()
        finally:
            leaving.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return True

    async def holder() -> None:
        nonlocal went_on
        async with HeldClaim(world.engine, Claim("it", world.engine.clock.now, slow)):
            await moving.wait()
        went_on = True

    task = asyncio.create_task(holder())
    await leaving.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() and not went_on


async def test_a_step_that_only_missed_its_output_keeps_the_lease() -> None:
    """Heartbeats extend the lease during the model call, and the commit must not shorten it."""
    world = World({"helper": ["no output", "no output"]})
    run = (await world.claim(HELPER, message="go", delivery=world.worker())).run.run_id
    worker = world.worker()

    async def time_passes() -> None:
        world.clock.time += 100

    world.store.before["append_segment"] = time_passes
    await world.model(HELPER, run, 1, worker)
    session = await world.session()
    assert session.status == "running" and session.lease_expires > world.clock.time


async def test_a_session_is_not_made_over_what_a_dead_copy_left() -> None:
    """Leftover results would be taken for results of the new session's first calls."""
    world = World([calls("free"), "done", calls("free"), "done"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.model(SOLO, run, 1)
    await world.tool(SOLO, run, 1, "call_0")
    await world.model(SOLO, run, 2)

    async def dies() -> None:
        raise Death

    world.store.before["finish_copy"] = dies
    with pytest.raises(Death):
        await clone_session(world.engine, "s", "copy")
    with pytest.raises(SessionExistsError):
        await claim(world.engine, SOLO, "copy", ClaimInput("execute", "hello"), world.delivery())
    world.clock.time += 1000
    await claim(world.engine, SOLO, "copy", ClaimInput("execute", "hello"), world.delivery())
    rows = await world.store.query("sessions", "copy", start="m#", end="m$")
    assert [row.value["kind"] for row in rows] == ["user"]


async def test_an_approved_call_that_is_given_back_stays_approved() -> None:
    """The guarantee is first_answer_wins. The worker claimed the call, was paused until after its deadline and gave the
    call back before starting it."""
    world = World([calls("gated"), "done"])
    worker = world.worker()
    run = (await world.claim(SOLO, message="go", delivery=worker)).run.run_id
    await world.model(SOLO, run, 1, worker)
    await answer(world.engine, SOLO, "s", Confirmation("call_0"), worker)

    async def stands_still() -> None:
        world.clock.time += SETTINGS.claim_s

    world.store.before["claim_call"] = stands_still
    with pytest.raises(WorkInProgressError):
        await world.tool(SOLO, run, 1, "call_0", worker)
    assert (await world.row("call_0")).state == "approved", "the call was released, not started"


async def test_a_claimed_call_that_is_stopped_before_it_starts_stays_approved() -> None:
    world = World([calls("gated"), "done"])
    worker = world.worker()
    run = (await world.claim(SOLO, message="go", delivery=worker)).run.run_id
    await world.model(SOLO, run, 1, worker)
    await answer(world.engine, SOLO, "s", Confirmation("call_0"), worker)
    view = await view_step(world.engine, "s", run, 1)
    assert view is not None and view.rows.calls[0] is not None
    context = await world.context(SOLO, run, worker)
    mine = claimed(context, view.rows.calls[0])
    await world.store.transact("claim_call", [entry_put("s", 0, 2, mine)])
    stopped = replace(view, rows=OpenRows(view.rows.answer, [mine]), stop=StopRow(run_id=run, stop="interrupt"))
    assert await call_tool(context, stopped, "call_0") == "skipped"
    assert (await world.row("call_0")).state == "approved"
