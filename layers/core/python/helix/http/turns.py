"""What a response shows: a run, where the page's message that it belongs to began, and the conversation before that.

Law: rows say it, so any process gives the same answer, and a client's own copy of the conversation is never asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from helix.core.entries import AnyEntry, AssistantRow, CallRow, UserRow
from helix.core.errors import RunNotFoundError, SessionNotFoundError
from helix.core.json import JsonObject, dumps
from helix.core.planning import has_end
from helix.core.rows import Pending, RunRow, SessionRow
from helix.core.wire import StreamMessage
from helix.engine.history import DELETING
from helix.engine.missing import StateMissingError
from helix.runtime.executor import Executor
from helix.services.claim_input import check_session_id
from helix.stream.agui import answer_id
from helix.stream.ui_messages import CONTINUES, shown_call


@dataclass(frozen=True, slots=True)
class Turn:
    """`run` is the one that the response ends with; `first` the run that began its message: itself, unless it goes on from
    one that paused, was interrupted, failed or died. `since`: the turn of the first run that the client has nothing of. Of
    several answers each may start a run. It is later than `run` where no run goes on yet; of what sub-agents did before it
    the client has all up to the sequence `seen`. `goes_on`: the response also has the runs that sub-agents wake, once `run`
    has paused."""

    session: SessionRow
    run: RunRow
    first: RunRow
    since: int
    seen: int = 0
    goes_on: bool = False

    def is_end(self, message: StreamMessage) -> bool:
        """The end of a run of the session itself."""
        return message.kind != "chunk" and message.session_id == self.run.session_id


async def owned(executor: Executor, session_id: str, user: str | None) -> SessionRow:
    """The session, if it is this user's. Raises `SessionNotFoundError` where there is none, or it is another's."""
    check_session_id(session_id)
    row = await executor.engine.history.session(session_id)
    if row is None or row.status == DELETING or not await executor.engine.history.belongs(row, user):
        raise SessionNotFoundError(session_id)
    return row


async def turn_of(executor: Executor, session: SessionRow, run_id: str | None = None, *, goes_on: bool = False) -> Turn:
    """The turn of a run, by default of the session's present one, for a client that has all up to that run."""
    run = first = await executor.sessions.get_run(session.session_id, run_id or session.run_id)
    while first.mode in CONTINUES and first.previous_run_id and not _said(first):
        try:
            first = await executor.sessions.get_run(session.session_id, first.previous_run_id)
        except RunNotFoundError:  # of a copied session, whose runs stayed behind
            break
    return Turn(session, run, first, run.turn, goes_on=goes_on)


# --- what waits for the user --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits: where it lives, what it waits for, and the arguments that would be executed."""

    session_id: str
    call_id: str
    kind: str
    arguments: JsonObject


async def questions(executor: Executor, session: SessionRow) -> dict[str, Question]:
    """The calls of the session and of its sub-agents that wait for the user, by their id on a page."""
    found: dict[str, Question] = {}
    stack: list[tuple[SessionRow, Sequence[Pending]]] = [(session, await executor.engine.history.pending(session))]
    while stack:
        row, waiting = stack.pop()
        for one in waiting:
            if one.kind != "child":
                shown = shown_call(session.session_id, row.session_id, one.call_id)
                found[shown] = Question(row.session_id, one.call_id, one.kind, one.arguments)
            elif one.child_session_id is not None:
                child = await executor.engine.history.session(one.child_session_id)
                if child is not None:
                    stack.append((child, await executor.engine.history.pending(child)))
    return found


# --- the conversation ---------------------------------------------------------------------------------------------------


async def conversation(executor: Executor, turn: Turn) -> list[JsonObject]:
    """AG-UI messages before the answers of the turn's first run, its own user message included."""
    history, run = executor.engine.history, turn.first
    lineage = await history.lineage(run.session_id, run.start_lineage)
    entries = await history.entries(run.session_id, lineage, 0, run.start_count)
    own = []
    if _said(run):
        own = await history.entries(run.session_id, lineage, run.start_count, run.start_count + 1)
    return agui_messages(run.session_id, [*entries, *own])


def _said(run: RunRow) -> bool:
    """Whether the run came with a message; a retry may."""
    return (run.input or {}).get("message") is not None


async def start_state(executor: Executor, turn: Turn) -> JsonObject | None:
    """The custom state that the patches of the turn's first run change, its claim's included; None where retention has
    deleted it."""
    history, session, run = executor.engine.history, turn.session, turn.first
    at = run.start_state_at or session.state_at
    if run.mode in ("execute", "with_message") and run.previous_run_id:  # whose open step its claim folded
        before = await executor.sessions.get_run(session.session_id, run.previous_run_id)
        point = await history.checkpoint(session.session_id, before.checkpoint) if before.checkpoint else None
        at = point.state_at if point is not None else at
    try:
        return await history.state_at(session.session_id, session.created_at, at)
    except StateMissingError:
        return None


def agui_messages(session_id: str, entries: Sequence[AnyEntry]) -> list[JsonObject]:
    """Rows as AG-UI messages, with the ids that the encoder gives the same messages live. `__finish__` is on no stream, and
    not here; a call with edited arguments has those."""
    edited = {entry.call_id: entry.edited.arguments for entry in entries if isinstance(entry, CallRow) and entry.edited}
    hidden = {entry.call_id for entry in entries if isinstance(entry, CallRow) and not has_end(entry)}
    found: list[JsonObject] = []
    for entry in entries:
        match entry:
            case UserRow():
                given = entry.metadata.get("id")
                name = given if isinstance(given, str) else f"{entry.run_id}/user"
                found.append({"id": name, "role": "user", "content": entry.content})
            case AssistantRow():
                found.extend(_answer(session_id, entry, hidden, edited))
            case CallRow(call_id=call_id) if call_id not in hidden:
                result: JsonObject = {"id": f"{call_id}/result", "role": "tool", "toolCallId": call_id}
                found.append(result | {"content": entry.content or ""})
    return found


def _answer(session_id: str, row: AssistantRow, hidden: Set[str], edited: Mapping[str, JsonObject]) -> list[JsonObject]:
    answer: dict[str, Any] = {"id": answer_id(session_id, row.step, row.attempt), "role": "assistant"}
    if row.content:
        answer["content"] = row.content
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": dumps(edited.get(call.id, call.arguments))},
        }
        for call in row.tool_calls
        if call.id not in hidden
    ]
    if calls:
        answer["toolCalls"] = calls
    return [answer] if len(answer) > 2 else []
