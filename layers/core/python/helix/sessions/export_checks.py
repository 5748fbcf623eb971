"""Checks whether an export can be imported: each row individually, and all rows together as a session.

Law: an imported session can be shown, continued, stopped and deleted like any local one. An invalid row is refused
before anything is written, with its line and field in the error. Fields of a later version are kept unchanged.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from helix.core.damage import UNREADABLE
from helix.core.declared_tools import declared_settings, declared_tools
from helix.core.entries import AssistantRow, parse_entry
from helix.core.errors import DamagedRowError, DefinitionError, HelixError, InvalidInputError
from helix.core.json import check_json
from helix.core.request_heads import HeadRow, join_head
from helix.core.row_keys import SESSION, head_sort
from helix.core.rows import AttemptRow, CheckpointRow, LineageRow, StopRow
from helix.core.run_row import RunRow
from helix.core.session_row import SessionRow
from helix.core.view_row import ViewRow
from helix.ports.state_store import Key, Row
from helix.services.claim_input import check_run_id
from helix.services.segment_rows import segment_end, segment_head, segment_messages
from helix.sessions.session_checks import check_children, check_rows
from helix.sessions.session_rows import MOST_MESSAGES, SessionRows, session_rows

DEPTH: Final = 190
"""The maximum nesting depth of a row. Stores can read 200 levels. A stored value has at most 64, and sits a few levels
deep in its row."""
LARGEST: Final = 10**15
PLACES: Final[Mapping[str, int]] = {"version": 10**9, "lineage": 10**6, "lineages": 10**6}
"""The exclusive limits of numbers that occur in keys, chosen to fit the number of digits in the keys."""
COUNTS: Final = frozenset(
    {"turn", "count", "step", "start", "base", "calls", "start_count", "start_step", "first_step"}
)
OPAQUE: Final = frozenset({"state", "patches", "output", "metadata", "arguments", "input", "finish", "confirmation"})
"""The fields with user-defined values, whose numbers are not checked."""
_SORTS: Final[Sequence[tuple[re.Pattern[str], Callable[[str, str, Any], BaseModel]]]] = (
    (re.compile(SESSION), lambda partition, sort, value: SessionRow.at(partition, value)),
    (re.compile(r"r#.+"), RunRow.at),
    (re.compile(r"m#\d{6}#\d{8}"), parse_entry),
    (re.compile(r"l#\d{6}"), LineageRow.read),
    (re.compile(r"c#\d{10}"), CheckpointRow.at),
    (re.compile(r"k#\d{10}"), ViewRow.read),
    (re.compile(r"x#.+"), StopRow.read),
    (re.compile(r"u#.+#\d{8}#\d{4}"), AttemptRow.read),
    (re.compile(r"q#[\w-]{22}", re.ASCII), HeadRow.at),
)
_HEAD: Final = re.compile(r"([\w-]{22})?", re.ASCII)
_SEGMENT: Final = re.compile(r"s#\d{12}")


def check_row(row: Row) -> None:
    """Raise `InvalidInputError`, naming the row and the field, if a value is not valid for the row's key."""
    key, value = row
    name = f"row {key.sort!r} of {key.partition!r}"
    check_json(value, name, limit=None, depth=DEPTH)
    try:
        if key.table == "streams":
            _check_segment(row)
        else:
            _check_session_row(key, value)
    except DamagedRowError as error:
        raise InvalidInputError(str(error)) from error
    except _FieldError as error:
        raise InvalidInputError(f"{name}: {error}") from error


class _FieldError(Exception):
    """An invalid field value. The message starts with the field's name."""


def _check_segment(row: Row) -> None:
    if "buried_at" in row.value:  # a tombstone of a deleted stream
        return
    if not _SEGMENT.fullmatch(row.key.sort):
        raise _FieldError("its key is not that of a segment")
    segment_end(row, segment_head(row))
    for message in segment_messages(row):
        if message.kind == "chunk":
            message.parsed()


def _check_session_row(key: Key, value: dict[str, Any]) -> None:
    if key.sort.startswith("h#"):
        return
    parse = next((parse for pattern, parse in _SORTS if pattern.fullmatch(key.sort)), None)
    if parse is None:
        raise _FieldError("its key is not that of a row of a session")
    parsed = parse(key.partition, key.sort, value)
    _check_types(value, parsed.model_dump(mode="json"), "")
    _check_numbers(parsed, "")
    if isinstance(parsed, SessionRow | RunRow | AssistantRow | AttemptRow) and not _HEAD.fullmatch(parsed.head):
        raise _FieldError(f"head: {parsed.head!r} is not the id of a request head")
    if isinstance(parsed, SessionRow | CheckpointRow) and not _HEAD.fullmatch(parsed.frontend_tools):
        raise _FieldError(f"frontend_tools: {parsed.frontend_tools!r} is not the id of a request head")
    match parsed:
        case RunRow():
            check_run_id(parsed.run_id)
        case LineageRow() if f"l#{parsed.lineage:06d}" != key.sort:
            raise _FieldError(f"lineage: {parsed.lineage} is not that of the key")
        case StopRow() if f"x#{parsed.run_id}" != key.sort:
            raise _FieldError(f"run_id: {parsed.run_id!r} is not that of the key")


def _check_types(given: Any, read: Any, path: str) -> None:
    """Check that each field has its declared type, because conditions compare stored values: the string "7" is not the
    number 7."""
    if isinstance(given, dict) and isinstance(read, dict):
        for name in given.keys() & read.keys():
            _check_types(given[name], read[name], f"{path}.{name}" if path else name)
    elif isinstance(given, list) and isinstance(read, list):
        for index, (one, other) in enumerate(zip(given, read, strict=False)):
            _check_types(one, other, f"{path}.{index}")
    elif not isinstance(given, dict | list) and not isinstance(read, dict | list):
        exact = type(given) is type(read) or (type(given) is int and type(read) is float)
        if not exact:
            raise _FieldError(f"{path}: {given!r} is not a {type(read).__name__}")


def _check_numbers(row: BaseModel, path: str) -> None:
    """Check that Helix's own numbers are not negative and fit into the keys that contain them."""
    for name in type(row).model_fields:
        if name in OPAQUE:
            continue
        here = f"{path}.{name}" if path else name
        for found in _flat(getattr(row, name)):
            if isinstance(found, BaseModel):
                _check_numbers(found, here)
            elif isinstance(found, int | float) and not isinstance(found, bool):
                most = PLACES.get(name, MOST_MESSAGES if name in COUNTS else LARGEST)
                if not 0 <= found < most:
                    raise _FieldError(f"{here}: {found} is not between 0 and {most}")


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _flat(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def check_sessions(root: str, rows: Sequence[Row]) -> None:
    """Raise `InvalidInputError` unless the rows, each accepted by `check_row`, form sessions that can continue."""
    by_session: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.key.table == "sessions":
            by_session[row.key.partition].append(row)
    try:
        tree = _tree(root, {session_id: session_rows(session_id, own) for session_id, own in by_session.items()})
        for own in tree:
            _check_counts(own)
            _check_heads(own)
        found = [f"session {own.session_id!r}: {problem}" for own in tree for problem in check_rows(own, pruned=True)]
        found += check_children(tree, at_rest=False)
        found += _stream(tree[0], [row for row in rows if row.key.table == "streams"])
    except HelixError:
        raise
    except UNREADABLE as error:
        raise InvalidInputError(f"the rows of the export do not fit each other: {error!r}") from error
    if found:
        raise InvalidInputError(f"the export is not of a session that can go on: {found[0]}")


def _check_counts(rows: SessionRows) -> None:
    """Check that no row counts more messages than exist."""
    places = [(f"run {run.run_id!r}", run.start_lineage, run.start_count) for run in rows.runs.values()]
    places += [(f"checkpoint {point.id!r}", point.lineage, point.count) for point in rows.checkpoints.values()]
    if rows.session is not None:
        places.append(("the session's row", rows.session.lineage, rows.session.count))
    for name, lineage, count in places:
        if count > rows.length(lineage):
            raise InvalidInputError(
                f"session {rows.session_id!r}: {name} needs {count} messages of lineage {lineage}, and the export has "
                f"{rows.length(lineage)}"
            )


def _check_heads(rows: SessionRows) -> None:
    """Check that every request head that a row names is there, because a head that is named is not stored again."""
    heads = {sort: HeadRow.at(rows.session_id, sort, value) for sort, value in rows.values.items() if sort[:2] == "q#"}
    fields = ("head", "frontend_tools")
    named = {value[field]: sort for sort, value in rows.values.items() for field in fields if value.get(field)}
    named |= {row.base: sort for sort, row in heads.items() if row.base is not None}
    for ident, sort in named.items():
        if head_sort(ident) not in heads:
            text = f"session {rows.session_id!r}: row {sort!r} needs the request head {ident!r}"
            raise InvalidInputError(f"{text}, and the export does not have it")
    for sort, value in rows.values.items():
        if ident := value.get("frontend_tools"):
            try:
                head = join_head(heads[head_sort(ident)], None)
                declared_tools(head), declared_settings(head)
            except DefinitionError as error:
                raise InvalidInputError(f"session {rows.session_id!r}: row {sort!r}: {error}") from error


def _tree(root: str, found: dict[str, SessionRows]) -> list[SessionRows]:
    """Return the sessions, parents before children. A session appears once for every call that names it."""
    tree = [found[root]]
    for rows in tree:
        if len(tree) > len(found):
            break
        for entry in rows.entries.values():
            refs = entry.children.values() if isinstance(entry, AssistantRow) else ()
            tree += [found[ref.session_id] for ref in refs if ref.session_id in found]
    return tree


def _stream(root: SessionRows, rows: Sequence[Row]) -> Iterator[str]:
    """Check that the segments are in order, and that the head accepts the session's next run."""
    session, position = root.session, 0
    segments = sorted((row for row in rows if "buried_at" not in row.value), key=lambda row: row.key.sort)
    for row in segments:
        first = int(row.key.sort[2:])
        messages = segment_messages(row)
        if not messages and row is not segments[-1]:
            yield f"stream_gapless: segment {row.key.sort!r} is empty"
        if first <= position or [m.sequence for m in messages] != list(range(first, first + len(messages))):
            yield f"stream_gapless: segment {row.key.sort!r} comes after message {position}"
        position = first + len(messages) - 1
    if not segments or session is None:
        return
    head = segment_head(segments[-1])
    own = head.sessions.get(head.root)
    if head.root != root.session_id or own is None or head.sequence != position:
        yield f"stream_gapless: the head of segment {segments[-1].key.sort!r} is not that of the stream's end"
    elif own.turn > session.turn or own.version > session.version or own.began > position:
        yield f"stream_gapless: the head of segment {segments[-1].key.sort!r} is ahead of the session"
