"""call_tool: claim one call, run it once, record its result (PROTOCOL 6).

Law: no claim is granted once a result exists; the first recorded result stands; `skip` and `ask` tools never start twice.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from helix.core.agents import AnyAgent
from helix.core.chunks import ToolStartChunk
from helix.core.errors import WorkInProgressError
from helix.core.json import dumps
from helix.core.messages import ToolCallRequest
from helix.core.prompt import UNKNOWN
from helix.core.rows import CallRow, SessionRow
from helix.core.tools import AnyTool
from helix.engine.announcing import announce_result
from helix.engine.claiming_calls import claimed, first_claim, may_start, needs_approval
from helix.engine.delivery import Delivery
from helix.engine.engine import Engine
from helix.engine.history import session_key
from helix.engine.hooking import call_hook
from helix.engine.measuring import measure_tool
from helix.engine.run_stream import RunStream
from helix.engine.staging import announce_ask
from helix.engine.step_view import StepView
from helix.engine.stops import StopWatch, judge_stop
from helix.engine.tool_runner import run_tool
from helix.engine.traced import traced_tool
from helix.engine.writing import commit, entry_put, mine
from helix.ports.state_store import ABSENT, Check, Delete, Key, When

Told = Literal["done", "asked", "skipped", "over", "again"]


async def view_step(engine: Engine, session_id: str, run_id: str, step: int) -> StepView | None:
    """The open step, or None where it is no longer this run's or no longer open."""
    session, stop = await engine.history.session_and_stop(session_id, run_id)
    if session.run_id != run_id or session.status != "running" or session.open is None or session.open.step != step:
        return None
    rows = await engine.history.open_rows(session)
    assert rows is not None
    return StepView(session, rows, await judge_stop(engine, session, run_id, stop))


async def call_tool(
    engine: Engine,
    agent: AnyAgent,
    view: StepView,
    call_id: str,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
) -> Told:
    """Bring the call one delivery further. `again`: the row changed under the view; read it anew."""
    session = view.session
    place = view.place(call_id)
    request, row = view.rows.answer.tool_calls[place], view.rows.calls[place]
    tool = agent.find_tool(request.name)
    if row is not None and row.state == "done":  # 1
        announce_result(stream, row)
        return "done"
    if row is not None and row.state == "asked":
        return "asked"
    mine_already = (
        row is not None and row.state == "claimed" and row.owner == delivery.owner and row.run_id == session.run_id
    )
    if view.stop is not None or watch.stop is not None:
        if mine_already and row is not None and row.child is None:
            await _give_back(engine, view, row, approved=tool is not None and needs_approval(tool, request))
        return "skipped"
    if not mine_already:  # 2
        taken = await _take(engine, agent, view, request, row, tool, delivery, stream)
        if not isinstance(taken, CallRow):
            return taken
        row = taken
    assert row is not None
    if row.child is not None:  # claimed for its child: who executes children reads it anew
        return "again"
    if tool is None:  # the code changed in mid-run
        return await _record(engine, view, row, _gone(engine, row), stream)
    return await _run(engine, agent, view, request, row, tool, delivery, stream, watch)  # 3 to 5


async def _take(
    engine: Engine,
    agent: AnyAgent,
    view: StepView,
    request: ToolCallRequest,
    row: CallRow | None,
    tool: AnyTool | None,
    delivery: Delivery,
    stream: RunStream,
) -> CallRow | Told:
    """Claim the call by what its row says; conditions: the session is this run's, the row is as read."""
    now = engine.clock.now()
    session = view.session
    if row is None:
        new, when = (
            first_claim(agent, request, view.rows.answer, session.run_id, delivery, now, engine.settings.margin_s),
            ABSENT,
        )
    elif row.state == "approved":
        new, when = (
            claimed(row, tool, delivery, session.run_id, now, engine.settings.margin_s),
            When(equal={"state": "approved"}),
        )
    else:
        if not dead(row, session, now):
            raise WorkInProgressError(
                f"call {row.call_id!r} of session {session.session_id!r}", row.deadline or now + 1
            )
        policy = tool.on_unknown if tool is not None else "skip"
        when = When(equal={"state": "claimed", "owner": row.owner, "claim": row.claim})
        if policy == "retry":
            new = claimed(row, tool, delivery, session.run_id, now, engine.settings.margin_s)
        elif policy == "skip":
            new = row.model_copy(
                update={"state": "done", "content": dumps(UNKNOWN), "success": False, "by": "policy", "ended_at": now}
            )
        else:
            new = row.model_copy(update={"state": "asked", "ask": "unknown", "owner": None})
    put = entry_put(session.session_id, session.lineage, _index(view, request.id), new, when)
    check = Check(session_key(session.session_id), mine(session.run_id))
    if not await commit(engine, "claim_call", [check, put], lambda: _is(engine, put.key, new)):
        return "again"
    if new.state == "done":
        announce_result(stream, new)
        return "done"
    if new.state == "asked":
        announce_ask(stream, new, view.rows.answer)
        return "asked"
    return new


async def _give_back(engine: Engine, view: StepView, row: CallRow, *, approved: bool) -> None:
    """A claim that was never started: nobody is to think that its outcome is unknown. What a person approved stays so."""
    owner = When(equal={"state": "claimed", "owner": row.owner, "claim": row.claim})
    key = view.key(row.call_id)
    if approved:
        back = row.model_copy(update={"state": "approved", "owner": None})
        put = entry_put(view.session.session_id, view.session.lineage, _index(view, row.call_id), back, owner)
        await commit(engine, "release_call", [put], partial(_is, engine, key, back))
        return
    await commit(engine, "release_call", [Delete(key, owner)], partial(_is_gone, engine, key))


async def _is_gone(engine: Engine, key: Key) -> bool:
    return (await engine.store.get([key]))[0] is None


def dead(row: CallRow, session: SessionRow, now: float) -> bool:
    """A claim whose holder can no longer act: its worker lost the session, or its deadline has passed."""
    if row.leased:
        return row.run_id != session.run_id
    return row.deadline is None or row.deadline < now


def _index(view: StepView, call_id: str) -> int:
    assert view.session.open is not None
    return view.session.open.base + 1 + view.place(call_id)


async def _is(engine: Engine, key: Key, wanted: CallRow) -> bool:
    (value,) = await engine.store.get([key])
    if value is None:
        return False
    row = CallRow.model_validate(value)
    return (row.state, row.owner, row.claim) == (wanted.state, wanted.owner, wanted.claim)


def _gone(engine: Engine, row: CallRow) -> CallRow:
    content = dumps({"error": f"there is no tool {row.tool_name!r} any more"})
    return row.model_copy(
        update={"state": "done", "content": content, "success": False, "by": "plan", "ended_at": engine.clock.now()}
    )


async def _run(
    engine: Engine,
    agent: AnyAgent,
    view: StepView,
    request: ToolCallRequest,
    row: CallRow,
    tool: AnyTool,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
) -> Told:
    session = view.session
    told = {
        "step": row.step,
        "tool": tool,
        "tool_name": tool.name,
        "tool_call_id": row.call_id,
        "arguments": request.arguments,
    }
    await call_hook(engine, agent, session, "before_tool", told, stream, call_id=row.call_id)
    state = await engine.history.state(session)
    started = engine.clock.now()
    if not may_start(row, tool, delivery, started):  # others may take the call now: it is not started here
        raise WorkInProgressError(
            f"call {row.call_id!r} of session {session.session_id!r}", row.deadline or started + 1
        )
    chunk = ToolStartChunk(tool_call_id=row.call_id, tool_name=row.tool_name, arguments=request.arguments)
    stream.put("call", [chunk], step=row.step, attempt=row.claim, call_id=row.call_id)
    work = run_tool(engine, agent, tool, request, row, session, state, stream, watch)
    outcome = await traced_tool(engine, agent, session, request, row, work)
    now = engine.clock.now()
    done = row.model_copy(
        update={
            "state": "done",
            "content": outcome.content,
            "success": outcome.success,
            "plain": outcome.plain,
            "fatal": outcome.fatal,
            "patches": outcome.patches,
            "usage": outcome.usage,
            "by": "tool",
            "ended_at": now,
            "deadline": None,
            "confirmation": None,
        }
    )
    result = await _record(engine, view, row, done, stream)
    measure_tool(engine, session, row, outcome.success, now - started)
    after = {**told, "success": outcome.success, "result": outcome.content, "duration_ms": (now - started) * 1000}
    await call_hook(engine, agent, session, "after_tool", after, stream, call_id=row.call_id)
    return result


async def _record(engine: Engine, view: StepView, row: CallRow, done: CallRow, stream: RunStream) -> Told:
    """4: the result, on condition that the claim is still ours. Refused: drop it."""
    owner = When(equal={"state": "claimed", "owner": row.owner, "claim": row.claim})
    put = entry_put(view.session.session_id, view.session.lineage, _index(view, row.call_id), done, owner)
    if await commit(engine, "call_result", [put], lambda: _is(engine, put.key, done)):
        announce_result(stream, done)  # 5
        return "done"
    return "again"
