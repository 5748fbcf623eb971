"""The entry points of the loop: a claimed run in this process, and one delivery of each verb
(docs/protocol.md#deliveries).

Law: a payload carries only ids and counters, so any delivery may be repeated, duplicated or late. The rows decide. An
execution knows only its payload; these functions decide which step, call or part comes next.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from helix.core.agents import AnyAgent
from helix.core.delivery import Delivery, Position
from helix.core.errors import (
    DamagedRowError,
    RunNotFoundError,
    SessionNotFoundError,
    WorkInProgressError,
)
from helix.core.json import dumps
from helix.core.row_keys import run_sort
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.batches.lease import release
from helix.engine.calls.execute import Call, execute_call
from helix.engine.calls.tool import Progress, view_step
from helix.engine.claims.claim import Claimed
from helix.engine.claims.liveness import HeldClaim, LostClaimError, run_claim
from helix.engine.claims.missed import show_missed
from helix.engine.context import RunContext, make_context, open_context
from helix.engine.engine import Engine, logger
from helix.engine.facts import MessagesAdded, RunBegan, RunClaimed
from helix.engine.history import row_key
from helix.engine.loop import Finished, Left, advance
from helix.engine.observers import record, show
from helix.engine.runs.admission import launcher_of, part_of
from helix.engine.runs.ends import abort, fail_run, finish_run, sweep_session
from helix.engine.runs.housekeeping import fail_damaged
from helix.engine.runs.intake import begin_all
from helix.engine.runs.parts import roll_over
from helix.engine.writing import commit, no_outcome_check
from helix.ports.state_store import Update

RETRY_EVENTS, CALL_RETRIES = 3, 18
"""The cost of retries in an execution's history. Each failed attempt adds three events: scheduled, started, failed. A
call is retried up to 18 times, after overload and transient failures (infra/definition.py)."""
MODEL_EVENTS, CALL_EVENTS, MAP_EVENTS = 8, 12 + RETRY_EVENTS * CALL_RETRIES, 5
"""The events that a model call with its Choice state, a call with its retries, and a Map state of calls add to the
history, rounded up. The number of attempts at a call is not known, so the maximum is assumed; `call_model` knows its
own retries from its payload."""
WAIT_EVENTS = 2
"""The events that a Wait state adds to the history."""
MAP_CALLS, MAP_BYTES, CALL_BYTES = 100, 200_000, 600
"""The limits of one Map state. Its events must fit into the history that remains at `roll_over_events`, and its input
and output into the 256 KB of a state. `CALL_BYTES` is the size of a call without its id."""


@dataclass(frozen=True, slots=True)
class Move:
    """The next move of an execution: execute `calls` of step `step - 1`, if there are any, then buy `step`."""

    kind: Literal["on", "over", "gone"]
    """`on`: execute `calls`, then buy `step`. `over`: finish the run. `gone`: this execution has nothing more to do,
    because the next part has taken over or the session was deleted."""
    step: int
    """The step to buy next."""
    events: int
    """An estimate of the events in the execution's history, rounded up."""
    calls: tuple[Call, ...] = ()
    """The calls to execute before `step` is bought. Further calls of the same step follow in the next move."""
    until: float = 0
    """The time (Unix seconds) before which `step` cannot be bought. 0: it can be bought at once."""


class Executed(NamedTuple):
    """The end of a run that was executed in this process."""

    claims: list[Claimed]
    """The runs that were claimed when the run ended: the run of a waiting parent, if there was one."""
    row: RunRow | None
    """The run's row. None: another worker ended the run, or this worker does not know every write to the row."""
    text: str | None
    """The text of the run's last answer. None: this worker did not end the run, or there is no answer."""


async def execute_run(engine: Engine, agent: AnyAgent, claimed: Claimed, delivery: Delivery) -> Executed:
    """Execute a claimed run in this process until it has ended and its effects are applied."""
    session, row = claimed.session, claimed.run
    async with open_context(engine, agent, session, row, delivery) as run, HeldClaim(engine, run_claim(run)):
        run.fresh, run.row = True, row
        show(run, RunClaimed(claimed))
        await run.stream.flush()
        if claimed.ended is not None:  # also earlier runs, whose finishers may have died too
            await sweep_session(engine, agent, session.session_id, delivery)
        await record(run, RunBegan(row))
        await record(run, MessagesAdded(claimed.plan.added, claimed.patches))
        return await _finished(run, row.first_step)


async def continue_run(engine: Engine, agent: AnyAgent, session: SessionRow, delivery: Delivery) -> Executed:
    """Continue a run that waited for a batch, in this process, until it has ended or waits again. The delivery's owner
    holds its lease."""
    row = await engine.history.run(session.session_id, session.run_id)
    async with open_context(engine, agent, session, row, delivery) as run, HeldClaim(engine, run_claim(run)):
        await show_missed(run, session)
        return await _finished(run, session.step + 1)


async def _finished(run: RunContext, step: int) -> Executed:
    """Advance the run from `step` to its end, and apply its effects. A run that waits for a batch gives up its lease."""
    engine, session_id = run.engine, run.session_id
    if isinstance(await advance(run, step), Left):
        await run.stream.flush()
        await release(engine, run.session, run.delivery.owner)
        return Executed([], None, None)
    try:
        claims = await finish_run(engine, run.own, session_id, run.run_id, run.delivery, run)
    except RunNotFoundError:
        logger.info("run %s has nothing left to finish: its session was deleted", run.run_id)
        claims = []
    return Executed(claims, run.row, run.text)


async def deliver_model(
    engine: Engine,
    position: Position,
    delivery: Delivery,
    leaving: Callable[[], bool] = bool,
    longest_pause_s: float = math.inf,
) -> Move:
    """Advance the run as far as this delivery may. `leaving` returns whether the worker stops at the next step.
    `longest_pause_s`: the longest pause before a model call, in seconds, that this delivery makes."""
    try:
        seen, row = await engine.history.seen_with_run(position.session_id, position.run_id)
    except (SessionNotFoundError, RunNotFoundError):
        return Move("gone", position.step, position.events)
    session = seen.session
    agent = engine.agents(session.agent_type)
    if row.part > position.part or (
        position.events >= engine.settings.roll_over_events and await roll_over(engine, row, position)
    ):
        return await _leave_part(engine, agent, position)
    step = position.step
    if session.run_id == position.run_id:  # a repeated payload names the first step of its invocation
        step = max(step, session.step + 1)
    if row.status == "running" and agent.fingerprint() != (row.editions[-1][1] if row.editions else row.fingerprint):
        await _note_edition(engine, agent, row, step)
    async with open_context(engine, agent, session, row, delivery) as run:
        run.leaving, run.longest_pause_s = leaving, longest_pause_s
        try:
            async with HeldClaim(engine, run_claim(run)):
                if step > position.step:
                    await show_missed(run, session)
                move = await advance(run, step, seen)
        except LostClaimError as error:
            raise WorkInProgressError(str(error), engine.clock.now()) from None
    events = position.events + MODEL_EVENTS
    if isinstance(move, Finished | Left):
        return Move("over", position.step, events)
    if move.agent is not None:
        moved = await roll_over(engine, row, replace(position, step=move.step), move.agent)
        return await _leave_part(engine, agent, position) if moved else Move("over", position.step, events)
    if move.until:
        return Move("on", move.step, events + WAIT_EVENTS, until=move.until)
    others = _one_map(move.others)
    if others:
        events += CALL_EVENTS * len(others) + (MAP_EVENTS if len(others) > 1 else 0)
    return Move("on", move.step, events, others)


async def deliver_call(engine: Engine, position: Position, call_id: str, delivery: Delivery) -> Progress:
    """Execute one tool call until it ends or waits for a person."""
    return await _deliver_call(engine, position, call_id, delivery)


async def deliver_child(engine: Engine, position: Position, call_id: str, token: str, delivery: Delivery) -> Progress:
    """Start or attach to the sub-agent of a call. `token` is completed once the parent has nothing to wait for:
    immediately, or when the sub-agent's session stops running."""
    progress = await _deliver_call(engine, position, call_id, delivery, token)
    if progress != "waits":
        await launcher_of(engine).wake(token)
    return progress


async def deliver_end(engine: Engine, session_id: str, run_id: str, delivery: Delivery) -> None:
    """Apply the effects of an ended run, and begin the runs of parents that continue with its result."""
    try:
        session = await engine.history.existing(session_id)
        agent = engine.agents(session.agent_type)
        await begin_all(engine, await finish_run(engine, agent, session_id, run_id, delivery), delivery)
    except (SessionNotFoundError, RunNotFoundError):
        logger.info("run %s has nothing left to finish: its session was deleted", run_id)


async def deliver_failure(engine: Engine, position: Position, cause: str, delivery: Delivery) -> None:
    """Handle the end of this part's execution, regardless of what the execution was doing."""
    try:
        session = await engine.history.existing(position.session_id)
        agent = engine.agents(session.agent_type)
        await begin_all(engine, await fail_run(engine, agent, position, delivery, cause=cause), delivery)
    except (SessionNotFoundError, RunNotFoundError):
        logger.info("run %s has nothing left to fail: its session was deleted", position.run_id)


async def end_late_child(engine: Engine, agent: AnyAgent, row: RunRow, delivery: Delivery) -> bool:
    """Abort a sub-agent that takes longer than its parent's tool allows. Its call becomes a failed result that the
    model sees."""
    session = await engine.history.session(row.session_id)
    late = make_context(engine, agent, session, row).late() if session is not None else None
    if late is None:
        return False
    claims = await abort(engine, agent, row.session_id, late.reason, delivery, run_id=row.run_id)
    await begin_all(engine, claims, delivery)
    return True


# --- inside -----------------------------------------------------------------------------------------------------------


async def _leave_part(engine: Engine, agent: AnyAgent, position: Position) -> Move:
    """Start the run's current part, which is another one than this. The start may be repeated."""
    current = await engine.history.run(position.session_id, position.run_id)
    if current.status == "running":
        await launcher_of(engine).start(part_of(engine, agent, current))
    return Move("gone", position.step, position.events)


def _one_map(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Return the calls that fit into one Map state. The delivery after that state finds the others."""
    left = MAP_BYTES
    for n, call in enumerate(calls[:MAP_CALLS]):
        left -= CALL_BYTES + len(dumps(call.call_id))
        if left < 0:
            return calls[: max(1, n)]
    return calls[:MAP_CALLS]


async def _deliver_call(
    engine: Engine, position: Position, call_id: str, delivery: Delivery, token: str | None = None
) -> Progress:
    try:
        try:
            view = await view_step(engine, position.session_id, position.run_id, position.step, call_id)
        except SessionNotFoundError:
            view = None
        if view is None:
            return "over"
        async with open_context(engine, engine.agents(view.session.agent_type), view.session, None, delivery) as run:
            run.activate(view.session.active_agent)  # raises if it is not known: only its own tools may run
            return await execute_call(run, view, call_id, token)
    except LostClaimError as error:
        raise WorkInProgressError(str(error), engine.clock.now()) from None
    except DamagedRowError as error:
        session = await engine.history.existing(position.session_id)  # if this raises, the sweep ends the run
        await fail_damaged(engine, session.agent_type, position.session_id, error, position.run_id)
        return "over"


async def _note_edition(engine: Engine, agent: AnyAgent, row: RunRow, step: int) -> None:
    """Record the step from which the run continues with a changed agent definition."""
    logger.info("run %s goes on with a changed agent %r at step %d", row.run_id, agent.name, step)
    editions = [*row.editions, (step, agent.fingerprint())]
    noted = Update(row_key(row.session_id, run_sort(row.run_id)), set={"editions": [list(e) for e in editions]})
    await commit(engine, "note_edition", [noted], no_outcome_check)
