"""Sub-agents: one child session per call, and one report of its result (docs/protocol.md#children).

Law: the child's ids are created with the parent's answer, so a repeated start attaches to the same child. The parent's
call row holds the report, which is written at most once.

A parent's execution uses a task token to wait for a child. The parent writes the token and then reads the child's
session. When the child ends, it writes its session and then reads the tokens, so one of the two always sees the other.
A wake-up may be repeated, and may find no waiting execution.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from functools import partial

from helix.core.agents import AnyAgent
from helix.core.call_results import result_content
from helix.core.claim_plan import lapsed
from helix.core.delivery import Delivery
from helix.core.entries import CallRow, ChildRef
from helix.core.errors import AgentAlreadyRunningError, AgentNotFoundError, CannotResumeError, StaleStateError
from helix.core.json import JsonValue
from helix.core.messages import AssistantMessage, ToolCallRequest
from helix.core.planning import child_message
from helix.core.row_keys import token_sort
from helix.core.rows import Pending
from helix.core.run_row import RunRow
from helix.core.session_row import Parent, SessionRow
from helix.core.spans import Trace
from helix.core.usage import Usage
from helix.engine.claims.claim import Claimed, claim
from helix.engine.context import RunContext
from helix.engine.engine import ChildWaits, Engine
from helix.engine.history import DELETING, call_key, row_key, session_key
from helix.engine.step_view import StepView
from helix.engine.writing import are_written, beside, call_put, commit, held_by_run, no_outcome_check
from helix.ports.state_store import Check, Delete, Key, Operation, Put, When
from helix.services.claim_input import ClaimInput, Opening


async def attach(
    run: RunContext, view: StepView, request: ToolCallRequest, ref: ChildRef
) -> Claimed | ChildWaits | SessionRow:
    """Create, resume or attach to the child of this call. Return a claimed run to execute, the call that waits for the
    child, or the child's session if it has ended or another worker executes it."""
    engine, parent = run.engine, view.session
    tool = run.find_tool(request.name)
    assert tool is not None and tool.agent is not None
    # If the sub-agent is executed elsewhere, the parent has no worker left to enforce the tool's timeout, so the
    # sub-agent's run gets a deadline.
    deadline = None if engine.placement.executes_children else run.now() + tool.timeout_s
    trace = Trace(parent.trace.root if parent.trace else parent.run_id, parent.run_id)
    # The parent's run must still be running, because its end looks for children only once.
    guard: list[Operation] = [Check(session_key(parent.session_id), held_by_run(parent.run_id))]
    waits = Pending(call_id=request.id, tool_name=request.name, kind="child", child_session_id=ref.session_id)
    while True:
        child = await engine.history.session(ref.session_id)
        ask = ClaimInput("continue", extra=guard, deadline=deadline, trace=trace)
        match child.status if child is not None else None:
            case None:
                message, opening = child_message(tool, request.arguments), _opening(parent, request.id)
                ask = replace(ask, mode="execute", message=message, run_id=ref.run_id, opening=opening)
            case "running" if child is not None and lapsed(child, run.now()):
                ask = replace(ask, mode="takeover")
            case "paused" if child is not None and await engine.history.unanswered(child):
                return ChildWaits(waits)
            case "interrupted" | "paused":  # paused by an exhausted budget, not waiting for a person
                pass
            case _:
                assert child is not None
                return child
        try:
            return await claim(engine, tool.agent, ref.session_id, ask, run.delivery)
        except (AgentAlreadyRunningError, CannotResumeError, StaleStateError):  # the session has changed since
            above = await engine.history.existing(parent.session_id)
            if above.status != "running" or above.run_id != parent.run_id:
                return ChildWaits(waits)


def _opening(parent: SessionRow, call_id: str) -> Opening:
    return Opening(
        user_id=parent.user_id,
        tags=parent.tags,
        metadata=parent.metadata,
        parent=Parent(session_id=parent.session_id, run_id=parent.run_id, call_id=call_id),
        ancestors=[*parent.ancestors, parent.agent_type],
        stream_id=parent.stream_id,
    )


def refusal(engine: Engine, session: SessionRow, child_type: str) -> str | None:
    """Return the reason why this child must not be started (too deep, or an agent that is its own ancestor), or
    None."""
    line = [*session.ancestors, session.agent_type]
    if child_type in line:
        return f"agent {child_type!r} is already at work above this call: {' > '.join(line)}"
    if len(line) > engine.settings.max_depth:
        return f"sub-agents are {len(line)} deep already; the limit is {engine.settings.max_depth}"
    return None


async def report_to_parent(
    engine: Engine, agent: AnyAgent, child: SessionRow, run: RunRow, delivery: Delivery
) -> Claimed | None:
    """Write the ended child's outcome to its parent's call row, unless the row already has a result. If the parent is
    paused on this call, claim it in the same transaction. Return the claim; the caller must start its run. `agent`: the
    child's agent."""
    if child.parent is None or run.status not in ("completed", "failed") or child.run_id != run.run_id:
        return None  # a run that was taken over has failed, but its session continues under the next run
    while True:
        parent = await engine.history.session(child.parent.session_id)
        if parent is None or parent.status == DELETING:
            return None
        place = await call_place(engine, parent, child.parent.call_id)
        if place is None:
            return None
        key, row = place
        if row is None or row.state == "done" or row.child is None or row.child.session_id != child.session_id:
            return None
        output = run.output
        with suppress(AgentNotFoundError):  # another agent may have ended the child's run
            agent = engine.find_agent(agent, run.active_agent)
        if run.status == "completed" and output is None and agent.output_schema is None:
            output = await _last_text(engine, child)
        done = outcome_row(row, run, output, child.usage, engine.clock.now())
        owned = When(equal={"state": row.state, "owner": row.owner})
        put = call_put(key, done, owned)
        if parent.status == "paused":
            ask = ClaimInput("with_confirmation", extra=[put], version=parent.version)
            try:
                return await claim(engine, engine.agents(parent.agent_type), parent.session_id, ask, delivery)
            except (AgentAlreadyRunningError, StaleStateError):
                continue
        if await commit(engine, "report_to_parent", [beside(parent), put], partial(is_done, engine, key)):
            return None


async def call_place(engine: Engine, session: SessionRow, call_id: str) -> tuple[Key, CallRow | None] | None:
    """Return the key and the row of the call, or None if the session's open step does not contain it."""
    rows = await engine.history.open_call(session, call_id)
    if rows is None:
        return None
    for index, (request, row) in enumerate(zip(rows.answer.tool_calls, rows.calls, strict=True)):
        if request.id == call_id:
            return call_key(session, index), row
    return None


async def is_done(engine: Engine, key: Key) -> bool:
    (value,) = await engine.store.get([key])
    return value is not None and value.get("state") == "done"


async def _last_text(engine: Engine, child: SessionRow) -> str:
    """Return the text of the last answer, or an empty string if that answer has no text."""
    messages = await engine.history.messages(child)
    answers = (message for message in reversed(messages) if isinstance(message, AssistantMessage))
    return next((answer.content or "" for answer in answers), "")


def outcome_row(row: CallRow, run: RunRow, output: JsonValue, usage: Usage, now: float) -> CallRow:
    """Return the parent's call row with the child's outcome and the usage of all its runs. A child that failed or was
    aborted yields a failed result."""
    success = run.status == "completed"
    message = run.error.message if run.error is not None else "the sub-agent failed"
    content = result_content(output if success else message, success)
    return row.ended(content, success, "child", now, usage=usage, plain=success and isinstance(output, str))


async def add_token(engine: Engine, session_id: str, token: str) -> bool:
    """Store the task token of an execution that waits until this session no longer runs. False if the session was
    deleted."""
    digest = hashlib.sha256(token.encode()).hexdigest()[:32]  # a token may be longer than the maximum key length
    put = Put(row_key(session_id, token_sort(digest)), {"token": token})
    while True:
        session = await engine.history.session(session_id)
        if session is None or session.status == DELETING:
            return False
        seen = Check(session_key(session_id), When(equal={"version": session.version}))
        if await commit(engine, "add_token", [seen, put], partial(are_written, engine, [put])):
            return True


async def wake_waiting(engine: Engine, session_id: str) -> None:
    """Wake every execution that waits for the session."""
    if engine.launcher is None:
        return
    for row in await engine.store.query("sessions", session_id, start="t#", end="t$"):
        await engine.launcher.wake(row.value["token"])
        await commit(engine, "drop_token", [Delete(row.key)], no_outcome_check)
