"""Lists root sessions by their facets and words, from the index of sessions (ADR 87).

Law: the index selects sessions, and the session's own row confirms each one that is shown. A session that the index does
not describe, because it is running or its store is older than the index, is read instead, at most `READS` in one list.
Those at rest are then written to the index. Nothing else here writes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from helix._log import get_logger
from helix.core.errors import ConditionFailedError, DamagedRowError, StoreError
from helix.core.handles import SessionState
from helix.core.session_replies import FacetCounts
from helix.core.session_requests import ListSessions
from helix.core.session_row import SessionRow
from helix.core.status import ENDS
from helix.engine.history import session_key
from helix.ports.state_store import ABSENT, Check, Delete, Operation, Put, Row, Update, When
from helix.services.claim_input import check_session_id
from helix.services.session_index import Facets, facets_key, facets_partition, index_key, index_partition, title_of
from helix.sessions.read import Sessions

logger = get_logger("helix.sessions")
ENTRIES: Final = 1_000
"""The number of index entries that a filtered list reads at once."""
LOOKS: Final = 10
"""The number of times that one filtered list reads so many entries."""
READS: Final = 500
"""The number of sessions outside of the index that one filtered list reads."""
PAGE: Final = 100
FEWEST: Final = 10
"""The number of entries of each user that a filtered list of many users reads at once, at least."""
AT_ONCE: Final = 16
MOST_VALUES: Final = 100
"""The number of values that a facet is counted for, the most frequent first."""
FILTERS: Final = ("status", "agent", "tag", "tool", "error", "cost_from", "cost_to", "since", "until")


@dataclass(slots=True)
class Entry:
    """A session of the index."""

    session_id: str
    """The id of the session."""
    user: str | None
    """The owner, under whom the session is listed."""
    title: str | None
    """The beginning of the first message. None if the entry does not have it."""
    stored: int | None = None
    """The version in the stored facets row. None if there is no row."""
    facets: Facets | None = None
    """The facets. None if neither the index nor the session has been read, or the session is gone."""


@dataclass(slots=True)
class Found:
    """A page of a list."""

    sessions: list[tuple[SessionState, str]] = field(default_factory=list)
    """The sessions with their titles, newest id first."""
    damaged: list[str] = field(default_factory=list)
    """The ids of sessions whose rows cannot be read."""
    cursor: str | None = None
    """The value of `after` for the next page. None at the end."""
    facets: FacetCounts | None = None
    """The counts, if the request asked for them."""


async def find_sessions(sessions: Sessions, users: Sequence[str | None], request: ListSessions) -> Found:
    """Return the sessions of these users that match the request. None selects sessions without a user."""
    if request.after is not None:
        check_session_id(request.after)
    return await _Search(sessions, users, request).run()


class _Search:
    def __init__(self, sessions: Sessions, users: Sequence[str | None], request: ListSessions) -> None:
        self._sessions, self._store, self._users, self._request = sessions, sessions.store, users, request
        self._words = (request.text or "").lower().split()
        narrowed = any(getattr(request, name) is not None for name in FILTERS)
        self._by_facets = narrowed or bool(request.waiting or self._words or request.facets)
        self._reads_left = READS
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in FacetCounts.COUNTED}
        self._found, self._seen = Found(), 0

    async def run(self) -> Found:
        request, found, after = self._request, self._found, self._request.after
        full = False
        for _ in range(LOOKS):
            entries, after = await self._entries(after)
            if self._by_facets:
                entries, after = await self._described(entries, after)
            matching = [entry for entry in entries if self._matches(entry)]
            for start in range(0, 0 if full else len(matching), request.limit):
                last = await self._show(matching[start : start + request.limit])
                if full := last is not None:
                    found.cursor = None if after is None and last == entries[-1].session_id else last
                    break
            if after is None or (full and not request.facets) or self._reads_left <= 0:
                break
        if not full:
            found.cursor = after
        if request.facets:
            found.facets = self._facet_counts(complete=after is None)
        return found

    async def _show(self, entries: Sequence[Entry]) -> str | None:
        """Read these sessions, and add those that match to the page. Return the id of the one that fills it, or None."""
        titles = await self._titles(entries) if self._request.titles else {}
        page = await self._sessions.read_page([entry.session_id for entry in entries], None)
        self._found.damaged += page.damaged
        states = {state.session_id: state for state in page.sessions}
        for entry in entries:
            state = states.get(entry.session_id)
            if state is None or not matches_state(state, self._request):
                continue
            self._found.sessions.append((state, state.title or titles.get(entry.session_id, "")))
            if len(self._found.sessions) == self._request.limit:
                return entry.session_id
        return None

    async def _titles(self, entries: Sequence[Entry]) -> dict[str, str]:
        untitled = [entry.session_id for entry in entries if entry.title is None]
        texts = await self._sessions.first_texts(untitled) if untitled else []
        read = dict(zip(untitled, map(title_of, texts), strict=True))
        return {entry.session_id: read.get(entry.session_id) or entry.title or "" for entry in entries}

    # --- the index --------------------------------------------------------------------------------------------------

    async def _entries(self, after: str | None) -> tuple[list[Entry], str | None]:
        """Return the next entries of all users, newest id first, and the cursor behind them."""
        size = ENTRIES if self._by_facets else self._request.limit
        share = size if not self._by_facets else max(FEWEST, size // len(self._users))
        gate = asyncio.Semaphore(AT_ONCE)

        async def read(partition: str, floor: str) -> list[Row]:
            async with gate:
                return await self._store.query(
                    "sessions", partition, start=floor, end=after, limit=share + 1, reverse=True
                )

        listed = await asyncio.gather(*(read(index_partition(user), "") for user in self._users))
        # A user with more entries than were read has others up to this id.
        floor = max((rows[share].key.sort for rows in listed if len(rows) > share), default="")
        wanted = [
            user
            for user, rows in zip(self._users, listed, strict=True)
            if self._by_facets and (not rows or rows[0].key.sort > floor)
        ]
        described = await asyncio.gather(*(read(facets_partition(user), floor) for user in wanted))
        entries = {
            row.key.sort: Entry(row.key.sort, user, _title(row))
            for user, rows in zip(self._users, listed, strict=True)
            for row in rows
            if row.key.sort > floor
        }
        orphans: list[Row] = []
        for row in (row for rows in described for row in rows if row.key.sort > floor):
            if row.key.sort in entries:
                _describe(entries[row.key.sort], row)
            else:
                orphans.append(row)
        await self._delete_orphans(orphans[:PAGE])
        ordered = sorted(entries.values(), key=lambda entry: entry.session_id, reverse=True)
        more = bool(floor)
        if not self._by_facets:
            ordered, more = ordered[:size], more or len(ordered) > size
        return ordered, ordered[-1].session_id if more and ordered else None

    async def _described(self, entries: list[Entry], after: str | None) -> tuple[list[Entry], str | None]:
        """Return the entries with their facets, reading the sessions that the index does not describe. The entries end,
        with another cursor, where too many sessions would have to be read."""
        lacking = [place for place, entry in enumerate(entries) if self._lacks(entry)]
        if len(lacking) > self._reads_left:
            entries = entries[: lacking[self._reads_left]]
            after, lacking = entries[-1].session_id, lacking[: self._reads_left]
        self._reads_left -= len(lacking)
        for start in range(0, len(lacking), PAGE):
            await self._read([entries[place] for place in lacking[start : start + PAGE]])
        return [entry for entry in entries if entry.facets is not None], after

    def _lacks(self, entry: Entry) -> bool:
        return entry.facets is None or (entry.title is None and bool(self._words or self._request.titles))

    async def _read(self, entries: Sequence[Entry]) -> None:
        """Read the facets and titles of these sessions, and write them to the index."""
        values = await self._store.get([session_key(entry.session_id) for entry in entries])
        rows: dict[str, SessionRow] = {}
        for entry, value in zip(entries, values, strict=True):
            try:
                if value is not None:
                    rows[entry.session_id] = SessionRow.at(entry.session_id, value)
            except DamagedRowError:
                self._found.damaged.append(entry.session_id)
        titles = await self._titles([entry for entry in entries if entry.session_id in rows])
        repairs: list[list[Operation]] = []
        for entry in entries:
            row = rows.get(entry.session_id)
            if row is None or row.status == "deleting":
                entry.facets = None
                continue
            repairs.append(_repair(row, entry, titles[entry.session_id]))
            entry.facets, entry.title = Facets.of(row), titles[entry.session_id]
        await self._write(repair for repair in repairs if repair)

    async def _delete_orphans(self, orphans: Sequence[Row]) -> None:
        """Delete the rows of sessions that do not exist: a claim or a repair was slower than the deletion."""
        values = await self._store.get([session_key(row.key.sort) for row in orphans]) if orphans else []
        gone = [row.key for row, value in zip(orphans, values, strict=True) if value is None]
        await self._write([Check(session_key(key.sort), ABSENT), Delete(key)] for key in gone)

    async def _write(self, transactions: Iterable[Sequence[Operation]]) -> None:
        """Commit these transactions, except those whose session has changed since it was read. The list does not depend
        on them, so a store that refuses them is only logged."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def write(operations: Sequence[Operation]) -> None:
            async with gate:
                try:
                    await self._store.transact("index_session", operations)
                except ConditionFailedError:
                    return
                except StoreError as error:
                    logger.warning("the index of sessions cannot be written: %s", error)

        writes: list[Awaitable[None]] = [write(operations) for operations in transactions]
        await asyncio.gather(*writes)

    # --- matching -----------------------------------------------------------------------------------------------------

    def _matches(self, entry: Entry) -> bool:
        if not self._by_facets:
            return True
        assert entry.facets is not None
        self._seen += 1
        failed = self._failed(entry, entry.facets)
        if self._request.facets and len(failed) <= 1:
            for name, values in _values(entry, entry.facets).items():
                if failed <= {name}:  # how many there would be with another value of the same facet
                    self._counts[name].update(values)
        return not failed

    def _failed(self, entry: Entry, facets: Facets) -> set[str]:
        """Return the names of the filters that the session does not match."""
        request = self._request
        text = " ".join((entry.session_id, facets.agent, facets.status, *facets.tags, facets.title, entry.title or ""))
        checks = {
            "status": request.status in (None, facets.status),
            "agent": request.agent in (None, facets.agent),
            "tag": request.tag is None or request.tag in facets.tags,
            "tool": request.tool is None or request.tool in facets.tools,
            "error": request.error in (None, facets.error),
            "cost": _within(facets.micros, request.cost_from, request.cost_to),
            "time": _within(facets.updated_at, request.since, request.until),
            "waiting": not request.waiting or (facets.waiting and facets.status != "running"),
            "text": not self._words or all(word in text.lower() for word in self._words),
        }
        return {name for name, holds in checks.items() if not holds}

    def _facet_counts(self, *, complete: bool) -> FacetCounts:
        counts = {name: dict(counter.most_common(MOST_VALUES)) for name, counter in self._counts.items()}
        return FacetCounts(sessions=self._seen, complete=complete, **counts)


def matches_state(state: SessionState, request: ListSessions) -> bool:
    """Return whether the session, as it is now, matches the filters that its state shows."""
    error = state.error.code if state.error is not None else ""
    return (
        request.status in (None, state.status)
        and request.agent in (None, state.agent_type)
        and (request.tag is None or request.tag in state.tags)
        and request.error in (None, error)
        and _within(state.usage.cost_micros, request.cost_from, request.cost_to)
        and _within(state.updated_at, request.since, request.until)
        and (not request.waiting or (bool(state.pending) and state.status != "running"))
    )


def _within(value: float, lowest: float | None, highest: float | None) -> bool:
    return (lowest is None or value >= lowest) and (highest is None or value <= highest)


def _values(entry: Entry, facets: Facets) -> dict[str, list[str]]:
    return {
        "agent": [facets.agent],
        "user": [entry.user] if entry.user else [],
        "status": [facets.status],
        "tag": list(dict.fromkeys(facets.tags)),
        "tool": facets.tools,
        "error": [facets.error] if facets.error else [],
    }


def _title(row: Row) -> str | None:
    try:
        title = row.value.get("title")
    except DamagedRowError:
        return None
    return title if isinstance(title, str) else None


def _describe(entry: Entry, row: Row) -> None:
    """Give the entry the facets of the stored row, unless the row is bare or cannot be read."""
    try:
        facets = Facets.read(row.key.partition, row.key.sort, row.value)
    except DamagedRowError:
        return
    entry.stored = facets.version
    if facets.agent:
        entry.facets = facets


def _repair(session: SessionRow, before: Entry, title: str) -> list[Operation]:
    """Return the transaction that writes a session at rest to the index, or its title. Empty if there is nothing to
    write. A claim that is about to begin has put its bare row first, with the version that the session will have. So the
    row must be as it was read, and not ahead of the session."""
    writes: list[Operation] = []
    if before.facets is None and session.status in ENDS and (before.stored or 0) <= session.version:
        when = ABSENT if before.stored is None else When(equal={"version": before.stored})
        writes.append(Put(facets_key(session), Facets.of(session).dump(), when))
    if before.title is None:
        writes.append(Update(index_key(session), set={"title": title}))
    if not writes:
        return []
    same = When(equal={"version": session.version, "run_id": session.run_id, "status": session.status})
    return [Check(session_key(session.session_id), same), *writes]
