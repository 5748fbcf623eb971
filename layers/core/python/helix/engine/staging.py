"""Staging: the model's answer becomes durable, before any of its tools runs (PROTOCOL 5, points 8 and 9).

Law: one transaction on AT(v). With calls to execute, the answer is staged beyond the count and its step is open;
without, message, status, output and checkpoint are written at once.
"""

from __future__ import annotations

from helix.core.agents import AnyAgent
from helix.core.chunks import ErrorChunk, ToolApprovalRequestChunk
from helix.core.claiming import OpenRows
from helix.core.folding import Next, decide_next, missing
from helix.core.planning import StepProcessingPlan, parsed_content, plan_step_processing
from helix.core.row_keys import make_run_id, message_sort
from helix.core.rows import AnyEntry, AssistantRow, CallRow, ChildRef, ErrorInfo, OpenStep, SessionRow
from helix.core.steps import AnyStepResult
from helix.core.usage_parts import with_answer
from helix.engine.announcing import announce_commit, announce_fold
from helix.engine.buying import Answer
from helix.engine.claiming_calls import first_claim
from helix.engine.delivery import Delivery
from helix.engine.engine import Engine, Outcome, Over, Tools
from helix.engine.history import row_key
from helix.engine.hooking import tell_history
from helix.engine.money import settle
from helix.engine.run_stream import RunStream
from helix.engine.step_view import StepView
from helix.engine.usage_rows import failed_put, note_lost
from helix.engine.writing import advance, at, checkpoint, commit, end, entry_put, session_put
from helix.ports.state_store import Operation

RIDING_CLAIMS = 64


async def stage(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    answer: Answer,
    delivery: Delivery,
    stream: RunStream,
) -> Outcome | None:
    """Write the answer. None: refused; what it cost is recorded for the run's end, and the rows say how to go on."""
    result = answer.result
    assert result is not None
    schema = None if agent.function is not None else agent.output_schema
    used = await engine.history.call_ids(session)
    plan = plan_step_processing(result, output_schema=schema, tools=agent.find_tool, used_call_ids=used)
    if plan.assistant_message_plan is None:
        assert plan.status_update is not None
        return await _fail(engine, agent, session, plan.status_update.error, result)
    row = _answer_row(engine, agent, session, plan, result)
    _announce_refusals(stream, plan, row)
    if row.tool_calls and not plan.is_terminal:
        return await _open(engine, agent, session, plan, row, delivery, stream)
    return await _commit(engine, agent, session, plan, row, delivery, stream)


def _answer_row(
    engine: Engine, agent: AnyAgent, session: SessionRow, plan: StepProcessingPlan, result: AnyStepResult
) -> AssistantRow:
    message, claim = plan.assistant_message_plan, session.claim
    assert message is not None and claim is not None
    children = {}
    for call in plan.pending_sub_agent_calls:  # minted here, so that no delivery can start a second child
        ref = ChildRef(
            session_id=engine.ids.new("ses"), run_id=make_run_id(1, engine.ids.new("run")), agent_type=call.agent_type
        )
        children[call.id] = ref
    return AssistantRow(
        run_id=session.run_id,
        step=claim.step,
        attempt=claim.attempt,
        attempt_id=claim.attempt_id,
        content=message.content,
        tool_calls=message.tool_calls,
        thinking=message.thinking,
        children=children,
        finish={"output": plan.finish.output} if plan.finish is not None else None,
        stop_reason=result.stop_reason,
        model=result.model,
        cached=result.cached,
        usage=result.usage,
        created_at=engine.clock.now(),
    )


def _settled_rows(session: SessionRow, plan: StepProcessingPlan, row: AssistantRow, now: float) -> dict[str, CallRow]:
    return {
        request.id: CallRow(
            call_id=request.id,
            tool_name=request.name,
            step=row.step,
            state="done",
            run_id=session.run_id,
            content=plan.settled[request.id].content,
            success=plan.settled[request.id].success,
            by="plan",
            ended_at=now,
        )
        for request in row.tool_calls
        if request.id in plan.settled
    }


async def _open(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    plan: StepProcessingPlan,
    row: AssistantRow,
    delivery: Delivery,
    stream: RunStream,
) -> Outcome | None:
    """With calls to execute: the step stays open until they are done."""
    now = engine.clock.now()
    base = session.count
    new = advance(
        session,
        now,
        open=OpenStep(step=row.step, attempt=row.attempt, run_id=row.run_id, base=base, calls=len(row.tool_calls)),
        last=(row.step, row.attempt),
        run_steps=session.run_steps + 1,
        misses=session.misses + (1 if plan.missed else 0),
    )
    settle(engine, new, row.usage)
    new.run_parts = with_answer(new.run_parts, agent, row.model, row.usage)
    written = _settled_rows(session, plan, row, now)
    if delivery.leased:  # the worker that stages also runs the tools: its claims ride along
        new.lease_owner, new.lease_expires = delivery.owner, now + engine.settings.lease_s
        for request in row.tool_calls[:RIDING_CLAIMS]:
            if request.id not in written:
                written[request.id] = first_claim(
                    agent, request, row, session.run_id, delivery, now, engine.settings.margin_s
                )
    ops: list[Operation] = [session_put(new, at(session)), entry_put(session.session_id, session.lineage, base, row)]
    for place, request in enumerate(row.tool_calls):
        if request.id in written:
            ops.append(entry_put(session.session_id, session.lineage, base + 1 + place, written[request.id]))
    if not await commit(engine, "stage", ops, lambda: _staged_by(engine, session, base, row.attempt_id)):
        await note_lost(engine, session, row.model, row.usage)
        return None
    announce_commit(stream, row)
    for place_row in written.values():
        if place_row.state == "asked":
            announce_ask(stream, place_row, row)
    waiting = {c.call_id for c in written.values() if c.state in ("done", "asked")}
    view = StepView(new, OpenRows(row, [written.get(request.id) for request in row.tool_calls]), None)
    return Tools(row.step, [request.id for request in row.tool_calls if request.id not in waiting], view)


async def _commit(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    plan: StepProcessingPlan,
    row: AssistantRow,
    delivery: Delivery,
    stream: RunStream,
) -> Outcome | None:
    """Without calls to execute: history grows by the whole step at once, and the run usually ends."""
    now = engine.clock.now()
    misses = session.misses + (1 if plan.missed else 0)
    calls = list(_settled_rows(session, plan, row, now).values())
    next_ = _next(agent, plan, row, calls, session.run_steps + 1, misses)
    new = advance(
        session,
        now,
        count=session.count + 1 + len(calls),
        step=row.step,
        open=None,
        last=(row.step, row.attempt),
        run_steps=session.run_steps + 1,
        misses=misses,
        forced=next_.forced,
    )
    settle(engine, new, row.usage)
    new.run_parts = with_answer(new.run_parts, agent, row.model, row.usage)
    status = "running" if next_.move == "continue" else next_.move
    new.status = status
    if delivery.leased:  # heartbeats moved the lease since the session was read
        new.lease_owner, new.lease_expires = delivery.owner, now + engine.settings.lease_s
    point, put = checkpoint(new, now, state=None)
    ops: list[Operation] = []
    if status != "running":
        ops.append(end(new, status, now, output=next_.output, error=next_.error, completion_reason=next_.reason))
    ops = [session_put(new, at(session)), put, *ops]
    entries: list[AnyEntry] = [row, *calls]
    for place, entry in enumerate(entries):
        ops.append(entry_put(session.session_id, session.lineage, session.count + place, entry))
    won = await commit(engine, "commit", ops, lambda: _staged_by(engine, session, session.count, row.attempt_id))
    if not won:
        await note_lost(engine, session, row.model, row.usage)
        return None
    engine.history.remember(session, session.count, entries)
    announce_commit(stream, row)
    announce_fold(stream, point)
    await tell_history(engine, agent, new, entries, [], stream)
    return Over(status) if status != "running" else Tools(row.step, ())


def _next(
    agent: AnyAgent, plan: StepProcessingPlan, row: AssistantRow, calls: list[CallRow], run_steps: int, misses: int
) -> Next:
    if plan.is_terminal and plan.finish is None:
        return Next("completed", reason="text")
    if plan.missed and not row.tool_calls:
        return missing(agent, misses, "output_missing", "the model ended without its structured output")
    return decide_next(agent, row, calls, run_steps=run_steps, misses=misses)


async def _fail(
    engine: Engine, agent: AnyAgent, session: SessionRow, error: ErrorInfo | None, result: AnyStepResult
) -> Outcome | None:
    """A final model error: failed, settled, nothing added to history."""
    now = engine.clock.now()
    new = advance(session, now, run_steps=session.run_steps + 1)
    settle(engine, new, result.usage)
    new.run_parts = with_answer(new.run_parts, agent, result.model, result.usage)
    ended = end(new, "failed", now, error=error)
    call = failed_put(session, result.model, result.usage, error.code if error is not None else None, now)
    ops: list[Operation] = [session_put(new, at(session)), ended, call]
    if not await commit(engine, "end_failed", ops, lambda: _failed_by(engine, session)):
        await note_lost(engine, session, result.model, result.usage)
        return None
    return Over("failed")


async def _staged_by(engine: Engine, session: SessionRow, index: int, attempt_id: str) -> bool:
    (value,) = await engine.store.get([row_key(session.session_id, message_sort(session.lineage, index))])
    return value is not None and value.get("attempt_id") == attempt_id


async def _failed_by(engine: Engine, session: SessionRow) -> bool:
    run = await engine.history.run(session.session_id, session.run_id)
    return run.status == "failed"


def _announce_refusals(stream: RunStream, plan: StepProcessingPlan, row: AssistantRow) -> None:
    """Calls that are not executed have no `tool_start`: an error on the stream shows them. The run goes on."""
    chunks = [
        ErrorChunk(error=str(told.get("error")), code="invalid_tool_call")
        for told in (parsed_content(s.content) for s in plan.settled.values() if not s.success)
        if isinstance(told, dict) and "error" in told
    ]
    if plan.dropped_calls:
        text = f"{plan.dropped_calls} calls beyond the first {len(row.tool_calls)} were dropped: a step takes no more"
        chunks.append(ErrorChunk(error=text, code="too_many_calls"))
    if chunks:
        stream.put("attempt", chunks, step=row.step, attempt=row.attempt)


def announce_ask(stream: RunStream, row: CallRow, answer: AssistantRow) -> None:
    """Someone is asked: for an approval, for the client's result, or what became of an unknown outcome."""
    arguments = next((c.arguments for c in answer.tool_calls if c.id == row.call_id), {})
    chunk = ToolApprovalRequestChunk(
        tool_call_id=row.call_id, tool_name=row.tool_name, input=arguments, kind=row.ask or "approval"
    )
    stream.put("call", [chunk], step=row.step, attempt=row.claim, call_id=row.call_id)
