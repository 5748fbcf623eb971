"""The row of a call after an execution of its tool: a result, questions, or a wait for another system."""

from __future__ import annotations

from typing import Any

from helix.core.call_results import result_content
from helix.core.entries import CallRow
from helix.core.errors import FileMissingError, InvalidFileError
from helix.core.files import FilePart
from helix.core.questions import timeout_of
from helix.core.usage import Usage
from helix.engine.calls.elsewhere import to_judge
from helix.engine.calls.runner import ToolOutcome
from helix.engine.context import RunContext
from helix.services.session_files import NO_FILES


async def outcome_row(run: RunContext, row: CallRow, outcome: ToolOutcome) -> CallRow:
    """Store the outcome's files, then return the row with the outcome: a result, or questions. The usage of earlier
    executions that asked questions counts too."""
    usage = row.usage if outcome.usage is None else (row.usage or Usage()) + outcome.usage
    if outcome.questions is not None:
        seconds, policy = timeout_of(outcome.questions)
        deadline = None if seconds is None else run.now() + seconds
        asked = [q if q.answered else q.model_copy(update={"round": row.claim}) for q in outcome.questions]
        changes: dict[str, Any] = {"state": "asked", "ask": "question", "questions": asked, "reason": None}
        changes |= {"owner": None, "deadline": deadline, "on_timeout": policy, "usage": usage}
        changes["remind_at"] = sorted({run.now() + after for q in asked if not q.answered for after in q.remind_s})
        return row.model_copy(update=changes)
    if outcome.elsewhere and row.later is not None:
        deadline, policy = row.later.deadline(run.now()), row.later.on_timeout
        changes = {"state": "asked", "ask": "elsewhere", "reason": None, "owner": None, "confirmation": None}
        changes |= {"patches": outcome.patches, "deadline": deadline, "on_timeout": policy, "usage": usage}
        return row.model_copy(update=changes)
    outcome, files = await _take_files(run, outcome)
    return row.ended(
        outcome.content,
        outcome.success,
        row.by or ("tool" if row.content is None else "answer"),
        run.now(),
        plain=outcome.plain,
        fatal=outcome.fatal,
        patches=outcome.patches,
        usage=usage,
        files=files,
        deadline=None,
        confirmation=None,
    )


def unjudged_row(row: CallRow, outcome: ToolOutcome) -> CallRow:
    """Return the row with the tool's outcome, for the next delivery, whose guards judge it."""
    usage = row.usage if outcome.usage is None else (row.usage or Usage()) + outcome.usage
    changes = {"content": outcome.content, "success": outcome.success, "plain": outcome.plain, "by": "tool"}
    return to_judge(row).model_copy(update={**changes, "patches": outcome.patches, "usage": usage})


async def _take_files(run: RunContext, outcome: ToolOutcome) -> tuple[ToolOutcome, list[FilePart]]:
    """Store the files of the outcome, and hold them for the session. A file that cannot be stored fails the call."""
    if not outcome.files:
        return outcome, []
    session, files = run.session, run.engine.files
    try:
        if files is None:
            raise InvalidFileError(NO_FILES)
        root = session if session.parent is None else await run.engine.history.existing(session.stream_id)
        held = await files.take(root.user_id, root.session_id, session.session_id, outcome.files)
        return outcome, held.parts  # without checks, because `collect` releases nothing that an existing session holds
    except (InvalidFileError, FileMissingError) as error:
        return ToolOutcome(result_content(str(error), False), False, usage=outcome.usage), []
