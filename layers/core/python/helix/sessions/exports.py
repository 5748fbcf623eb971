"""Exports of a session, with its sub-agents' sessions, its stream and its files (docs/guide/cli.md#files).

    {"helix_export": 1 | 2, "helix": "<version>", "session_id", "agent_type", "user_id", "exported_at"}
    {"table": "sessions" | "streams", "partition", "sort", "value"}      one line for each row
    {"file": {"sha256", "media_type", "size"}, "data": "<base64>"}       one line for each file, only in format 2
    {"end": true, "rows": <how many>, "files": <how many>}

An export without files has format 1, which versions of Helix without files read too. They refuse format 2. A file may
have several exports, one after the other.

Law: an export is checked before a row of it is written. Its files are read and checked one at a time, because together
they may be larger than the memory.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

from helix.core.entries import AssistantRow, parse_entry
from helix.core.errors import DamagedRowError, InvalidInputError
from helix.core.row_keys import SESSION
from helix.core.session_row import SessionRow
from helix.ports.state_store import Key, Row, Table
from helix.services.claim_input import check_session_id
from helix.services.file_inputs import ReadFile
from helix.sessions.export_checks import check_row, check_sessions
from helix.sessions.export_files import NamedFile, file_line, is_file_line, named_files, take_file

FORMAT: Final = 1
FORMAT_WITH_FILES: Final = 2
KINDS: Final = ("session", "r#", "m#", "l#", "c#", "k#", "x#", "h#", "u#", "q#")
"""The kinds of session rows that an export contains. All other rows belong to unfinished work, such as a copy or a
waiting execution."""
AT_REST: Final = frozenset({"completed", "failed", "interrupted", "paused"})
MOST_SESSIONS: Final = 90
ReadNamed: TypeAlias = Callable[[NamedFile], Awaitable[bytes | None]]
"""A function that returns the bytes of a file, or None if they do not exist any more."""
_Line: TypeAlias = tuple[int, dict[str, Any]]
"""A parsed line with its number."""


@dataclass(frozen=True, slots=True)
class Export:
    """A parsed export."""

    header: dict[str, Any]
    """The first line without the format number: the root session, its agent and owner, the export time and the Helix
    version."""
    rows: Sequence[Row]
    """The rows of all sessions and of the stream."""
    files: Iterable[ReadFile] | None = None
    """The files of an export that was read with them. They are read and checked one by one, and only once. None if the
    export has no files."""

    @property
    def session_id(self) -> str:
        return str(self.header["session_id"])

    def lines(self) -> Iterator[str]:
        """Yield the lines of the export without files."""
        yield self._head(FORMAT)
        yield from self._row_lines()
        yield json.dumps({"end": True, "rows": len(self.rows)})

    async def text(self, read: ReadNamed) -> AsyncIterator[str]:
        """Yield the text of the export with the files that its rows name, in pieces. One file is read at a time."""
        named, count = named_files(self.rows), 0
        yield f"{self._head(FORMAT_WITH_FILES if named else FORMAT)}\n"
        for line in self._row_lines():
            yield f"{line}\n"
        for file in named.values():
            if (data := await read(file)) is None:
                continue
            for piece in file_line(file.part, data):
                yield piece
            count += 1
        end = {"end": True, "rows": len(self.rows), **({"files": count} if named else {})}
        yield f"{json.dumps(end)}\n"

    def _head(self, version: int) -> str:
        return head_line(self.header, version)

    def _row_lines(self) -> Iterator[str]:
        for key, value in self.rows:
            yield row_line(key, value)


def head_line(header: Mapping[str, Any], version: int = FORMAT) -> str:
    """Return the first line of an export. version: the version of the format."""
    return json.dumps({"helix_export": version, **header}, ensure_ascii=True)


def row_line(key: Key, value: Mapping[str, Any]) -> str:
    """Return the line of a row."""
    line = {"table": key.table, "partition": key.partition, "sort": key.sort, "value": dict(value)}
    return json.dumps(line, ensure_ascii=True)


def children_of(rows: Iterable[Row]) -> list[str]:
    """Return the ids of the sub-agents' sessions that these rows name, in call order."""
    entries = [
        parse_entry(row.key.partition, row.key.sort, row.value)
        for row in rows
        if row.key.table == "sessions" and row.key.sort.startswith("m#")
    ]
    found = [ref.session_id for entry in entries if isinstance(entry, AssistantRow) for ref in entry.children.values()]
    return list(dict.fromkeys(found))


def read_export(lines: Iterable[str], *, with_files: bool = True) -> Export:
    """Parse and check an export. Raises `InvalidInputError` if it is incomplete or in a newer format.

    The files are not read yet: `Export.files` reads the remaining lines, and raises the same error. with_files: False
    skips the files, so that the session is imported without them.
    """
    left = _Lines(lines)
    export = _read_one(next(left, None), left, with_files)
    if export.files is None:
        _check_end(left)
        return export
    return Export(export.header, export.rows, _ReadOnce(chain(export.files, _after(left))))


def read_exports(lines: Iterable[str], *, with_files: bool = True) -> Iterator[Export]:
    """Yield the exports of a file. Each is parsed and checked when it is its turn. Files of one that were not read until
    then are skipped. Raises `InvalidInputError` as `read_export` does."""
    left = _Lines(lines)
    first = next(left, None)
    while True:
        export = _read_one(first, left, with_files)
        yield export
        if isinstance(export.files, _ReadOnce) and not export.files.ended:
            while (skipped := next(left, None)) is not None and skipped[1].get("end") is not True:
                del skipped
        if (first := next(left, None)) is None:
            return


def _read_one(first: _Line | None, left: _Lines, with_files: bool) -> Export:
    header, version = _header(first)
    rows, problem, stop = _read_rows(left, version)
    if stop is None:
        raise InvalidInputError("the export is incomplete: its last line is missing")
    left.put_back(stop)
    with_files = with_files and is_file_line(stop[1])
    if not with_files:
        for _ in _read_files(left, len(rows), None):
            continue
    root = str(header["session_id"])
    try:
        sessions = _check_tree(root, rows)
    except DamagedRowError as error:
        raise problem or InvalidInputError(str(error)) from error
    if problem is not None:
        raise problem
    _check_at_rest(root, sessions, rows)
    check_sessions(root, rows)
    return Export(header, rows, _ReadOnce(_read_files(left, len(rows), named_files(rows))) if with_files else None)


def _check_end(left: _Lines) -> None:
    if (after := next(left, None)) is not None:
        raise InvalidInputError(f"line {after[0]}: there is more after the end of the export")


def _after(left: _Lines) -> Iterator[ReadFile]:
    """Check that the file ends, once the files before were read."""
    _check_end(left)
    yield from ()


class _Lines:
    """The parsed lines. The last one can be put back."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._left, self._back = _parsed(lines), list[_Line]()

    def __iter__(self) -> Iterator[_Line]:
        return self

    def __next__(self) -> _Line:
        return self._back.pop() if self._back else next(self._left)

    def put_back(self, line: _Line) -> None:
        self._back.append(line)


def _parsed(lines: Iterable[str]) -> Iterator[_Line]:
    """Yield the lines that are not empty. No reference to a line is kept, because it may hold a large file."""
    number, left = 0, iter(lines)
    while True:
        number += 1
        text = next(left, None)
        if text is None:
            return
        if text.strip():
            line = _object(number, text)
            del text
            yield number, line


def _object(number: int, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise InvalidInputError(f"line {number} is not a JSON object: `helix export` did not write this file")
    return line


def _header(first: _Line | None) -> tuple[dict[str, Any], int]:
    """Return the header, and the version of the format."""
    if first is None:
        raise InvalidInputError("the export is incomplete: its last line is missing")
    line = first[1]
    version = line.pop("helix_export", None)
    if type(version) is not int or not isinstance(line.get("session_id"), str):
        raise InvalidInputError("line 1 is not the head of an export of `helix export`")
    if version not in (FORMAT, FORMAT_WITH_FILES):
        raise InvalidInputError(
            f"the export has format {version}, made by Helix {line.get('helix')}; this version reads {FORMAT} and "
            f"{FORMAT_WITH_FILES}"
        )
    check_session_id(line["session_id"])
    return line, version


def _read_rows(left: _Lines, version: int) -> tuple[list[Row], InvalidInputError | None, _Line | None]:
    """Return the rows, the first problem with one of them, and the first line after them, if there is one."""
    rows: list[Row] = []
    seen = set[Key]()
    problem: InvalidInputError | None = None
    for number, line in left:
        if line.get("end") is True or (version == FORMAT_WITH_FILES and is_file_line(line)):
            return rows, problem, (number, line)
        row = _row(number, line)
        if row.key in seen:
            raise InvalidInputError(
                f"line {number}: the export has row {row.key.sort!r} of {row.key.partition!r} twice"
            )
        seen.add(row.key)
        rows.append(row)
        problem = problem or _problem(number, row)
    return rows, problem, None


def _read_files(left: _Lines, rows: int, named: dict[str, NamedFile] | None) -> Iterator[ReadFile]:
    """Yield the files, and check the last line. `rows`: the number of rows that were read. `named`: the files that the
    rows name. None: the files are skipped."""
    count, seen = 0, set[str | None]()
    for number, line in left:
        if line.get("end") is True:
            for what, found in (("rows", rows), ("files", count)):
                if line.get(what, 0) != found:
                    raise InvalidInputError(
                        f"the export says that it has {line.get(what)} {what}, and {found} are here"
                    )
            if (after := next(left, None)) is not None:
                if "helix_export" not in after[1]:
                    raise InvalidInputError(f"line {after[0]}: there is more after the end of the export")
                left.put_back(after)
            return
        count += 1
        if named is None and is_file_line(line):
            del line
            continue
        file = take_file(number, line, named or {})
        if file.part.sha256 in seen:
            raise InvalidInputError(f"line {number}: the export has the file with the hash {file.part.sha256} twice")
        seen.add(file.part.sha256)
        yield file
        del file
    raise InvalidInputError("the export is incomplete: its last line is missing")


class _ReadOnce:
    """An iterable that refuses to be read twice, because the second time it would seem to be empty."""

    def __init__(self, files: Iterator[ReadFile]) -> None:
        self._left: Iterator[ReadFile] | None = files
        self.ended = False
        """Whether all of them were read."""

    def __iter__(self) -> Iterator[ReadFile]:
        if self._left is None:
            raise InvalidInputError("the files of this export were read already: read the export again")
        left, self._left = self._left, None
        return self._each(left)

    def _each(self, left: Iterator[ReadFile]) -> Iterator[ReadFile]:
        yield from left
        self.ended = True


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
