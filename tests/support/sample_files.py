"""Small files of many types, made by hand, so that the tests need no library for them."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable


def png(
    width: int = 4,
    height: int = 3,
    colour: Callable[[int, int], tuple[int, int, int]] | None = None,
    *,
    note: bytes = b"",
) -> bytes:
    """A PNG of this size. `colour`: the colour at x and y. Without it, the pixels are grey, and only valid for small
    images."""
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    if colour is not None:
        rows = (b"\x00" + b"".join(bytes(colour(x, y)) for x in range(width)) for y in range(height))
    else:
        rows = (b"\x00" + b"\x7f" * 3 * width for _ in range(height if width * height < 10_000 else 0))
    pixels = _chunk(b"IDAT", zlib.compress(b"".join(rows)))
    return (
        b"\x89PNG\r\n\x1a\n"
        + header
        + (_chunk(b"tEXt", b"note\x00" + note) if note else b"")
        + pixels
        + _chunk(b"IEND")
    )


def _chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def jpeg(width: int = 640, height: int = 480, *, metadata: int = 20) -> bytes:
    """The segments of a JPEG before its pixels. `metadata`: the bytes of an EXIF segment, with a thumbnail in it."""
    thumbnail = b"\xff\xd8\xff\xc0\x00\x11\x08" + struct.pack(">HH", 16, 16)
    exif = b"Exif\x00\x00" + thumbnail
    exif += b"\x00" * max(0, metadata - len(exif))
    frame = b"\x08" + struct.pack(">HH", height, width) + b"\x03" + b"\x01\x11\x00" * 3
    segments = [(0xE1, exif), (0xDB, b"\x00" * 65), (0xC4, b"\x00" * 28), (0xC2, frame)]
    body = b"".join(b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data for marker, data in segments)
    return b"\xff\xd8" + body + b"\xff\xda\x00\x02" + b"\x00" * 8 + b"\xff\xd9"


def gif(width: int = 7, height: int = 5) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x00\x00\x00;"


def webp(width: int = 9, height: int = 8, form: str = "VP8X") -> bytes:
    match form:
        case "VP8X":
            body = b"\x00" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        case "VP8L":
            body = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little") + b"\x00" * 5
        case _:
            body = b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height)
    data = form.ljust(4).encode() + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(data) + 4) + b"WEBP" + data


def wav() -> bytes:
    return b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00" + b"\x00" * 16


def office(main: str) -> bytes:
    """An archive with the names of an office document. `main`: its main file, such as `word/document.xml`."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr(main, "<document/>")
    return out.getvalue()


def pdf(pages: int = 3, *, compressed: bool = False, count: int | None = None) -> bytes:
    """A PDF with these pages. `compressed`: its pages are in an object stream. `count`: the number that its page tree
    claims."""
    kids = b" ".join(b"%d 0 R" % (number + 3) for number in range(pages))
    tree = b"<< /Type /Pages /Kids [" + kids + b"] /Count %d >>" % (pages if count is None else count)
    objects = [tree, *[b"<< /Type /Page /Parent 2 0 R >>"] * pages]
    body = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
    if compressed:
        offsets, place = b"", 0
        for number, one in enumerate(objects):
            offsets += b"%d %d " % (number + 2, place)
            place += len(one) + 1
        data = zlib.compress(offsets + b"\n".join(objects))
        head = b"<< /Type /ObjStm /N %d /First %d /Filter /FlateDecode /Length %d >>" % (
            len(objects),
            len(offsets),
            len(data),
        )
        body += b"99 0 obj\n" + head + b"\nstream\r\n" + data + b"\nendstream\nendobj\n"
    else:
        body += b"".join(b"%d 0 obj\n%s\nendobj\n" % (number + 2, one) for number, one in enumerate(objects))
    return body + b"trailer << /Root 1 0 R >>\nstartxref\n9\n%%EOF\n"


def linearized(pages: int) -> bytes:
    """A linearized PDF, which has its length and its number of pages at the beginning."""
    rest = pdf(pages) + b"\nstartxref\n0\n%%EOF\n"
    head = b"%%PDF-1.5\n1 0 obj\n<< /Linearized 1 /L %06d /H [ 1 2 ] /O 9 /E 9 /N %d /T 9 >>\nendobj\n"
    size = len(head % (0, pages)) + len(rest)
    return head % (size, pages) + rest
