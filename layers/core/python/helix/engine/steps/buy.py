"""buy_step: fold the previous step, claim this one, ask the model, stage its answer (docs/protocol.md#call-model).

Law: no answer is bought twice for the same messages. After a crash at any line, the next delivery starts here again,
and the rows say where to continue. The numbers in the comments refer to the points of the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from helix.core.claim_plan import OpenRows
from helix.core.errors import ContentionError, WorkInProgressError
from helix.core.folding import Fold, fold_step
from helix.core.rows import CheckpointRow, ErrorInfo, Pending, StopRow
from helix.core.session_row import SessionRow, StepClaim
from helix.core.status import EndStatus
from helix.core.steps import ErrorStepResult, StopReason
from helix.engine.calls.execute import show_results
from helix.engine.calls.tool import may_wait
from helix.engine.claims.liveness import DEAD, LostClaimError
from helix.engine.claims.missed import show_missed
from helix.engine.context import RunContext
from helix.engine.engine import Elsewhere, Engine, Outcome, Over, Staged
from helix.engine.facts import BudgetRefused, CallDone, ChildEnded, StepStaged
from helix.engine.guards.inputs import ask_guarded
from helix.engine.guards.outputs import judge_answer
from helix.engine.history import call_key
from helix.engine.inbox import AT_ONCE, Arrived, take_messages
from helix.engine.money.bounds import bind
from helix.engine.money.reservations import Refused, Reserved, assume_dead, reserve, return_draws
from helix.engine.money.usage import assumed_put, note_lost
from helix.engine.observers import record, show
from helix.engine.row_requests import read_request
from helix.engine.seen import Seen
from helix.engine.step_view import StepView
from helix.engine.steps.ask import MAX_LATE, TIMED_OUT, ModelAnswer, ask_model, prepare, reads_state
from helix.engine.steps.check_output import check_output
from helix.engine.steps.close import Ending, Folding, after_fold, close_run, fold_checkpoint, folded, stop_run
from helix.engine.steps.cut import stop_call
from helix.engine.steps.handoff import activate, elsewhere
from helix.engine.steps.lost_cache import note_lost_cache
from helix.engine.steps.stage import plan_answer, stage
from helix.engine.steps.summary import may_shorten, note_overflow, without_summary, write_summary
from helix.engine.steps.views import TOO_LONG, Prepared, show_view, write_view
from helix.engine.stops import judge_stop
from helix.engine.writing import as_read, at_version, entry_put, no_outcome_check, session_put, share_head
from helix.ports.state_store import Check, Operation, Value
from helix.services.request_heads import head_put
from helix.services.waits import due_at, wait_put

EXCEEDED = "budget_exceeded"


@dataclass(frozen=True, slots=True)
class Begun:
    """The values with which the purchase of a step begins."""

    session: SessionRow
    """The session's row as read."""
    folding: Folding | None
    """The previous step, which the claim of this step folds. None: no step is waiting to be folded."""
    budgets: int
    """The number of budget changes, as read with the session."""
    stop: Value | None = None
    """The run's stop row as read with the session. It says whether messages steer the run."""


@dataclass(frozen=True, slots=True)
class Purchase:
    """The parts of a step's claim."""

    prepared: Prepared
    """The request to the model."""
    reserved: Reserved
    """The worst case of its cost."""
    arrived: Arrived
    """The messages that steer the run."""


async def buy_step(run: RunContext, step: int, seen: Seen | None = None, view: StepView | None = None) -> Outcome:
    """Buy step `step` for this run, unless the rows show that something else must be done first. `seen`: the rows that
    the caller has just read. `view`: the previous step, as this worker wrote it."""
    while True:
        known, seen = await _read_start(run, seen, view)
        session, stop_value, budgets = seen
        seen = view = None
        if session.run_id != run.run_id or session.status != "running":  # 1
            return Over((await run.engine.history.run(run.session_id, run.run_id)).status)
        if session.step >= step:  # 1: the step is already history, so its calls are done
            await show_missed(run, session)
            return Staged(step, ())
        run.session = session
        stop = run.watch.stop or run.late() or await judge_stop(run.engine.store, session, run.run_id, stop_value)
        rows = known or await run.engine.history.open_rows(session, ahead=True)
        outcome: Outcome | None
        if (lost := activate(run, session)) is not None and stop is None:
            outcome = await close_run(run, session, Ending("failed", error=lost))
        elif rows is not None and session.step == step - 2:
            outcome = await _finish_step(run, Begun(session, None, budgets, stop_value), rows, stop)
        elif stop is not None:  # 3
            await _record_missed(run, session)
            outcome = await stop_run(run, session, stop)
        elif rows is not None:  # 5
            outcome = _adopted(run, session, rows)
        else:
            outcome = await _buy(run, Begun(session, None, budgets, stop_value))
        if outcome is not None:
            return outcome


async def _read_start(run: RunContext, seen: Seen | None, view: StepView | None) -> tuple[OpenRows | None, Seen]:
    """Return the rows that the start of the step needs. The worker that last wrote the session knows it, and the
    results that it recorded, without a read. The next write is conditional on the session's version, so it is refused
    if they have changed."""
    known = view.finished() if view is not None and view.session.version == run.session.version else None
    fresh, run.fresh = run.fresh, False
    if known is not None or fresh:
        dynamic = fresh and reads_state(run.agent)
        return known, await run.engine.history.seen_beside(run.session, run.run_id, state=dynamic)
    return None, seen or await run.engine.history.seen(run.session_id, run.run_id)


async def _finish_step(run: RunContext, begun: Begun, rows: OpenRows, stop: StopRow | None) -> Outcome | None:
    """2 to 4: the previous step is staged. Fold it if all its calls are done; otherwise return the missing calls."""
    session = begun.session
    done = [row for row in rows.calls if row is not None and row.state == "done"]
    assert session.open is not None
    if len(done) < len(rows.calls):
        if stop is not None:
            return await stop_run(run, session, stop)
        waiting = await run.engine.history.waiting_calls(rows)
        todo = [
            request.id
            for request, row in zip(rows.answer.tool_calls, rows.calls, strict=True)
            if request.id not in waiting and (row is None or row.state != "done")
        ]
        if todo:
            return Staged(session.open.step, todo)
        return await _pause(run, session, rows, list(waiting.values()))
    if (agent := elsewhere(run, rows.answer)) is not None:
        return Elsewhere(agent)
    state = await run.engine.history.state(session)
    fold = fold_step(run.agent, session, rows.answer, done, state, max_steps=run.own.max_steps)
    if len(fold.refused) > run.engine.settings.calls_at_once:
        await _write_refused(run, session, fold)
        return None
    for row in done:  # results from outside the run: its execution may not have waited for their records
        unshown = row.by in ("answer", "child", "policy") or row.questions or run.agent.guards
        if unshown or may_wait(run.find_tool(row.tool_name)):
            show(run, CallDone(row))
        if row.by == "child" and not run.engine.placement.executes_children:  # otherwise its worker did
            await record(run, ChildEnded(row, "completed" if row.success else "failed"))
    folding = (rows, fold)
    if fold.next.move != "continue":
        status: EndStatus = "completed" if fold.next.move == "completed" else "failed"
        return await close_run(run, session, Ending(status, next_=fold.next), folding)
    if stop is not None:
        return await stop_run(run, session, stop, folding)
    return await _buy(run, replace(begun, folding=folding))


async def _write_refused(run: RunContext, session: SessionRow, fold: Fold) -> None:
    """Write some of the results that the fold changes, because its transaction cannot hold them all. The rows are then
    read again. The version is bumped, so a fold that was computed from the old rows is refused."""
    assert session.open is not None
    new, first = run.next_version(session), session.open.base + 1
    page = fold.refused[: run.engine.settings.calls_at_once]
    puts = [entry_put(session.session_id, session.lineage, first + place, row) for place, row in page]
    await run.commit("refuse_merges", [session_put(new, at_version(session)), *puts], no_outcome_check, new)


def _adopted(run: RunContext, session: SessionRow, rows: OpenRows) -> Staged:
    """5: the step was already staged, by this run or the previous one. Record its marks again, and return the remaining
    calls."""
    assert session.open is not None
    show(run, StepStaged(rows.answer))
    return Staged(session.open.step, show_results(run, rows, [request.id for request in rows.answer.tool_calls]))


async def _pause(run: RunContext, session: SessionRow, rows: OpenRows, pending: list[Pending]) -> Outcome | None:
    """4b: all missing results are waiting for people. Each of those calls must still wait when the pause is written."""
    assert session.open is not None
    checks: list[Operation] = []
    waiting = {p.call_id for p in pending}
    for place, row in enumerate(rows.calls):
        if session.open.wide:  # each result bumps the version, so AT(v) is enough
            break
        if row is not None and row.call_id in waiting:
            checks.append(Check(call_key(session, place), as_read(row)))
    rows_asked = [row for row in rows.calls if row is not None and row.state == "asked" and row.call_id in waiting]
    dues = [due for row in rows_asked if (due := due_at(row)) is not None]
    if dues:
        checks.append(wait_put(session, min(dues)))
    return await close_run(run, session, Ending("paused", reason="pending", pending=pending, checks=checks))


# --- buying -----------------------------------------------------------------------------------------------------------


async def _buy(run: RunContext, begun: Begun) -> Outcome | None:
    """6 to 9: reserve the worst case, claim the step, ask the model and stage the answer."""
    session, folding = begun.session, begun.folding
    new = folded(run, session, folding)
    attempt = await _expired_attempt(run, session, new)
    if attempt[0] > 1 and (error := _too_late(session)) is not None:
        if session.claim is None or not session.claim.summary:
            return await close_run(run, session, Ending("failed", error=error), folding)
        new.context = without_summary(new)
    if not await bind(run, session, new, begun.budgets):
        return None
    arrived = await take_messages(run, new, begun.stop, AT_ONCE - (len(folding[1].refused) if folding else 0))
    found = await _reserve(run, begun, new, arrived)
    if found is None:  # the budgets that bind the session have changed
        return None
    if isinstance(found, ErrorInfo):
        return await close_run(run, session, Ending("failed", error=found), folding)
    prepared, reserved = found
    if isinstance(reserved, Refused):  # no budget has room for a block
        show(run, BudgetRefused(reserved.budget))
        if reserved.on_exceeded == "pause":
            return await close_run(run, session, Ending("paused", reason=EXCEEDED), folding)
        error = ErrorInfo(code=EXCEEDED, message=reserved.message)
        return await close_run(run, session, Ending("failed", error=error), folding)
    if prepared.head.id not in run.known.heads:
        await share_head(run.engine, prepared.head)
    if not await _claim_step(run, begun, new, attempt, Purchase(prepared, reserved, arrived)):
        if any(block.draws == new.version for block in new.blocks):
            await _return_draws(run, session)
        return None
    ask = ask_guarded if run.agent.guards else ask_model
    answer = await ask(run, new, reserved.request)  # 7
    await run.stream.flush()  # 8: the log acknowledges all chunks before the answer is staged
    if answer.stop is not None:
        return await stop_call(run, new, answer, answer.stop)
    return await _take_answer(run, new, prepared, _cut_short(answer) if reserved.cut else answer)


async def _reserve(
    run: RunContext, begun: Begun, new: SessionRow, arrived: Arrived
) -> tuple[Prepared, Reserved | Refused] | ErrorInfo | None:
    """Prepare the request and reserve its worst case. If no budget has room for a summary, the step continues without
    one. None: the budgets that bind the session have changed."""
    if (lost := activate(run, new)) is not None:
        return lost
    while True:
        prepared = await prepare(run, begun.session, begun.folding, new, arrived.messages)
        if isinstance(prepared, ErrorInfo):
            return prepared
        try:
            reserved = await reserve(run.engine, run.agent, new, prepared.request, run.own.on_budget)
        except ContentionError as met:  # many runs compete for the remainder; the next delivery finds this one's draws
            raise WorkInProgressError(f"a budget of session {run.session_id!r}", run.now() + 1) from met
        if reserved is None or prepared.plan.summary is None or not isinstance(reserved, Refused):
            return None if reserved is None else (prepared, reserved)
        new.context = without_summary(new)


async def _take_answer(run: RunContext, new: SessionRow, prepared: Prepared, answer: ModelAnswer) -> Outcome | None:
    """9: write the model's answer. If the write is refused, the cost of the answer is recorded for the run's end, and
    the rows say how to continue. A request for a summary may come at any time, and never causes an answer to be
    lost."""
    if prepared.plan.summary is None and answer.plan is None:
        answer = await _plan(run, new, answer, prepared)
    result, session = answer.result, new
    assert result is not None
    while True:
        if prepared.plan.summary is not None:
            outcome, written = None, await write_summary(run, session, prepared, result)
        elif isinstance(result, ErrorStepResult) and result.code == TOO_LONG and may_shorten(session):
            outcome, written = None, await note_overflow(run, session, result)
        else:
            outcome = await stage(run, session, answer, prepared.plan)
            written = outcome is not None
        if written:
            return outcome
        again = await read_request(run.engine, session)
        if again is None:
            run.row = None  # the note may change it
            await note_lost(run.engine, session, result.model, result.usage)
            return None
        session = again


async def _plan(run: RunContext, session: SessionRow, answer: ModelAnswer, prepared: Prepared) -> ModelAnswer:
    """Return the answer with the plan of its step that the agent's guards and output checks allow."""
    answer = await note_lost_cache(run, session, answer)
    assert answer.result is not None
    answer = replace(answer, plan=await plan_answer(run, session, answer.result, prepared.plan))
    if run.agent.guards:
        answer = await judge_answer(run, answer, prepared.user_messages)
    return await check_output(run, session, answer) if run.agent.output_checks else answer


async def _expired_attempt(run: RunContext, session: SessionRow, new: SessionRow) -> tuple[int, list[Operation]]:
    """Return the number of this attempt, and the operations that record an earlier attempt that died. The reservation
    of the dead attempt is assumed spent in `new`. Raises `WorkInProgressError` while another worker's attempt is alive,
    and `LostClaimError` if this worker's attempt was expired."""
    held = session.claim
    if held is None or held.step != new.step + 1:
        return 1 + new.context.attempts(new.step + 1), []
    what = f"step {held.step} of session {session.session_id!r}"
    if held.deadline == DEAD and run.owns(session):  # expired because this worker was silent: another one buys the step
        raise LostClaimError(what)
    if held.run_id == session.run_id and held.deadline >= run.now() and not run.owns(session):
        raise WorkInProgressError(what, held.deadline)
    await _record_missed(run, session)
    unheard = assumed_put(run.own, session, new, "dead", run.now())
    assume_dead(new)
    return held.attempt + 1, unheard


def _too_late(session: SessionRow) -> ErrorInfo | None:
    """Return the error of a run whose workers asked for this step too often without an answer, if the last of them went
    silent."""
    claim = session.claim
    if claim is None or claim.run_id != session.run_id or claim.late < MAX_LATE:
        return None
    text = f"the model gave no answer in {claim.late} attempts; the worker of the last one was silent"
    return ErrorInfo(code=TIMED_OUT, message=text)


def _cut_short(answer: ModelAnswer) -> ModelAnswer:
    """Name the budget as the cause of a cut-off answer, if the answer had to be shorter than the agent's own limit."""
    result = answer.result
    if not isinstance(result, ErrorStepResult) or result.stop_reason != StopReason.MAX_TOKENS:
        return answer
    text = f"the budgets had room for a short answer only, and it was cut off: {result.error}"
    return replace(answer, result=result.model_copy(update={"code": EXCEEDED, "error": text}))


async def _record_missed(run: RunContext, session: SessionRow) -> None:
    """Record the fold of another delivery, which claimed the next step but did not get its answer. That delivery may
    have died before it recorded the fold. If runs are claimed, the claim that takes over the run records it."""
    held = session.claim
    if run.engine.placement.claims_runs or held is None:
        return
    if held.run_id == session.run_id and not run.owns(session):
        await show_missed(run, session)


async def _claim_step(
    run: RunContext,
    begun: Begun,
    new: SessionRow,
    attempt: tuple[int, list[Operation]],
    purchase: Purchase,
) -> bool:
    """6: in one transaction, fold the previous step if it is complete, add the messages that steer the run, claim this
    step and reserve its worst case. The session's part of the request head is stored with the first claim that names
    it."""
    prepared, reserved, arrived = purchase.prepared, purchase.reserved, purchase.arrived
    now, session, (number, unheard), plan = run.now(), begun.session, attempt, prepared.plan
    attempt_id = f"{run.delivery.owner}.{session.version}"
    before = session.claim if number > 1 else None
    new.claim = StepClaim(
        step=new.step + 1,
        attempt=number,
        attempt_id=attempt_id,
        run_id=new.run_id,
        deadline=now + run.engine.settings.claim_s,
        micros=reserved.micros,
        tokens=reserved.tokens,
        summary=plan.summary is not None,
        late=before.late if before is not None and before.run_id == new.run_id else 0,
    )
    limit = reserved.request.config.max_output_tokens
    new.lease_expires = session.lease_expires  # which a heartbeat may have moved since `new` was copied
    new.head = prepared.head.id
    new.output_limit = limit if limit != prepared.request.config.max_output_tokens else None
    ops: list[Operation] = []
    row: CheckpointRow | None = None
    if plan.summary is None:
        ops.extend(write_view(new, plan))
    if begun.folding is not None or arrived.entries:
        row, puts = fold_checkpoint(new, begun.folding, now)
        ops.extend(puts)
    ops.extend(arrived.operations)
    if (own := prepared.head.own) is not None and own.id not in run.known.heads:
        ops.append(head_put(session.session_id, own))
    ops = [session_put(new, at_version(session)), *ops, *unheard]
    if not await run.commit("claim_step", ops, lambda: _claimed_by(run.engine, session.session_id, attempt_id), new):
        return False
    run.known.heads.add(new.head)
    if row is not None:
        await after_fold(run, session, begun.folding, row, arrived)
    show_view(run, new, plan)
    return True


async def _return_draws(run: RunContext, session: SessionRow) -> None:
    """Return a block that was drawn for a refused claim. If the run has ended in the meantime, its effects may have
    missed the block."""
    row = await run.engine.history.run(session.session_id, run.run_id)
    if row.status != "running":
        await return_draws(run.engine, session, row)


async def _claimed_by(engine: Engine, session_id: str, attempt_id: str) -> bool:
    session = await engine.history.session(session_id)
    return session is not None and session.claim is not None and session.claim.attempt_id == attempt_id
