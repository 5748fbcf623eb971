"""The loop, in which one worker advances a run as far as it can (docs/protocol.md#loop).

    buy a step ─> execute the calls that are ours ─> fold, buy the next ...
        │                   │
        over                calls for other workers, or no time for another step

Law: the loop has no state that is not in the rows. Killing the worker at any line loses nothing that was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass

from helix.core.errors import DamagedRowError, WorkInProgressError
from helix.engine.calls.execute import Call, execute_calls
from helix.engine.claims.liveness import wait_for
from helix.engine.context import RunContext
from helix.engine.engine import Elsewhere, Later, Outcome, Over, Staged, Waits
from helix.engine.runs.housekeeping import fail_damaged
from helix.engine.seen import Seen
from helix.engine.step_view import StepView
from helix.engine.steps.buy import buy_step


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that is over. Its effects have yet to be applied."""


@dataclass(frozen=True, slots=True)
class Left:
    """A run whose model call waits for a provider's batch. A worker continues it once the call has an answer."""


@dataclass(frozen=True, slots=True)
class GoesOn:
    """A run that continues elsewhere: execute `others` of step `step - 1`, if there are any, then continue the run from
    `step`."""

    step: int
    """The step to buy next."""
    others: tuple[Call, ...] = ()
    """The calls that other workers execute. Empty: the worker stopped because it is running out of time, is leaving, or
    has bought as many steps as it may."""
    until: float = 0
    """The time (Unix seconds) before which the step cannot be bought. 0: it can be bought at once."""
    agent: str | None = None
    """The agent whose own functions buy the step. None: these do."""


async def advance(run: RunContext, step: int, seen: Seen | None = None) -> Finished | Left | GoesOn:
    """Advance the run from `step` as far as this worker may. `seen`: the rows that the caller has just read."""
    try:
        return await _advance(run, step, seen)
    except DamagedRowError as error:
        await fail_damaged(run.engine, run.own.name, run.session_id, error, run.run_id)
        return Finished()


async def _advance(run: RunContext, step: int, seen: Seen | None) -> Finished | Left | GoesOn:
    begun, view = 0, None
    while True:
        match await _bought(run, step, seen, view):
            case Over():
                return Finished()
            case Waits():
                return Left()
            case Later(until):
                return GoesOn(step, until=until)
            case Elsewhere(agent):
                return GoesOn(step, agent=agent)
            case Staged() as staged:
                others = await execute_calls(run, staged)
                step, seen, view, begun = staged.step + 1, None, staged.view, begun + 1
                if others or not run.may_begin_another(begun):
                    return GoesOn(step, others)


async def _bought(run: RunContext, step: int, seen: Seen | None, view: StepView | None) -> Outcome:
    """Buy the step. If another worker is buying it, a worker that executes whole runs waits; a delivery is repeated
    later."""
    while True:
        try:
            return await buy_step(run, step, seen, view)
        except WorkInProgressError as held:
            if not run.engine.placement.executes_whole_runs:
                raise
            await wait_for(run.engine, held)
            seen = view = None
