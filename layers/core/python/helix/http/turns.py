"""The contents of an HTTP response: the run that it streams, the first run of the same message on the page, and the
conversation before that.

Law: everything here comes from rows, so any process produces the same response. A client's copy of the conversation is not
used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from helix.core.call_results import has_end
from helix.core.conversation.changes import CONTINUES
from helix.core.entries import AnyEntry, AssistantRow, CallRow, UserRow
from helix.core.errors import RunNotFoundError, SessionNotFoundError
from helix.core.json import JsonObject, dumps
from helix.core.messages import AskedQuestion, ServerCall
from helix.core.rows import Pending
from helix.core.run_row import RunRow
from helix.core.server_tools import server_calls
from helix.core.session_row import SessionRow
from helix.core.wire import StreamMessage
from helix.engine.history import DELETING
from helix.engine.missing import StateMissingError
from helix.runtime.executor import Executor
from helix.services.claim_input import check_session_id
from helix.stream.agui_writers import answer_id
from helix.stream.file_parts import agui_content
from helix.stream.ui_calls import QUESTION, answered_rounds, answers_message, question_id, questions_text, shown_call


@dataclass(frozen=True, slots=True)
class Turn:
    """A run that a response shows, together with the runs before it that belong to the same message of the page."""

    session: SessionRow
    """The session, as it was read for this response."""
    run: RunRow
    """The run that the response ends with."""
    first: RunRow
    """The run that began the message on the page. It is `run` itself, unless `run` continues a run that paused, was
    interrupted, failed or died."""
    since: int
    """The number of the first turn whose messages the client lacks. After several answers, each of which may start a run,
    it can be lower than that of `run`. It is `run.turn + 1` if the client answered a call but no run has continued yet."""
    seen: int = 0
    """The stream's last sequence when the answers arrived. The client has the output of sub-agents up to it. 0 if that does
    not matter."""
    goes_on: bool = False
    """Whether the response also shows the runs that sub-agents start once `run` has paused."""

    def is_end(self, message: StreamMessage) -> bool:
        """Whether the message ends a run of the session itself."""
        return message.kind != "chunk" and message.session_id == self.run.session_id


async def get_owned(executor: Executor, session_id: str, user: str | None) -> SessionRow:
    """Return the session. Raises `SessionNotFoundError` if it does not exist or belongs to another user."""
    check_session_id(session_id)
    row = await executor.engine.history.session(session_id)
    if row is None or row.status == DELETING or not await executor.engine.history.belongs(row, user):
        raise SessionNotFoundError(session_id)
    return row


async def turn_of(executor: Executor, session: SessionRow, run_id: str | None = None, *, goes_on: bool = False) -> Turn:
    """Return the turn of a run (default: the session's current run). The turn is for a client that has everything up to
    that run."""
    run = first = await executor.sessions.get_run(session.session_id, run_id or session.run_id)
    while first.mode in CONTINUES and first.previous_run_id and not _came_with_message(first):
        try:
            first = await executor.sessions.get_run(session.session_id, first.previous_run_id)
        except RunNotFoundError:  # a copied session: its earlier runs were not copied
            break
    return Turn(session, run, first, run.turn, goes_on=goes_on)


# --- what waits for the user --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for the user."""

    session_id: str
    """The session that contains the call: the user's own, or a sub-agent's."""
    call_id: str
    """The id of the call within that session. The id on the page may be longer."""
    kind: str
    """The kind of answer: `approval`, `client` (a client tool's result), `question` (the answers to a tool's questions) or
    `unknown` (a ruling on an unknown outcome)."""
    arguments: JsonObject
    """The arguments that an approval would execute."""
    round: int = 0
    """The round of the questions, as in `core.rows.Pending`."""


async def questions(executor: Executor, session: SessionRow) -> dict[str, Question]:
    """Return the calls of the session and its sub-agents that are waiting for the user, by their id on a page."""
    found: dict[str, Question] = {}
    stack: list[tuple[SessionRow, Sequence[Pending]]] = [(session, await executor.engine.history.pending(session))]
    while stack:
        row, waiting = stack.pop()
        for one in waiting:
            if one.kind not in ("child", "elsewhere"):
                shown = shown_call(session.session_id, row.session_id, one.call_id)
                shown = question_id(shown, one.round) if one.kind == "question" else shown
                found[shown] = Question(row.session_id, one.call_id, one.kind, one.arguments, one.round)
            elif one.child_session_id is not None:
                child = await executor.engine.history.session(one.child_session_id)
                if child is not None:
                    stack.append((child, await executor.engine.history.pending(child)))
    return found


# --- the conversation ---------------------------------------------------------------------------------------------------


async def conversation(executor: Executor, turn: Turn) -> list[JsonObject]:
    """Return the AG-UI messages before the answers of the turn's first run. That run's own user message is included."""
    history, run = executor.engine.history, turn.first
    lineage = await history.lineage(run.session_id, run.start_lineage)
    entries = await history.entries(run.session_id, lineage, 0, run.start_count)
    own = []
    if _came_with_message(run):
        own = await history.entries(run.session_id, lineage, run.start_count, run.start_count + 1)
    return agui_messages(run.session_id, [*entries, *own])


def _came_with_message(run: RunRow) -> bool:
    """Whether the run came with a message. A retry may also have one."""
    return (run.input or {}).get("message") is not None


async def start_state(executor: Executor, turn: Turn) -> JsonObject | None:
    """Return the custom state that the patches of the turn's first run apply to, including those of its claim. None if
    retention has deleted that state."""
    history, session, run = executor.engine.history, turn.session, turn.first
    at = run.start_state_at or session.state_at
    if run.mode in ("execute", "with_message") and run.previous_run_id:  # its claim folded that run's open step
        before = await executor.sessions.get_run(session.session_id, run.previous_run_id)
        point = await history.checkpoint(session.session_id, before.checkpoint) if before.checkpoint else None
        at = point.state_at if point is not None else at
    try:
        return await history.state_at(session.session_id, session.created_at, at)
    except StateMissingError:
        return None


def agui_messages(session_id: str, entries: Sequence[AnyEntry]) -> list[JsonObject]:
    """Convert rows to AG-UI messages, with the ids that the encoder gives the same messages live. `__finish__` is omitted,
    because it does not appear on any stream. A call whose arguments were edited shows the edited ones."""
    rows = [entry for entry in entries if isinstance(entry, CallRow)]
    edited = {row.call_id: row.edited.arguments for row in rows if row.edited}
    hidden = {row.call_id for row in rows if not has_end(row)}
    questions = {row.call_id: row.questions for row in rows if row.questions}
    found: list[JsonObject] = []
    for entry in entries:
        match entry:
            case UserRow():
                given = entry.metadata.get("id")
                name = given if isinstance(given, str) else f"{entry.queued or entry.run_id}/user"
                found.append({"id": name, "role": "user", "content": agui_content(entry.content, entry.files)})
            case AssistantRow():
                found.extend(_answer(session_id, entry, hidden, edited, questions))
            case CallRow(call_id=call_id) if call_id not in hidden:
                found += [answers_message(ident, asked) for ident, asked in answered_rounds(call_id, entry.questions)]
                result: JsonObject = {"id": f"{call_id}/result", "role": "tool", "toolCallId": call_id}
                found.append(result | {"content": agui_content(entry.content or "", entry.files)})
    return found


def _answer(
    session_id: str,
    row: AssistantRow,
    hidden: Set[str],
    edited: Mapping[str, JsonObject],
    questions: Mapping[str, Sequence[AskedQuestion]],
) -> list[JsonObject]:
    answer: dict[str, Any] = {"id": answer_id(session_id, row.step, row.attempt), "role": "assistant"}
    if row.content:
        answer["content"] = row.content
    served = [(f"{row.step}/{row.attempt}/{call.id}", call) for call in server_calls(row.server_blocks)]
    calls = [
        {"id": ident, "type": "function", "function": {"name": call.name, "arguments": dumps(call.arguments)}}
        for ident, call in served
    ]
    calls += [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": dumps(edited.get(call.id, call.arguments))},
        }
        for call in row.tool_calls
        if call.id not in hidden
    ]
    for call in row.tool_calls:
        for ident, asked in answered_rounds(call.id, questions.get(call.id, ())):
            about = {"name": QUESTION, "arguments": questions_text(asked)}
            calls.append({"id": ident, "type": "function", "function": about})
    if calls:
        answer["toolCalls"] = calls
    results: list[JsonObject] = [
        {"id": f"{ident}/result", "role": "tool", "toolCallId": ident, "content": _text_of(call)}
        for ident, call in served
    ]
    return [answer, *results] if len(answer) > 2 else []


def _text_of(call: ServerCall) -> str:
    result = call.result if call.result is not None else call.error
    return result if isinstance(result, str) else dumps(result)
