"""Errors about rows that other rows of a session need, but that are missing or inconsistent."""

from __future__ import annotations

from helix.core.entries import AnyEntry, AssistantRow
from helix.core.errors import CheckpointNotFoundError, StoreError, damaged_row
from helix.core.row_keys import SESSION, checkpoint_version
from helix.core.session_row import OpenStep, SessionRow


class RowMissingError(StoreError):
    """A row that another row of the session needs is missing."""


class StateMissingError(StoreError):
    """No row holds the custom state. Either the session advanced after it was read and retention deleted the row, or
    the row is lost."""


def staged_answer(session: SessionRow, step: OpenStep, answer: AnyEntry | None) -> AssistantRow:
    """Return the answer of the open step. Raises `RowMissingError` if it is missing, and `DamagedRowError` if it is not
    the answer of that step."""
    if not isinstance(answer, AssistantRow):
        raise RowMissingError(f"session {session.session_id!r}: the staged answer of step {step.step} is missing")
    if step.calls != len(answer.tool_calls):
        problem = f"open.calls: {step.calls}, and the staged answer has {len(answer.tool_calls)}"
        raise damaged_row("sessions", session.session_id, SESSION, problem)
    return answer


def version_of_state(session_id: str, checkpoint_id: str) -> int:
    """Return the version of the checkpoint that, according to a row, holds its state. Raises `StateMissingError`."""
    try:
        return checkpoint_version(session_id, checkpoint_id)
    except CheckpointNotFoundError:
        raise StateMissingError(
            f"session {session_id!r}: its state is at {checkpoint_id!r}, which is not a checkpoint"
        ) from None
