"""Files in messages and tool results: images, audio, documents and any other file.

Law: a message keeps its text in `content` and its files beside it, each with its place in the text. A row names a file
by the hash of its bytes and never contains them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, ClassVar, Literal, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

FileKind = Literal["image", "audio", "document", "file"]


class FilePart(BaseModel):
    """A file of a message or a tool result: bytes in the object store, or a URL that the provider reads."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: FileKind
    """The way in which a model takes the file. `file` is any type that no model reads."""
    media_type: str
    """The type of the bytes, such as `image/png`. Helix reads it from the bytes, not from the name."""
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """The hash of the bytes, which names them in the object store. None for a URL."""
    url: str | None = None
    """An `https` URL that is passed to the provider. Helix does not fetch it. None for stored bytes."""
    size: int = Field(default=0, ge=0)
    """The number of bytes. 0 for a URL."""
    name: str | None = None
    """The name of the file for people and models, without a path. None for a file without a name."""
    width: int | None = None
    """The width of an image in pixels. None if it is not known, or for another kind."""
    height: int | None = None
    """The height of an image in pixels. None if it is not known, or for another kind."""
    pages: int | None = None
    """The number of pages of a document. None if it is not known, or for another kind."""
    after_text: int = Field(default=0, ge=0)
    """The number of characters of the message's text before the file."""

    @model_validator(mode="after")
    def _check_source(self) -> FilePart:
        if (self.sha256 is None) == (self.url is None):
            raise ValueError("a file has either sha256 or url")
        return self


class LocalFile(Protocol):
    """A file on this machine, such as a `pathlib.Path`."""

    @property
    def name(self) -> str: ...

    def open(self, mode: Literal["rb"], /) -> IO[bytes]:
        """Open the file for reading. Raises `OSError` if the file cannot be read."""
        ...


FileSource: TypeAlias = bytes | bytearray | LocalFile | str | FilePart
"""The source of a file: its bytes, a path, an `https` URL, or a file that is stored already."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text between the files of a message."""

    text: str
    """The text. Texts that follow each other become paragraphs."""


@dataclass(frozen=True, slots=True)
class _FileInput:
    """The fields of all files that a caller gives."""

    kind: ClassVar[FileKind | None]
    """The kind that the file must have. None for any kind."""

    source: FileSource
    """The bytes, a path, an `https` URL, or a file that is stored already."""
    media_type: str | None = None
    """The type, if the caller knows it, such as `text/csv`. It is used if the bytes allow it, and for URLs. None: it is
    read from the bytes."""
    name: str | None = None
    """The name of the file for people and models. None: the name of the path, if the source is a path."""


@dataclass(frozen=True, slots=True)
class Image(_FileInput):
    """An image for the model, such as a PNG or JPEG."""

    kind: ClassVar[FileKind | None] = "image"


@dataclass(frozen=True, slots=True)
class Audio(_FileInput):
    """A recording for the model, such as a WAV or MP3."""

    kind: ClassVar[FileKind | None] = "audio"


@dataclass(frozen=True, slots=True)
class Document(_FileInput):
    """A document for the model: a PDF, an office document or a text file."""

    kind: ClassVar[FileKind | None] = "document"


@dataclass(frozen=True, slots=True)
class File(_FileInput):
    """A file of any type. If its bytes are an image, audio or a document, the model gets it as that."""

    kind: ClassVar[FileKind | None] = None


FileInput: TypeAlias = Image | Audio | Document | File
Part: TypeAlias = Text | FileInput | FilePart
"""A part of a message or a tool result."""
Content: TypeAlias = str | Part | bytes | bytearray | LocalFile | Sequence[str | Part | bytes | bytearray | LocalFile]
"""The content of a message: a text, a part, or a sequence of both. Bytes and paths are files of any type. A string is a
text, never a URL."""
