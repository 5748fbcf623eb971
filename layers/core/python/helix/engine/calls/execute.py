"""Executes the calls of a step. A worker executes its own calls concurrently and leaves the rest to other workers.
Before that, it writes any call rows of a wide step that did not fit into the staging transaction
(docs/protocol.md#wide)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal

from helix.core.claim_plan import OpenRows
from helix.core.errors import WorkInProgressError
from helix.engine.calls.child import call_child
from helix.engine.calls.tool import Progress, call_tool, claimed_with_answer, first_claim, view_step
from helix.engine.claims.liveness import wait_for
from helix.engine.context import RunContext
from helix.engine.engine import Staged
from helix.engine.facts import CallDone, CallWaits
from helix.engine.history import session_key
from helix.engine.observers import show
from helix.engine.step_view import StepView
from helix.engine.stops import read_stop
from helix.engine.writing import are_written, commit, entry_put, held_by_run
from helix.ports.state_store import ABSENT, Check, Watch

CallKind = Literal["call_tool", "start_run"]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that another worker executes."""

    call_id: str
    """The id of the call, unique within its session."""
    kind: CallKind
    """The verb that executes it: `call_tool`, or `start_run` for a sub-agent."""


async def execute_calls(run: RunContext, staged: Staged) -> tuple[Call, ...]:
    """Execute the calls of the step that belong to this worker, and return those for other workers."""
    if not staged.calls:
        return ()
    view = await _fresh_view(run, staged)
    if view is None or view.session.open is None:
        return ()
    left = staged.calls
    if view.session.open.wide:
        view = await _claim_pages(run, view)
        left = show_results(run, view.rows, set(left))
    ours, others = _divided(run, view, left)
    if len(ours) == 1:
        await execute_call(run, view, ours[0])
    elif ours:
        # A TaskGroup would raise an ExceptionGroup, but the platform's retry rules match errors by class name.
        calls = (execute_call(run, view, call_id) for call_id in ours)
        for error in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error
    return others


async def _fresh_view(run: RunContext, staged: Staged) -> StepView | None:
    """Return the step as this worker has just written it, with the current stop, or read it from the store."""
    if staged.view is None:
        return await view_step(run.engine, run.session_id, run.run_id, staged.step)
    stop = run.watch.stop
    if run.engine.placement.reads_stop_before_calls:
        stop = await read_stop(run.engine.store, staged.view.session, run.run_id)
    return replace(staged.view, stop=stop)


async def _claim_pages(run: RunContext, view: StepView) -> StepView:
    """Write the first row of each call that lacks it, as staging does: resolved, asked or claimed. Return the view with
    the new rows. The rows are written in pages, each as large as a transaction allows. If a page is refused, the
    remaining calls are claimed one by one."""
    session, answer, rows = view.session, view.rows.answer, list(view.rows.calls)
    assert session.open is not None
    first_index, at_once = session.open.base + 1, run.engine.settings.calls_at_once
    running = Check(session_key(session.session_id), held_by_run(run.run_id))
    free = iter([place for place, row in enumerate(rows) if row is None])
    while view.stop is None and run.watch.stop is None:
        firsts = ((place, first_claim(run, answer.tool_calls[place], answer)) for place in free)
        page = list(islice(((place, first) for place, first in firsts if claimed_with_answer(run, first)), at_once))
        puts = [entry_put(session.session_id, session.lineage, first_index + n, row, ABSENT) for n, row in page]
        written = partial(are_written, run.engine, puts)
        if not puts or not await commit(run.engine, "claim_calls", [running, *puts], written):
            break
        for place, row in page:
            rows[place] = row
            if row.state == "asked":
                show(run, CallWaits(row, answer))
    return replace(view, rows=OpenRows(answer, rows))


def show_results(run: RunContext, rows: OpenRows, calls: Collection[str]) -> list[str]:
    """Record the results of `calls` on the stream, including those of other workers. This worker may fold the step and
    end the turn before the other worker's records reach the log. Return the calls that are neither done nor asked."""
    left: list[str] = []
    for request, row in zip(rows.answer.tool_calls, rows.calls, strict=True):
        if request.id not in calls:
            continue
        if row is not None and row.state == "done":
            show(run, CallDone(row, arguments=request.arguments if row.by == "plan" else None))
        elif row is None or row.state != "asked":
            left.append(request.id)
    return left


def _divided(run: RunContext, view: StepView, calls: Sequence[str]) -> tuple[list[str], tuple[Call, ...]]:
    placement = run.engine.placement
    names = {request.id: request.name for request in view.rows.answer.tool_calls}
    ours: list[str] = []
    others: list[Call] = []
    for call_id in calls:
        if call_id in view.rows.answer.children:
            is_ours = placement.executes_children
            call = Call(call_id, "start_run")
        else:
            is_ours = placement.executes_tool(run.agent, run.find_tool(names[call_id]))
            call = Call(call_id, "call_tool")
        if is_ours:
            ours.append(call_id)
        else:
            others.append(call)
    return ours, tuple(others)


async def execute_call(run: RunContext, view: StepView, call_id: str, token: str | None = None) -> Progress:
    """Execute one call until it is done, waits for a person, or is stopped. `token` is completed when the sub-agent's
    session stops running. A worker that executes whole runs waits while another worker holds the call."""
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
                if not run.engine.placement.executes_whole_runs:
                    raise
                if changes is None:  # watch first, then read again, so that no change in between is missed
                    changes = stack.enter_context(run.engine.store.watch("sessions", run.session_id))
                else:
                    await wait_for(run.engine, held, changes)
            current = await view_step(run.engine, run.session_id, run.run_id, view.rows.answer.step, call_id)
    return "over"
