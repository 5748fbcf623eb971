"""Records model calls that have no answer in history, and counts a run's usage exactly once.

Law: every paid call is in exactly one row: the staged answer, or an attempt row. The transaction that closes a run's
effects adds its usage to the counters. A later call adds its own usage, in the transaction that writes its row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from helix.core.agents import AnyAgent
from helix.core.errors import RunNotFoundError
from helix.core.row_keys import attempt_sort, run_sort
from helix.core.rows import AttemptRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow, StepClaim
from helix.core.usage import Usage
from helix.core.usage_parts import COMPLETION, Share, assume, shares, static_model
from helix.core.verdicts import Verdict
from helix.engine.engine import Engine, logger
from helix.engine.history import row_key
from helix.engine.money.reservations import overrun
from helix.engine.writing import commit, no_outcome_check
from helix.ports.state_store import ABSENT, Operation, Put, Scalar, Update, Value, When
from helix.services.session_calls import session_calls

Unheard = Literal["cancelled", "dead"]
Spelled = dict[str, Scalar]


def failed_put(
    session: SessionRow,
    model: str | None,
    usage: Usage,
    error: str | None,
    now: float,
    *,
    verdicts: Sequence[Verdict] = (),
) -> Put:
    """Put the attempt row of the claimed call, which ended in a final error. Its usage is counted with the run's.
    `verdicts`: of the guards that blocked its answer."""
    claim = _claim(session)
    fields = {"usage": usage, "error": error, "verdicts": list(verdicts), **_head(session)}
    row = _attempt(claim, "failed", model, now, **fields)
    return _put(session.session_id, row)


def summary_put(session: SessionRow, model: str | None, usage: Usage, now: float) -> Put:
    """Put the attempt row of the claimed call, which wrote a summary. Its usage is counted with the run's."""
    claim = _claim(session)
    return _put(session.session_id, _attempt(claim, "summary", model, now, usage=usage, **_head(session)))


def assumed_put(agent: AnyAgent, session: SessionRow, new: SessionRow, outcome: Unheard, now: float) -> list[Operation]:
    """Put the attempt row of the call that `session` had claimed, if any, in the transaction that drops the claim. The
    call is counted in `new`."""
    if session.claim is None:
        return []
    assume(new, session.claim)
    row = _unheard(session.claim, outcome, static_model(agent), now, **_head(session))
    return [_put(session.session_id, row)]


async def note_lost(engine: Engine, session: SessionRow, model: str | None, usage: Usage) -> None:
    """Record an answer to the call that `session` had claimed. The answer was refused because this delivery no longer
    has the run, but the call must still be paid for. The run's effects count it, or the counters do if the effects are
    closed. Does nothing if the session is being deleted."""
    claim = _claim(session)
    key = row_key(session.session_id, attempt_sort(claim.run_id, claim.step, claim.attempt))
    run_key = row_key(session.session_id, run_sort(claim.run_id))
    late = {"late_calls": 1, "late_micros": usage.cost_micros, "late_tokens": usage.total_tokens}
    late |= overrun(engine, claim, usage)
    spelled: Spelled = {"effects": None}
    while True:
        (value,) = await engine.store.get([key])
        known = None if value is None else AttemptRow.read(key.partition, key.sort, value)
        if known is not None and known.outcome == "lost":
            return
        # The actual usage replaces the assumed usage, which is subtracted if it was counted.
        assumed = {} if known is None else known.model_dump(include={"assumed_micros", "assumed_tokens"})
        row = _attempt(claim, "lost", model, engine.clock.now(), usage=usage, **assumed, **_head(session))
        put = _put(session.session_id, row, ABSENT if known is None else When(equal={"outcome": known.outcome}))
        open_ = Update(run_key, add=late, when=When(equal=spelled))
        if await commit(engine, "late_usage", [open_, put], no_outcome_check):
            return
        closed = Update(run_key, add=late, when=When(equal={"effects": "done"}))
        found = await _as_stored(engine, session.session_id, claim.run_id)
        if found is None:
            logger.info("usage of a call of run %s is not counted: its session was deleted", claim.run_id)
            return
        run, value = found
        if run.effects == "open":
            spelled = _spelled(value, "effects")
        else:
            share = Share(
                model or run.model or "-",
                COMPLETION,
                usage,
                assumed_micros=-row.assumed_micros,
                assumed_tokens=-row.assumed_tokens,
            )
            whose = {"agent": session.agent_type, "tenant": session.user_id, "at": engine.clock.now()}
            if await engine.counters.count("late_usage", [closed, put], [share], **whose) is None:  # type: ignore[arg-type]
                return


async def close_effects(engine: Engine, session: SessionRow, run: RunRow, more: Sequence[Operation]) -> bool | RunRow:
    """Mark the ended run's effects as done, together with `more`, and count the run's usage. An operation of `more` that
    is refused is left out. Return True to the one caller that did it, so usage is reported once. A caller whose
    transaction got a late response gets False and reports nothing. Return the run's row, and write nothing, if messages
    were left for the run that `run` does not know of."""
    arrived = run.arrived
    spelled: Spelled = {"effects": None, "late_calls": run.late_calls or None, "arrived": arrived or None}
    while run.effects == "open":
        attempts = await _attempts(engine, session.session_id, run.run_id) if run.late_calls or run.claim else []
        reported = await _reported(engine, session.session_id, run.run_id) if run.editions else None
        at = run.ended_at or run.started_at
        guard: list[Operation] = [
            Update(
                row_key(session.session_id, run_sort(run.run_id)), set={"effects": "done"}, when=When(equal=spelled)
            ),
            *more,
        ]
        if run.claim is not None and not any(_is_attempt_of(row, run.claim) for row in attempts):
            outcome: Unheard = "cancelled" if run.error is not None and run.error.code == "aborted" else "dead"
            guard.append(_put(session.session_id, _unheard(run.claim, outcome, run.model, at, **_head(run))))
        used = shares(run, attempts, reported)
        whose = {"agent": session.agent_type, "tenant": session.user_id, "at": at}
        index = await engine.counters.count("effects_done", guard, used, **whose)  # type: ignore[arg-type]
        if index is None:
            return True
        if 0 < index <= len(more):
            more = [*more[: index - 1], *more[index:]]
            continue
        found = await _as_stored(engine, session.session_id, run.run_id)
        if found is None:
            raise RunNotFoundError(f"session {session.session_id!r} has no run {run.run_id!r}")
        run, value = found
        if run.arrived != arrived and run.effects == "open":
            return run
        spelled = _spelled(value, "effects", "late_calls", "arrived")
    return False


async def _attempts(engine: Engine, session_id: str, run_id: str) -> list[AttemptRow]:
    rows = await engine.store.query("sessions", session_id, start=f"u#{run_id}#", end=f"u#{run_id}$")
    return [AttemptRow.read(row.key.partition, row.key.sort, row.value) for row in rows]


async def _reported(engine: Engine, session_id: str, run_id: str) -> dict[str | None, Usage]:
    """Return the usage of the run's answers by model, from their rows."""
    reported: dict[str | None, Usage] = defaultdict(Usage)
    for call in await session_calls(engine.store, session_id):
        if call.run_id == run_id and call.outcome in ("answered", "failed", "summary"):
            reported[call.model] += call.usage
    return reported


async def _as_stored(engine: Engine, session_id: str, run_id: str) -> tuple[RunRow, Value] | None:
    (value,) = await engine.store.get([row_key(session_id, run_sort(run_id))])
    return None if value is None else (RunRow.at(session_id, run_sort(run_id), value), value)


def _spelled(value: Value, *names: str) -> Spelled:
    """Return the fields as the row stores them. A default value is usually omitted, but may be stored. A condition must
    use the stored form, or it never holds."""
    return {name: value.get(name) for name in names}


def _claim(session: SessionRow) -> StepClaim:
    assert session.claim is not None
    return session.claim


def _head(row: SessionRow | RunRow) -> dict[str, Any]:
    """Return the fields that say what the claimed call of this row sends."""
    return {"head": row.head, "output_limit": row.output_limit}


def _unheard(claim: StepClaim, outcome: Unheard, model: str, now: float, **fields: Any) -> AttemptRow:
    assumed = {"assumed_micros": claim.micros, "assumed_tokens": claim.tokens}
    return _attempt(claim, outcome, model or None, now, **assumed, **fields)


def _attempt(
    claim: StepClaim,
    outcome: Literal["failed", "lost", "summary"] | Unheard,
    model: str | None,
    now: float,
    **fields: Any,
) -> AttemptRow:
    names = {"run_id": claim.run_id, "step": claim.step, "attempt": claim.attempt}
    return AttemptRow(**names, outcome=outcome, model=model, at=now, **fields)


def _put(session_id: str, row: AttemptRow, when: When | None = None) -> Put:
    key = row_key(session_id, attempt_sort(row.run_id, row.step, row.attempt))
    return Put(key, {"kind": "attempt", **row.dump()}, when)


def _is_attempt_of(row: AttemptRow, claim: StepClaim) -> bool:
    return (row.step, row.attempt) == (claim.step, claim.attempt)
