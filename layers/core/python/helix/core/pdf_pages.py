"""The number of pages of a PDF, without a parser of PDF.

Law: a number is returned only if the file confirms it. A linearized file that was not changed since contains it. In any
other file, the page tree must count as many pages as there are page objects. Otherwise the number is unknown.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

MAX_INFLATED = 32_000_000
"""The most bytes that are inflated to find page objects. A file that needs more has no known number."""
_LINEARIZED = re.compile(rb"/Linearized\s")
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PAGES = re.compile(rb"/Type\s*/Pages(?![A-Za-z])")
_OBJECT_STREAM = re.compile(rb"/Type\s*/ObjStm(?![A-Za-z])")
_ENCRYPTED = re.compile(rb"/Encrypt\s+\d")
_COUNT, _FIRST, _NUMBER = (re.compile(rb"/%s\s+(\d{1,9})(?!\d)" % name) for name in (b"Count", b"First", b"N"))
_LENGTH = re.compile(rb"/L\s+(\d{1,12})(?!\d)")
_BODY = re.compile(rb"\bstream\r?\n")


class _TooLarge(Exception):
    """The object streams inflate to more than `MAX_INFLATED`."""


def count_pages(data: bytes, size: int) -> int | None:
    """Return the number of pages. None if `data` does not tell it reliably. `data` is the whole file, or its beginning.
    `size` is the number of bytes of the whole file."""
    if (found := _linearized_pages(data[:1024], size)) is not None:
        return found
    if len(data) != size or data.count(b"startxref") != 1 or _ENCRYPTED.search(data):
        return None  # only a part of the file, or updates that may have removed pages
    pages, counts = 0, [0]
    try:
        for one in _objects(data):
            if _PAGES.search(one):
                counts += [int(found[1]) for found in _COUNT.finditer(one)]
            elif _PAGE.search(one):
                pages += 1
    except (_TooLarge, zlib.error, ValueError):
        return None
    return pages if pages and pages == max(counts) else None


def _linearized_pages(head: bytes, size: int) -> int | None:
    """Return the number in the first object of a linearized file. An update appends to the file, so that its length
    differs from the one in this object (ISO 32000-1, F.3.3)."""
    if not _LINEARIZED.search(head):
        return None
    pages, length = _NUMBER.search(head), _LENGTH.search(head)
    return int(pages[1]) if pages and length and int(length[1]) == size else None


def _objects(data: bytes) -> Iterator[bytes]:
    """Yield each object without its stream, and the objects within object streams."""
    left = MAX_INFLATED
    for chunk in data.split(b"endobj"):
        body = _BODY.search(chunk)
        if body is None:
            yield chunk
            continue
        head = chunk[: body.start()]
        if not _OBJECT_STREAM.search(head):
            yield head
            continue
        if b"FlateDecode" not in head:
            raise ValueError("another filter")
        inflated = zlib.decompressobj().decompress(chunk[body.end() :], left + 1)
        left -= len(inflated)
        if left < 0:
            raise _TooLarge
        yield from _within(head, inflated)


def _within(head: bytes, stream: bytes) -> Iterator[bytes]:
    """Yield the objects of an inflated object stream. It begins with pairs of an object's number and offset."""
    first, number = _FIRST.search(head), _NUMBER.search(head)
    if first is None or number is None:
        raise ValueError("an object stream without /First or /N")
    start = int(first[1])
    offsets = [int(text) for text in stream[:start].split()[1 : 2 * int(number[1]) : 2]]
    for begin, end in zip(offsets, [*offsets[1:], len(stream) - start], strict=True):
        yield stream[start + begin : start + end]
