"""Read-only queries on stored sessions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from helix.core.agents import AnyAgent
from helix.core.claim_plan import lapsed
from helix.core.context_replies import ContextFound
from helix.core.damage import first_problem
from helix.core.entries import AssistantRow, CallRow, ChildRef, UserRow, parse_entry
from helix.core.errors import (
    CheckpointNotFoundError,
    DamagedRowError,
    InvalidInputError,
    SessionNotFoundError,
    damaged_row,
)
from helix.core.handles import CanResumeResult, SessionState, SubSessionRef
from helix.core.inbox import WaitingMessage, waiting_message
from helix.core.json import JsonObject, text_size
from helix.core.messages import AnyMessage, UserMessage, strip_thinking
from helix.core.prompt import repair_pairs
from helix.core.row_keys import checkpoint_sort, checkpoint_version, message_sort, run_sort
from helix.core.rows import CheckpointRow, Pending
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.history import DELETING, History, row_key, session_key
from helix.engine.inbox import read_inbox
from helix.engine.missing import RowMissingError, StateMissingError
from helix.ports.state_store import StateStore, Value
from helix.services.claim_input import check_run_id, check_session_id
from helix.services.session_index import index_partition
from helix.sessions.contexts import read_context

MAX_PAGE = 1000
PAGE = 50
FIRST = message_sort(0, 0)
CURSOR = re.compile(r"c#\d{10}")
"""The format of checkpoint cursors from an earlier version."""


@dataclass(frozen=True, slots=True)
class PaginatedMessages:
    """A page of a session's messages."""

    messages: list[AnyMessage]
    """The messages of this page, oldest first."""
    total: int
    """The number of messages in the history."""
    offset: int
    """The requested number of messages before this page."""
    limit: int
    """The requested maximum number of messages per page."""
    has_more: bool
    """Whether messages follow this page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a session's checkpoints."""

    items: list[CheckpointRow]
    """The checkpoints, newest first, without their custom states."""
    cursor: str | None
    """The value to pass as `after` for the next page. None at the end."""

    @property
    def has_more(self) -> bool:
        return self.cursor is not None


@dataclass(frozen=True, slots=True)
class RunPage:
    """The newest runs of a session."""

    runs: list[RunRow]
    """The runs, newest first."""
    has_more: bool
    """Whether the session has older runs."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of root sessions."""

    sessions: list[SessionState]
    """The sessions that can be read, newest id first."""
    cursor: str | None
    """The value to pass as `after` for the next page. None at the end."""
    damaged: list[str] = field(default_factory=list)
    """The ids of sessions on this page whose rows cannot be read."""


UNREADABLE_SESSION = (DamagedRowError, RowMissingError, StateMissingError)
"""Errors that affect a single session, and must not hide the other sessions."""


class Sessions:
    """Queries on a state store, by session id."""

    def __init__(self, store: StateStore) -> None:
        self.store = store
        self._history = History(store)

    async def load(self, session_id: str) -> SessionState | None:
        """Return the session, or None if it does not exist."""
        row = await self._history.session(session_id)
        return None if row is None or row.status == DELETING else await self._state(row)

    async def get(self, session_id: str) -> SessionState:
        """Return the session. Raises `SessionNotFoundError`."""
        row = await self._existing(session_id)
        state = await self._state(row)
        # Between the end of a run and its effects, no other row says that messages wait.
        return state.model_copy(update={"inbox": await self.get_inbox(session_id)})

    async def get_inbox(self, session_id: str) -> list[WaitingMessage]:
        """Return the messages that wait for the session's run, in the order of their arrival."""
        return [waiting_message(row) for row in await read_inbox(self.store, session_id)]

    async def can_resume(self, session_id: str, *, now: float | None = None) -> CanResumeResult:
        """Return whether `resume` would continue the session. With `now` (Unix seconds), a running session with an
        expired lease also counts."""
        row = await self._history.session(session_id)
        if row is None:
            return CanResumeResult(can_resume=False, reason="not_found")
        match row.status:
            case "running" if now is None or not lapsed(row, now):
                return CanResumeResult(can_resume=False, reason="running")
            case "completed":
                return CanResumeResult(can_resume=False, reason="completed")
            case "failed":
                return CanResumeResult(can_resume=False, reason="aborted" if row.aborted else "failed_use_retry")
            case "paused" if await self._history.unanswered(row):
                return CanResumeResult(can_resume=True, reason="pending_confirmation")
            case "interrupted" if await self._history.pending(row):
                return CanResumeResult(can_resume=True, reason="pending_confirmation")
            case "running" | "interrupted" | "paused":
                return CanResumeResult(can_resume=True)
            case "deleting":
                return CanResumeResult(can_resume=False, reason="not_found")
            case _:  # of another version, or damaged
                raise damaged_row(*session_key(session_id), f"status: {row.status!r} is not a status of a session")

    async def exists(self, session_id: str) -> bool:
        row = await self._history.session(session_id)
        return row is not None and row.status != DELETING

    async def list_sessions(
        self, *, user_id: str | None = None, limit: int = 50, after: str | None = None
    ) -> SessionPage:
        """Return a user's root sessions, newest id first. `after` is the cursor of the previous page."""
        text_size(user_id or "")
        if after is not None:
            check_session_id(after)
        rows = await self.store.query(
            "sessions", index_partition(user_id), end=after, limit=_limit(limit) + 1, reverse=True
        )
        ids = [row.key.sort for row in rows[:limit]]
        return await self.read_page(ids, ids[-1] if len(rows) > limit else None)

    async def read_page(self, ids: Sequence[str], cursor: str | None) -> SessionPage:
        """Return these root sessions in the given order. Sessions that do not exist or are being deleted are
        omitted."""
        try:
            values = await self.store.get([session_key(session_id) for session_id in ids])
            found = [SessionRow.at(id_, value) for id_, value in zip(ids, values, strict=True) if value is not None]
            found = [row for row in found if row.status != DELETING]
            await self._history.read_states(found)
            states = [await self._state(row) for row in found]
            return SessionPage(states, cursor)
        except UNREADABLE_SESSION:
            return await self._readable(ids, cursor)

    async def _readable(self, ids: Sequence[str], cursor: str | None) -> SessionPage:
        """Return the sessions that can be read. They are read individually, because at least one of their rows cannot
        be read."""
        page = SessionPage([], cursor)
        for session_id in ids:
            try:
                state = await self.load(session_id)
            except UNREADABLE_SESSION:
                page.damaged.append(session_id)
            else:
                page.sessions.extend([] if state is None else [state])
        return page

    async def get_messages(
        self, session_id: str, *, offset: int = 0, limit: int = 50, include_thinking: bool = True
    ) -> PaginatedMessages:
        """Return messages of the current lineage, oldest first. `limit` is at most 1000."""
        if offset < 0:
            raise InvalidInputError(f"offset is {offset}; it must be 0 or more")
        session = await self._existing(session_id)
        end = min(session.count, offset + _limit(limit))
        found: list[AnyMessage] = []
        if offset < end:
            lineage = await self._history.lineage(session_id, session.lineage)
            found = await self._history.read_messages(session_id, lineage, offset, end)
        if not include_thinking:
            found = strip_thinking(found)
        return PaginatedMessages(found, session.count, offset, limit, end < session.count)

    async def first_texts(self, session_ids: Sequence[str]) -> list[str]:
        """Return the first message of each session if it is a user message, otherwise "". Takes two reads in total for
        all sessions that were never rewound to their beginning."""
        values = await self.store.get([row_key(id_, FIRST) for id_ in session_ids])
        rows = await self.store.get([session_key(id_) for id_ in session_ids])
        return [await self._first_text(*each) for each in zip(session_ids, values, rows, strict=True)]

    async def _first_text(self, session_id: str, value: Value | None, row: Value | None) -> str:
        try:
            if value is not None and row is not None and row.get("lineage", 0) == 0:
                entry = parse_entry(session_id, FIRST, value)
                return entry.content if isinstance(entry, UserRow) else ""
            first = (await self.get_messages(session_id, limit=1)).messages
            return first[0].content if first and isinstance(first[0], UserMessage) else ""
        except SessionNotFoundError:
            return ""
        except UNREADABLE_SESSION:
            return "(a damaged message)"

    async def load_conversation_messages(self, session_id: str) -> list[AnyMessage]:
        """Return all messages of the current lineage, with call/result pairs repaired."""
        messages = await self._history.messages(await self._existing(session_id))
        return repair_pairs(messages)

    async def get_message_count(self, session_id: str) -> int:
        return (await self._existing(session_id)).count

    async def get_current_run(self, session_id: str) -> RunRow:
        session = await self._existing(session_id)
        return await self._history.run(session_id, session.run_id)

    async def get_run(self, session_id: str, run_id: str) -> RunRow:
        """Return the run. Raises `RunNotFoundError`, and `InvalidInputError` if the id is not a valid run id."""
        check_run_id(run_id)
        return await self._history.run(session_id, run_id)

    async def run_pending(self, run: RunRow) -> list[Pending]:
        """Return the pending calls of the run, with their arguments."""
        return await self._history.run_pending(run)

    async def last_text(self, run: RunRow) -> str | None:
        """Return the text of the completed run's last answer. Later runs do not change it."""
        start, text = message_sort(run.start_lineage, run.start_count), None
        end = message_sort(run.start_lineage + 1, 0)
        while rows := await self.store.query("sessions", run.session_id, start=start, end=end, limit=PAGE):
            for entry in (parse_entry(run.session_id, row.key.sort, row.value) for row in rows):
                if isinstance(entry, UserRow) and entry.run_id != run.run_id:
                    return text
                text = entry.content if isinstance(entry, AssistantRow) else text
            if len(rows) < PAGE:
                return text
            start = rows[-1].key.sort + "\x00"
        return text

    async def list_runs(self, session_id: str, *, limit: int = 20, before: str | None = None) -> RunPage:
        """Return the session's runs, newest first. `before` is the id of the last run on the previous page."""
        await self._existing(session_id)
        end = "r$" if before is None else run_sort(before)
        rows = await self.store.query(
            "sessions", session_id, start="r#", end=end, limit=_limit(limit) + 1, reverse=True
        )
        return RunPage([RunRow.at(session_id, r.key.sort, r.value) for r in rows[:limit]], len(rows) > limit)

    async def list_checkpoints(self, session_id: str, *, limit: int = 20, after: str | None = None) -> Page:
        """Return the session's checkpoints, newest first, without custom states (`get_checkpoint` reads one). `after`
        is the cursor of the previous page, which is the id of its last checkpoint. Raises `CheckpointNotFoundError` for
        an id of another session."""
        await self._existing(session_id)
        end = "c$" if after is None else after if CURSOR.fullmatch(after) else _place(session_id, after)
        rows = await self.store.query(
            "sessions", session_id, start="c#", end=end, limit=_limit(limit) + 1, reverse=True
        )
        items = [
            CheckpointRow.at(session_id, r.key.sort, {**r.value, "state": None, "patches": []}) for r in rows[:limit]
        ]
        waiting = [point for point in items if point.pending]
        places = [(point.lineage, point.count, point.pending) for point in waiting]
        for point, pending in zip(waiting, await self._history.with_arguments(session_id, places), strict=True):
            point.pending = pending
        return Page(items, items[-1].id if len(rows) > limit else None)

    async def get_checkpoint(self, session_id: str, checkpoint_id: str) -> CheckpointRow:
        """Return the checkpoint with its custom state. Raises `CheckpointNotFoundError`, also for ids of other
        sessions."""
        row, state = await self._history.point(await self._existing(session_id), checkpoint_id)
        (pending,) = await self._history.with_arguments(session_id, [(row.lineage, row.count, row.pending)])
        return row.model_copy(update={"state": state, "pending": pending})

    async def get_latest_checkpoint(self, session_id: str) -> CheckpointRow:
        while True:
            session = await self._existing(session_id)
            try:
                return await self.get_checkpoint(session_id, session.checkpoint)
            except CheckpointNotFoundError:
                if (await self._existing(session_id)).version == session.version:
                    raise

    async def get_checkpoint_messages(
        self, session_id: str, checkpoint_id: str, *, offset: int = 0
    ) -> list[AnyMessage]:
        """Return the conversation as it was at the checkpoint, starting at message `offset`."""
        row = await self.get_checkpoint(session_id, checkpoint_id)
        lineage = await self._history.lineage(session_id, row.lineage)
        return await self._history.read_messages(session_id, lineage, offset, row.count)

    async def get_context(
        self, session_id: str, step: int | None = None, *, run_id: str | None = None, agent: AnyAgent | None = None
    ) -> ContextFound:
        """Return what the model was asked at a step of the current history, or at a step that the run bought. `step`:
        None for the next step. `agent`: its system prompt, if a string, stands in for one that is not recorded."""
        return await read_context(self._history, await self._existing(session_id), step, run_id, agent)

    async def list_sub_sessions(self, session_id: str) -> list[SubSessionRef]:
        """Return the sub-agents of the current lineage in call order, including active ones."""
        session = await self._existing(session_id)
        lineage = await self._history.lineage(session_id, session.lineage)
        calls = await self._history.sub_agent_calls(session_id, lineage, session.count)
        open_rows = await self._history.open_rows(session)
        if open_rows is not None:
            calls.extend(row for row in open_rows.calls if row is not None)
        waiting = {pending.call_id for pending in session.pending if pending.kind == "child"}
        found = [(call, call.child) for call in calls if call.child is not None]
        return [await self._ref(call, child, call.call_id in waiting) for call, child in found]

    async def _existing(self, session_id: str) -> SessionRow:
        row = await self._history.session(session_id)
        if row is None or row.status == DELETING:
            raise SessionNotFoundError(session_id)
        return row

    async def _ref(self, call: CallRow, child: ChildRef, waited: bool) -> SubSessionRef:
        """Return a reference to the child. `waited`: the parent waits for a response in the child, so the child must
        have started."""
        row = await self._history.session(child.session_id)
        begun = waited or (call.state == "done" and call.by == "child")
        return SubSessionRef(
            session_id=child.session_id,
            agent_type=child.agent_type,
            parent_tool_call_id=call.call_id,
            status=row.status if row is not None else "deleted" if begun else "not_started",
        )

    async def _state(self, row: SessionRow) -> SessionState:
        state: JsonObject = {}
        while row.state_at:
            try:
                state = await self._history.state(row)
                break
            except StateMissingError:
                again = await self._history.session(row.session_id)
                if again is None or again.version == row.version:
                    raise
                row = again
        pending = await self._history.pending(row)
        try:
            return SessionState(
                **{name: getattr(row, name) for name in _SAME},
                active_agent=row.active_agent or row.agent_type,
                current_run_id=row.run_id,
                step_count=row.step,
                message_count=row.count,
                custom_state=state,
                checkpoint_id=row.checkpoint,
                pending=pending,
                in_batch=row.in_batch,
                parent_session_id=row.parent.session_id if row.parent else None,
            )
        except ValidationError as error:  # a status unknown to this version
            raise damaged_row(*session_key(row.session_id), first_problem(error)) from error


_SAME = (SessionState.model_fields.keys() & SessionRow.model_fields.keys()) - {"pending", "inbox", "active_agent"}


def get_sub_agent_refs_by_type(refs: Sequence[SubSessionRef], agent_type: str) -> list[SubSessionRef]:
    return [ref for ref in refs if ref.agent_type == agent_type]


def _place(session_id: str, checkpoint: str) -> str:
    return checkpoint_sort(checkpoint_version(session_id, checkpoint))


def _limit(limit: int) -> int:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInputError(f"limit is {limit}; it must be between 1 and {MAX_PAGE}")
    return limit
