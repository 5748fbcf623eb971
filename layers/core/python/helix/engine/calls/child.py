"""A sub-agent's call. A single code path starts the child, attaches to it, waits for it and reports its result,
wherever the child is executed (docs/protocol.md#children).

Law: the child's ids are created with the parent's answer, so every delivery of the call attaches to the same child.
When the child ends, its result is written to the parent's call row.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from helix.core.agents import AnyAgent
from helix.core.call_results import result_content
from helix.core.entries import CallRow, ChildRef
from helix.core.errors import WorkInProgressError
from helix.core.messages import ToolCallRequest
from helix.core.session_row import SessionRow
from helix.engine.calls.children import add_token, attach, is_done, refusal, wake_waiting
from helix.engine.calls.tool import Progress, call_tool, executed, view_step
from helix.engine.claims.claim import Claimed
from helix.engine.claims.liveness import LostClaimError
from helix.engine.context import RunContext
from helix.engine.engine import ChildWaits
from helix.engine.facts import CallDone, ChildAttached, ChildBegan, ChildEnded
from helix.engine.observers import record, show
from helix.engine.runs.ends import abort, finish_run
from helix.engine.runs.intake import begin, begin_all, begin_attached
from helix.engine.step_view import StepView
from helix.engine.writing import call_put, commit
from helix.ports.state_store import When


@dataclass(frozen=True, slots=True)
class ChildCall:
    """A claimed call, and the sub-agent that produces its result."""

    row: CallRow
    """The parent's call row, claimed for the child."""
    request: ToolCallRequest
    """The call, with the arguments that are passed to the child."""
    ref: ChildRef
    """The ids of the child's session and first run."""
    agent: AnyAgent
    """The sub-agent."""


async def call_child(run: RunContext, view: StepView, call_id: str, token: str | None = None) -> Progress:
    """Advance a sub-agent's call by one delivery: start or attach to the child, then execute it here or wait for it.
    `token` is the task token for a child that is executed elsewhere. It is completed when the child's session stops
    running."""
    request = view.rows.answer.tool_calls[view.place(call_id)]
    row, ref = view.rows.calls[view.place(call_id)], view.rows.answer.children[call_id]
    if row is None or row.state not in ("claimed", "done"):
        return await call_tool(run, view, call_id)
    if row.state == "done":
        if run.engine.placement.executes_children:
            show(run, CallDone(row))
            await record(run, ChildEnded(row, "completed" if row.success else "failed"))
        return "done"
    if view.stop is not None or run.watch.stop is not None:
        return "skipped"
    reason = refusal(run.engine, view.session, ref.agent_type)
    if reason is not None:
        return await _refuse(run, view, row, reason)
    request = executed(request, row)
    child = await attach(run, view, request, ref)
    call = ChildCall(row, request, ref, run.agent.find_agent(ref.agent_type) or run.engine.agents(ref.agent_type))
    if run.engine.placement.executes_children:
        return await _execute_here(run, call, child)
    return await _execute_elsewhere(run, call, child, token or "")


async def _begin(run: RunContext, call: ChildCall, *, resumed: bool = False) -> None:
    if not resumed:
        await record(run, ChildBegan(call.row, call.ref))
    show(run, ChildAttached(call.row, call.request, call.ref))
    await run.stream.flush()


async def _execute_here(run: RunContext, call: ChildCall, child: Claimed | ChildWaits | SessionRow) -> Progress:
    """Execute the child in this process, and report how it ended."""
    from helix.engine.verbs import execute_run  # imported here to avoid a cycle: a run's calls can be runs themselves

    engine, session_id = run.engine, call.ref.session_id
    if isinstance(child, ChildWaits):
        return "asked"
    if isinstance(child, Claimed):
        await _begin(run, call)
        async with _limit(run, call):
            with contextlib.suppress(LostClaimError):  # the child lost its claim, and its row names its new worker
                await execute_run(engine, call.agent, child, run.delivery)
    elif child.status == "running":
        raise WorkInProgressError(f"sub-agent session {session_id!r}", child.lease_expires or run.now() + 1)
    else:
        await finish_run(engine, call.agent, session_id, child.run_id, run.delivery)
    ended = await engine.history.existing(session_id)
    if ended.status == "running":
        raise WorkInProgressError(f"sub-agent session {session_id!r}", ended.lease_expires)
    view = await view_step(engine, run.session_id, run.run_id, call.row.step, call.row.call_id)
    done = view.rows.calls[view.place(call.row.call_id)] if view is not None else None
    if done is not None and done.state == "done":
        show(run, CallDone(done))
    await record(run, ChildEnded(call.row, ended.status))
    return "done"


async def _execute_elsewhere(
    run: RunContext, call: ChildCall, child: Claimed | ChildWaits | SessionRow, token: str
) -> Progress:
    """Have another worker execute the child. Returns `waits` if the token is stored until the child ends. Any other
    result means that there is nothing to wait for."""
    engine, session_id = run.engine, call.ref.session_id
    if isinstance(child, SessionRow) and child.status == "running" and child.lease_owner is not None:
        # The child is executed by a process that does not complete task tokens.
        raise WorkInProgressError(f"sub-agent session {session_id!r}", child.lease_expires)
    if not await add_token(engine, session_id, token):
        return "over"
    if isinstance(child, Claimed):
        await _begin(run, call)
        await begin(engine, call.agent, child, run.delivery, attached=True)
        return "waits"
    session = await engine.history.existing(session_id)
    last = await engine.history.run(session_id, session.run_id)
    if session.status == "running":
        await _begin(run, call, resumed=True)
        await begin_attached(engine, call.agent, session, last)
        return "waits"
    parents = await finish_run(engine, call.agent, session_id, last.run_id, run.delivery)
    await begin_all(engine, parents, run.delivery)
    await wake_waiting(engine, session_id)
    return "done"


async def _refuse(run: RunContext, view: StepView, row: CallRow, reason: str) -> Progress:
    """Record a failed result for a child that must not be started. The parent's model sees the result."""
    done = row.ended(result_content(reason, False), False, "plan", run.now())
    key = view.key(row.call_id)
    put = call_put(key, done, When(equal={"state": "claimed", "owner": row.owner}))
    if not await commit(run.engine, "call_result", [put], lambda: is_done(run.engine, key)):
        return "again"
    show(run, CallDone(done))
    return "done"


@asynccontextmanager
async def _limit(run: RunContext, call: ChildCall) -> AsyncIterator[None]:
    """Abort the sub-agent if it runs for longer than the tool allows. Its call then gets a failed result, which the
    parent's model sees."""

    tool = run.find_tool(call.request.name)
    assert tool is not None

    async def watchdog() -> None:
        await run.engine.clock.sleep(tool.timeout_s)
        reason = f"the sub-agent took longer than {tool.timeout_s:g} s"
        await abort(run.engine, call.agent, call.ref.session_id, reason, run.delivery)

    task = asyncio.get_running_loop().create_task(watchdog())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
