"""Reminders: what an agent is told at the end of each request, because it changes from call to call.

Law: a reminder is part of one request and never of the history. The beginning of the next request is therefore the
same, and stays in the provider's cache.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix.core.checks import require
from helix.core.json import JsonObject

MAX_REMINDERS = 8
REMINDER_CHARS = 8_000
"""The maximum length of one reminder, in characters."""


@dataclass(frozen=True, slots=True)
class ReminderContext:
    """The step that a reminder is for."""

    session_id: str
    """The session."""
    run_id: str
    """The run that takes the step."""
    agent_type: str
    """The name of the agent."""
    step: int
    """The number of the step."""
    state: Any
    """The custom state before the step: an instance of the agent's `state_schema`, or a JSON object without one. Changes
    of it have no effect."""
    user_id: str | None = None
    """The user who owns the session. None for a session without a user, and for a sub-agent's session."""
    metadata: JsonObject = field(default_factory=dict)
    """The metadata that the session was created with."""


Reminder = str | Callable[[ReminderContext], str | Awaitable[str | None] | None]
"""A text, or a function of the step that returns one. None or a blank text: no reminder. The function is sync or async."""


def name_of(reminder: Reminder, place: int) -> str:
    """Return the name by which errors name the reminder: that of its function, or its place in the list."""
    name = "" if isinstance(reminder, str) else getattr(reminder, "__name__", "")
    return f"reminders[{place}]" if name in ("", "<lambda>") else name


def check_reminders(given: Sequence[Reminder], owner: str) -> tuple[Reminder, ...]:
    """Return the reminders of an agent. Raises `DefinitionError`, which names the wrong one."""
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    problem = f"must be a list of at most {MAX_REMINDERS} texts or functions"
    require(listed and len(given) <= MAX_REMINDERS, owner, "reminders", problem)
    for place, one in enumerate(given):
        valid = bool(one.strip()) and len(one) <= REMINDER_CHARS if isinstance(one, str) else callable(one)
        problem = f"must be a text of 1 to {REMINDER_CHARS:,} characters, or a function of a ReminderContext"
        require(valid, owner, f"reminders[{place}]", problem)
    return tuple(given)


def joined(texts: Sequence[str]) -> str:
    """Return the text of the message with these reminders. It tells the model that the user did not write it."""
    return "<reminder>\n" + "\n\n".join(texts) + "\n</reminder>"
