"""The limits of files in messages and tool results, and the check of a file against them.

Law: every file passes `describe` or `check_url` before a message may name it. A violation raises `InvalidFileError`,
which names the file, the limit and a way out.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from helix.core.errors import InvalidFileError
from helix.core.files import FileKind, FilePart
from helix.core.json import clean_text
from helix.core.media_types import BINARY, clean_media_type, kind_of, sniff, type_of_name

MIB: Final = 1_048_576
MAX_BYTES: Final[dict[FileKind, int]] = {"image": 20 * MIB, "audio": 25 * MIB, "document": 32 * MIB, "file": 50 * MIB}
"""The most bytes of one file of each kind. No provider takes larger ones: OpenAI takes 25 MB of audio, and Anthropic
requests of 32 MB. Other files are for tools, which hold them in memory."""
MAX_MESSAGE_BYTES: Final = 50 * MIB
"""The most bytes of all files of one message. OpenAI takes no more in a request, and a worker holds them in memory at
once."""
MAX_FILES: Final = 50
"""The most files of one message or tool result. Each takes about 200 bytes of the message's row."""
MAX_PIXELS: Final = 100_000_000
"""The most pixels of an image. A decoder needs 4 bytes for each, however small the file is."""
MAX_PAGES: Final = 1_000
"""The most pages of a document. No provider takes more in one document."""
MAX_NAME_BYTES: Final = 255
"""The most bytes of a file's name, as in the common file systems."""
MAX_URL: Final = 2_048
"""The longest URL in characters. It is stored in the message's row."""
_SIZED: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The types whose header always has the size of the image."""
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""The Unicode categories of characters that a name loses: control, format and unassigned characters, and line breaks."""

_NOUNS: Final[dict[FileKind | None, str]] = {
    "image": "an image",
    "audio": "audio",
    "document": "a document",
    "file": "another file",
}


def clean_name(name: str | None) -> str | None:
    """Return the last part of a path, without invisible characters. None if nothing is left of it. Raises
    `InvalidFileError` if it is too long."""
    last = clean_text(name or "").replace("\\", "/").rpartition("/")[2]
    shown = "".join(char for char in unicodedata.normalize("NFC", last) if unicodedata.category(char) not in _HIDDEN)
    shown = shown.strip()
    if len(shown.encode()) > MAX_NAME_BYTES:
        raise InvalidFileError(
            f"the name {shown[:40]!r}... of a file has {len(shown.encode())} bytes; the limit is {MAX_NAME_BYTES}: "
            "shorten it"
        )
    return None if shown in ("", ".", "..") else shown


def label(name: str | None, number: int | None = None) -> str:
    """Return a file's designation in an error: its name, else its number in the message."""
    if name is not None:
        return f"file {name!r}"
    return "the file" if number is None else f"file {number} of the message"


def check_size(kind: FileKind | None, size: int, what: str) -> None:
    """Raise `InvalidFileError` for an empty file, or one of more bytes than its kind may have. None: no kind may have
    this size. `what` designates the file."""
    limit = max(MAX_BYTES.values()) if kind is None else MAX_BYTES[kind]
    if size > limit:
        noun = "a file" if kind is None else _NOUNS[kind]
        raise InvalidFileError(f"{what} has {size} bytes; {noun} has at most {limit}: make it smaller, or divide it")
    if size == 0:
        raise InvalidFileError(f"{what} is empty: attach a file with content")


def describe(
    data: bytes,
    *,
    size: int | None = None,
    sha256: str | None = None,
    kind: FileKind | None = None,
    media_type: str | None = None,
    name: str | None = None,
    number: int | None = None,
) -> FilePart:
    """Return the description of a file, read from its bytes. Raises `InvalidFileError` for a file that breaks a limit.

    `data`: all bytes, or the first `HEAD_BYTES` of them together with `size` and `sha256`, which describe them all.
    `kind`: the kind that the caller expects, `media_type` the type; None for any. `number`: the number of the file in its
    message, for errors.
    """
    name = clean_name(name)
    what = label(name, number)
    size = len(data) if size is None else size
    check_size(None, size, what)
    found = sniff(data, size, media_type, name)
    if kind not in (None, found.kind):
        raise InvalidFileError(f"{what} is {_shown(found.media_type)}, not {_NOUNS[kind]}: {_advice(found.kind)}")
    check_size(found.kind, size, what)
    if found.media_type in _SIZED and found.width is None and len(data) == size:
        raise InvalidFileError(f"{what} is a damaged {found.media_type}: its header has no size; save the image anew")
    if found.width and found.height and found.width * found.height > MAX_PIXELS:
        raise InvalidFileError(
            f"{what} has {found.width} x {found.height} pixels; an image has at most {MAX_PIXELS}: scale it down"
        )
    if found.pages is not None and found.pages > MAX_PAGES:
        raise InvalidFileError(f"{what} has {found.pages} pages; a document has at most {MAX_PAGES}: divide it")
    return FilePart(
        kind=found.kind,
        media_type=found.media_type,
        sha256=hashlib.sha256(data).hexdigest() if sha256 is None else sha256,
        size=size,
        name=name,
        width=found.width,
        height=found.height,
        pages=found.pages,
    )


def check_url(
    url: str,
    *,
    kind: FileKind | None = None,
    media_type: str | None = None,
    name: str | None = None,
    number: int | None = None,
) -> FilePart:
    """Return the description of a file at a URL, which only the provider reads. Its type is the declared one, else the one
    that the URL's path suggests. Raises `InvalidFileError` unless the URL is an `https` URL of at most `MAX_URL`
    characters."""
    name = clean_name(name)
    what = label(name, number)
    try:
        parts = urlsplit(url)
        valid = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not url.isascii() or any(char <= " " or char in "<>\"'\\^`{|}\x7f" for char in url):
        raise InvalidFileError(
            f"{what}: {url[:80]!r} is not an https URL: give an https URL, the bytes, or a pathlib.Path of a local file"
        )
    if len(url) > MAX_URL:
        raise InvalidFileError(
            f"{what} has a URL of {len(url)} characters; the limit is {MAX_URL}: send its bytes instead"
        )
    suggested = clean_media_type(media_type) or type_of_name(parts.path.rpartition("/")[2])
    default = {"image": "image/*", "audio": "audio/*"}.get(kind or "file", BINARY)
    shown = suggested or default
    if suggested is not None and kind not in (None, kind_of(suggested)):
        raise InvalidFileError(f"{what} is {suggested}, not {_NOUNS[kind]}: {_advice(kind_of(suggested))}")
    return FilePart(kind=kind or kind_of(shown), media_type=shown, url=url, name=name)


def check_message(files: Sequence[FilePart]) -> None:
    """Raise `InvalidFileError` if the files of one message are too many or too large together."""
    if len(files) > MAX_FILES:
        raise InvalidFileError(
            f"the message has {len(files)} files; it takes at most {MAX_FILES}: send the others in another message"
        )
    total = sum({file.sha256: file.size for file in files}.values())
    if total > MAX_MESSAGE_BYTES:
        raise InvalidFileError(
            f"the files of the message have {total} bytes together; the limit is {MAX_MESSAGE_BYTES}: send some of them "
            "in another message"
        )


def _shown(media_type: str) -> str:
    return "of an unknown type" if media_type == BINARY else media_type


def _advice(kind: FileKind) -> str:
    """Return a way out for a file whose bytes are of this kind, and not of the expected one."""
    if kind == "file":
        return "convert it (a text must be UTF-8), or pass it as File for a tool"
    return f"pass it as {kind.capitalize()}, or convert it"
