"""Evaluates the reminders of an agent for one step (`core.reminders`).

Law: a step's reminders are evaluated before its claim, which records them. All tries of the call send what was recorded. A
later attempt, after a worker died, evaluates and records them again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial
from typing import Any

from helix._log import describe
from helix.core.json import clean_text
from helix.core.reminders import REMINDER_CHARS, Reminder, ReminderContext, joined, name_of
from helix.core.rows import ErrorInfo
from helix.core.session_row import SessionRow
from helix.engine.context import RunContext
from helix.engine.engine import logger

REMINDERS_S = 10.0
"""The maximum duration of all functions of a step together, in seconds."""
FAILED = "reminder_failed"


async def remind(run: RunContext, session: SessionRow, state: Any) -> str | ErrorInfo:
    """Return the text of the message that ends the next request, or the error that ends the run. Empty if there is no
    reminder. `state`: the custom state as the agent's functions see it."""
    reminders: Sequence[Reminder] = run.agent.reminders
    if not reminders or (session.claim is not None and session.claim.batch):  # a batched call was asked with its own
        return ""
    context = ReminderContext(
        session_id=session.session_id,
        run_id=run.run_id,
        agent_type=run.agent.name,
        step=session.step + 1,
        state=state,
        user_id=session.user_id,
        metadata=session.metadata,
    )
    texts: list[str] = []
    deadline = asyncio.get_running_loop().time() + REMINDERS_S
    for place, one in enumerate(reminders):
        who = f"reminder {name_of(one, place)!r} of agent {run.agent.name!r}"
        try:
            async with asyncio.timeout_at(deadline) as limit:
                text = await _text_of(one, context)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                problem = f"{who} did not return within the {REMINDERS_S:g} s that the reminders of a step have"
                return ErrorInfo(code=FAILED, message=problem)
            logger.warning("run %s: %s failed", run.run_id, who, exc_info=True)
            return ErrorInfo(code=FAILED, message=f"{who} raised {describe(error)}")
        if text is not None and not isinstance(text, str):
            return ErrorInfo(code=FAILED, message=f"{who} returned {type(text).__name__}: return a text, or None")
        if text is not None and len(text) > REMINDER_CHARS:
            problem = f"{who} has {len(text):,} characters: the limit is {REMINDER_CHARS:,}, so shorten its text"
            return ErrorInfo(code=FAILED, message=problem)
        if text is not None and text.strip():
            texts.append(clean_text(text))
    return joined(texts) if texts else ""


async def _text_of(reminder: Reminder, context: ReminderContext) -> Any:
    """Return what the reminder says. A sync function runs in a thread."""
    if isinstance(reminder, str):
        return reminder
    if inspect.iscoroutinefunction(reminder):
        return await reminder(context)
    text = await asyncio.to_thread(partial(copy_context().run, reminder, context))
    return await text if inspect.isawaitable(text) else text
