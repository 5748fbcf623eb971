"""Staging: the model's answer becomes durable before any of its tools runs (docs/protocol.md#stage).

Law: one transaction on AT(v). If there are calls to execute, the answer is staged after the counted messages, and its
step is open. Otherwise the message, status, output and checkpoint are written together. A step may have more calls than
one transaction can hold (docs/protocol.md#wide). It is then staged with the first rows, and with the results of all
calls that are not executed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from helix.core.claim_plan import OpenRows
from helix.core.entries import AnyEntry, AssistantRow, CallRow, ChildRef, message_of
from helix.core.folding import Next, decide_next, is_out, missing, why_refused
from helix.core.planning import StepProcessingPlan, plan_step_processing
from helix.core.row_keys import make_run_id, message_sort
from helix.core.session_row import OpenStep, SessionRow
from helix.core.steps import AnyStepResult
from helix.core.usage_parts import with_answer
from helix.core.views import RECALL, RECALL_TOOL, recall_result
from helix.engine.calls.tool import claimed_with_answer, first_claim, resolved_row
from helix.engine.context import RunContext
from helix.engine.engine import Engine, Outcome, Over, Staged
from helix.engine.facts import CacheLost, CallDone, CallsRefused, CallWaits, StepFolded, StepStaged
from helix.engine.history import row_key
from helix.engine.money.reservations import settle
from helix.engine.money.usage import failed_put
from helix.engine.observers import record, show
from helix.engine.step_view import StepView
from helix.engine.steps.ask import ModelAnswer
from helix.engine.steps.close import ended_so
from helix.engine.steps.handoff import refuse_handoff
from helix.engine.steps.views import ViewPlan, context_after
from helix.engine.writing import End, at_version, checkpoint, end, entry_put, message_put, session_put
from helix.ports.state_store import Operation, Update
from helix.services.batch_rows import call_taken
from helix.services.session_index import with_tools


async def stage(run: RunContext, session: SessionRow, answer: ModelAnswer, view: ViewPlan) -> Outcome | None:
    """Write the answer. None: the write was refused."""
    result = answer.result
    assert result is not None
    plan = answer.plan
    assert plan is not None
    if plan.assistant_message_plan is None:
        return await _fail(run, session, plan, answer)
    row = _answer_row(run.engine, session, plan, answer)
    show(run, CallsRefused(plan, row))
    if len(row.tool_calls) > run.engine.settings.calls_at_once:
        resolved = {call_id: (given.content, given.success) for call_id, given in plan.resolved.items()}
        return await _open(run, session, plan, row.model_copy(update={"resolved": resolved}))
    if row.tool_calls and not plan.is_terminal:
        return await _open(run, session, plan, row)
    return await _commit(run, session, plan, row)


async def plan_answer(
    run: RunContext, session: SessionRow, result: AnyStepResult, view: ViewPlan
) -> StepProcessingPlan:
    """Return the plan for the model's answer, which was asked under this view."""
    agent = run.agent
    schema = None if agent.function is not None else agent.output_schema
    used = await run.engine.history.call_ids(session)
    history = await run.engine.history.messages(session)
    recalls = view.recalls(agent)
    return plan_step_processing(
        result,
        output_schema=schema,
        tools=lambda name: RECALL_TOOL if recalls and name == RECALL else run.find_tool(name),
        known_result=lambda call: (
            recall_result(call, history) if recalls and call.name == RECALL else refuse_handoff(run, call)
        ),
        used_call_ids=used,
    )


def _answer_row(engine: Engine, session: SessionRow, plan: StepProcessingPlan, answer: ModelAnswer) -> AssistantRow:
    message, claim, result = plan.assistant_message_plan, session.claim, answer.result
    assert message is not None and claim is not None and result is not None
    children = {}
    for call in plan.pending_sub_agent_calls:  # created here, so that no delivery can start a second child
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
        server_blocks=message.server_blocks,
        citations=message.citations,
        children=children,
        agent=session.active_agent,
        handoff=plan.handoff.agent if plan.handoff is not None else "",
        finish={"output": plan.finish.output} if plan.finish is not None else None,
        stop_reason=result.stop_reason,
        model=result.model,
        head=session.head,
        output_limit=session.output_limit,
        cached=result.cached,
        without_reasoning=result.without_reasoning,
        view=session.context.view,
        phase=result.phase,
        verdicts=list(answer.verdicts),
        usage=result.usage,
        lost_cache=answer.lost_cache,
        created_at=engine.clock.now(),
    )


def _show_staged(run: RunContext, row: AssistantRow) -> None:
    """Record that this worker staged the answer. A worker that finds it staged does not record a lost cache again."""
    show(run, StepStaged(row))
    if row.lost_cache is not None:
        show(run, CacheLost(row))


def _show_refused(run: RunContext, answer: AssistantRow, calls: Iterable[CallRow]) -> None:
    arguments = {request.id: request.arguments for request in answer.tool_calls}
    for call in calls:
        if call.by == "plan":
            show(run, CallDone(call, arguments=arguments[call.call_id]))


def _resolved_rows(run: RunContext, plan: StepProcessingPlan, row: AssistantRow) -> dict[str, CallRow]:
    return {
        request.id: resolved_row(run, request, row, (given.content, given.success))
        for request in row.tool_calls
        if (given := plan.resolved.get(request.id)) is not None
    }


async def _open(run: RunContext, session: SessionRow, plan: StepProcessingPlan, row: AssistantRow) -> Outcome | None:
    """Stage an answer with calls to execute. The step stays open until they are done. The same transaction claims the
    calls that this worker executes, if that is allowed."""
    base, calls, at_once = session.count, len(row.tool_calls), run.engine.settings.calls_at_once
    step = OpenStep(step=row.step, attempt=row.attempt, run_id=row.run_id, base=base, calls=calls, wide=calls > at_once)
    new = run.next_version(
        session,
        open=step,
        last=(row.step, row.attempt),
        tools=with_tools(session.tools, (request.name for request in row.tool_calls)),
        run_steps=session.run_steps + 1,
        misses=session.misses + (1 if plan.missed else 0),
        context=context_after(run, session, row),
    )
    settle(run.engine, new, row.usage)
    new.run_parts = with_answer(new.run_parts, run.own, row.model, row.usage)
    resolved = _resolved_rows(run, plan, row)
    firsts = (resolved.get(request.id) or first_claim(run, request, row) for request in row.tool_calls)
    written = {first.call_id: first for first in islice((f for f in firsts if claimed_with_answer(run, f)), at_once)}
    ops: list[Operation] = [
        session_put(new, at_version(session)),
        entry_put(session.session_id, session.lineage, base, row),
        *call_taken(session),
    ]
    for place, request in enumerate(row.tool_calls):
        if request.id in written:
            ops.append(entry_put(session.session_id, session.lineage, base + 1 + place, written[request.id]))
    if not await run.commit("stage", ops, lambda: _staged_by(run.engine, session, base, row.attempt_id), new):
        return None
    _show_staged(run, row)
    _show_refused(run, row, written.values())
    for call in written.values():
        if call.state == "asked":
            show(run, CallWaits(call, row))
    waiting = {call.call_id for call in written.values() if call.state in ("done", "asked")}
    view = StepView(new, OpenRows(row, [written.get(request.id) for request in row.tool_calls]), None)
    return Staged(row.step, [request.id for request in row.tool_calls if request.id not in waiting], view)


async def _commit(run: RunContext, session: SessionRow, plan: StepProcessingPlan, row: AssistantRow) -> Outcome | None:
    """Commit an answer without calls to execute. The whole step is added to history in one commit, and the run usually
    ends."""
    now = run.now()
    misses = session.misses + (1 if plan.missed else 0)
    calls = list(_resolved_rows(run, plan, row).values())
    next_ = _next(run, session, plan, row, calls, misses)
    status = "running" if next_.move == "continue" else next_.move
    new = run.next_version(
        session,
        status=status,
        count=session.count + 1 + len(calls),
        step=row.step,
        open=None,
        last=(row.step, row.attempt),
        run_steps=session.run_steps + 1,
        misses=misses,
        forced=next_.forced,
        reminded=next_.reminded,
        context=context_after(run, session, row),
    )
    settle(run.engine, new, row.usage)
    new.run_parts = with_answer(new.run_parts, run.own, row.model, row.usage)
    point, put = checkpoint(new, now, state=None)
    ops: list[Operation] = []
    ended: Update | None = None
    if status != "running":
        ended = end(new, End(status, next_.output, next_.error, completion_reason=next_.reason), now)
        ops.append(ended)
    ops = [session_put(new, at_version(session)), put, *ops, *call_taken(session)]
    entries: list[AnyEntry] = [row, *calls]
    ops.append(message_put(session, session.count, row))
    for place, call in enumerate(calls, 1):
        ops.append(entry_put(session.session_id, session.lineage, session.count + place, call))
    if not await run.commit("commit", ops, lambda: _staged_by(run.engine, session, session.count, row.attempt_id), new):
        return None
    if ended is not None:
        run.ended(ended, row)
    messages = [message_of(entry, session.lineage, session.count + n) for n, entry in enumerate(entries)]
    run.engine.history.remember(session, session.count, messages)
    _show_staged(run, row)
    _show_refused(run, row, calls)
    await record(run, StepFolded(entries, point))
    return Over(status) if status != "running" else Staged(row.step, ())


def _next(
    run: RunContext,
    session: SessionRow,
    plan: StepProcessingPlan,
    row: AssistantRow,
    calls: list[CallRow],
    misses: int,
) -> Next:
    agent, steps, most = run.agent, session.run_steps + 1, run.own.max_steps
    if plan.status_update is not None and plan.status_update.error is not None:
        return Next("failed", error=plan.status_update.error)
    if plan.is_terminal and plan.finish is None:
        return Next("completed", reason="text")
    if plan.missed and not row.tool_calls:
        code, message = why_refused(row) or ("output_missing", "the model ended without its structured output")
        return missing(agent, misses, code, message, last=session.reminded or is_out(steps, most))
    return decide_next(agent, row, calls, run_steps=steps, misses=misses, max_steps=most, reminded=session.reminded)


async def _fail(run: RunContext, session: SessionRow, plan: StepProcessingPlan, answer: ModelAnswer) -> Outcome | None:
    """End the run after a final model error, or because a guard blocked the answer. The call is settled, and nothing is
    added to history."""
    now, result = run.now(), answer.result
    assert result is not None and plan.status_update is not None
    error = plan.status_update.error
    new = run.next_version(session, run_steps=session.run_steps + 1)
    settle(run.engine, new, result.usage)
    new.run_parts = with_answer(new.run_parts, run.own, result.model, result.usage)
    ended = end(new, End("failed", error=error), now)
    code = error.code if error is not None else None
    verdicts = [
        verdict for verdict in answer.verdicts if verdict.on != "input"
    ]  # those are judged with the next answer
    call = failed_put(session, result.model, result.usage, code, now, verdicts=verdicts)
    ops: list[Operation] = [session_put(new, at_version(session)), ended, call, *call_taken(session)]
    if not await run.commit("end_failed", ops, lambda: ended_so(run, session, "failed"), new):
        return None
    run.ended(ended, None)
    return Over("failed")


async def _staged_by(engine: Engine, session: SessionRow, index: int, attempt_id: str) -> bool:
    (value,) = await engine.store.get([row_key(session.session_id, message_sort(session.lineage, index))])
    return value is not None and value.get("attempt_id") == attempt_id
