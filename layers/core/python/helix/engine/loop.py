"""The in-process loop: the same verbs that Lambda runs, one after the other, under a lease.

Law: the loop keeps nothing that the rows do not have; killing it at any line loses nothing that was recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from helix.core.agents import AnyAgent
from helix.core.errors import ConditionFailedError, StoreError, WorkInProgressError
from helix.core.messages import ToolCallRequest
from helix.core.rows import ChildRef, SessionRow
from helix.engine.announcing import announce_claim, announce_result
from helix.engine.call_model import call_model
from helix.engine.call_tool import call_tool, view_step
from helix.engine.children import announce_child, lease_for, refusal, start_child
from helix.engine.claims import Claimed
from helix.engine.delivery import Delivery
from helix.engine.ends import abort, finish_run, sweep_session
from helix.engine.engine import ChildWaits, Engine, Outcome, Over, Tools, logger
from helix.engine.history import session_key
from helix.engine.hooking import call_hook, tell_history
from helix.engine.run_hooks import start_hook
from helix.engine.run_stream import RunStream
from helix.engine.settling import refuse_child
from helix.engine.step_view import StepView
from helix.engine.stops import StopWatch, read_stop, watch_stops
from helix.ports.state_store import Update, Watch, When


async def run_loop(engine: Engine, agent: AnyAgent, claimed: Claimed, delivery: Delivery) -> list[Claimed]:
    """Execute the claimed run to its end. Returns the runs that its end claimed (a parent that was waiting)."""
    session, run = claimed.session, claimed.run
    stream = RunStream(engine.streams, engine.clock, session, run.run_id, run.turn)
    announce_claim(stream, claimed)
    await stream.flush()
    if claimed.ended is not None:  # and those before it, whose finisher may have died too
        await sweep_session(engine, agent, session.session_id, delivery)
    async with _heartbeat(engine, session, delivery), watch_stops(engine, session, run.run_id) as watch:
        await start_hook(engine, agent, session, run, stream)
        await tell_history(engine, agent, session, claimed.plan.added, claimed.patches, stream)
        step = run.first_step
        while True:
            outcome = await _model(engine, agent, session, step, delivery, stream, watch)
            if isinstance(outcome, Over):
                break
            if outcome.calls:
                await _tools(engine, agent, session, outcome, delivery, stream, watch)
            step = outcome.step + 1
        return await finish_run(engine, agent, session.session_id, run.run_id, delivery, stream)


async def _model(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    step: int,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
) -> Outcome:
    while True:
        try:
            return await call_model(engine, agent, session.session_id, session.run_id, step, delivery, stream, watch)
        except WorkInProgressError as held:
            await _wait_for(engine, held)


async def _tools(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    outcome: Tools,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
) -> None:
    """All calls of the step at once; the first failure of the store ends them all."""
    view = outcome.view
    if view is None:
        view = await view_step(engine, session.session_id, session.run_id, outcome.step)
    elif (stop := await read_stop(engine, view.session, session.run_id)) is not None:
        view = replace(view, stop=stop)
    if view is None:
        return
    if len(outcome.calls) == 1:
        await _call(engine, agent, view, outcome.calls[0], delivery, stream, watch)
        return
    try:
        async with asyncio.TaskGroup() as group:
            for call_id in outcome.calls:
                group.create_task(_call(engine, agent, view, call_id, delivery, stream, watch))
    except BaseExceptionGroup as error:
        raise error.exceptions[0] from None


async def _call(
    engine: Engine,
    agent: AnyAgent,
    view: StepView,
    call_id: str,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
) -> None:
    """One call, delivered until it is done, asked for, or stopped."""
    current: StepView | None = view
    session = view.session
    with contextlib.ExitStack() as stack:
        changes: Watch | None = None
        while current is not None:
            request = current.rows.answer.tool_calls[current.place(call_id)]
            child = current.rows.answer.children.get(call_id)
            try:
                if child is not None:
                    told = await _child(engine, agent, current, request, child, delivery, stream, watch)
                else:
                    told = await call_tool(engine, agent, current, call_id, delivery, stream, watch)
            except WorkInProgressError as held:
                told = "again"
                if changes is None:  # watch first, then look once more: what is done in between is not missed
                    changes = stack.enter_context(engine.store.watch("sessions", session.session_id))
                else:
                    await _wait_for(engine, held, changes)
            if told != "again":
                return
            current = await view_step(engine, session.session_id, session.run_id, current.rows.answer.step)


async def _child(
    engine: Engine,
    agent: AnyAgent,
    view: StepView,
    request: ToolCallRequest,
    ref: ChildRef,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
) -> str:
    """A sub-agent's call: claim the row for the child, run the child here, and let its end tell the result. A child that
    another worker runs is waited for."""
    row = view.rows.calls[view.place(request.id)]
    if row is None or row.state not in ("claimed", "done"):
        return await call_tool(engine, agent, view, request.id, delivery, stream, watch)
    payload = {
        "step": row.step,
        "tool_call_id": row.call_id,
        "agent_type": ref.agent_type,
        "sub_agent_id": ref.session_id,
    }
    if row.state == "done":
        announce_result(stream, row)
        payload["status"] = "completed" if row.success else "failed"
        await call_hook(engine, agent, view.session, "after_sub_agent", payload, stream, call_id=row.call_id)
        return "done"
    if view.stop is not None or watch.stop is not None:
        return "skipped"
    reason = refusal(engine, view.session, ref.agent_type)
    if reason is not None:
        return await refuse_child(engine, view, row, reason, stream)
    mine = lease_for(engine, delivery)
    started = await start_child(engine, agent, view, request, ref, mine)
    tool, child_agent = agent.find_tool(request.name), agent.find_agent(ref.agent_type)
    assert tool is not None and child_agent is not None
    if isinstance(started, Claimed):
        await call_hook(engine, agent, view.session, "before_sub_agent", payload, stream, call_id=row.call_id)
        announce_child(stream, row, request, ref)
        await stream.flush()
        async with _limit(engine, child_agent, ref.session_id, tool.timeout_s, mine):
            with contextlib.suppress(LostLeaseError):  # the child's, not ours: its row says who has it now
                await run_loop(engine, child_agent, started, mine)
    elif isinstance(started, ChildWaits):
        return "asked"
    else:
        await finish_run(engine, child_agent, ref.session_id, started.run_id, mine)
    ended = await engine.history.existing(ref.session_id)
    if ended.status == "running":
        raise WorkInProgressError(f"sub-agent session {ref.session_id!r}", ended.lease_expires)
    again = await view_step(engine, view.session.session_id, view.session.run_id, row.step)
    done = again.rows.calls[again.place(request.id)] if again is not None else None
    if done is not None and done.state == "done":
        announce_result(stream, done)
    payload["status"] = ended.status
    await call_hook(engine, agent, view.session, "after_sub_agent", payload, stream, call_id=row.call_id)
    return "done"


@asynccontextmanager
async def _limit(
    engine: Engine, child_agent: AnyAgent, session_id: str, seconds: float, delivery: Delivery
) -> AsyncIterator[None]:
    """Abort the sub-agent once it has run for longer: its call is then a failed result that the parent's model sees."""

    async def watchdog() -> None:
        await engine.clock.sleep(seconds)
        await abort(engine, child_agent, session_id, f"the sub-agent took longer than {seconds:g} s", delivery)

    task = asyncio.get_running_loop().create_task(watchdog())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _wait_for(engine: Engine, held: WorkInProgressError, changes: Watch | None = None) -> None:
    """Until the holder's deadline or a change, looking again every second: it may be done sooner."""
    left = max(0.05, min(1.0, held.until - engine.clock.now() + 0.01))
    if changes is None:
        await engine.clock.sleep(left)
        return
    waits = {asyncio.ensure_future(engine.clock.sleep(left)), asyncio.ensure_future(changes.changed(left))}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)


@asynccontextmanager
async def _heartbeat(engine: Engine, session: SessionRow, delivery: Delivery) -> AsyncIterator[None]:
    """Keep the lease while the block runs. A refused heartbeat ends the worker: the session is another's now."""
    lease = delivery.lease
    if lease is None:
        yield
        return
    main = asyncio.current_task()
    assert main is not None
    lost = False

    async def beat() -> None:
        nonlocal lost
        while True:
            await asyncio.sleep(engine.settings.lease_s / 3)
            expires = engine.clock.now() + engine.settings.lease_s
            when = When(equal={"run_id": session.run_id, "status": "running", "lease_owner": delivery.owner})
            try:
                update = Update(session_key(session.session_id), set={"lease_expires": expires}, when=when)
                await engine.store.transact("heartbeat", [update])
                lease.expires = expires
            except ConditionFailedError:
                now = await engine.history.session(session.session_id)
                if now is None or now.run_id != session.run_id or now.aborted:
                    logger.warning("run %s is no longer this worker's; stopping", session.run_id)
                    lost = True
                    main.cancel()
                return
            except StoreError:
                logger.warning("heartbeat of run %s failed; trying again", session.run_id, exc_info=True)

    task = asyncio.get_running_loop().create_task(beat())
    try:
        yield
    except (asyncio.CancelledError, Exception) as error:
        if lost and isinstance(error, asyncio.CancelledError):
            main.uncancel()
            raise LostLeaseError(session.run_id) from None
        with contextlib.suppress(Exception):
            await asyncio.shield(_let_go(engine, session, delivery))
        raise
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class LostLeaseError(StoreError):
    """The worker's session was taken over, deleted or aborted while it worked."""

    code = "lost_lease"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} is no longer this worker's")


async def _let_go(engine: Engine, session: SessionRow, delivery: Delivery) -> None:
    """A worker that stops gives its lease back at once, so that nobody waits for it to lapse."""
    when = When(equal={"run_id": session.run_id, "status": "running", "lease_owner": delivery.owner})
    update = Update(session_key(session.session_id), set={"lease_expires": engine.clock.now() - 1}, when=when)
    with contextlib.suppress(ConditionFailedError):
        await engine.store.transact("let_go", [update])
