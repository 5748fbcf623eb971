"""Files in messages and tool results: images, audio, documents and any other file.

Law: a message keeps its text in `content` and its files beside it, each with its place in the text. A row names a file
by the hash of its bytes and never contains them.
"""

from __future__ import annotations

from typing import Literal

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
    """The name of the file for people and models, without a path. None if it has none."""
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
