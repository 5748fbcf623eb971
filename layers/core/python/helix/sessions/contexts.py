"""Reads what the model was shown at a step (docs/protocol.md#views).

Law: this module is read-only. An answer names its request head and the view that its request showed, and neither ever
changes. So the request of a past step can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix.core.agents import AnyAgent
from helix.core.context_replies import ContextFound, ViewFound
from helix.core.entries import AnyEntry, AssistantRow, messages_of, parse_entry
from helix.core.errors import InvalidInputError
from helix.core.messages import AnyMessage, UserMessage
from helix.core.prompt import note_cuts, request_end, show_changes, show_input
from helix.core.request_heads import RequestHead
from helix.core.row_keys import attempt_sort, message_sort, run_sort
from helix.core.rows import AttemptRow, LineageRow
from helix.core.session_row import SessionRow
from helix.core.tools import FINISH_TOOL_NAME
from helix.core.usage import Usage
from helix.core.view_row import ViewRow
from helix.core.views import RECALL, is_clearable, show_history
from helix.engine.history import History, row_key
from helix.services.request_heads import read_head


@dataclass(frozen=True, slots=True)
class _Place:
    """A step, and the history before it."""

    step: int
    """The number of the step."""
    answer: AssistantRow | None
    """The answer of the step. None for the next step."""
    lineage: LineageRow
    """The lineage that has the history."""
    entries: Sequence[AnyEntry]
    """The history before the step."""


async def read_context(
    history: History, session: SessionRow, step: int | None, run_id: str | None, agent: AnyAgent | None
) -> ContextFound:
    """Return the context that the model was shown at the step. With `step` None, return the context that the next step
    would show under the current view."""
    place = await (_in_session(history, session, step) if run_id is None else _in_run(history, session, step, run_id))
    view = await _view_of(history, session, place)
    messages = _messages(place)
    recall = agent is None or agent.find_tool(RECALL) is None
    asked = place.answer or await _last_attempt(history, session, place.step)
    head = await read_head(history.store, session.session_id, asked.head) if asked is not None and asked.head else None
    shown = note_cuts(show_history(view, messages, recall=recall))
    hidden, cleared = (view.hidden, view.cleared) if view is not None else (0, 0)
    return ContextFound(
        session_id=session.session_id,
        step=place.step,
        run_id=place.answer.run_id if place.answer is not None else None,
        model=asked.model if asked is not None else None,
        output_limit=asked.output_limit if asked is not None else None,
        head=(asked.head or None) if asked is not None else None,
        request=head,
        system_prompt=_present_prompt(agent) if head is None else head.system_prompt,
        messages=shown if head is None else _with_end(shown, head),
        count=len(messages),
        hidden=hidden,
        cleared=[i for i, message in enumerate(messages[:cleared]) if i >= hidden and is_clearable(message)],
        summary=view.summary if view is not None else "",
        view=None if view is None else await _found(history, session, view),
    )


def _with_end(shown: list[AnyMessage], head: RequestHead) -> list[AnyMessage]:
    """Return the messages with those at the end of the request. Heads of earlier versions do not name the request to
    finish."""
    if not head.reminders and head.tool_choice == FINISH_TOOL_NAME:
        return [*shown, *request_end(shown, "", finish=True)]
    return [*shown, *(UserMessage(content=text) for text in head.reminders)]


def _present_prompt(agent: AnyAgent | None) -> str | None:
    return None if agent is None or callable(agent.system_prompt) else agent.system_prompt


async def _last_attempt(history: History, session: SessionRow, step: int) -> AttemptRow | None:
    """Return the last attempt of the session's run at a step that has no answer. An attempt that wrote a summary does
    not count. None if the run has made none."""
    start = attempt_sort(session.run_id, step, 0)
    end = attempt_sort(session.run_id, step + 1, 0)
    rows = await history.store.query("sessions", session.session_id, start=start, end=end, reverse=True)
    attempts = (AttemptRow.read(row.key.partition, row.key.sort, row.value) for row in rows)
    return next((row for row in attempts if row.outcome != "summary"), None)


async def _in_session(history: History, session: SessionRow, step: int | None) -> _Place:
    """Return the step from the session's current history, or the next step."""
    lineage = await history.lineage(session.session_id, session.lineage)
    entries = list(await history.entries(session.session_id, lineage, 0, session.count))
    last = session.step
    if (rows := await history.open_rows(session)) is not None:
        last = rows.answer.step
        entries += [rows.answer, *(row for row in rows.calls if row is not None and row.state == "done")]
    if step is None or step == last + 1:
        return _Place(last + 1, None, lineage, entries)
    for index, entry in enumerate(entries):
        if isinstance(entry, AssistantRow) and entry.step == step:
            return _Place(step, entry, lineage, entries[:index])
    raise InvalidInputError(f"step {step} does not exist in session {session.session_id!r}; it has {_steps(last)}")


async def _in_run(history: History, session: SessionRow, step: int | None, run_id: str) -> _Place:
    """Return the step that the run bought, even if a rewind has since removed it from the history."""
    if step is None:
        raise InvalidInputError("run_id needs a step: which of the run's steps")
    run = await history.run(session.session_id, run_id)
    start, end = message_sort(run.start_lineage, run.start_count), message_sort(run.start_lineage + 1, 0)
    for row in await history.store.query("sessions", session.session_id, start=start, end=end):
        entry = parse_entry(session.session_id, row.key.sort, row.value)
        if isinstance(entry, AssistantRow) and (entry.run_id, entry.step) == (run_id, step):
            lineage = await history.lineage(session.session_id, run.start_lineage)
            index = int(row.key.sort.rpartition("#")[2])
            before = await history.entries(session.session_id, lineage, 0, index)
            return _Place(step, entry, lineage, before)
    raise InvalidInputError(f"run {run_id!r} of session {session.session_id!r} has no answer at step {step}")


def _steps(last: int) -> str:
    return "no steps" if last == 0 else "step 1" if last == 1 else f"steps 1 to {last}"


async def _view_of(history: History, session: SessionRow, place: _Place) -> ViewRow | None:
    """Return the view that the answer names, or the session's view. A copy of a session has only one view: that of its
    latest checkpoint."""
    answer = place.answer
    if answer is None or answer.view == 0:
        return await history.view(session, None if answer is None else 0)
    (run,) = await history.store.get([row_key(session.session_id, run_sort(answer.run_id))])
    if run is None:
        origin = (session.forked_from or {}).get("session_id")
        text = f"step {place.step} of session {session.session_id!r} is a copy, without its view"
        raise InvalidInputError(f"{text}: read the context of this step in session {origin!r}")
    return await history.view(session, answer.view)


def _messages(place: _Place) -> list[AnyMessage]:
    """Return the messages as the model saw them. Verdicts on the newest inputs are stored with the step's answer."""
    messages = show_changes(messages_of(place.lineage, 0, place.entries))
    verdicts = place.answer.verdicts if place.answer is not None else []
    return [show_input(m, verdicts) if isinstance(m, UserMessage) else m for m in messages] if verdicts else messages


async def _found(history: History, session: SessionRow, view: ViewRow) -> ViewFound:
    attempt = await _attempt(history, session, view) if view.attempt else None
    return ViewFound(
        cause=view.cause,
        run_id=view.run_id,
        step=view.step,
        tokens=view.tokens,
        created_at=view.created_at,
        model=attempt.model if attempt is not None else None,
        usage=attempt.usage if attempt is not None else Usage(),
    )


async def _attempt(history: History, session: SessionRow, view: ViewRow) -> AttemptRow | None:
    """Return the row of the call that wrote the summary. None in a copy, because the original session paid for it."""
    sort = attempt_sort(view.run_id, view.step, view.attempt)
    (value,) = await history.store.get([row_key(session.session_id, sort)])
    return None if value is None else AttemptRow.read(session.session_id, sort, value)
