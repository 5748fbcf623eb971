"""Lists every model call of a session from its rows: the staged answers, and the attempts without an answer.

Law: a call is listed once, in the session that paid for it. The answers at the beginning of a copied session belong to
the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from helix.core.entries import AssistantRow, parse_entry
from helix.core.rows import AttemptRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.usage import Usage
from helix.ports.state_store import Row, StateStore

Outcome = Literal["answered", "failed", "lost", "cancelled", "dead", "summary"]


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call to a model."""

    session_id: str
    """The session that paid for the call."""
    agent_type: str
    """The agent of that session."""
    run_id: str
    """The run that made the call."""
    turn: int
    """The number of that run within its session."""
    step: int
    """The step for which the call was made."""
    attempt: int
    """The number of the try within the step."""
    outcome: Outcome
    """`answered` for the step's answer, otherwise the outcome of the `AttemptRow`."""
    model: str | None
    """The model that was called. None if it is not known."""
    usage: Usage
    """The usage that the provider reported. It is empty for `cancelled` and `dead` calls, for which only `assumed_*` is
    known."""
    assumed_micros: int = 0
    """The cost that is assumed for a call of unknown usage, in millionths of a US dollar. 0 for an answered or lost
    call."""
    assumed_tokens: int = 0
    """The tokens that are assumed for a call of unknown usage. 0 for an answered or lost call."""
    at: float = 0.0
    """The time (Unix seconds) when the outcome was recorded."""
    error: str | None = None
    """The error message. None for an answer."""
    head: str = ""
    """The id of the request head that was sent. Empty if it is not known."""
    lost_cache: str | None = None
    """The reason why the provider's cache did not have the prompt (`core.lost_caches`). None if it did, or if nothing was
    expected."""
    output_limit: int | None = None
    """The maximum number of tokens in the answer, if budgets set it. None if they did not."""


async def session_calls(store: StateStore, session_id: str, *, children: bool = False) -> list[ModelCall]:
    """Return the session's calls by turn, step and attempt, in all lineages. With `children`, those of its sub-agents
    follow, session by session. The list is empty for a session that does not exist. One query is made per session."""
    found, below = calls_in(session_id, await store.query("sessions", session_id))
    for child in below if children else ():
        found += await session_calls(store, child, children=True)
    return found


def calls_in(session_id: str, rows: Sequence[Row]) -> tuple[list[ModelCall], list[str]]:
    """Return the calls in these rows, which must be all rows of the session, and the sessions of its sub-agents."""
    session = next((SessionRow.at(session_id, row.value) for row in rows if row.key.sort == "session"), None)
    if session is None:
        return [], []
    found_runs = (RunRow.at(session_id, r.key.sort, r.value) for r in rows if r.key.sort.startswith("r#"))
    runs = {run.run_id: run for run in found_runs}
    answers = _answers(rows)
    found = [_answered(session, runs[row.run_id], row) for row in answers if row.run_id in runs and not row.is_cut]
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
    return replace(_call(session, run, row), at=row.created_at, lost_cache=row.lost_cache)


def _attempt(session: SessionRow, run: RunRow, row: AttemptRow) -> ModelCall:
    call = replace(_call(session, run, row), outcome=row.outcome, at=row.at, error=row.error)
    if row.outcome == "lost":  # its usage is known and replaces the assumption
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
        head=row.head,
        output_limit=row.output_limit,
    )
