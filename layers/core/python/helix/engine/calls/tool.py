"""call_tool: claim one call, run it once, record its result (docs/protocol.md#call-tool).

Law: no claim is granted once a result exists. The first recorded result is final. `skip` and `ask` tools never start
twice.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Literal

from helix.core.entries import AssistantRow, CallRow
from helix.core.errors import WorkInProgressError
from helix.core.json import JsonObject, clean_text, dumps
from helix.core.messages import EditedArguments, ToolCallRequest
from helix.core.prompt import BY_GUARD, UNKNOWN, crashed_result
from helix.core.tools import AnyTool, reminders_of
from helix.core.verdicts import MAX_REASON, about, replacement
from helix.engine.calls.elsewhere import Leaving, ended_early, to_judge, unended
from helix.engine.calls.outcome import outcome_row, unjudged_row
from helix.engine.calls.runner import ToolOutcome, run_tool
from helix.engine.claims.liveness import Claim, HeldClaim, call_claim, release
from helix.engine.context import RunContext
from helix.engine.engine import Engine, logger
from helix.engine.facts import CallDone, CallWaits, ToolClaimed, ToolEnded, ToolStarted
from helix.engine.guards.results import has_time, judge_result
from helix.engine.history import session_key
from helix.engine.observers import record, show
from helix.engine.observers.telemetry import within_tool
from helix.engine.step_view import StepView
from helix.engine.stops import judge_stop
from helix.engine.writing import as_read, call_put, commit, held_by_run
from helix.ports.state_store import ABSENT, Check, Delete, Key, When

MAX_DEATHS = 3
"""The number of worker deaths after which even a repeatable call is not started again."""


def first_claim(run: RunContext, request: ToolCallRequest, answer: AssistantRow) -> CallRow:
    """Create the first row of a call: done if it was resolved with the answer, asked, claimed for its sub-agent, or
    claimed by this worker."""
    if request.id in answer.resolved:
        return resolved_row(run, request, answer, answer.resolved[request.id])
    tool = run.find_tool(request.name)
    row = CallRow(
        call_id=request.id,
        tool_name=request.name,
        step=answer.step,
        state="claimed",
        run_id=run.run_id,
        owner=run.delivery.owner,
        inline=run.agent.is_inline(tool),
    )
    if answer.verdicts and (edited := _guard_edit(answer, request)) is not None:
        row = row.model_copy(update={"edited": edited})
    if tool is not None and tool.kind == "client":
        return row.model_copy(update={"state": "asked", "ask": "client", "owner": None, **_timeout(run, tool)})
    if (reason := _approval_reason(tool, executed(request, row), answer)) is not None:
        asked = {"state": "asked", "ask": "approval", "reason": reason or None, "owner": None}
        return row.model_copy(update={**asked, **_timeout(run, tool)})
    return _assigned(run, row, answer)


def _guard_edit(answer: AssistantRow, request: ToolCallRequest) -> EditedArguments | None:
    """Return the arguments that guards put in place of the model's, or None."""
    replaced = replacement(answer.verdicts, "call", request.id)
    if replaced is None or not isinstance(replaced.value, dict):
        return None
    return EditedArguments(by=BY_GUARD + replaced.guard, at=answer.created_at, arguments=replaced.value)


def _approval_reason(tool: AnyTool | None, request: ToolCallRequest, answer: AssistantRow) -> str | None:
    """Return why the call waits for approval, as `approval_reason` does. A guard's reason comes first."""
    asks = [v.reason for v in about(answer.verdicts, "call", request.id) if v.verdict == "ask"]
    rule = None if tool is None else approval_reason(tool, request)
    return next((reason for reason in asks if reason), rule or "") if asks else rule


def _timeout(run: RunContext, tool: AnyTool | None) -> dict[str, object]:
    """Return the deadline of a call that begins to wait for a response, and the policy afterwards."""
    if tool is None:
        return {"deadline": None}
    now, limit_s = run.now(), tool.answer_timeout_s
    remind_at = [now + after for after in reminders_of(tool.remind_s, limit_s) or []]
    if limit_s is None:
        return {"deadline": None, "remind_at": remind_at}
    return {"deadline": now + limit_s, "on_timeout": tool.on_answer_timeout, "remind_at": remind_at}


def _assigned(run: RunContext, row: CallRow, answer: AssistantRow) -> CallRow:
    """Return `row` claimed for the worker or the sub-agent that executes its call. A sub-agent's claim has no deadline,
    because the claim lasts until the sub-agent ends."""
    child = answer.children.get(row.call_id)
    if child is None:
        return claimed(run, row)
    changes = {"state": "claimed", "child": child, "claim": row.claim + 1, "owner": child.session_id}
    return row.model_copy(update={**changes, "run_id": run.run_id})


def resolved_row(run: RunContext, request: ToolCallRequest, answer: AssistantRow, result: tuple[str, bool]) -> CallRow:
    """Create the row of a call that is not executed. `result` is its content and whether it succeeded."""
    content, success = result
    return CallRow(
        call_id=request.id,
        tool_name=request.name,
        step=answer.step,
        state="done",
        run_id=run.run_id,
        content=content,
        success=success,
        by="plan",
        ended_at=run.now(),
    )


def claimed_with_answer(run: RunContext, first: CallRow) -> bool:
    """Return whether a first claim is written together with the answer. Such a claim marks the call as started before
    it starts. If the worker died in between, a tool that must not start twice would seem to have an unknown outcome."""
    if first.state != "claimed" or first.child is not None:
        return True
    tool = run.find_tool(first.tool_name)
    return run.engine.placement.executes_tool(run.agent, tool) and (tool is None or tool.on_unknown == "retry")


def claimed(run: RunContext, row: CallRow) -> CallRow:
    """Return `row` claimed by this worker, with the next claim number."""
    changes = {"state": "claimed", "ask": None, "owner": run.delivery.owner, "claim": row.claim + 1, "released": False}
    deadline = run.now() + run.engine.settings.claim_s
    return row.model_copy(update={**changes, "run_id": run.run_id, "deadline": deadline})


def is_expired(run: RunContext, row: CallRow) -> bool:
    """Return whether the claim's holder can no longer act, because its deadline has passed. A claim from an earlier
    version of Helix has no deadline. It expires once its run is no longer the session's current run."""
    return row.run_id != run.run_id if row.deadline is None else row.deadline < run.now()


def _is_ours(run: RunContext, row: CallRow) -> bool:
    return row.state == "claimed" and row.owner == run.delivery.owner and row.run_id == run.run_id


def may_start(run: RunContext, deadline: float) -> bool:
    """Return whether the holder may still start the tool, according to its own clock. This is checked immediately
    before the start, because other workers may take the call after the deadline."""
    now = run.now()
    return run.delivery.may_act(now) and now < deadline - run.engine.settings.margin_s


def approval_reason(tool: AnyTool, request: ToolCallRequest) -> str | None:
    """Return why the call waits for approval: empty if the tool gives no reason, None if the call needs no approval. If
    the rule raises, the call needs approval, because approval rules must not fail open."""
    if isinstance(tool.require_approval, bool):
        return "" if tool.require_approval else None
    try:
        asks = tool.require_approval(tool.input_schema.model_validate(request.arguments))
        return None if not asks else clean_text(asks[:MAX_REASON]) if isinstance(asks, str) else ""
    except Exception as error:
        logger.warning("require_approval of tool %r raised; asking for approval", tool.name, exc_info=True)
        return f"the tool's rule for approvals failed: {type(error).__name__}"


def may_wait(tool: AnyTool | None) -> bool:
    """Return whether a call of the tool may wait for a person before it is executed."""
    return tool is not None and (tool.require_approval is not False or tool.on_unknown == "ask")


def executed(request: ToolCallRequest, row: CallRow) -> ToolCallRequest:
    """Return the call to execute: if a person approved other arguments, they replace the model's."""
    return request if row.edited is None else request.model_copy(update={"arguments": row.edited.arguments})


Progress = Literal["done", "asked", "skipped", "waits", "over", "again"]
"""The progress of a call in one delivery. `waits`: a token is stored until its sub-agent ends. `over`: the step no
longer belongs to this run. `again`: the row has changed since the view was read, so the caller must read it again."""


async def view_step(
    engine: Engine, session_id: str, run_id: str, step: int, call_id: str | None = None
) -> StepView | None:
    """Read the open step. None: it no longer belongs to this run, or is no longer open. If the step is wide and
    `call_id` is given, only that call's row is read."""
    session, stop = await engine.history.session_and_stop(session_id, run_id)
    if session.run_id != run_id or session.status != "running" or session.open is None or session.open.step != step:
        return None
    history = engine.history
    rows = await (history.open_rows(session) if call_id is None else history.open_call(session, call_id))
    assert rows is not None
    return StepView(session, rows, await judge_stop(engine.store, session, run_id, stop))


async def call_tool(run: RunContext, view: StepView, call_id: str) -> Progress:
    """Advance the call by one delivery."""
    place = view.place(call_id)
    request, row = view.rows.answer.tool_calls[place], view.rows.calls[place]
    tool = run.find_tool(request.name)
    if row is not None and row.state == "done":  # 1
        show(run, CallDone(row))
        return "done"
    if row is not None and row.state == "asked":
        return "asked"
    ours = row is not None and _is_ours(run, row) and row.content is None
    if view.stop is not None or run.watch.stop is not None:
        if ours and row is not None and row.child is None:
            await _release_unstarted(run, view, row)
        return "skipped"
    if not ours:  # 2
        taken = await _acquire_call(run, view, request, row)
        if not isinstance(taken, CallRow):
            return taken
        row = taken
    assert row is not None
    if row.child is not None:  # claimed for its child: the caller reads the row again and calls `call_child`
        return "again"
    if tool is None:  # the code changed during the run
        return await _record(run, view, row, _missing_tool_result(run, row))
    return await _run(run, view, ToolClaimed(tool, executed(request, row), row))  # 3 to 5


async def _acquire_call(
    run: RunContext, view: StepView, request: ToolCallRequest, row: CallRow | None
) -> CallRow | Progress:
    """Claim the call as its row requires, on condition that the session still belongs to this run and the row is
    unchanged."""
    session = view.session
    if row is None:
        new, when = first_claim(run, request, view.rows.answer), ABSENT
    elif row.state == "approved":
        new, when = _assigned(run, row, view.rows.answer), When(equal={"state": "approved"})
    else:
        if not is_expired(run, row) and not _is_ours(run, row):
            until = row.deadline or run.now() + 1
            raise WorkInProgressError(f"call {row.call_id!r} of session {session.session_id!r}", until)
        early = ended_early(row, run.now())
        new = early or _unknown_outcome(run, row, run.find_tool(request.name))
        # The condition includes the deadline, so a holder that renews its claim in the meantime keeps it.
        same = unended(row) if row.content is None else as_read(row)
        when = When(equal={**same.equal, "deadline": row.deadline})
    put = call_put(view.key(request.id), new, when)
    check = Check(session_key(session.session_id), held_by_run(run.run_id))
    if not await commit(run.engine, "claim_call", [check, put], lambda: _row_matches(run.engine, put.key, new)):
        return "again"
    if new.state == "done":
        show(run, CallDone(new, arguments=request.arguments if new.by == "plan" else None))
        return "done"
    if new.state == "asked":
        show(run, CallWaits(new, view.rows.answer))
        return "asked"
    return new


def _unknown_outcome(run: RunContext, row: CallRow, tool: AnyTool | None) -> CallRow:
    """Return the new row of a call whose holder died, as the tool's policy requires."""
    policy = "retry" if row.content is not None else tool.on_unknown if tool is not None else "skip"
    match policy:
        case "retry":
            row = row if row.released else row.model_copy(update={"deaths": row.deaths + 1})
            if row.deaths < MAX_DEATHS:
                return claimed(run, row)
            return row.ended(dumps(crashed_result(row.tool_name, row.deaths)), False, "policy", run.now())
        case "skip":
            return row.ended(dumps(UNKNOWN), False, "policy", run.now())
        case _:
            # If the question had the dead claim's number, the log would drop it as a duplicate.
            changes = {"state": "asked", "ask": "unknown", "claim": row.claim + 1, "reason": None, "owner": None}
            return row.model_copy(update={**changes, **_timeout(run, tool)})


async def _release_unstarted(run: RunContext, view: StepView, row: CallRow) -> None:
    """Release a claim that was never started, so that its outcome is not unknown. A call that a person approved stays
    approved, and one with answers keeps them. A row with a count of deaths or with tokens is kept."""
    if row.deaths or row.later is not None:
        await release(run.engine, call_claim(run, view.key(row.call_id), row))
        return
    key, tool = view.key(row.call_id), run.find_tool(row.tool_name)
    request = view.rows.answer.tool_calls[view.place(row.call_id)]
    approved = row.edited is not None or bool(row.questions) or row.content is not None
    if approved or _approval_reason(tool, request, view.rows.answer) is not None:
        back = row.model_copy(update={"state": "approved", "owner": None})
        put = call_put(key, back, as_read(row))
        await commit(run.engine, "release_call", [put], partial(_row_matches, run.engine, key, back))
        return
    await commit(run.engine, "release_call", [Delete(key, as_read(row))], partial(_is_gone, run.engine, key))


async def _is_gone(engine: Engine, key: Key) -> bool:
    return (await engine.store.get([key]))[0] is None


async def _row_matches(engine: Engine, key: Key, wanted: CallRow) -> bool:
    (value,) = await engine.store.get([key])
    if value is None:
        return False
    row = CallRow.read(key.partition, key.sort, value)
    return (row.state, row.owner, row.claim) == (wanted.state, wanted.owner, wanted.claim)


def _missing_tool_result(run: RunContext, row: CallRow) -> CallRow:
    content = dumps({"error": f"there is no tool {row.tool_name!r} any more"})
    return row.ended(content, False, "plan", run.now())


async def _run(run: RunContext, view: StepView, call: ToolClaimed) -> Progress:
    """Execute the call under its claim, then record the result. Once the tool has ended, the claim needs no
    heartbeat."""
    claim = call_claim(run, view.key(call.row.call_id), call.row)
    async with HeldClaim(run.engine, claim):
        await record(run, call)
        state = await run.engine.history.state(view.session)
        if not may_start(run, claim.deadline()):  # other workers may take the call now, so it must not start here
            await _release_unstarted(run, view, call.row)
            raise WorkInProgressError(f"call {call.row.call_id!r} of session {run.session_id!r}", run.now())
        begun = run.now()
        done = await _execute(run, view, ToolStarted(call.tool, call.request, call.row), state, begun, claim)
    try:
        progress = await _record(run, view, call.row, done)
    except (asyncio.CancelledError, Exception):
        await release(run.engine, claim)
        raise
    result = done if done.state == "done" else None
    await record(run, ToolEnded(call.tool, call.request, call.row, begun, done=result))
    if progress == "again" and done.is_unjudged:  # the next delivery has the time
        raise WorkInProgressError(f"call {call.row.call_id!r} of session {run.session_id!r}", run.now())
    return progress


async def _execute(
    run: RunContext, view: StepView, call: ToolStarted, state: JsonObject, begun: float, claim: Claim
) -> CallRow:
    """Run the tool under the claim, and return the call's row with its result. Without time for the guards, the row has the
    result that the next delivery judges."""
    given = _given_result(call.row)
    if given is None:
        show(run, call)
    try:
        with within_tool(run, call.row):
            leaving = Leaving(run, view, call.tool, call.row)
            outcome = given or await run_tool(run, call, state, leaving)
            row = call.row.model_copy(update={"later": leaving.stored})
            if run.agent.guards and outcome.questions is None and not outcome.elsewhere:
                if given is None and not outcome.files and not outcome.fatal and not has_time(run, call, outcome):
                    return unjudged_row(row, outcome)
                outcome, verdicts = await judge_result(run, call, claim, outcome)
                row = row.model_copy(update={"verdicts": verdicts})
            return await outcome_row(run, row, outcome)
    except BaseException as error:
        name = type(error).__name__ if isinstance(error, Exception) else "cancelled"
        show(run, ToolEnded(call.tool, call.request, call.row, begun, error=name))
        raise


def _given_result(row: CallRow) -> ToolOutcome | None:
    """Return the result that guards have to judge, as the outcome of the call: a client or another system has sent it, or
    an earlier delivery had no time for the guards. None: the call has to be executed."""
    if row.content is None:
        return None
    return ToolOutcome(row.content, bool(row.success), plain=row.plain, patches=row.patches)


async def _record(run: RunContext, view: StepView, row: CallRow, done: CallRow) -> Progress:
    """4: record the result or the questions, on condition that this worker still holds the claim. Otherwise the outcome
    is discarded. A result that came from elsewhere while the tool ran takes the place of the tool's. If guards must judge
    it, the call is claimed again for that."""
    may_end_early = done.later is not None and row.content is None
    put = call_put(view.key(row.call_id), done, unended(row) if may_end_early else as_read(row))
    recorded = await commit(run.engine, "call_result", [put], lambda: _row_matches(run.engine, put.key, done))
    if not recorded and may_end_early:
        early = await _read_early(run, put.key, row)
        if early is None:
            return "again"
        done = early.model_copy(update={"patches": done.patches if early.success else [], "usage": done.usage})
        put = call_put(put.key, done, as_read(row))
        recorded = await commit(run.engine, "call_result", [put], lambda: _row_matches(run.engine, put.key, done))
    if recorded and done.state != "approved":
        if done.state == "asked":
            show(run, CallWaits(done, view.rows.answer))
            return "asked"
        view.results[done.call_id] = done
        show(run, CallDone(done))  # 5
        return "done"
    return "again"


async def _read_early(run: RunContext, key: Key, row: CallRow) -> CallRow | None:
    """Return the call's row with the result that came from elsewhere, if this worker still holds the claim."""
    (value,) = await run.engine.store.get([key])
    stored = None if value is None else CallRow.read(key.partition, key.sort, value)
    if stored is None or (stored.state, stored.owner, stored.claim) != ("claimed", row.owner, row.claim):
        return None
    if stored.is_unjudged:
        return to_judge(stored)
    return ended_early(stored, run.now())
