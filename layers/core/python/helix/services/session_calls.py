"""Every model call of a session, from its rows: the answers that were staged, and the attempts that left none.

Law: a call is listed once, in the session that paid for it: the answers that a copy begins with are not its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from helix.core.entries import AssistantRow, parse_entry
from helix.core.rows import AttemptRow, RunRow, SessionRow
from helix.core.usage import Usage
from helix.ports.state_store import Row, StateStore

Outcome = Literal["answered", "failed", "lost", "cancelled", "dead"]


@dataclass(frozen=True, slots=True)
class ModelCall:
    """`outcome`: `answered` (the step's answer), or as in `AttemptRow`. `model` is None where it is unknown. `usage` is
    what the provider reported; of `cancelled` and `dead` calls only `assumed_*` is known. `at`: when it was recorded."""

    session_id: str
    agent_type: str
    run_id: str
    turn: int
    step: int
    attempt: int
    outcome: Outcome
    model: str | None
    usage: Usage
    assumed_micros: int = 0
    assumed_tokens: int = 0
    at: float = 0.0
    error: str | None = None


async def session_calls(store: StateStore, session_id: str, *, children: bool = False) -> list[ModelCall]:
    """The session's calls by turn, step and attempt, in all lineages; with `children`, those of its sub-agents after
    them, each session's in turn. Empty for a session that is not there. One query for each session."""
    found, below = calls_in(session_id, await store.query("sessions", session_id))
    for child in below if children else ():
        found += await session_calls(store, child, children=True)
    return found


def calls_in(session_id: str, rows: Sequence[Row]) -> tuple[list[ModelCall], list[str]]:
    """The calls in these rows of a session, which are all it has, and the sessions of its sub-agents."""
    session = next((SessionRow.at(session_id, row.value) for row in rows if row.key.sort == "session"), None)
    if session is None:
        return [], []
    found_runs = (RunRow.at(session_id, r.key.sort, r.value) for r in rows if r.key.sort.startswith("r#"))
    runs = {run.run_id: run for run in found_runs}
    answers = _answers(rows)
    found = [_answered(session, runs[row.run_id], row) for row in answers if row.run_id in runs]
    for stored in rows:
        if stored.key.sort.startswith("u#"):
            attempt = AttemptRow.read(stored.key.partition, stored.key.sort, stored.value)
            if attempt.run_id in runs:
                found.append(_attempt(session, runs[attempt.run_id], attempt))
    found.sort(key=lambda call: (call.turn, call.step, call.attempt))
    mine = [row for row in answers if row.run_id in runs]
    return found, list(dict.fromkeys(ref.session_id for row in mine for ref in row.children.values()))


def _answers(rows: Sequence[Row]) -> list[AssistantRow]:
    entries = (parse_entry(row.key.partition, row.key.sort, row.value) for row in rows if row.key.sort.startswith("m#"))
    return [entry for entry in entries if isinstance(entry, AssistantRow)]


def _answered(session: SessionRow, run: RunRow, row: AssistantRow) -> ModelCall:
    return replace(_call(session, run, row), at=row.created_at)


def _attempt(session: SessionRow, run: RunRow, row: AttemptRow) -> ModelCall:
    call = replace(_call(session, run, row), outcome=row.outcome, at=row.at, error=row.error)
    if row.outcome == "lost":  # its usage is known: what was assumed of it before is no longer so
        return call
    return replace(call, assumed_micros=row.assumed_micros, assumed_tokens=row.assumed_tokens)


def _call(session: SessionRow, run: RunRow, row: AssistantRow | AttemptRow) -> ModelCall:
    return ModelCall(
        session_id=session.session_id,
        agent_type=session.agent_type,
        run_id=row.run_id,
        turn=run.turn,
        step=row.step,
        attempt=row.attempt,
        outcome="answered",
        model=row.model or run.model or None,
        usage=row.usage,
    )
