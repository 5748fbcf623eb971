"""Converts the content of a message from a caller into the message's text and files.

Law: the order of strings and files is preserved. Each file has its position in the text, so the same content always
becomes the same message and the same prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix.core.agents import AnyAgent
from helix.core.errors import InvalidFileError, InvalidInputError
from helix.core.file_checks import MAX_BYTES, check_message, check_url, clean_name, describe, label
from helix.core.files import Audio, Content, Document, File, FileInput, FilePart, Image, LocalFile, Text
from helix.core.initial import AgentInput, Input, parse_input

_INPUTS = (Image, Audio, Document, File)
_PARTS = (Text, *_INPUTS, FilePart)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file of a message, before it is stored."""

    part: FilePart
    """The description of the file, which the message will contain."""
    data: bytes | None = field(default=None, repr=False)
    """The bytes to store. None for a URL, and for a file that is already stored."""


@dataclass(frozen=True, slots=True)
class ReadContent:
    """The content of a message, before its files are stored."""

    text: str
    """The text of the message."""
    files: list[ReadFile]
    """The files, in order. Each has its position in the text (`FilePart.after_text`)."""


async def read_content(content: Content | ReadContent) -> ReadContent:
    """Read a message's content, and the files on this machine that it names. Strings are paragraphs: a line break
    separates each from the text before it. Content that has been read is returned unchanged.

    Raises `InvalidFileError` for a file that cannot be read or exceeds a limit (`core.file_checks`), and
    `InvalidInputError` for content of another type.
    """
    if isinstance(content, ReadContent):
        return content
    if isinstance(content, str):
        return ReadContent(content, [])
    return await asyncio.to_thread(_read, _items(content))


async def read_message(message: Content | AgentInput | None) -> tuple[str | None, list[ReadFile]]:
    """Return the text and the files of a message. The text is None without a message. An `AgentInput` gives only its
    message and files here."""
    if message is None:
        return None, []
    if isinstance(message, AgentInput):
        if message.state or message.metadata:
            raise InvalidInputError("this message takes no state and no metadata: send them with `execute`")
        return message.message, _described(message)
    content = await read_content(message)
    return content.text, content.files


async def read_input(agent: AnyAgent, given: Input | Content) -> tuple[AgentInput, list[ReadFile]]:
    """Parse the input of `execute`, and read the files in its message. Raises `InvalidInputError` and
    `InvalidFileError`."""
    if isinstance(given, AgentInput):
        return given, _described(given)
    if isinstance(given, str):
        return parse_input(agent, given), []
    if not isinstance(given, Mapping):
        content = await read_content(given)
        return AgentInput(message=content.text), content.files
    message = given.get("message")
    if given.get("files"):
        asked = parse_input(agent, given)
        return asked, _described(asked)
    if (
        message is None
        or isinstance(message, str)
        or (agent.function is not None and not isinstance(message, ReadContent))
    ):
        return parse_input(agent, given), []
    content = await read_content(message)
    return parse_input(agent, {**given, "message": content.text}), content.files


def _described(given: AgentInput) -> list[ReadFile]:
    """Return files that the caller describes, each with a position that exists in the text. Raises
    `InvalidFileError`."""
    check_message(given.files)
    files = []
    for number, part in enumerate(given.files, start=1):
        position = min(part.after_text, len(given.message))
        files.append(ReadFile(checked_part(part, part.name, number).model_copy(update={"after_text": position})))
    return files


def has_files(value: object) -> bool:
    """Return whether a tool's result is content with files rather than a JSON value: a part, bytes, a path, or a list
    that contains one of these and otherwise only strings."""
    if isinstance(value, list | tuple):
        return any(_is_file(item) for item in value) and all(isinstance(item, str) or _is_file(item) for item in value)
    return _is_file(value)


def _is_file(value: object) -> bool:
    return isinstance(value, (*_PARTS, bytes, bytearray, Path))


def _items(content: Any) -> Sequence[Any]:
    if isinstance(content, (*_PARTS, bytes, bytearray)) or _is_local(content):
        return [content]
    if isinstance(content, list | tuple):
        return content
    raise InvalidInputError(
        f"the content of a message is a string, a part (Text, Image, Audio, Document or File), bytes, a Path, or a list of "
        f"these, not {type(content).__name__}"
    )


def _read(items: Sequence[Any]) -> ReadContent:
    text, files = "", list[ReadFile]()
    for number, item in enumerate(items, start=1):
        if isinstance(item, str | Text):
            more = item if isinstance(item, str) else item.text
            if not isinstance(more, str):
                raise InvalidInputError(
                    f"part {number} of the message is a Text of {type(more).__name__}, not of a string"
                )
            text = f"{text}\n{more}" if text and more else text + more
            continue
        found = _read_file(item, number)
        files.append(ReadFile(found.part.model_copy(update={"after_text": len(text)}), found.data))
        check_message([file.part for file in files])  # after each file, so that reading stops when there are too many
    return ReadContent(text, files)


def _read_file(item: Any, number: int) -> ReadFile:
    if isinstance(item, FilePart):
        return ReadFile(checked_part(item, item.name, number))
    if isinstance(item, bytes | bytearray) or _is_local(item):
        item = File(item)
    if not isinstance(item, _INPUTS):
        raise InvalidInputError(
            f"part {number} of the message is {type(item).__name__}: give a string, Text, Image, Audio, Document, File, "
            "bytes or a Path"
        )
    return _read_input(item, number)


def checked_part(part: FilePart, name: str | None, number: int) -> FilePart:
    """Return a file that the caller describes, with a clean name. Raises `InvalidFileError` for a URL that is not
    accepted. The blob's row describes a stored file, whatever the caller says of it."""
    if part.url is not None:
        return check_url(part.url, kind=part.kind, media_type=part.media_type, name=name, number=number)
    return part.model_copy(update={"name": clean_name(name)})


def _read_input(given: FileInput, number: int) -> ReadFile:
    source, kind, name = given.source, given.kind, given.name
    wishes: dict[str, Any] = {"kind": kind, "media_type": given.media_type, "number": number}
    if isinstance(source, FilePart):
        if kind not in (None, source.kind):
            raise InvalidFileError(
                f"{label(source.name, number)} is stored as {source.media_type}: pass it as {source.kind.capitalize()}"
            )
        return ReadFile(checked_part(source, source.name if name is None else name, number))
    if isinstance(source, str):
        return ReadFile(check_url(source, name=name, **wishes))
    if isinstance(source, bytes | bytearray):
        data = bytes(source)
    elif _is_local(source):
        name = source.name if name is None else name
        data = _read_bytes(source, label(clean_name(name), number))
    else:
        raise InvalidInputError(
            f"part {number} of the message has a source of type {type(source).__name__}: give bytes, a Path, an https URL "
            "or a FilePart"
        )
    return ReadFile(describe(data, name=name, **wishes), data)


def _is_local(value: Any) -> bool:
    return isinstance(value, Path) or (hasattr(value, "open") and isinstance(getattr(value, "name", None), str))


def _read_bytes(source: LocalFile, what: str) -> bytes:
    """Read a whole file, but no more than one byte over the limit, so that a huge file does not fill the memory."""
    limit = max(MAX_BYTES.values())
    try:
        with source.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InvalidFileError(f"{what} cannot be read: {error.strerror or error}") from error
    if len(data) > limit:
        raise InvalidFileError(f"{what} has more than {limit} bytes, which is the limit: make it smaller, or divide it")
    return data
