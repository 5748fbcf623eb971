"""Sub-agents: one child session per call, and the one telling of its result (PROTOCOL 9).

Law: the child's ids were minted with the parent's answer, so a repeated start attaches to the same child; the parent's
call row is the telling, and it is put at most once.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from helix.core.agents import AnyAgent
from helix.core.chunks import SubAgentStartChunk, ToolStartChunk
from helix.core.claiming import lapsed
from helix.core.errors import AgentAlreadyRunningError, CannotResumeError, StaleStateError, WorkInProgressError
from helix.core.messages import ToolCallRequest
from helix.core.planning import child_message, result_content
from helix.core.row_keys import message_sort
from helix.core.rows import CallRow, ChildRef, Parent, Pending, RunRow, SessionRow
from helix.core.usage import Usage
from helix.engine.claims import Claimed, ClaimInput, Opening, claim
from helix.engine.delivery import Delivery, Lease
from helix.engine.engine import ChildWaits, Engine
from helix.engine.history import row_key, session_key
from helix.engine.run_stream import RunStream
from helix.engine.spanning import trace_below
from helix.engine.step_view import StepView
from helix.engine.writing import commit, entry_put, mine
from helix.ports.state_store import Check, Key, Operation, When


async def start_child(
    engine: Engine, agent: AnyAgent, view: StepView, request: ToolCallRequest, ref: ChildRef, delivery: Delivery
) -> Claimed | ChildWaits | SessionRow:
    """Attach to the child of this call, making or resuming it: a claimed run to execute, what it waits for, or its
    session where it has ended. Raises `WorkInProgressError` while another live worker runs it."""
    tool = agent.find_tool(request.name)
    assert tool is not None and tool.agent is not None
    child_agent = tool.agent
    # Nobody stays to watch the clock of a sub-agent that is executed by deliveries.
    deadline = engine.clock.now() + tool.timeout_s if engine.launcher is not None else None
    trace = trace_below(view.session)
    while True:
        child = await engine.history.session(ref.session_id)
        parent = view.session
        # No child of a run that is over: whoever ended it has looked for children already.
        wanted: list[Operation] = [Check(session_key(parent.session_id), mine(parent.run_id))]
        waits = Pending(call_id=request.id, tool_name=request.name, kind="child", child_session_id=ref.session_id)
        try:
            if child is None:
                opening = Opening(
                    user_id=parent.user_id,
                    tags=parent.tags,
                    metadata=parent.metadata,
                    parent=Parent(session_id=parent.session_id, run_id=parent.run_id, call_id=request.id),
                    ancestors=[*parent.ancestors, parent.agent_type],
                    stream_id=parent.stream_id,
                )
                message = child_message(tool, request.arguments)
                ask = ClaimInput(
                    "execute",
                    message,
                    run_id=ref.run_id,
                    opening=opening,
                    extra=wanted,
                    deadline=deadline,
                    trace=trace,
                )
                return await claim(engine, child_agent, ref.session_id, ask, delivery)
            match child.status:
                case "running":
                    now = engine.clock.now()
                    if not lapsed(child, now):
                        until = child.lease_expires or now + 1
                        raise WorkInProgressError(f"sub-agent session {child.session_id!r}", until)
                    ask = ClaimInput("takeover", extra=wanted, trace=trace)
                    return await claim(engine, child_agent, child.session_id, ask, delivery)
                case "paused" if await engine.history.unanswered(child):
                    return ChildWaits(waits)
                case "interrupted" | "paused":  # a pause that waits for nobody: a budget had no room
                    ask = ClaimInput("continue", extra=wanted, deadline=deadline, trace=trace)
                    return await claim(engine, child_agent, child.session_id, ask, delivery)
                case _:
                    return child
        except (AgentAlreadyRunningError, CannotResumeError, StaleStateError):  # it moved since it was read
            above = await engine.history.existing(parent.session_id)
            if above.status != "running" or above.run_id != parent.run_id:
                return ChildWaits(waits)


def refusal(engine: Engine, session: SessionRow, child_type: str) -> str | None:
    """Why this child must not be started: too deep, or an agent that is its own ancestor."""
    line = [*session.ancestors, session.agent_type]
    if child_type in line:
        return f"agent {child_type!r} is already at work above this call: {' > '.join(line)}"
    if len(line) > engine.settings.max_depth:
        return f"sub-agents are {len(line)} deep already; the limit is {engine.settings.max_depth}"
    return None


def announce_child(stream: RunStream, row: CallRow, request: ToolCallRequest, ref: ChildRef) -> None:
    """A sub-agent's call is a tool call too. Told again when a later run of the parent goes on with the same child."""
    start = ToolStartChunk(tool_call_id=row.call_id, tool_name=row.tool_name, arguments=request.arguments)
    child = SubAgentStartChunk(
        parent_tool_call_id=row.call_id, sub_agent_id=ref.session_id, sub_agent_type=ref.agent_type
    )
    stream.put("call", [start, child], step=row.step, attempt=row.claim, call_id=row.call_id)


async def tell(engine: Engine, child: SessionRow, run: RunRow, delivery: Delivery) -> Claimed | None:
    """Put the ended child's outcome on its parent's call row, if it has none. A parent that is paused on it is claimed in
    the same transaction; the claim is returned, to be started."""
    if child.parent is None or run.status not in ("completed", "failed") or child.run_id != run.run_id:
        return None  # the last: a run that was taken over is failed, but its child goes on under the next run
    while True:
        parent = await engine.history.session(child.parent.session_id)
        place = None if parent is None else await call_place(engine, parent, child.parent.call_id)
        if parent is None or place is None:
            return None
        key, row = place
        if row is None or row.state == "done" or row.child is None or row.child.session_id != child.session_id:
            return None
        done = outcome_row(row, run, child.usage, engine.clock.now())
        owned = When(equal={"state": row.state, "owner": row.owner})
        put = entry_put(parent.session_id, parent.lineage, int(key.sort.rpartition("#")[2]), done, owned)
        if parent.status == "paused":
            ask = ClaimInput("with_confirmation", extra=[put], version=parent.version)
            try:
                return await claim(
                    engine, engine.agents(parent.agent_type), parent.session_id, ask, lease_for(engine, delivery)
                )
            except (AgentAlreadyRunningError, StaleStateError):
                continue
        seen = When(equal={"version": parent.version, "status": parent.status})
        check = Check(session_key(parent.session_id), seen)
        if await commit(engine, "tell_parent", [check, put], partial(is_done, engine, key)):
            return None


def lease_for(engine: Engine, delivery: Delivery) -> Delivery:
    """The same worker with a lease of its own for another session."""
    if delivery.lease is None:
        return delivery
    return replace(delivery, lease=Lease(engine.clock.now() + engine.settings.lease_s))


async def call_place(engine: Engine, session: SessionRow, call_id: str) -> tuple[Key, CallRow | None] | None:
    """Where the call's row stands, if its step is the session's open step."""
    rows = await engine.history.open_rows(session)
    if rows is None or session.open is None:
        return None
    for index, (request, row) in enumerate(zip(rows.answer.tool_calls, rows.calls, strict=True)):
        if request.id == call_id:
            sort = message_sort(session.lineage, session.open.base + 1 + index)
            return row_key(session.session_id, sort), row
    return None


async def is_done(engine: Engine, key: Key) -> bool:
    (value,) = await engine.store.get([key])
    return value is not None and value.get("state") == "done"


def outcome_row(row: CallRow, run: RunRow, usage: Usage, now: float) -> CallRow:
    """The parent's call row with the child's outcome, and what all its runs used. A failed or aborted child is a failed
    result."""
    success = run.status == "completed"
    message = run.error.message if run.error is not None else "the sub-agent failed"
    content = result_content(run.output if success else message, success)
    changes = {
        "state": "done",
        "content": content,
        "success": success,
        "by": "child",
        "ended_at": now,
        "usage": usage,
    }
    return row.model_copy(update=changes)
