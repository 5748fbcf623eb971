"""What one delivery of each verb does: from the ids in its payload to what its execution does next (PROTOCOL 5 to 9).

Law: a payload carries ids and counters only, so any delivery may be repeated, doubled or late: the rows decide. An
execution knows no more than its payload; which step, call or part is due is answered here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from helix.core.agents import AnyAgent
from helix.core.errors import ConditionFailedError, RunNotFoundError, SessionNotFoundError, WorkInProgressError
from helix.core.row_keys import run_sort
from helix.core.rows import RunRow, SessionRow, StopRow
from helix.engine.call_model import call_model
from helix.engine.call_tool import call_tool, view_step
from helix.engine.children import announce_child, refusal, start_child
from helix.engine.claims import Claimed
from helix.engine.delivery import Delivery
from helix.engine.ends import abort, fail_run, finish_run
from helix.engine.engine import Engine, Over, Tools, logger
from helix.engine.history import row_key, session_key
from helix.engine.hooking import call_hook
from helix.engine.intake import begin, begin_all, begin_attached
from helix.engine.parts import launcher_of, part_of
from helix.engine.run_stream import RunStream
from helix.engine.settling import refuse_child
from helix.engine.step_view import StepView
from helix.engine.stops import StopWatch, watch_stops
from helix.engine.tokens import add_token, wake_waiting
from helix.engine.writing import commit
from helix.ports.state_store import Check, Update, When

CANCEL_S = 15
"""A model call is cancelled so long before its delivery's deadline: what it holds is let go in order."""
MODEL_EVENTS, CALL_EVENTS, MAP_EVENTS = 8, 7, 5
"""What a model call with its choice, a call, and a map of calls add to an execution's history, rounded up."""

CallKind = Literal["call_tool", "start_run"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an execution stands: the step to buy, and an estimate of the events in its history."""

    session_id: str
    run_id: str
    part: int
    step: int
    events: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """What the execution does next: execute `calls` of step `step - 1`, if there are any, then buy `step`. `over`: finish
    the run; `gone`: this execution has no more to do (the next part is at work, or the session was deleted)."""

    kind: Literal["on", "over", "gone"]
    step: int
    events: int
    calls: tuple[tuple[str, CallKind], ...] = ()


async def deliver_model(engine: Engine, place: Place, delivery: Delivery) -> Move:
    """Buy the step, and run those of its calls that are declared `inline`."""
    try:
        seen, run = await engine.history.seen_with_run(place.session_id, place.run_id)
    except (SessionNotFoundError, RunNotFoundError):
        return Move("gone", place.step, place.events)
    session = seen.session
    agent = engine.agents(session.agent_type)
    if run.part > place.part or (
        place.events >= engine.settings.roll_over_events and await _roll_over(engine, run, place)
    ):
        now_at = await engine.history.run(place.session_id, place.run_id)
        if now_at.status == "running":
            await launcher_of(engine).start(part_of(agent, now_at))
        return Move("gone", place.step, place.events)
    if run.status == "running" and agent.fingerprint() != (run.editions[-1][1] if run.editions else run.fingerprint):
        await _note_edition(engine, agent, run, place.step)
    stream = RunStream(engine.streams, engine.clock, session, run.run_id, run.turn)
    async with watch_stops(engine, session, run.run_id) as watch, _closing(stream):
        if (late := _late(engine, run)) is not None:
            watch.seen(late)
        try:
            async with asyncio.timeout(_left(engine, run, delivery)):
                outcome = await call_model(
                    engine,
                    agent,
                    place.session_id,
                    place.run_id,
                    place.step,
                    delivery,
                    stream,
                    watch,
                    seen=seen,
                )
        except TimeoutError:
            raise WorkInProgressError(
                f"step {place.step} of {place.session_id!r}: its model call", delivery.deadline
            ) from None
        events = place.events + MODEL_EVENTS
        if isinstance(outcome, Over):
            return Move("over", place.step, events)
        calls = await _inline(engine, agent, session, outcome, delivery, stream, watch)
    if calls:
        events += CALL_EVENTS * len(calls) + (MAP_EVENTS if len(calls) > 1 else 0)
    return Move("on", outcome.step + 1, events, calls)


async def deliver_call(engine: Engine, place: Place, call_id: str, delivery: Delivery) -> str:
    """Bring one tool call to an end, or to the point where it waits for a person."""
    try:
        view = await view_step(engine, place.session_id, place.run_id, place.step)
    except SessionNotFoundError:
        return "over"
    if view is None:
        return "over"
    session = view.session
    agent = engine.agents(session.agent_type)
    stream = RunStream(engine.streams, engine.clock, session, session.run_id, session.turn)
    async with watch_stops(engine, session, session.run_id) as watch, _closing(stream):
        return await _call(engine, agent, place, call_id, delivery, stream, watch, view)


async def deliver_child(engine: Engine, place: Place, call_id: str, token: str, delivery: Delivery) -> str:
    """Start or attach to the sub-agent of a call. `token` is answered once the parent has nothing to wait for: at once,
    or when the sub-agent's session stops running."""
    told = "over"
    try:
        view = await view_step(engine, place.session_id, place.run_id, place.step)
    except SessionNotFoundError:
        view = None
    if view is not None:
        session = view.session
        agent = engine.agents(session.agent_type)
        stream = RunStream(engine.streams, engine.clock, session, session.run_id, session.turn)
        async with _closing(stream):
            while view is not None:
                told = await _child(engine, agent, view, call_id, token, delivery, stream)
                if told != "again":
                    break
                view = await view_step(engine, place.session_id, place.run_id, place.step)
    if told != "waits":
        await launcher_of(engine).wake(token)
    return told


async def deliver_end(engine: Engine, session_id: str, run_id: str, delivery: Delivery) -> None:
    """The effects of an ended run, and the parents that go on with it."""
    try:
        session = await engine.history.existing(session_id)
        agent = engine.agents(session.agent_type)
        await begin_all(engine, await finish_run(engine, agent, session_id, run_id, delivery), delivery)
    except (SessionNotFoundError, RunNotFoundError):
        logger.info("run %s has nothing left to finish: its session was deleted", run_id)


async def deliver_failure(
    engine: Engine, session_id: str, run_id: str, part: int, cause: str, delivery: Delivery
) -> None:
    """The execution of this part has ended, whatever it was doing."""
    try:
        session = await engine.history.existing(session_id)
        agent = engine.agents(session.agent_type)
        claims = await fail_run(engine, agent, session_id, run_id, part, delivery, cause=cause)
        await begin_all(engine, claims, delivery)
    except (SessionNotFoundError, RunNotFoundError):
        logger.info("run %s has nothing left to fail: its session was deleted", run_id)


async def end_late_child(engine: Engine, agent: AnyAgent, run: RunRow, delivery: Delivery) -> bool:
    """Abort a sub-agent that takes longer than its parent's tool allows: a failed result that the model sees."""
    late = _late(engine, run)
    if late is None:
        return False
    claims = await abort(engine, agent, run.session_id, late.reason, delivery, run_id=run.run_id)
    await begin_all(engine, claims, delivery)
    return True


# --- inside -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _closing(stream: RunStream) -> AsyncIterator[None]:
    """What was put is in the log before the delivery answers, or fails."""
    try:
        yield
    finally:
        await stream.close()


def _late(engine: Engine, run: RunRow) -> StopRow | None:
    """The stop of a sub-agent whose time is over."""
    now = engine.clock.now()
    if run.deadline is None or run.status != "running" or now < run.deadline:
        return None
    reason = f"the sub-agent took longer than {round(run.deadline - run.started_at, 1):g} s"
    return StopRow(run_id=run.run_id, stop="abort", reason=reason, created_at=now)


def _left(engine: Engine, run: RunRow, delivery: Delivery) -> float:
    until = delivery.deadline - CANCEL_S
    if run.deadline is not None and run.deadline > engine.clock.now():
        until = min(until, run.deadline)
    return max(0.0, until - engine.clock.now())


async def _roll_over(engine: Engine, run: RunRow, place: Place) -> bool:
    """Hand the run to its next part, between steps: the part is the fence against this one's end."""
    part = Update(
        row_key(run.session_id, run_sort(run.run_id)),
        set={"part": run.part + 1, "part_step": place.step},
        when=When(equal={"part": run.part if run.part > 1 else None}),
    )
    mine = Check(session_key(run.session_id), When(equal={"run_id": run.run_id, "status": "running"}))
    try:
        await engine.store.transact("roll_over", [mine, part])
    except ConditionFailedError:
        return (await engine.history.run(run.session_id, run.run_id)).part > place.part
    logger.info("run %s goes on as part %d at step %d", run.run_id, run.part + 1, place.step)
    return True


async def _note_edition(engine: Engine, agent: AnyAgent, run: RunRow, step: int) -> None:
    """The agent is not what it was at the step before: the run goes on with it, and says from where."""
    logger.info("run %s goes on with a changed agent %r at step %d", run.run_id, agent.name, step)
    editions = [*run.editions, (step, agent.fingerprint())]
    noted = Update(row_key(run.session_id, run_sort(run.run_id)), set={"editions": [list(e) for e in editions]})
    await commit(engine, "note_edition", [noted], _no)


async def _no() -> bool:
    return False


async def _inline(
    engine: Engine,
    agent: AnyAgent,
    session: SessionRow,
    outcome: Tools,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
) -> tuple[tuple[str, CallKind], ...]:
    """Run the calls of inline tools here; the others are the execution's, each with the verb that takes it on."""
    if not outcome.calls:
        return ()
    view = outcome.view or await view_step(engine, session.session_id, session.run_id, outcome.step)
    if view is None:
        return ()
    names = {request.id: request.name for request in view.rows.answer.tool_calls}
    here, left = [], []
    for call_id in outcome.calls:
        tool = agent.find_tool(names[call_id])
        if call_id in view.rows.answer.children:
            left.append((call_id, "start_run"))
        elif tool is not None and tool.inline:
            here.append(call_id)
        else:
            left.append((call_id, "call_tool"))
    place = Place(session.session_id, session.run_id, 0, outcome.step)
    calls = (_call(engine, agent, place, call_id, delivery, stream, watch, view) for call_id in here)
    # Not a TaskGroup: the platform's retries know errors by the names of their classes, and a group has another one.
    for told in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(told, BaseException):
            raise told
    return tuple(left)  # type: ignore[arg-type]


async def _call(
    engine: Engine,
    agent: AnyAgent,
    place: Place,
    call_id: str,
    delivery: Delivery,
    stream: RunStream,
    watch: StopWatch,
    view: StepView | None = None,
) -> str:
    told = "over"
    view = view or await view_step(engine, place.session_id, place.run_id, place.step)
    while view is not None:
        told = await call_tool(engine, agent, view, call_id, delivery, stream, watch)
        if told != "again":
            return told
        view = await view_step(engine, place.session_id, place.run_id, place.step)
    return told


async def _child(
    engine: Engine,
    agent: AnyAgent,
    view: StepView,
    call_id: str,
    token: str,
    delivery: Delivery,
    stream: RunStream,
) -> str:
    """`waits`: the token is kept for the sub-agent's end. Anything else: there is nothing to wait for, or look again."""
    request = view.rows.answer.tool_calls[view.place(call_id)]
    row, ref = view.rows.calls[view.place(call_id)], view.rows.answer.children.get(call_id)
    if ref is None or row is None or row.state not in ("claimed", "done"):
        return await call_tool(engine, agent, view, call_id, delivery, stream, StopWatch())
    if row.state == "done":
        return "done"
    if view.stop is not None:
        return "skipped"
    reason = refusal(engine, view.session, ref.agent_type)
    if reason is not None:
        return await refuse_child(engine, view, row, reason, stream)
    child_agent = agent.find_agent(ref.agent_type) or engine.agents(ref.agent_type)
    try:
        started = await start_child(engine, agent, view, request, ref, delivery)
    except WorkInProgressError:
        if (await engine.history.existing(ref.session_id)).lease_owner is not None:
            raise  # a process of its own runs it, which answers no tokens
        started = None  # claimed by an earlier delivery, which may not have come further
    if not await add_token(engine, ref.session_id, token):
        return "over"
    if isinstance(started, Claimed):
        payload = {
            "step": row.step,
            "tool_call_id": row.call_id,
            "agent_type": ref.agent_type,
            "sub_agent_id": ref.session_id,
        }
        await call_hook(engine, agent, view.session, "before_sub_agent", payload, stream, call_id=row.call_id)
        announce_child(stream, row, request, ref)
        await stream.flush()
        await begin(engine, child_agent, started, delivery, attached=True)
        return "waits"
    child, run = await _current(engine, ref.session_id)
    if child.status == "running":
        announce_child(stream, row, request, ref)
        await stream.flush()
        await begin_attached(engine, child_agent, child, run)
        return "waits"
    claims = await finish_run(engine, child_agent, child.session_id, run.run_id, delivery)
    await begin_all(engine, claims, delivery)
    await wake_waiting(engine, child.session_id)
    return "done"


async def _current(engine: Engine, session_id: str) -> tuple[SessionRow, RunRow]:
    session = await engine.history.existing(session_id)
    return session, await engine.history.run(session_id, session.run_id)
