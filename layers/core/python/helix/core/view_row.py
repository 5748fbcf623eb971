"""The row of a view, and a session's reference to its current one (`core.views`)."""

from __future__ import annotations

from typing import Literal

from helix.core.messages import Record
from helix.core.stored import Stored

ViewCause = Literal["policy", "overflow", "request"]


class ViewRow(Stored):
    """A view of a session's history."""

    kind: Literal["view"] = "view"
    """The tag of this kind of row in the store."""
    run_id: str
    """The run that made the view."""
    step: int
    """The step that was about to start."""
    attempt: int = 0
    """The attempt at that step which made the summary. 0 if no model was called."""
    count: int
    """The number of messages in history when the view was made."""
    hidden: int = 0
    """The number of messages at the beginning of history that are not shown. The summary takes their place."""
    cleared: int = 0
    """The index in history before which a note takes the place of long tool results."""
    summary: str = ""
    """The summary of the hidden messages, or of the first of them. Empty if they were hidden without one."""
    cause: ViewCause = "policy"
    """Why the view was made: by the agent's policy, because the provider refused the prompt as too long, or because a
    person asked for a summary."""
    tokens: int = 0
    """The estimated length of the prompt before the change, in tokens."""
    created_at: float = 0
    """The time of the write (Unix seconds)."""


class ContextMark(Record):
    """The state of a session's context: its view, and what happened to it at the present step."""

    view: int = 0
    """The session version in the key of the current view's row. 0: the model is shown the whole history."""
    tokens: int = 0
    """The tokens of the last prompt and its answer, as the provider counted them. 0 if they are not known, or if the
    view has changed since."""
    step: int = 0
    """The step at which a view was last made or refused. 0 before the first."""
    attempt: int = 0
    """The last attempt at `step` that was not for an answer of the step. Later attempts are numbered after it."""
    overflows: int = 0
    """The number of times that the provider refused the prompt of `step` as too long."""
    failed: int = 0
    """The last step at which a summary failed. 0 if none did."""
    asked: str | None = None
    """The focus of a summary that a person asked for, which the next step makes. Empty for no focus, None
    without such a request."""

    def attempts(self, step: int) -> int:
        """Return the number of attempts at the step that were not for its answer."""
        return self.attempt if self.step == step else 0


NO_MARK = ContextMark()
"""The context of a session whose whole history is shown."""
