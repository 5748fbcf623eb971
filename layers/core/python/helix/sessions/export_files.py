"""The files of an export: one line with the bytes of each stored file that its rows name.

    {"file": {"sha256", "media_type", "size"}, "data": "<base64>"}

Law: one file is in memory at a time. The bytes of a line are used only if a row names their hash and size, and if they
keep the limits of a file (`helix.core.file_checks`).
"""

from __future__ import annotations

import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from helix.core.entries import CallRow, UserRow, parse_entry
from helix.core.errors import InvalidFileError, InvalidInputError
from helix.core.file_checks import describe, label
from helix.core.files import FilePart
from helix.ports.state_store import Row
from helix.services.file_inputs import ReadFile

PIECE: Final = 3 * 262_144
"""The number of bytes that one piece of a line encodes. It is a multiple of 3, so the pieces join without padding."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A stored file that rows of the export name."""

    part: FilePart
    """The file as the first of these rows names it. It has a hash."""
    session_ids: list[str]
    """The sessions whose rows name the file, without duplicates."""

    @property
    def shown(self) -> str:
        """The file's name, if it has one, and its hash."""
        return f"{label(self.part.name)} with the hash {self.part.sha256}"


def named_files(rows: Iterable[Row]) -> dict[str, NamedFile]:
    """Return the stored files that the rows name, by hash. Raises `DamagedRowError` for an unreadable message."""
    found: dict[str, NamedFile] = {}
    for key, value in rows:
        if key.table != "sessions" or not key.sort.startswith("m#") or not value.get("files"):
            continue
        entry = parse_entry(key.partition, key.sort, value)
        for part in entry.files if isinstance(entry, UserRow | CallRow) else ():
            if part.sha256 is None:
                continue
            named = found.setdefault(part.sha256, NamedFile(part, []))
            if key.partition not in named.session_ids:
                named.session_ids.append(key.partition)
    return found


def file_line(part: FilePart, data: bytes) -> Iterator[str]:
    """Yield the line of a file in pieces, with its line break."""
    head = json.dumps({"file": {"sha256": part.sha256, "media_type": part.media_type, "size": len(data)}})
    yield f'{head[:-1]}, "data": "'
    for start in range(0, len(data), PIECE):
        yield binascii.b2a_base64(data[start : start + PIECE], newline=False).decode("ascii")
    yield '"}\n'


def is_file_line(line: Mapping[str, Any]) -> bool:
    return "file" in line


def take_file(number: int, line: dict[str, Any], named: Mapping[str, NamedFile]) -> ReadFile:
    """Remove the bytes from the parsed line, check them, and return the file. Raises `InvalidInputError`, which names
    the line and the file. `number`: the number of the line."""
    about, encoded = line.get("file"), line.pop("data", None)
    sha256, size = (about.get("sha256"), about.get("size")) if isinstance(about, dict) else (None, None)
    if not isinstance(sha256, str) or type(size) is not int or not isinstance(encoded, str):
        raise InvalidInputError(f"line {number} is not a file of an export")
    found = named.get(sha256)
    if found is None:
        raise InvalidInputError(f"line {number}: no message or result names the file with the hash {sha256[:80]!r}")
    try:
        data = binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError:
        raise InvalidInputError(f"line {number}: the bytes of {found.shown} are not base64: it is damaged") from None
    del encoded
    if {len(data), found.part.size} != {size} or hashlib.sha256(data).hexdigest() != sha256:
        raise InvalidInputError(f"line {number}: {found.shown} has other bytes than its hash and size: it is damaged")
    try:
        part = describe(data, sha256=sha256, media_type=found.part.media_type, name=found.part.name)
    except InvalidFileError as error:
        raise InvalidInputError(f"line {number}: {error}") from error
    return ReadFile(part, data)
