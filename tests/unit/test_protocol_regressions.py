"""Defects that the protocol machine (or its author, while writing it) found in the engine, each as a readable scenario."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.support_protocol import BOSS, CONFIG, HELPER, SOLO, Death, World, calls, kid

from helix.core.agents import Agent, AnyAgent
from helix.core.context import ToolContext
from helix.core.errors import AgentAlreadyRunningError, SessionExistsError, WorkInProgressError
from helix.core.rows import CallRow, StopRow
from helix.core.tools import tool
from helix.engine.announcing import announce_claim
from helix.engine.answers import Confirmation, answer
from helix.engine.call_tool import call_tool, view_step
from helix.engine.children import start_child
from helix.engine.claiming_calls import claimed, longest, may_start
from helix.engine.claims import Claimed, ClaimInput, claim
from helix.engine.copies import clone_session, delete_session
from helix.engine.delivery import Delivery, Lease
from helix.engine.ends import abort, fail_lapsed, finish_run
from helix.engine.history import session_key
from helix.engine.loop import run_loop
from helix.engine.stops import StopWatch
from helix.ports.state_store import Update


async def test_closing_a_step_keeps_a_result_that_came_after_it_was_read() -> None:
    """result_immutable: the claim of a new message read the call as running, its result arrived, then the claim wrote."""
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
    stream = await world.stream(claimed_run.run.run_id)
    announce_claim(stream, claimed_run)
    await stream.close()
    assert await world.tool_ends() == ["call_0"]  # told by the run that closed the step: no turn was open when it came


async def test_an_answer_that_came_in_between_is_not_closed_over() -> None:
    world = World([calls("gated"), "later"])
    run = (await world.claim(SOLO, message="go")).run.run_id
    await world.model(SOLO, run, 1)
    await world.tool(SOLO, run, 1, "call_0")
    await abort(world.engine, SOLO, "s", None, world.delivery())

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
    """The effects of an aborted run told what was untold before its turn had begun on the stream: with nothing to say
    where the turn stood, the stream forgot which calls had ended, and told them again."""
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
    stream = await world.stream(last.run.run_id)
    announce_claim(stream, last)
    await stream.close()
    assert sorted(await world.tool_ends()) == ["call_0", "call_1"]


async def test_a_session_without_a_lease_does_not_lapse() -> None:
    """Deliveries with deadlines execute it: no process may take it over, fail it, or delete it while it runs."""
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
    """The run of its dead worker is failed, but the child goes on: its parent is told once, by the run that ends it."""
    world = World({"boss": [{"tool_calls": [kid("call_0")]}], "helper": [calls("gated")]})
    run = (await world.claim(BOSS, message="go", delivery=world.worker())).run.run_id
    await world.model(BOSS, run, 1)
    await world.tool(BOSS, run, 1, "call_0")
    view = await view_step(world.engine, "s", run, 1)
    assert view is not None
    request, ref = view.rows.answer.tool_calls[0], view.rows.answer.children["call_0"]
    started = await start_child(world.engine, BOSS, view, request, ref, world.worker())
    assert isinstance(started, Claimed)
    world.clock.time += 20
    taken = await claim(world.engine, HELPER, ref.session_id, ClaimInput("takeover"), world.worker())
    assert taken.ended == started.run.run_id
    await finish_run(world.engine, HELPER, ref.session_id, taken.ended, world.worker())
    again = await view_step(world.engine, "s", run, 1)
    assert again is not None and again.rows.calls[0] is not None and again.rows.calls[0].state == "claimed"


async def test_an_answer_finds_the_call_that_waits_although_an_ancestor_has_one_of_that_id() -> None:
    """Call ids are unique in their session only."""
    free_and_kid = {"tool_calls": [{"id": "call_0", "name": "free", "arguments": {}}, kid("call_1")]}
    world = World({"boss": [free_and_kid], "helper": [calls("gated")]})
    run = (await world.claim(BOSS, message="go", delivery=world.worker())).run.run_id
    await world.model(BOSS, run, 1)
    for call_id in ("call_0", "call_1"):
        await world.tool(BOSS, run, 1, call_id)
    view = await view_step(world.engine, "s", run, 1)
    assert view is not None
    ref = view.rows.answer.children["call_1"]
    started = await start_child(world.engine, BOSS, view, view.rows.answer.tool_calls[1], ref, world.worker())
    assert isinstance(started, Claimed)
    await run_loop(world.engine, HELPER, started, world.worker())
    answered = await answer(world.engine, BOSS, "s", Confirmation("call_0"), world.worker())
    assert answered.session_id == ref.session_id


async def test_a_claim_lasts_as_long_as_its_tool_may_take() -> None:
    """Every try and the waits between them, and some time to get started; after that the holder does not start it."""

    @tool(retries=2, timeout_s=10)
    async def tries(ctx: ToolContext) -> str:
        """Tries three times."""
        return "done"

    assert longest(tries) == 3 * 10 + 0.5 + 1
    delivery = Delivery("lambda", deadline=1000)
    row = CallRow(call_id="c", tool_name="tries", step=1, state="asked")
    taken = claimed(row, tries, delivery, "run", now=100, margin_s=5)
    assert taken.deadline == 100 + 31.5 + 5
    assert may_start(taken, tries, delivery, now=105)
    assert not may_start(taken, tries, delivery, now=106)
    at_the_end = claimed(row, tries, delivery, "run", now=990, margin_s=5)
    assert at_the_end.deadline == 1000 and may_start(at_the_end, tries, delivery, now=999)


async def test_a_step_that_only_missed_its_output_keeps_the_lease() -> None:
    """Heartbeats moved the lease while the model spoke: the commit must not move it back."""
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
    """Leftover results would pass for those of the new session's first calls."""
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
    """first_answer_wins: the worker claimed it, was told to stop before it started it, and gave the claim back."""
    world = World([calls("gated"), "done"])
    worker = world.worker()
    run = (await world.claim(SOLO, message="go", delivery=worker)).run.run_id
    await world.model(SOLO, run, 1, worker)
    await answer(world.engine, SOLO, "s", Confirmation("call_0"), worker)
    late = replace(worker, lease=Lease(world.clock.time - 1))
    with pytest.raises(WorkInProgressError):
        await world.tool(SOLO, run, 1, "call_0", late)
    view = await view_step(world.engine, "s", run, 1)
    assert view is not None
    stop = StopRow(run_id=run, stop="interrupt")
    stream = await world.stream(run)
    told = await call_tool(world.engine, SOLO, replace(view, stop=stop), "call_0", late, stream, StopWatch())
    again = await view_step(world.engine, "s", run, 1)
    assert again is not None and again.rows.calls[0] is not None
    assert (told, again.rows.calls[0].state) == ("skipped", "approved")
