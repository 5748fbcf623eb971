"""The files of one request: their bytes, their places in the text, and a JSON body that encodes them while it is sent.

Law: bytes are read once per attempt, when its request is built. Base64 is generated piece by piece while the body is sent,
so a request holds the bytes of its files and no other copy. The same messages produce the same body, byte for byte.
"""

from __future__ import annotations

import asyncio
import base64
import json
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from helix.adapters.models.catalog import info_of
from helix.adapters.models.failures import Failure, failure
from helix.adapters.models.file_forms import Form, Interface, file_name, form_of, note, refused
from helix.adapters.models.wire import AttemptFailedError
from helix.core.errors import AccessDeniedError, FileMissingError, InvalidFileError, StoreError
from helix.core.files import FilePart
from helix.core.messages import ToolResultMessage, UserMessage, latest_files
from helix.ports.catalog import ModelInfo
from helix.ports.model import LLMGenerateInput

_CHUNK = 256 * 1024
"""The number of bytes of a body that are sent at once."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Bytes that represent their base64 text in a request."""

    data: bytes
    """The bytes of the file."""
    prefix: str = ""
    """The text before the base64 text, such as the beginning of a data URL."""

    def text(self) -> str:
        return self.prefix + base64.b64encode(self.data).decode("ascii")


@dataclass(frozen=True, slots=True)
class Sent:
    """A file in its place, in the form in which the model accepts it."""

    file: FilePart
    """The file."""
    form: Form
    """The kind of the provider's block. Never `text`, because such a file is sent as text."""
    data: bytes | None
    """The bytes. None: the provider reads `location` or the file's URL."""
    location: str | None = None
    """The `s3://` address, for a provider that reads it. None: the bytes are sent, or the file's URL."""

    @property
    def encoded(self) -> Encoded:
        """The bytes as base64."""
        assert self.data is not None, "a file with a URL has no bytes"
        return Encoded(self.data)

    @property
    def address(self) -> str | Encoded:
        """The file's URL, or a data URL with its bytes."""
        if self.data is None:
            return self.file.url or ""
        return Encoded(self.data, f"data:{self.file.media_type};base64,")

    @property
    def name(self) -> str:
        return file_name(self.file)


class RequestFiles:
    """The files of one request to `model`. Call `load` before anything else."""

    def __init__(self, request: LLMGenerateInput, model: str, interface: Interface) -> None:
        self._request, self._model, self._interface = request, model, interface
        self._data: dict[str, bytes] = {}

    @cached_property
    def info(self) -> ModelInfo:
        return info_of(self._model)

    @property
    def loaded(self) -> bool:
        """Whether the request contains the bytes of a file."""
        return bool(self._data)

    async def load(self) -> None:
        """Read the bytes that the request contains. Raises `AttemptFailedError` if a file of the last user message
        cannot be sent to the model, if the bytes of a file are missing, or if their store does not respond. Raises
        `AccessDeniedError` if AWS denies this process the bytes."""
        for file in latest_files(self._request.lasting):
            if (problem := refused(file, self._interface, self.info)) is not None:
                raise AttemptFailedError(Failure(InvalidFileError.code, problem))
        needed: dict[str, FilePart] = {}
        for message in self._request.messages:
            if isinstance(message, UserMessage | ToolResultMessage):
                needed |= {file.sha256: file for file in message.files if file.sha256 and self._reads(file, message)}
        if not needed:
            return
        try:
            read = await asyncio.gather(*map(self._request.files.read, needed.values()))
        except FileMissingError as error:
            raise AttemptFailedError(Failure(error.code, str(error))) from error
        except AccessDeniedError:
            raise
        except StoreError as error:
            raise AttemptFailedError(failure(self._model, StoreError.code, str(error))) from error
        self._data = dict(zip(needed, read, strict=True))

    def release(self) -> None:
        """Release the bytes once the request has been sent."""
        self._data = {}

    def content(self, message: UserMessage | ToolResultMessage) -> list[str | Sent]:
        """Return the text and the files of a message in their order. Blank text is omitted."""
        made: list[str | Sent] = []
        for part in placed(message.content, message.files):
            made.append(part if isinstance(part, str) else self._part(part, message))
        return made

    def _part(self, file: FilePart, message: UserMessage | ToolResultMessage) -> str | Sent:
        form = self._form(file, message)
        match form:
            case None:
                return note(file, readable=False)
            case "text":
                text = self._data[file.sha256 or ""].decode("utf-8", "replace")
                return f"{note(file, readable=True)}\n{text}"
            case _:
                location = self._location(file, form)
                data = None if file.sha256 is None or location is not None else self._data[file.sha256]
                return Sent(file, form, data, location)

    def _form(self, file: FilePart, message: UserMessage | ToolResultMessage) -> Form | None:
        return form_of(file, self._interface, self.info, in_result=isinstance(message, ToolResultMessage))

    def _reads(self, file: FilePart, message: UserMessage | ToolResultMessage) -> bool:
        form = self._form(file, message)
        return form is not None and self._location(file, form) is None

    def _location(self, file: FilePart, form: Form) -> str | None:
        """Return the S3 address of a file that the provider reads there."""
        if file.sha256 is None or form == "text" or self._interface != "converse" or not self.info.reads_s3:
            return None
        return self._request.files.location(file)


def placed(text: str, files: Sequence[FilePart]) -> Iterator[str | FilePart]:
    """Yield the files in their places, and the text between them that is not blank."""
    start = 0
    for file in sorted(files, key=lambda file: file.after_text):
        end = min(max(file.after_text, start), len(text))
        if (before := text[start:end]).strip():
            yield before
        yield file
        start = end
    if (rest := text[start:]).strip():
        yield rest


def plain(value: Any) -> Any:
    """Return a body with each file as its base64 text, for packages that accept no other form."""
    return mapped(value, lambda leaf: leaf.text() if isinstance(leaf, Encoded) else leaf)


def mapped(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a copy of a JSON value with `leaf` applied to everything that is neither an object nor a list."""
    match value:
        case Mapping():
            return {name: mapped(item, leaf) for name, item in value.items()}
        case list() | tuple():
            return [mapped(item, leaf) for item in value]
        case _:
            return leaf(value)


class JsonBody:
    """A JSON body that is encoded while it is sent. It can be read again until `release`."""

    def __init__(self, value: Any) -> None:
        self._parts: list[bytes | Encoded] = []
        between = bytearray()
        for part in _parts(value):
            if isinstance(part, bytes):
                between += part
            else:
                self._parts += [bytes(between), part]
                between.clear()
        self._parts.append(bytes(between))
        self._ends = list(accumulate(map(_length, self._parts)))

    @property
    def length(self) -> int:
        """The length of the body in bytes."""
        return self._ends[-1]

    def read_at(self, start: int, size: int) -> bytes:
        """Return up to `size` bytes from the position `start`. Empty at the end. It may return fewer."""
        if start >= self.length:
            return b""
        index = bisect_right(self._ends, start)
        part, begins = self._parts[index], self._ends[index - 1] if index else 0
        start -= begins
        if isinstance(part, bytes):
            return part[start : start + size]
        skipped = start % 4
        first = (start - skipped) // 4 * 3
        view = memoryview(part.data)[first : first + (size + skipped + 3) // 4 * 3]
        return base64.b64encode(view)[skipped : skipped + size]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        position = 0
        while piece := self.read_at(position, _CHUNK):
            yield piece
            position += len(piece)

    def release(self) -> None:
        """Release the body once it has been sent, because the package keeps the request as long as its response."""
        self._parts, self._ends = [], [0]


def _parts(value: Any) -> Iterator[bytes | Encoded]:
    match value:
        case Encoded():
            yield b'"' + _json(value.prefix)[1:-1]
            yield value
            yield b'"'
        case Mapping() if _holds_files(value):
            for number, (name, item) in enumerate(value.items()):
                yield (b"," if number else b"{") + _json(name) + b":"
                yield from _parts(item)
            yield b"}"
        case list() | tuple() if _holds_files(value):
            for number, item in enumerate(value):
                yield b"," if number else b"["
                yield from _parts(item)
            yield b"]"
        case _:
            yield _json(value)


def _json(value: Any) -> bytes:
    """Return the JSON text as the packages of OpenAI and Anthropic write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _holds_files(value: Any) -> bool:
    """Return whether a body contains the bytes of a file."""
    match value:
        case Encoded():
            return True
        case Mapping():
            return any(map(_holds_files, value.values()))
        case list() | tuple():
            return any(map(_holds_files, value))
        case _:
            return False


def _length(part: bytes | Encoded) -> int:
    return len(part) if isinstance(part, bytes) else -(-len(part.data) // 3) * 4
