"""The calls of a step: a worker executes its own all at once and leaves the others to other workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from helix.core.errors import WorkInProgressError
from helix.engine.calls.child import call_child
from helix.engine.calls.tool import Progress, call_tool, view_step
from helix.engine.claims.liveness import wait_for
from helix.engine.context import RunContext, read_stop
from helix.engine.engine import Staged
from helix.engine.history import StepView
from helix.ports.state_store import Watch

CallKind = Literal["call_tool", "start_run"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that another worker executes, and the verb that takes it on."""

    call_id: str
    kind: CallKind


async def execute_calls(run: RunContext, staged: Staged) -> tuple[Call, ...]:
    """Execute the step's calls that are this worker's; return the others'."""
    if not staged.calls:
        return ()
    view = await _fresh_view(run, staged)
    if view is None:
        return ()
    ours, others = _divided(run, view, staged.calls)
    if len(ours) == 1:
        await execute_call(run, view, ours[0])
    elif ours:
        # Not a TaskGroup: the platform's retries know errors by the names of their classes, and a group has another one.
        calls = (execute_call(run, view, call_id) for call_id in ours)
        for error in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error
    return others


async def _fresh_view(run: RunContext, staged: Staged) -> StepView | None:
    """The step as this worker just wrote it, with the stop of now; else as it is stored."""
    if staged.view is None:
        return await view_step(run.engine, run.session_id, run.run_id, staged.step)
    stop = await read_stop(run.engine, staged.view.session, run.run_id) if run.engine.in_process else run.watch.stop
    return replace(staged.view, stop=stop)


def _divided(run: RunContext, view: StepView, calls: Sequence[str]) -> tuple[list[str], tuple[Call, ...]]:
    names = {request.id: request.name for request in view.rows.answer.tool_calls}
    ours: list[str] = []
    others: list[Call] = []
    for call_id in calls:
        child = call_id in view.rows.answer.children
        if run.engine.in_process or (
            not child and run.engine.executes_tool(run.agent, run.agent.find_tool(names[call_id]))
        ):
            ours.append(call_id)
        else:
            others.append(Call(call_id, "start_run" if child else "call_tool"))
    return ours, tuple(others)


async def execute_call(run: RunContext, view: StepView, call_id: str, token: str | None = None) -> Progress:
    """One call, until it is done, asked for, or stopped. `token` is answered when its sub-agent's session stops running.
    In process, another worker that holds the call is waited for."""
    current: StepView | None = view
    with contextlib.ExitStack() as stack:
        changes: Watch | None = None
        while current is not None:
            try:
                if call_id in current.rows.answer.children:
                    progress = await call_child(run, current, call_id, token)
                else:
                    progress = await call_tool(run, current, call_id)
                if progress != "again":
                    return progress
            except WorkInProgressError as held:
                if not run.engine.in_process:
                    raise
                if changes is None:  # watch first, then look once more: what is done in between is not missed
                    changes = stack.enter_context(run.engine.store.watch("sessions", run.session_id))
                else:
                    await wait_for(run.engine, held, changes)
            current = await view_step(run.engine, run.session_id, run.run_id, view.rows.answer.step)
    return "over"
