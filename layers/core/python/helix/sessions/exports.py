"""Exports a session with its sub-agents' sessions and its stream as rows, and imports them (docs/guide/cli.md#files).

    {"helix_export": 1, "helix": "<version>", "session_id", "agent_type", "user_id", "exported_at"}
    {"table": "sessions" | "streams", "partition", "sort", "value"}      one line for each row
    {"end": true, "rows": <how many>}

Law: an import becomes visible only with its last transaction, and never writes to an existing session. After a crash,
the same import starts over. The usage of an imported session is not counted again, because it was billed and reported
where the session ran.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from helix.core.entries import AssistantRow, parse_entry
from helix.core.errors import ConditionFailedError, DamagedRowError, InvalidInputError, SessionExistsError
from helix.core.row_keys import SESSION
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.engine.claims.claim_rows import index_key, user_key
from helix.engine.claims.liveness import marker_key
from helix.engine.history import session_key
from helix.ports.clock import Clock
from helix.ports.ids import Ids
from helix.ports.state_store import ABSENT, Check, Delete, Key, Operation, Put, Row, StateStore, Table, Update, When
from helix.services.claim_input import check_session_id
from helix.sessions.export_checks import check_row, check_sessions

FORMAT: Final = 1
KINDS: Final = ("session", "r#", "m#", "l#", "c#", "k#", "x#", "h#", "u#", "q#")
"""The kinds of session rows that an export contains. All other rows belong to unfinished work, such as a copy or a
waiting execution."""
AT_REST: Final = frozenset({"completed", "failed", "interrupted", "paused"})
PAGE: Final = 25
MOST_SESSIONS: Final = 90
DEADLINE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Export:
    """A parsed export."""

    header: dict[str, Any]
    """The first line without the format number: the root session, its agent and owner, the export time and the Helix
    version."""
    rows: Sequence[Row]
    """The rows of all sessions and of the stream."""

    @property
    def session_id(self) -> str:
        return str(self.header["session_id"])

    def lines(self) -> Iterator[str]:
        yield json.dumps({"helix_export": FORMAT, **self.header}, ensure_ascii=True)
        for key, value in self.rows:
            line = {"table": key.table, "partition": key.partition, "sort": key.sort, "value": value}
            yield json.dumps(line, ensure_ascii=True)
        yield json.dumps({"end": True, "rows": len(self.rows)})


def children_of(rows: Iterable[Row]) -> list[str]:
    """Return the ids of the sub-agents' sessions that these rows name, in call order."""
    entries = [
        parse_entry(row.key.partition, row.key.sort, row.value)
        for row in rows
        if row.key.table == "sessions" and row.key.sort.startswith("m#")
    ]
    found = [ref.session_id for entry in entries if isinstance(entry, AssistantRow) for ref in entry.children.values()]
    return list(dict.fromkeys(found))


def read_export(lines: Iterable[str]) -> Export:
    """Parse and check an export. Raises `InvalidInputError` if it is incomplete or in a newer format."""
    header: dict[str, Any] | None = None
    rows: list[Row] = []
    seen = set[Key]()
    problem: InvalidInputError | None = None
    ended = False
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        line = _object(number, text)
        if header is None:
            header = _header(line)
        elif ended:
            raise InvalidInputError(f"line {number}: there is more after the end of the export")
        elif line.get("end") is True:
            ended = True
            if line.get("rows") != len(rows):
                raise InvalidInputError(
                    f"the export says that it has {line.get('rows')} rows, and {len(rows)} are here"
                )
        else:
            row = _row(number, line)
            if row.key in seen:
                raise InvalidInputError(
                    f"line {number}: the export has row {row.key.sort!r} of {row.key.partition!r} twice"
                )
            seen.add(row.key)
            rows.append(row)
            problem = problem or _problem(number, row)
    if header is None or not ended:
        raise InvalidInputError("the export is incomplete: its last line is missing")
    root = str(header["session_id"])
    try:
        sessions = _check_tree(root, rows)
    except DamagedRowError as error:
        raise problem or InvalidInputError(str(error)) from error
    if problem is not None:
        raise problem
    _check_at_rest(root, sessions, rows)
    check_sessions(root, rows)
    return Export(header, rows)


def _object(number: int, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise InvalidInputError(f"line {number} is not a JSON object: `helix export` did not write this file")
    return line


def _header(line: dict[str, Any]) -> dict[str, Any]:
    version = line.pop("helix_export", None)
    if type(version) is not int or not isinstance(line.get("session_id"), str):
        raise InvalidInputError("line 1 is not the head of an export of `helix export`")
    if version != FORMAT:
        raise InvalidInputError(
            f"the export has format {version}, made by Helix {line.get('helix')}; this version reads {FORMAT}"
        )
    check_session_id(line["session_id"])
    return line


def _row(number: int, line: dict[str, Any]) -> Row:
    table, place, value = line.get("table"), (line.get("partition"), line.get("sort")), line.get("value")
    known = table == "streams" or (table == "sessions" and isinstance(place[1], str) and place[1].startswith(KINDS))
    if not known or not all(isinstance(text, str) and text for text in place) or not isinstance(value, dict):
        raise InvalidInputError(f"line {number} is not a row of an export")
    found: Table = "streams" if table == "streams" else "sessions"
    return Row(Key(found, str(place[0]), str(place[1])), value)


def _problem(number: int, row: Row) -> InvalidInputError | None:
    try:
        check_row(row)
    except InvalidInputError as error:
        return InvalidInputError(f"line {number}: {error}")
    return None


def _check_tree(root: str, rows: Sequence[Row]) -> set[str]:
    """Return the session ids in the export. The sessions must form one tree, with its stream. Raises `DamagedRowError`
    for an unreadable message."""
    by_session: dict[str, list[Row]] = {}
    for row in rows:
        if row.key.table == "sessions":
            by_session.setdefault(row.key.partition, []).append(row)
        elif row.key.partition != root:
            raise InvalidInputError(f"the export has a stream of another session, {row.key.partition!r}")
    left, reached = [root], {root}
    while left:
        below = [child for child in children_of(by_session.get(left.pop(), [])) if child not in reached]
        reached.update(below)
        left += below
    if strange := sorted(set(by_session) - reached):
        raise InvalidInputError(
            f"the export has rows of session {strange[0]!r}, which does not belong to one of its sub-agents"
        )
    if len(by_session) > MOST_SESSIONS:
        raise InvalidInputError(f"the export has {len(by_session)} sessions; an import takes at most {MOST_SESSIONS}")
    return set(by_session)


def _check_at_rest(root: str, sessions: set[str], rows: Sequence[Row]) -> None:
    """Check that each session has a session row and is at rest."""
    values = {row.key.partition: row.value for row in rows if row.key.sort == SESSION}
    for session_id in {root, *sessions}:
        if session_id not in values:
            raise InvalidInputError(f"the export does not have the row of session {session_id!r}")
        session = SessionRow.at(session_id, values[session_id])
        if session.status not in AT_REST:
            raise InvalidInputError(f"session {session_id!r} of the export is {session.status}: it must be at rest")
        if (session.parent is None) != (session_id == root) or session.stream_id != root:
            raise InvalidInputError(f"session {session_id!r} of the export does not belong to session {root!r}")


async def import_session(
    store: StateStore, export: Export, clock: Clock, ids: Ids, *, user_id: str | None = None
) -> None:
    """Write the session and everything that belongs to it under the original ids. `user_id` is the new owner, by
    default the exported owner. Raises `SessionExistsError`."""
    root = export.session_id
    sessions = sorted({row.key.partition for row in export.rows if row.key.table == "sessions"})
    owner, marker = ids.new("import"), marker_key(root)
    taken = SessionExistsError(f"session {root!r} exists here, or is being created: delete it, or import it elsewhere")
    owned = When(equal={"owner": owner})
    try:
        await _acquire_marker(store, root, marker, owner, clock)
        for partition in sessions:
            await _clear(store, "sessions", partition, marker, owned)
        await _clear(store, "streams", root, marker, owned)
        shown: list[Operation] = []
        written: list[Operation] = []
        for row in export.rows:
            value = _here(row, user_id)
            target = shown if row.key.table == "sessions" and row.key.sort == SESSION else written
            target.append(Put(row.key, value, ABSENT if target is shown else None))
        for start in range(0, len(written), PAGE):
            alive = Update(marker, set={"deadline": clock.now() + DEADLINE_S}, when=owned)
            await store.transact("import_rows", [alive, *written[start : start + PAGE]])
        value = next(op.value for op in shown if isinstance(op, Put) and op.key == session_key(root))
        session = SessionRow.at(root, value)
        shown += [Delete(marker, owned), Put(index_key(session), {"agent_type": session.agent_type})]
        if session.user_id:
            shown.append(Put(user_key(session.user_id), {}))
        await store.transact("finish_import", shown)
    except ConditionFailedError:
        raise taken from None


async def _acquire_marker(store: StateStore, root: str, marker: Key, owner: str, clock: Clock) -> None:
    """Write a marker that reserves the id, replacing the marker of a dead import."""
    (held,) = await store.get([marker])
    if held is not None and held["deadline"] >= clock.now():
        raise SessionExistsError(f"session {root!r} is being copied or imported: wait for it, at most a minute")
    seen = ABSENT if held is None else When(equal={"owner": held["owner"]})
    value = {"owner": owner, "deadline": clock.now() + DEADLINE_S}
    await store.transact("begin_import", [Check(session_key(root), ABSENT), Put(marker, value, seen)])


async def _clear(store: StateStore, table: Table, partition: str, marker: Key, owned: When) -> None:
    """Remove the rows that a dead import or a deleted stream left behind. Raises `SessionExistsError` if the session
    exists."""
    while True:
        rows = [row for row in await store.query(table, partition, limit=PAGE + 1) if row.key != marker]
        if not rows:
            return
        if any(row.key.sort == SESSION for row in rows):
            raise SessionExistsError(f"session {partition!r} exists here: delete its root session first")
        alive = Check(marker, owned)
        await store.transact("clear_import", [alive, *(Delete(row.key) for row in rows)])


def _here(row: Row, user_id: str | None) -> dict[str, Any]:
    """Return the row without the fields that are only valid in the store where it was written: workers, drawn budgets,
    effects and expiry times."""
    key, value = row
    if key.table == "streams":
        return {name: field for name, field in value.items() if name != "ttl"}
    if key.sort == SESSION:
        session = SessionRow.at(key.partition, value)
        owner = {"user_id": user_id} if user_id is not None and session.parent is None else {}
        alone: dict[str, Any] = {"bounds": None, "blocks": [], "claim": None, "lease_owner": None, "lease_expires": 0}
        return session.model_copy(update={**alone, **owner}).dump()
    if key.sort.startswith("r#"):
        run = RunRow.at(key.partition, key.sort, value)
        ended: dict[str, Any] = {"effects": "done", "blocks": [], "claim": None, "head": "", "output_limit": None}
        return run.model_copy(update=ended).dump()
    return dict(value)
