"""The parts of a message that a client sends: texts and files, each in the form of the client's encoding.

Law: a file is described from its bytes, before anything is stored. A part of another type, and a file in a form that
Helix cannot read, is refused by name and never dropped.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from helix.core.damage import first_problem
from helix.core.errors import InvalidFileError, InvalidInputError
from helix.core.file_checks import check_message, check_url, clean_name, describe, label
from helix.core.files import FileKind, FilePart
from helix.core.json import JsonObject, JsonValue
from helix.core.media_types import BINARY, clean_media_type, kind_of
from helix.services.file_inputs import ReadContent, ReadFile, checked_part
from helix.stream.file_parts import HELIX

_SHA256: Final = re.compile("[0-9a-f]{64}")
_DATA_URL: Final = re.compile(r"data:([^,]*?)(;base64)?,", re.IGNORECASE)
_MEDIA: Final[Mapping[str, FileKind | None]] = {"image": "image", "audio": "audio", "document": None, "video": None}
"""The kind of file that each media part of AG-UI must have. None for any kind."""


class Parts:
    """The text and the files of a message, collected part by part. A line break separates each text from the one before
    it, and a file keeps its place between them."""

    def __init__(self, session_id: str | None = None) -> None:
        self._session_id = session_id
        self._texts: list[str] = []
        self._files: list[ReadFile] = []

    @property
    def number(self) -> int:
        """The number of the next file, for errors."""
        return len(self._files) + 1

    def add_text(self, text: JsonValue) -> None:
        """Add a text. None counts as no text."""
        if text is not None:
            self._texts.append(str(text))

    def add_file(self, file: ReadFile) -> None:
        """Add a file after the texts so far. Raises `InvalidFileError` if the message then has too many files."""
        position = len("\n".join(self._texts))
        self._files.append(ReadFile(file.part.model_copy(update={"after_text": position}), file.data))
        check_message([one.part for one in self._files])

    def add_ui_part(self, part: JsonObject) -> None:
        """Add a part of an AI SDK message. `file` has a `data:` or `https` URL, or the address of a stored file. Parts of
        tool results and of the TypeScript client name a stored file by the hash in their metadata."""
        kind = str(part.get("type"))
        if kind == "text":
            self.add_text(part.get("text"))
        elif kind == "file":
            name, media_type = _text(part, "filename"), _text(part, "mediaType")
            metadata = part.get("providerMetadata")
            about = metadata.get(HELIX) if isinstance(metadata, dict) else None
            if isinstance(about, dict) and isinstance(sha256 := about.get("sha256"), str):
                self.add_file(_stored(sha256, media_type, name or _text(about, "filename"), self.number))
            else:
                self.add_file(self._at_url(_text(part, "url"), media_type, name, _expected(media_type)))
        else:
            raise _unsupported(kind)

    def add_agui_part(self, part: JsonObject) -> None:
        """Add a content part of an AG-UI message: a media part of version 1.0, or `binary` of earlier versions."""
        kind = str(part.get("type"))
        if kind == "text":
            self.add_text(part.get("text"))
        elif kind == "binary":
            self._add_binary(part)
        elif kind in _MEDIA:
            self._add_media(part, kind)
        else:
            raise _unsupported(kind)

    def _add_binary(self, part: JsonObject) -> None:
        name, media_type = _text(part, "filename"), _text(part, "mimeType")
        data, url, ident = _text(part, "data"), _text(part, "url"), _text(part, "id")
        if data is not None:
            self.add_file(read_base64(data, media_type, name, self.number, _expected(media_type)))
        elif url is not None:
            self.add_file(self._at_url(url, media_type, name, _expected(media_type)))
        else:
            self.add_file(_stored(ident, media_type, name, self.number))

    def _add_media(self, part: JsonObject, kind: str) -> None:
        source, about = part.get("source"), part.get("metadata")
        given: JsonObject = source if isinstance(source, dict) else {}
        name = _text(about, "filename") if isinstance(about, dict) else None
        value, media_type, expected = _text(given, "value"), _text(given, "mimeType"), _MEDIA[kind]
        match given.get("type"):
            case "data":
                self.add_file(read_base64(value or "", media_type, name, self.number, expected))
            case "url":
                self.add_file(self._at_url(value, media_type, name, expected))
            case "file" if given.get("provider") in (None, HELIX):
                self.add_file(_stored(value, media_type, name, self.number))
            case other:
                what = label(clean_name(name), self.number)
                raise InvalidFileError(
                    f"{what} has a source of the type {str(other)[:40]!r}, which is not supported: send data, an https "
                    f"URL, or the provider {HELIX!r} with the hash of a stored file"
                )

    def _at_url(self, url: str | None, media_type: str | None, name: str | None, kind: FileKind | None) -> ReadFile:
        """Return the file at a URL: its bytes from a `data:` URL, a file that the session has, or an `https` URL."""
        url = url or ""
        if (found := _DATA_URL.match(url)) is not None:
            if found[2] is None:
                what = label(clean_name(name), self.number)
                raise InvalidFileError(
                    f"{what} has a data URL without base64: send its bytes as `data:TYPE;base64,...`"
                )
            return read_base64(url[found.end() :], media_type or found[1], name, self.number, kind)
        if (sha256 := self._hash_in(url)) is not None:
            return _stored(sha256, media_type, name, self.number)
        plain = media_type if media_type is not None and "/" in media_type else None
        return ReadFile(check_url(url, kind=kind, media_type=plain, name=name, number=self.number))

    def _hash_in(self, url: str) -> str | None:
        """Return the hash in the address of a file of this session (`helix.http.messages`)."""
        try:
            segments = urlsplit(url).path.split("/")
        except ValueError:
            return None
        if len(segments) < 3 or segments[-2] != "files" or unquote(segments[-3]) != self._session_id:
            return None
        return segments[-1] if is_hash(segments[-1]) else None

    def content(self) -> ReadContent:
        """Return the message. Raises `InvalidInputError` if it has neither text nor files."""
        text = "\n".join(self._texts)
        if not text and not self._files:
            raise InvalidInputError("the newest message has no text and no files")
        return ReadContent(text, self._files)


def read_files(given: Sequence[JsonObject], text: str) -> list[ReadFile]:
    """Read the `files` of a plain request: each is a `FilePart`, or has its bytes in `data` (base64) with `media_type`,
    `name` and `after_text`. Return them by their place in the text. Raises `InvalidFileError`."""
    found: list[ReadFile] = []
    for number, one in enumerate(given, start=1):
        file = _read_plain(one, number)
        position = min(file.part.after_text, len(text))
        found.append(ReadFile(file.part.model_copy(update={"after_text": position}), file.data))
        check_message([read.part for read in found])
    return sorted(found, key=lambda file: file.part.after_text)


def _read_plain(given: JsonObject, number: int) -> ReadFile:
    if "data" not in given:
        part = _file_part(given, number)
        checked = checked_part(part, part.name, number)
        return ReadFile(checked.model_copy(update={"after_text": part.after_text}))
    if unknown := sorted(set(given) - {"data", "media_type", "name", "after_text"}):
        raise InvalidFileError(
            f"{label(None, number)} has a field {unknown[0][:40]!r} beside data, which is not supported"
        )
    position = given.get("after_text", 0)
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise InvalidFileError(f"{label(None, number)}: after_text must be a whole number from 0")
    media_type = _text(given, "media_type")
    file = read_base64(_text(given, "data") or "", media_type, _text(given, "name"), number, _expected(media_type))
    return ReadFile(file.part.model_copy(update={"after_text": position}), file.data)


def _file_part(given: JsonObject, number: int) -> FilePart:
    try:
        return FilePart.model_validate(given)
    except ValidationError as error:
        raise InvalidFileError(first_problem(error, label(None, number))) from None


def read_base64(
    text: str, media_type: str | None, name: str | None, number: int, kind: FileKind | None = None
) -> ReadFile:
    """Decode a file and describe it. Raises `InvalidFileError` for anything but strict base64, and for a file that is not
    of the `kind` or exceeds a limit."""
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        what = label(clean_name(name), number)
        raise InvalidFileError(f"{what} is not valid base64: encode its bytes without line breaks") from None
    return ReadFile(describe(data, kind=kind, media_type=media_type, name=name, number=number), data)


def is_hash(text: str) -> bool:
    """Return whether the text has the form of a file's SHA-256."""
    return _SHA256.fullmatch(text) is not None


def _stored(sha256: str | None, media_type: str | None, name: str | None, number: int) -> ReadFile:
    """Return a file that is stored already. Whether the session may name it is checked when the run starts."""
    if sha256 is None or not is_hash(sha256):
        raise InvalidFileError(
            f"{label(clean_name(name), number)} has neither bytes, nor an https URL, nor the hash of a stored file: send "
            "one of these"
        )
    known = clean_media_type(media_type) or BINARY
    return ReadFile(FilePart(kind=kind_of(known), media_type=known, sha256=sha256, name=clean_name(name)))


def _expected(media_type: str | None) -> FileKind | None:
    """Return the kind that the declared type requires. Browsers declare other types by the file's extension alone."""
    top = (media_type or "").partition("/")[0].strip().lower()
    declared = clean_media_type(media_type)
    kind = top if declared is None else kind_of(declared)
    return {"image": "image", "audio": "audio"}.get(kind)  # type: ignore[return-value]


def _text(given: Mapping[str, Any], name: str) -> str | None:
    """Return a field that must be a string. None if it is missing or null."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidFileError(f"{name} of a file must be a string, not {type(value).__name__}")
    return value


def _unsupported(kind: str) -> InvalidInputError:
    return InvalidInputError(
        f"the newest message has a part of the type {kind[:40]!r}, which is not supported: send text and files"
    )
