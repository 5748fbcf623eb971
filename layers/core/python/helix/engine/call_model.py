"""call_model: fold the step before, claim this one, ask the model, stage its answer (PROTOCOL 5).

Law: no answer is bought twice for the same messages; a crash at any line leads back here, and the rows say where to go
on. The numbered comments are the protocol's points.
"""

from __future__ import annotations

from dataclasses import replace

from helix.core.agents import AnyAgent
from helix.core.claiming import OpenRows
from helix.core.errors import WorkInProgressError
from helix.core.folding import Fold, Next, fold_step
from helix.core.row_keys import message_sort
from helix.core.rows import CallRow, CheckpointRow, ErrorInfo, Pending, SessionRow, StepClaim, StopRow
from helix.core.steps import ErrorStepResult, StopReason
from helix.engine.announcing import announce_commit, announce_result, announce_untold
from helix.engine.bounds import bind
from helix.engine.buying import Answer, ask_model, prepare
from helix.engine.closing import Folding, after_fold, close_run, fold_checkpoint, folded, stop_run
from helix.engine.delivery import Delivery
from helix.engine.engine import Engine, Outcome, Over, Tools
from helix.engine.history import Seen, row_key
from helix.engine.hooking import call_hook
from helix.engine.money import Refused, Reserved, assume_dead, reserve, return_draws
from helix.engine.run_stream import RunStream
from helix.engine.staging import stage
from helix.engine.stops import StopWatch, judge_stop
from helix.engine.untold import read_untold
from helix.engine.usage_rows import assumed_put
from helix.engine.waiting import waiting_calls
from helix.engine.writing import at, commit, session_put
from helix.ports.state_store import Check, Operation, When

EXCEEDED = "budget_exceeded"


async def call_model(
    engine: Engine,
    agent: AnyAgent,
    session_id: str,
    run_id: str,
    step: int,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
    seen: Seen | None = None,
) -> Outcome:
    """Buy step `step` for this run, unless the rows say that there is something else to do first. `seen`: what a caller
    read just now."""
    while True:
        session, stop_value, budgets = seen or await engine.history.seen(session_id, run_id)
        seen = None
        if session.run_id != run_id or session.status != "running":  # 1
            run = await engine.history.run(session_id, run_id)
            return Over(run.status)
        if session.step >= step:  # 1: in history already: its calls are done
            return Tools(step, ())
        stop = watch.stop or await judge_stop(engine, session, run_id, stop_value)
        rows = await engine.history.open_rows(session, ahead=True)
        if rows is not None and session.step == step - 2:
            outcome = await _finish_step(engine, agent, session, rows, step, stop, budgets, delivery, stream, watch)
        elif stop is not None:  # 3
            await _tell_for(engine, session, delivery, stream)
            outcome = await stop_run(engine, agent, session, stop, None, stream)
        elif rows is not None:  # 5
            outcome = _adopted(session, rows, stream)
        else:
            outcome = await _buy(engine, agent, session, None, budgets, delivery, stream, watch)
        if outcome is not None:
            return outcome


async def _finish_step(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    rows: OpenRows,
    step: int,
    stop: StopRow | None,
    budgets: int,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
) -> Outcome | None:
    """2 to 4: step - 1 is staged. Fold it if all its calls are done, else say what is missing."""
    done = [row for row in rows.calls if row is not None and row.state == "done"]
    assert session.open is not None
    if len(done) < len(rows.calls):
        if stop is not None:
            return await stop_run(engine, agent, session, stop, None, stream)
        waiting = await waiting_calls(engine, rows)
        todo = [
            request.id
            for request, row in zip(rows.answer.tool_calls, rows.calls, strict=True)
            if request.id not in waiting and (row is None or row.state != "done")
        ]
        if todo:
            return Tools(step - 1, todo)
        return await _paused(engine, agent, session, rows, list(waiting.values()), stream)
    for row in done:  # nobody else tells these on this stream: they were written beside the run
        if row.by in ("answer", "child"):
            announce_result(stream, row)
        if row.by == "child" and engine.launcher is not None:  # in process, the worker that ran it tells
            await _tell_sub_agent(engine, agent, session, row, stream)
    state = await engine.history.state(session)
    fold = fold_step(
        agent, session.open.base, rows.answer, done, state, run_steps=session.run_steps, misses=session.misses
    )
    if fold.next.move != "continue":
        return await _ended(engine, agent, session, rows, fold, fold.next, stream)
    if stop is not None:
        return await stop_run(engine, agent, session, stop, (rows, fold), stream)
    return await _buy(engine, agent, session, (rows, fold), budgets, delivery, stream, watch)


async def _tell_sub_agent(
    engine: Engine, agent: AnyAgent, session: SessionRow, row: CallRow, stream: RunStream
) -> None:
    ref = row.child
    payload = {
        "step": row.step,
        "tool_call_id": row.call_id,
        "agent_type": ref.agent_type if ref is not None else "",
        "sub_agent_id": ref.session_id if ref is not None else "",
        "status": "completed" if row.success else "failed",
    }
    await call_hook(engine, agent, session, "after_sub_agent", payload, stream, call_id=row.call_id)


def _adopted(session: SessionRow, rows: OpenRows, stream: RunStream) -> Tools:
    """5: the step is staged already, by this run or the one before: tell its marks again, hand out what is left."""
    assert session.open is not None
    announce_commit(stream, rows.answer)
    left = []
    for request, row in zip(rows.answer.tool_calls, rows.calls, strict=True):
        if row is not None and row.state == "done":
            if row.by != "plan":
                announce_result(stream, row)
        elif row is None or row.state != "asked":
            left.append(request.id)
    return Tools(session.open.step, left)


# --- the run ends here --------------------------------------------------------------------------------------------------


async def _paused(
    engine: Engine, agent: AnyAgent, session: SessionRow, rows: OpenRows, pending: list[Pending], stream: RunStream
) -> Outcome | None:
    """4b: all that is missing waits for people; each of those calls must still wait when the pause is written."""
    assert session.open is not None
    checks: list[Operation] = []
    waiting = {p.call_id for p in pending}
    for place, row in enumerate(rows.calls):
        if row is not None and row.call_id in waiting:
            key = row_key(session.session_id, message_sort(session.lineage, session.open.base + 1 + place))
            checks.append(Check(key, When(equal={"state": row.state})))
    return await close_run(
        engine, agent, session, "paused", None, stream, pending=pending, checks=checks, reason="pending"
    )


async def _ended(
    engine: Engine, agent: AnyAgent, session: SessionRow, rows: OpenRows, fold: Fold, next_: Next, stream: RunStream
) -> Outcome | None:
    status = "completed" if next_.move == "completed" else "failed"
    return await close_run(engine, agent, session, status, (rows, fold), stream, next_=next_)


# --- buying -------------------------------------------------------------------------------------------------------


async def _buy(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    folding: Folding | None,
    budgets: int,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
) -> Outcome | None:
    """6 to 9."""
    now = engine.clock.now()
    held = session.claim
    number = 1
    unheard: list[Operation] = []
    new = folded(session, folding, now)
    if held is not None and held.step == new.step + 1:
        if held.run_id == session.run_id and held.deadline >= now and held.attempt_id != delivery.owner:
            raise WorkInProgressError(f"step {held.step} of session {session.session_id!r}", held.deadline)
        number = held.attempt + 1
        await _tell_for(engine, session, delivery, stream)
        unheard = assumed_put(agent, session, new, "dead", now)
        assume_dead(new)
    state = await engine.history.state(session)
    if folding is not None and folding[1].state is not None:
        state = folding[1].state
    if not await bind(engine, session, new, budgets, delivery):
        return None
    prepared = await prepare(engine, agent, session, folding, new, state)
    if isinstance(prepared, ErrorInfo):
        return await close_run(engine, agent, session, "failed", folding, stream, error=prepared)
    reserved = await reserve(engine, agent, new, prepared)
    if reserved is None:  # what bounds the session has changed
        return None
    if isinstance(reserved, Refused):  # no block to be had
        if reserved.on_exceeded == "pause":
            return await close_run(engine, agent, session, "paused", folding, stream, reason=EXCEEDED)
        error = ErrorInfo(code=EXCEEDED, message=reserved.message)
        return await close_run(engine, agent, session, "failed", folding, stream, error=error)
    claimed = await _claim_step(engine, agent, session, new, folding, number, reserved, unheard, delivery, stream)
    if claimed is None:
        if any(block.draws == new.version for block in new.blocks):
            await _undraw(engine, session)
        return None
    answer = await ask_model(engine, agent, claimed, reserved.request, stream, watch)  # 7
    if reserved.cut:
        answer = _cut_short(answer)
    return await _settle(engine, agent, claimed, answer, delivery, stream)


def _cut_short(answer: Answer) -> Answer:
    """Of an answer that had to be shorter than its agent allows: where that was too short, a budget is what stopped it."""
    result = answer.result
    if not isinstance(result, ErrorStepResult) or result.stop_reason != StopReason.MAX_TOKENS:
        return answer
    text = f"the budgets had room for a short answer only, and it was cut off: {result.error}"
    return replace(answer, result=result.model_copy(update={"code": EXCEEDED, "error": text}))


async def _tell_for(engine: Engine, session: SessionRow, delivery: Delivery, stream: RunStream) -> None:
    """Another delivery claimed the next step and did not come to its answer: it may have died before it told of the fold
    that came with its claim. In process, whoever takes over tells."""
    held = session.claim
    if held is None or delivery.leased or held.run_id != session.run_id or held.attempt_id.startswith(delivery.owner):
        return
    untold = await read_untold(engine, session.session_id, session.checkpoint)
    if untold is not None:
        announce_untold(stream, untold)


async def _claim_step(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    new: SessionRow,
    folding: Folding | None,
    number: int,
    reserved: Reserved,
    unheard: list[Operation],
    delivery: Delivery,
    stream: RunStream,
) -> SessionRow | None:
    """6: one transaction that folds what is due, claims the step and reserves its worst case."""
    now = engine.clock.now()
    attempt_id = f"{delivery.owner}.{session.version}"
    new.claim = StepClaim(
        step=new.step + 1,
        attempt=number,
        attempt_id=attempt_id,
        run_id=new.run_id,
        deadline=delivery.deadline,
        micros=reserved.micros,
        tokens=reserved.tokens,
    )
    if delivery.leased:
        new.lease_owner, new.lease_expires = delivery.owner, now + engine.settings.lease_s
    ops: list[Operation] = []
    row: CheckpointRow | None = None
    if folding is not None:
        row, put = fold_checkpoint(new, folding, now)
        ops.append(put)
    ops = [session_put(new, at(session)), *ops, *unheard]
    if not await commit(engine, "claim_step", ops, lambda: _claimed_by(engine, session.session_id, attempt_id)):
        return None
    if row is not None:
        await after_fold(engine, agent, session, new, folding, stream, row)
    return new


async def _undraw(engine: Engine, session: SessionRow) -> None:
    """A block was drawn for a claim that was refused. If the run has ended meanwhile, its effects may have missed it."""
    run = await engine.history.run(session.session_id, session.run_id)
    if run.status != "running":
        await return_draws(engine, session, run)


async def _claimed_by(engine: Engine, session_id: str, attempt_id: str) -> bool:
    session = await engine.history.session(session_id)
    return session is not None and session.claim is not None and session.claim.attempt_id == attempt_id


async def _settle(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    answer: Answer,
    delivery: Delivery,
    stream: RunStream,
) -> Outcome | None:
    """8 and 9, or the end that the stop or the model's failure asks for."""
    if answer.stop is not None:
        await stream.flush()
        return await stop_run(engine, agent, session, answer.stop, None, stream)
    await stream.flush()  # all chunks acknowledged by the log before the answer is staged
    return await stage(engine, agent, session, answer, delivery, stream)
