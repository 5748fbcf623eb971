"""Calls the hooks for each fact, with one event id for each (run, step, hook, call)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helix.core.call_results import call_error
from helix.core.chunks import CustomEventChunk
from helix.core.context import check_event
from helix.core.entries import CallRow, ChildRef, message_of, pending_of
from helix.core.json import JsonObject, JsonValue
from helix.core.questions import open_questions
from helix.core.row_keys import hook_mark_sort
from helix.core.run_row import RunRow
from helix.engine import facts
from helix.engine.context import RunContext
from helix.engine.history import row_key
from helix.engine.writing import commit, exists, no_outcome_check
from helix.ports.state_store import ABSENT, Operation, Put
from helix.services.hook_manager import HookContext
from helix.services.run_stream import Writer

Payload = Mapping[str, Any]


async def call_hooks(run: RunContext, fact: facts.Fact) -> None:
    """Call the hooks for the fact, if there are any. Never raises because of a hook."""
    if not run.engine.hooks.any_wanted(run.agent.hooks):
        return
    match fact:
        case facts.ModelAsked(request):
            claim = run.session.claim
            assert claim is not None
            asked = {"model": request.config.model, "messages": request.messages}
            await _call(run, "before_llm_call", {"step": claim.step, "attempt": claim.attempt, **asked})
        case facts.ModelAnswered(claim, result):
            answer = {"result": result, "usage": result.usage, "model": result.model}
            await _call(run, "after_llm_call", {"step": claim.step, "attempt": claim.attempt, **answer})
        case facts.StepFolded(entries, checkpoint):
            await _messages(run, facts.MessagesAdded(entries, checkpoint.patches))
        case facts.MessagesAdded():
            await _messages(run, fact)
        case facts.RunBegan(begun):
            await _begin(run, begun)
        case facts.RunFinished(ended):
            await _finish(run, ended)
        case _:
            await _call_about_call(run, fact)


async def _call_about_call(run: RunContext, fact: facts.Fact) -> None:
    match fact:
        case facts.CallReminded():
            await _call(run, "on_reminder", _reminder(fact), call_id=f"{fact.row.call_id}/{fact.number}", live=False)
        case facts.ToolClaimed():
            await _call(run, "before_tool", _tool(fact), call_id=fact.row.call_id)
        case facts.ToolEnded() if fact.done is not None:
            await _call(run, "after_tool", _tool(fact) | _ended(run, fact), call_id=fact.row.call_id)
        case facts.ChildBegan(row, ref):
            await _call(run, "before_sub_agent", _child(row, ref), call_id=row.call_id)
        case facts.ChildEnded(row, status):
            await _call(run, "after_sub_agent", {**_child(row, row.child), "status": status}, call_id=row.call_id)


def _tool(fact: facts.ToolCall) -> dict[str, Any]:
    row = fact.row
    names = {"tool": fact.tool, "tool_name": fact.tool.name, "tool_call_id": row.call_id}
    return {"step": row.step, **names, "arguments": fact.request.arguments}


def _reminder(fact: facts.CallReminded) -> dict[str, Any]:
    row = fact.row
    pending = pending_of(row)
    if row.edited is None:
        given = next((call.arguments for call in fact.answer.tool_calls if call.id == row.call_id), {})
        pending = pending.model_copy(update={"arguments": given})
    if row.ask == "question":
        pending = pending.model_copy(update={"questions": open_questions(row.questions)})
    return {"step": row.step, "number": fact.number, "pending": pending}


def _ended(run: RunContext, fact: facts.ToolEnded) -> dict[str, Any]:
    done = fact.done
    assert done is not None
    return {
        "success": done.success,
        "result": done.content,
        "error": None if done.success else call_error(done),
        "duration_ms": (run.now() - fact.begun) * 1000,
    }


def _child(row: CallRow, ref: ChildRef | None) -> dict[str, Any]:
    return {
        "step": row.step,
        "tool_call_id": row.call_id,
        "agent_type": ref.agent_type if ref is not None else "",
        "sub_agent_id": ref.session_id if ref is not None else "",
    }


async def _messages(run: RunContext, fact: facts.MessagesAdded) -> None:
    """Call `on_message` once for each message that a commit added to history, in order, and `on_state_change` once for
    its changes."""
    session = run.session
    if _wanted(run, "on_message"):
        for place, entry in enumerate(fact.entries):
            message = message_of(entry, session.lineage, session.count - len(fact.entries) + place)
            await _call(run, "on_message", {"message": message}, call_id=message.id)
    if fact.patches and _wanted(run, "on_state_change"):
        state = await run.engine.history.state(session)
        await _call(run, "on_state_change", {"patches": list(fact.patches), "state": state}, state=state)


async def _begin(run: RunContext, begun: RunRow) -> None:
    if _wanted(run, "on_agent_start"):
        state = await run.engine.history.state(run.session)
        start = {"agent": run.agent.name, "input": begun.input, "trigger": begun.mode}
        await _once(run, "on_agent_start", {**start, "initial_state": state, "step": 0}, state, live=True)


async def _finish(run: RunContext, ended: RunRow) -> None:
    name = {"completed": "on_agent_complete", "failed": "on_agent_fail"}.get(ended.status)
    if name is None or not _wanted(run, name):
        return
    state = await run.engine.history.state(run.session) if run.session.state_at else {}
    payload = {
        "output": ended.output,
        "final_state": state,
        "error": ended.error,
        "step_count": ended.steps,
        "duration_ms": ((ended.ended_at or ended.started_at) - ended.started_at) * 1000,
        "step": 0,
    }
    await _once(run, name, payload, state, live=False)


async def _once(run: RunContext, name: str, payload: Payload, state: JsonObject, *, live: bool) -> None:
    """Call a run-level hook at least once: each finisher calls it until its mark is stored. Two finishers in one
    process, such as an abort and the run that it ends, or a hook that sends the next message, call it only once."""
    engine = run.engine
    key, calling = row_key(run.session_id, hook_mark_sort(run.run_id, name)), f"{run.run_id}/{name}"
    if calling in engine.calling_hooks:
        return
    engine.calling_hooks.add(calling)
    try:
        (seen,) = await engine.store.get([key])
        if seen is None:
            await _call(run, name, payload, state=state, live=live)
            mark: list[Operation] = [Put(key, {"at": run.now()}, ABSENT), exists(run.session)]
            await commit(engine, "hook_guard", mark, no_outcome_check)
    finally:
        engine.calling_hooks.discard(calling)


def _wanted(run: RunContext, name: str) -> bool:
    return run.engine.hooks.wanted(name, run.agent.hooks)


async def _call(
    run: RunContext,
    name: str,
    payload: Payload,
    *,
    call_id: str = "",
    state: JsonObject | None = None,
    live: bool = True,
) -> None:
    """Call the hook. `live`: the run continues, so the hook may put events on its stream."""
    if not _wanted(run, name):
        return
    session = run.session
    step = payload.get("step", session.step)
    if state is None:
        state = await run.engine.history.state(session) if session.state_at else {}

    def emit(event: str, data: JsonValue) -> None:
        at = max(step, session.open.step if session.open is not None else session.step)
        check_event(event, data)
        chunk = CustomEventChunk(event_name=event, data=data)
        run.stream.put(Writer("call", at, call_id=f"hook:{name}:{call_id}"), [chunk])

    context = HookContext(
        session_id=session.session_id,
        run_id=run.run_id,
        agent_type=run.agent.name,
        stream_id=session.stream_id,
        step_count=session.step,
        event_id=f"{run.run_id}/{step}/{name}/{call_id}",
        parent_session_id=session.parent.session_id if session.parent else None,
        user_id=session.user_id,
        tags=session.tags,
        metadata=session.metadata,
        state=state,
        _emit=emit if live else None,
    )
    await run.engine.hooks.invoke(name, run.agent.hooks, payload, context)
