"""Reads sessions: their rows as stored, through a cache of immutable rows.

Law: the messages of (lineage, count) never change, so a worker reads each message below the count only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from helix.core.claim_plan import OpenRows
from helix.core.entries import AnyEntry, CallRow, message_of, messages_of, parse_entry, pending_of
from helix.core.errors import CheckpointNotFoundError, RunNotFoundError, SessionNotFoundError
from helix.core.json import JsonObject
from helix.core.lineage import ROOT, find_spans
from helix.core.messages import AnyMessage
from helix.core.row_keys import (
    SESSION,
    checkpoint_sort,
    checkpoint_version,
    lineage_sort,
    message_sort,
    run_sort,
    stop_sort,
    view_sort,
)
from helix.core.rows import CheckpointRow, LineageRow, Pending
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.status import OVER
from helix.core.view_row import ViewRow
from helix.engine.missing import RowMissingError, StateMissingError, staged_answer, version_of_state
from helix.engine.pending import Place, fill_pending
from helix.engine.seen import Newest, Seen
from helix.engine.session_cache import Conversation, SessionCache
from helix.ports.state_store import Key, Row, StateStore, Value
from helix.services.budget_rows import BudgetChanges

SWEPT_RUNS = 5
DELETING = "deleting"  # the status of a session whose rows are being removed; to all other callers it no longer exists


def session_key(session_id: str) -> Key:
    return Key("sessions", session_id, SESSION)


def row_key(session_id: str, sort: str) -> Key:
    return Key("sessions", session_id, sort)


def call_key(session: SessionRow, place: int) -> Key:
    """Return the key of a call of the session's open step. `place` is the call's position in the answer."""
    assert session.open is not None
    return row_key(session.session_id, message_sort(session.lineage, session.open.base + 1 + place))


def _session(session_id: str, value: Value | None) -> SessionRow:
    if value is None:
        raise SessionNotFoundError(session_id)
    return SessionRow.at(session_id, value)


def _run(session_id: str, run_id: str, value: Value | None) -> RunRow:
    if value is None:
        raise RunNotFoundError(f"session {session_id!r} has no run {run_id!r}")
    return RunRow.at(session_id, run_sort(run_id), value)


class History:
    def __init__(self, store: StateStore) -> None:
        self.store = store
        self.cache = SessionCache()
        self._changes = BudgetChanges(store)

    # --- single rows ----------------------------------------------------------------------------------------------

    async def session(self, session_id: str) -> SessionRow | None:
        if not session_id or not session_id.isascii():  # ids are ASCII, and a store may refuse other keys
            return None
        (value,) = await self.store.get([session_key(session_id)])
        return None if value is None else SessionRow.at(session_id, value)

    async def newest(self, session_id: str, limit: int | None = SWEPT_RUNS) -> Newest:
        """Return the session and its newest runs (all of them without `limit`) in one read. No other rows sort
        between them."""
        if not session_id or not session_id.isascii():
            return Newest(None)
        most = None if limit is None else limit + 1
        rows = await self.store.query(
            "sessions", session_id, start="r#", end=f"{SESSION}\x00", limit=most, reverse=True
        )
        values = {row.key.sort: row.value for row in rows}
        value = values.pop(SESSION, None)
        session = None if value is None else SessionRow.at(session_id, value)
        return Newest(session, [RunRow.at(session_id, sort, run) for sort, run in [*values.items()][:limit]])

    async def seen(self, session_id: str, run_id: str) -> Seen:
        """Return the rows that the start of a step needs, in one read."""
        keys = [session_key(session_id), row_key(session_id, stop_sort(run_id))]
        (value, stop), count = await self._changes.read(session_id, keys)
        return Seen(_session(session_id, value), stop, count)

    async def seen_beside(self, session: SessionRow, run_id: str, *, state: bool = False) -> Seen:
        """Return the same rows as `seen`, for a worker that has just written the session. Only the rows that other
        callers write are read. With `state`, the custom state is also read, unless it is cached."""
        points = self._unread_states([session] if state else [])
        keys = [row_key(session.session_id, stop_sort(run_id)), *points]
        (stop, *values), count = await self._changes.read(session.session_id, keys)
        self._keep_states(points, values)
        return Seen(session, stop, count)

    async def session_and_stop(self, session_id: str, run_id: str) -> tuple[SessionRow, Value | None]:
        """Return the session and the stop row of this run, in one read."""
        value, stop = await self.store.get([session_key(session_id), row_key(session_id, stop_sort(run_id))])
        return _session(session_id, value), stop

    async def seen_with_run(self, session_id: str, run_id: str) -> tuple[Seen, RunRow]:
        """Return everything that a delivery of `call_model` needs at its start, in one read."""
        keys = [session_key(session_id), row_key(session_id, run_sort(run_id)), row_key(session_id, stop_sort(run_id))]
        (value, run, stop), count = await self._changes.read(session_id, keys)
        return Seen(_session(session_id, value), stop, count), _run(session_id, run_id, run)

    async def belongs(self, session: SessionRow, user_id: str | None) -> bool:
        """Return whether the session belongs to this user. A sub-agent's session belongs to the user of its root
        session, which has the same id as the stream."""
        root = session if session.parent is None else await self.session(session.stream_id)
        return root is not None and root.user_id == user_id

    async def existing(self, session_id: str) -> SessionRow:
        session = await self.session(session_id)
        if session is None:
            raise SessionNotFoundError(session_id)
        return session

    async def run(self, session_id: str, run_id: str) -> RunRow:
        known = session_id.isascii() and run_id.isascii()
        (value,) = await self.store.get([row_key(session_id, run_sort(run_id))]) if known else (None,)
        return _run(session_id, run_id, value)

    async def with_run(self, session_id: str, run_id: str) -> tuple[SessionRow | None, RunRow]:
        """Return the session (None if it does not exist) and the run, in one read."""
        keys = [session_key(session_id), row_key(session_id, run_sort(run_id))]
        known = session_id.isascii() and run_id.isascii()
        value, run = await self.store.get(keys) if known else (None, None)
        row = _run(session_id, run_id, run)
        return None if value is None else SessionRow.at(session_id, value), row

    async def checkpoint(self, session_id: str, checkpoint_id: str) -> CheckpointRow | None:
        version = checkpoint_version(session_id, checkpoint_id)
        key = row_key(session_id, checkpoint_sort(version))
        (value,) = await self.store.get([key])
        row = None if value is None else CheckpointRow.at(session_id, key.sort, value)
        return row if row is not None and row.id == checkpoint_id else None

    async def lineage(self, session_id: str, lineage: int) -> LineageRow:
        if lineage == 0:
            return ROOT
        (value,) = await self.store.get([row_key(session_id, lineage_sort(lineage))])
        if value is None:
            raise RowMissingError(f"session {session_id!r}: lineage {lineage} is missing from the store")
        return LineageRow.read(session_id, lineage_sort(lineage), value)

    # --- messages -------------------------------------------------------------------------------------------------

    async def entries(self, session_id: str, row: LineageRow, start: int, count: int) -> list[AnyEntry]:
        """Return rows `start` to `count` of the lineage. Raises `RowMissingError` if one is missing."""
        rows = await self._rows(session_id, row, start, count)
        return [parse_entry(session_id, r.key.sort, r.value) for r in rows]

    async def sub_agent_calls(self, session_id: str, row: LineageRow, count: int) -> list[CallRow]:
        """Return the calls of sub-agents among the first `count` rows of the lineage. Other rows are not parsed, because
        a long history has many. Raises `RowMissingError`."""
        rows = [r for r in await self._rows(session_id, row, 0, count) if r.value.get("child") is not None]
        entries = (parse_entry(session_id, r.key.sort, r.value) for r in rows)
        return [entry for entry in entries if isinstance(entry, CallRow)]

    async def _rows(self, session_id: str, row: LineageRow, start: int, count: int) -> list[Row]:
        found: list[Row] = []
        for owner, first, end in find_spans(row, start, count):
            rows = await self.store.query(
                "sessions",
                session_id,
                start=message_sort(owner, first),
                end=message_sort(owner, end),
                known_head=True,
            )
            if len(rows) != end - first:
                raise RowMissingError(
                    f"session {session_id!r}: {end - first - len(rows)} messages of lineage {owner} are missing"
                )
            found.extend(rows)
        return found

    async def read_messages(self, session_id: str, row: LineageRow, start: int, count: int) -> list[AnyMessage]:
        """Return messages `start` to `count` of the lineage, each with an id that names where it was written."""
        return messages_of(row, start, await self.entries(session_id, row, start, count))  # a damaged count fails here

    async def open_rows(self, session: SessionRow, *, ahead: bool = False) -> OpenRows | None:
        """Return the session's open step as stored, or None if it has no open step. `ahead`: the caller will also need
        the messages, so the same read fetches those that are not cached."""
        if session.open is None:
            return None
        step = session.open
        base = message_sort(session.lineage, step.base)
        end = message_sort(session.lineage, step.base + 1 + step.calls)
        # Only in the first lineage is the whole history stored right before the open step.
        known = self.cache.conversation(session) if ahead and session.lineage == 0 else None
        have = min(step.base, len(known.messages)) if known is not None else step.base
        start = message_sort(session.lineage, have)
        rows = {
            r.key.sort: parse_entry(session.session_id, r.key.sort, r.value)
            for r in await self.store.query("sessions", session.session_id, start=start, end=end, known_head=True)
        }
        before = [rows[sort] for sort in sorted(rows) if sort < base]
        if known is not None and have == len(known.messages) and len(before) == step.base - have:
            messages = [message_of(entry, session.lineage, have + i) for i, entry in enumerate(before)]
            self.cache.extend(session, known, messages)
            self.cache.add_heads(session, before)
        answer = staged_answer(session, step, rows.get(base))
        calls = [rows.get(message_sort(session.lineage, step.base + 1 + i)) for i in range(step.calls)]
        return OpenRows(answer, [row if isinstance(row, CallRow) else None for row in calls])

    async def open_call(self, session: SessionRow, call_id: str) -> OpenRows | None:
        """Return the open step with the rows that one of its calls needs. If the step is wide, the rows of its other
        calls are omitted."""
        if session.open is None or not session.open.wide:
            return await self.open_rows(session)
        step = session.open
        key = row_key(session.session_id, message_sort(session.lineage, step.base))
        (value,) = await self.store.get([key])
        answer = staged_answer(session, step, None if value is None else parse_entry(key.partition, key.sort, value))
        calls: list[CallRow | None] = [None] * step.calls
        for place, request in enumerate(answer.tool_calls):
            if request.id == call_id:
                key = call_key(session, place)
                (row,) = await self.store.get([key])
                calls[place] = None if row is None else CallRow.read(key.partition, key.sort, row)
        return OpenRows(answer, calls)

    async def open_calls(self, session: SessionRow) -> list[CallRow]:
        """Return the calls of the open step that have a row."""
        rows = await self.open_rows(session)
        return [row for row in rows.calls if row is not None] if rows is not None else []

    async def waiting_calls(self, rows: OpenRows) -> dict[str, Pending]:
        """Return the asked calls, and the calls whose sub-agent is paused or interrupted, by call id in call order."""
        found: dict[str, Pending] = {}
        for row in rows.calls:
            if row is None or row.state == "done":
                continue
            if row.state == "asked":
                found[row.call_id] = pending_of(row)
            elif row.child is not None:
                child = await self.session(row.child.session_id)
                if child is not None and child.status in ("paused", "interrupted"):
                    found[row.call_id] = Pending(
                        call_id=row.call_id, tool_name=row.tool_name, kind="child", child_session_id=child.session_id
                    )
        return found

    async def unanswered(self, session: SessionRow) -> bool:
        """Return whether a call of the open step waits for an answer, here or in a paused sub-agent."""
        for row in await self.open_calls(session):
            if row.state == "asked":
                return True
            if row.child is not None and row.state != "done":
                child = await self.session(row.child.session_id)
                if child is not None and child.status == "paused" and await self.unanswered(child):
                    return True
        return False

    async def pending(self, session: SessionRow) -> list[Pending]:
        """Return the calls of a paused or interrupted session that wait for people, here or in a sub-agent, with their
        arguments."""
        found: list[Pending] = []
        if session.status == "paused":
            found = session.pending
        elif session.status == "interrupted":
            for row in await self.open_calls(session):
                if row.state == "asked":
                    found.append(pending_of(row))
                elif row.child is not None and row.state != "done":
                    child = await self.session(row.child.session_id)
                    if child is not None and await self.pending(child):
                        waiting = Pending(call_id=row.call_id, tool_name=row.tool_name, kind="child")
                        found.append(waiting.model_copy(update={"child_session_id": child.session_id}))
        if not found or session.open is None:
            return found
        return (await self.with_arguments(session.session_id, [(session.lineage, session.open.base, found)]))[0]

    async def run_pending(self, run: RunRow) -> list[Pending]:
        """Return the calls for which the run stopped, with their arguments. The answer that it left open is the row
        after its last checkpoint."""
        if run.status in OVER:
            return []
        session = await self.session(run.session_id)
        if session is not None and session.run_id == run.run_id:
            return await self.pending(session)
        point = await self.checkpoint(run.session_id, run.checkpoint) if run.pending and run.checkpoint else None
        if point is None:
            return run.pending
        return (await self.with_arguments(run.session_id, [(point.lineage, point.count, run.pending)]))[0]

    async def with_arguments(self, session_id: str, places: Sequence[Place]) -> list[list[Pending]]:
        """Return the calls of each place with their arguments and open questions, which are stored once."""
        return await fill_pending(self.store, session_id, places)

    async def conversation(self, session: SessionRow) -> Conversation:
        """Return the cached conversation with all of the session's history. The cache owns it, so do not change it. It
        may have more messages than the session's row counts."""
        have = len((known := self.cache.conversation(session)).messages)
        if have < session.count:
            row = await self.lineage(session.session_id, session.lineage)
            entries = await self.entries(session.session_id, row, have, session.count)
            self.cache.add_heads(session, entries)
            if have == len(known.messages):
                self.cache.extend(session, known, messages_of(row, have, entries))
        return known

    async def messages(self, session: SessionRow) -> Sequence[AnyMessage]:
        """Return the session's history. The cache owns it, so do not change it."""
        messages = (await self.conversation(session)).messages
        return messages[: session.count] if len(messages) > session.count else messages

    async def call_ids(self, session: SessionRow) -> Set[str]:
        """Return the ids of all calls in the session's history, from which new ids must differ."""
        return (await self.conversation(session)).call_ids

    def remember(self, session: SessionRow, base: int, messages: Sequence[AnyMessage]) -> None:
        """Cache the messages that a commit has just added to history at `base`, so that the next call does not read
        them."""
        if (known := self.cache.find(session)) is not None and len(known.messages) == base:
            self.cache.extend(session, known, messages)

    async def view(self, session: SessionRow, version: int | None = None) -> ViewRow | None:
        """Return the session's current view, or the view whose key has this session version. None: the whole history is
        shown."""
        version = session.context.view if version is None else version
        if version == 0:
            return None
        views = self.cache.known(session.session_id, session.created_at).views
        if version not in views:
            key = row_key(session.session_id, view_sort(version))
            (value,) = await self.store.get([key])
            if value is None:
                raise RowMissingError(f"session {session.session_id!r}: its view {version} is missing from the store")
            self.cache.put_view(session, version, ViewRow.read(session.session_id, key.sort, value))
        return views[version]

    # --- custom state ---------------------------------------------------------------------------------------------

    async def point(self, session: SessionRow, checkpoint_id: str) -> tuple[CheckpointRow, JsonObject]:
        """Return the checkpoint with its custom state, which the caller must not change. Raises
        `CheckpointNotFoundError`, also if retention deletes the checkpoint in the meantime."""
        gone = CheckpointNotFoundError(f"session {session.session_id!r} has no checkpoint {checkpoint_id!r}")
        row = await self.checkpoint(session.session_id, checkpoint_id)
        if row is None:
            raise gone
        try:
            return row, await self.state_at(session.session_id, session.created_at, row.state_at)
        except StateMissingError:
            if await self.checkpoint(session.session_id, checkpoint_id) is None:
                raise gone from None
            raise

    async def state(self, session: SessionRow) -> JsonObject:
        """Return the committed custom state. The caller must not change it."""
        return await self.state_at(session.session_id, session.created_at, session.state_at)

    async def state_at(self, session_id: str, created_at: float, checkpoint_id: str) -> JsonObject:
        states = self.cache.states(session_id, created_at)
        if checkpoint_id not in states:
            version_of_state(session_id, checkpoint_id)
            row = await self.checkpoint(session_id, checkpoint_id)
            if row is None or row.state is None:
                raise StateMissingError(f"session {session_id!r}: the state of checkpoint {checkpoint_id!r} is missing")
            self.cache.put_state(session_id, created_at, checkpoint_id, row.state)
            return row.state
        return states[checkpoint_id]

    async def read_states(self, sessions: Sequence[SessionRow]) -> None:
        """Cache the states of several sessions with one read, for later calls of `state`."""
        points = self._unread_states(sessions)
        self._keep_states(points, await self.store.get(list(points)))

    def _unread_states(self, sessions: Sequence[SessionRow]) -> dict[Key, SessionRow]:
        return {
            row_key(row.session_id, checkpoint_sort(version_of_state(row.session_id, row.state_at))): row
            for row in sessions
            if row.state_at and row.state_at not in self.cache.states(row.session_id, row.created_at)
        }

    def _keep_states(self, points: Mapping[Key, SessionRow], values: Sequence[Value | None]) -> None:
        for value, (key, row) in zip(values, points.items(), strict=True):
            point = None if value is None else CheckpointRow.at(row.session_id, key.sort, value)
            if point is not None and point.id == row.state_at and point.state is not None:
                self.cache.put_state(row.session_id, row.created_at, row.state_at, point.state)
