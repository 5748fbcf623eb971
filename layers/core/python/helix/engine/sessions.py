"""Reading sessions: what a user may ask of the store. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import Field

from helix.core.claiming import lapsed
from helix.core.errors import CheckpointNotFoundError, InvalidInputError, SessionNotFoundError
from helix.core.json import JsonObject, JsonValue, text_size
from helix.core.messages import AnyMessage, Record, strip_thinking
from helix.core.prompt import repair_pairs
from helix.core.rows import CallRow, CheckpointRow, ChildRef, ErrorInfo, Pending, RunRow, SessionRow
from helix.core.usage import Usage
from helix.engine.history import DELETING, History, session_key
from helix.ports.state_store import StateStore

MAX_PAGE = 1000
CanResumeReason = Literal[
    "running", "completed", "failed_use_retry", "aborted", "not_found", "pending_confirmation", "agent_not_registered"
]


class CanResumeResult(Record):
    """`reason` says why not, or for a failed session which verb fits; `pending_confirmation`: it can, with an answer."""

    can_resume: bool
    reason: CanResumeReason | None = None


class SubSessionRef(Record):
    """A sub-agent's session, as its parent knows it."""

    session_id: str
    agent_type: str
    parent_tool_call_id: str
    status: str


class SessionState(Record):
    """The committed state of a session: what a run left, or has reached so far."""

    session_id: str
    agent_type: str
    stream_id: str
    status: str
    version: int
    current_run_id: str
    turn: int
    step_count: int
    message_count: int
    custom_state: JsonObject
    checkpoint_id: str
    output: JsonValue = None
    error: ErrorInfo | None = None
    pending: list[Pending] = Field(default_factory=list)
    usage: Usage = Usage()
    aborted: bool = False
    abort_reason: str | None = None
    parent_session_id: str | None = None
    forked_from: JsonObject | None = None
    user_id: str | None = None
    tags: list[str] = Field(default_factory=list)
    metadata: JsonObject = Field(default_factory=dict)
    lease_expires: float = 0
    created_at: float = 0
    updated_at: float = 0


@dataclass(frozen=True, slots=True)
class PaginatedMessages:
    messages: list[AnyMessage]
    total: int
    offset: int
    limit: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class Page:
    """`cursor` is what to pass as `after` for the next page; None at the end."""

    items: list[CheckpointRow]
    cursor: str | None

    @property
    def has_more(self) -> bool:
        return self.cursor is not None


@dataclass(frozen=True, slots=True)
class RunPage:
    runs: list[RunRow]
    has_more: bool


@dataclass(frozen=True, slots=True)
class SessionPage:
    sessions: list[SessionState]
    cursor: str | None


class Sessions:
    """Queries on a state store, by session id."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._history = History(store)

    async def load(self, session_id: str) -> SessionState | None:
        """None if there is no such session."""
        row = await self._history.session(session_id)
        return None if row is None or row.status == DELETING else await self._state(row)

    async def get(self, session_id: str) -> SessionState:
        """Raises `SessionNotFoundError`."""
        return await self._state(await self._existing(session_id))

    async def can_resume(self, session_id: str, *, now: float | None = None) -> CanResumeResult:
        """Whether `resume` would go on. With `now` (Unix seconds) a running session whose lease has lapsed can."""
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
            case "running" | "interrupted" | "paused":
                return CanResumeResult(can_resume=True)
            case _:
                return CanResumeResult(can_resume=False, reason="not_found")

    async def exists(self, session_id: str) -> bool:
        row = await self._history.session(session_id)
        return row is not None and row.status != DELETING

    async def list_sessions(
        self, *, user_id: str | None = None, limit: int = 50, after: str | None = None
    ) -> SessionPage:
        """Root sessions of a user, newest id first. `after` is the last page's cursor."""
        text_size(user_id or "")
        rows = await self._store.query(
            "sessions", f"index#{user_id or ''}", end=after, limit=_limit(limit) + 1, reverse=True
        )
        values = await self._store.get([session_key(row.key.sort) for row in rows[:limit]])
        states = [await self._state(SessionRow.model_validate(v)) for v in values if v is not None]
        return SessionPage(states, rows[limit - 1].key.sort if len(rows) > limit else None)

    async def get_messages(
        self, session_id: str, *, offset: int = 0, limit: int = 50, include_thinking: bool = True
    ) -> PaginatedMessages:
        """Messages of the current lineage, oldest first. `limit` is at most 1000."""
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

    async def load_conversation_messages(self, session_id: str) -> list[AnyMessage]:
        """All messages of the current lineage, pairs repaired."""
        messages = await self._history.messages(await self._existing(session_id))
        return repair_pairs(messages)

    async def get_message_count(self, session_id: str) -> int:
        return (await self._existing(session_id)).count

    async def get_current_run(self, session_id: str) -> RunRow:
        session = await self._existing(session_id)
        return await self._history.run(session_id, session.run_id)

    async def get_run(self, session_id: str, run_id: str) -> RunRow:
        """Raises `RunNotFoundError`."""
        return await self._history.run(session_id, run_id)

    async def list_runs(self, session_id: str, *, limit: int = 20) -> RunPage:
        """Newest first."""
        await self._existing(session_id)
        rows = await self._store.query(
            "sessions", session_id, start="r#", end="r$", limit=_limit(limit) + 1, reverse=True
        )
        return RunPage([RunRow.model_validate(r.value) for r in rows[:limit]], len(rows) > limit)

    async def list_checkpoints(self, session_id: str, *, limit: int = 20, after: str | None = None) -> Page:
        """Newest first; custom states are left out (`get_checkpoint_state` reads one)."""
        await self._existing(session_id)
        rows = await self._store.query(
            "sessions", session_id, start="c#", end=after or "c$", limit=_limit(limit) + 1, reverse=True
        )
        items = [CheckpointRow.model_validate({**r.value, "state": None, "patches": []}) for r in rows[:limit]]
        return Page(items, rows[limit - 1].key.sort if len(rows) > limit else None)

    async def get_checkpoint(self, session_id: str, checkpoint_id: str) -> CheckpointRow:
        """With its custom state. Raises `CheckpointNotFoundError`, for ids of other sessions too."""
        session = await self._existing(session_id)
        row = await self._history.checkpoint(session_id, checkpoint_id)
        if row is None:
            raise CheckpointNotFoundError(f"session {session_id!r} has no checkpoint {checkpoint_id!r}")
        state = await self._history.state_at(session_id, session.created_at, row.state_at)
        return row.model_copy(update={"state": state})

    async def get_latest_checkpoint(self, session_id: str) -> CheckpointRow:
        session = await self._existing(session_id)
        return await self.get_checkpoint(session_id, session.checkpoint)

    async def get_checkpoint_messages(self, session_id: str, checkpoint_id: str) -> list[AnyMessage]:
        """The conversation as it was at the checkpoint, whatever happened since."""
        row = await self.get_checkpoint(session_id, checkpoint_id)
        lineage = await self._history.lineage(session_id, row.lineage)
        return await self._history.read_messages(session_id, lineage, 0, row.count)

    async def list_sub_sessions(self, session_id: str) -> list[SubSessionRef]:
        """Sub-agents of the current lineage, those at work included, in call order."""
        session = await self._existing(session_id)
        lineage = await self._history.lineage(session_id, session.lineage)
        entries = list(await self._history.entries(session_id, lineage, 0, session.count))
        open_rows = await self._history.open_rows(session)
        if open_rows is not None:
            entries.extend(row for row in open_rows.calls if row is not None)
        refs = [(e.call_id, e.child) for e in entries if isinstance(e, CallRow) and e.child is not None]
        return [await self._ref(call_id, child) for call_id, child in refs]

    async def _existing(self, session_id: str) -> SessionRow:
        row = await self._history.session(session_id)
        if row is None or row.status == DELETING:
            raise SessionNotFoundError(session_id)
        return row

    async def _ref(self, call_id: str, child: ChildRef) -> SubSessionRef:
        row = await self._history.session(child.session_id)
        return SubSessionRef(
            session_id=child.session_id,
            agent_type=child.agent_type,
            parent_tool_call_id=call_id,
            status=row.status if row is not None else "not_started",
        )

    async def _state(self, row: SessionRow) -> SessionState:
        return SessionState(
            session_id=row.session_id,
            agent_type=row.agent_type,
            stream_id=row.stream_id,
            status=row.status,
            version=row.version,
            current_run_id=row.run_id,
            turn=row.turn,
            step_count=row.step,
            message_count=row.count,
            custom_state=await self._history.state(row) if row.state_at else {},
            checkpoint_id=row.checkpoint,
            output=row.output,
            error=row.error,
            pending=row.pending,
            usage=row.usage,
            aborted=row.aborted,
            abort_reason=row.abort_reason,
            parent_session_id=row.parent.session_id if row.parent else None,
            forked_from=row.forked_from,
            user_id=row.user_id,
            tags=row.tags,
            metadata=row.metadata,
            lease_expires=row.lease_expires,
            created_at=row.created_at,
            updated_at=row.updated_at,
        )


def get_sub_agent_refs_by_type(refs: Sequence[SubSessionRef], agent_type: str) -> list[SubSessionRef]:
    return [ref for ref in refs if ref.agent_type == agent_type]


def _limit(limit: int) -> int:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInputError(f"limit is {limit}; it must be between 1 and {MAX_PAGE}")
    return limit


class RecoveredConversation(NamedTuple):
    """The conversation with its pairs repaired, and whether `resume` would go on with it (`Sessions.can_resume`)."""

    messages: list[AnyMessage]
    can_resume: bool


async def recover_conversation(store: StateStore, session_id: str) -> RecoveredConversation:
    """What is left of a session, for whoever shows it or goes on with it. Reads only."""
    sessions = Sessions(store)
    messages = await sessions.load_conversation_messages(session_id)
    return RecoveredConversation(messages, (await sessions.can_resume(session_id)).can_resume)
