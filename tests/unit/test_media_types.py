"""The type of a file comes from its bytes, and so do the size of an image and the pages of a PDF."""

from __future__ import annotations

import random

import pytest
from tests.support.sample_files import gif, jpeg, linearized, office, pdf, png, wav, webp

from helix.core.media_types import HEAD_BYTES, Sniffed, clean_media_type, sniff

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
MP4 = b"\x00\x00\x00\x18ftyp%s\x00\x00\x00\x00"


def read(data: bytes, declared: str | None = None, name: str | None = None) -> Sniffed:
    return sniff(data, len(data), declared, name)


def name_case(value: object) -> str | None:
    """Return a short name for a case of bytes, which is the same in every process."""
    return "bytes" if isinstance(value, bytes) else None


@pytest.mark.parametrize(
    ("data", "media_type", "kind"),
    [
        (png(), "image/png", "image"),
        (jpeg(), "image/jpeg", "image"),
        (gif(), "image/gif", "image"),
        (webp(), "image/webp", "image"),
        (MP4 % b"heic", "image/heic", "image"),
        (wav(), "audio/wav", "audio"),
        (b"ID3\x04\x00\x00" + b"\x00" * 20, "audio/mpeg", "audio"),
        (b"\xff\xfb\x90\x00" + b"\x00" * 20, "audio/mpeg", "audio"),
        (b"\xff\xf1\x50\x80" + b"\x00" * 20, "audio/aac", "audio"),
        (MP4 % b"M4A ", "audio/mp4", "audio"),
        (b"OggS\x00\x02" + b"\x00" * 20, "audio/ogg", "audio"),
        (b"fLaC\x00\x00\x00\x22", "audio/flac", "audio"),
        (MP4 % b"isom", "video/mp4", "file"),
        (pdf(), "application/pdf", "document"),
        (b"junk before it\n" + pdf(), "application/pdf", "document"),
        (office("word/document.xml"), DOCX, "document"),
        (office("xl/workbook.xml"), XLSX, "document"),
        (office("ppt/presentation.xml"), PPTX, "document"),
        (office("other.txt"), "application/zip", "file"),
        (b"<!DOCTYPE html><p>hello", "text/html", "document"),
        (b"\xef\xbb\xbf\n <!-- a comment --> <html>", "text/html", "document"),
        ("<html>".encode("utf-16"), "text/html", "document"),
        (b"<html>caf\xe9</html>", "text/html", "document"),
        (b'<?xml version="1.0"?><svg xmlns="...">', "application/xml", "document"),
        (b'{"a": [1, 2]}', "application/json", "document"),
        (b"{not json", "text/plain", "document"),
        (b"name,age\nAda,36\n", "text/plain", "document"),
        ("Füße\n".encode(), "text/plain", "document"),
        ("Füße\n".encode("latin-1"), "application/octet-stream", "file"),
        ("text".encode("utf-16"), "application/octet-stream", "file"),
        (b"BM is no bitmap here", "text/plain", "document"),
        (b"MZ\x90\x00\x03", "application/octet-stream", "file"),
        (bytes(range(256)), "application/octet-stream", "file"),
    ],
    ids=name_case,
)
def test_the_bytes_tell_the_type(data: bytes, media_type: str, kind: str) -> None:
    found = read(data)
    assert (found.media_type, found.kind) == (media_type, kind)


def test_a_png_that_is_html_is_html() -> None:
    assert read(b"<html><script>alert(1)</script>", "image/png", "photo.png").media_type == "text/html"
    assert read(png(), "text/html", "page.html").media_type == "image/png"


@pytest.mark.parametrize(
    ("data", "declared", "name", "media_type"),
    [
        (b"a,b\n1,2\n", "text/csv", None, "text/csv"),
        (b"a,b\n1,2\n", None, "TABLE.CSV", "text/csv"),
        (b"# Title\n", "text/x-markdown; charset=utf-8", "notes.txt", "text/markdown"),
        (b"a: 1\n", None, "a.yaml", "application/yaml"),
        (b"plain", "text/html", "a.html", "text/plain"),
        (b"plain", "image/png", "a.docx", "text/plain"),
        (b"PK\x03\x04" + b"\x00" * 40, DOCX, None, DOCX),
        (b"PK\x03\x04" + b"\x00" * 40, "image/png", "a.png", "application/zip"),
        (MP4 % b"isom", "audio/x-m4a", None, "audio/mp4"),
        (b"\x1aE\xdf\xa3\x00", "audio/webm;codecs=opus", None, "audio/webm"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\x00", None, "old.doc", "application/msword"),
        (b"<svg></svg>", None, "a.svg", "image/svg+xml"),
        (office("word/document.xml"), XLSX, "a.xlsx", DOCX),
    ],
    ids=name_case,
)
def test_a_declared_type_only_chooses_among_those_of_the_bytes(
    data: bytes, declared: str | None, name: str | None, media_type: str
) -> None:
    assert read(data, declared, name).media_type == media_type


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (png(60_000, 60_000), (60_000, 60_000)),
        (jpeg(3000, 2000), (3000, 2000)),
        (jpeg(3000, 2000, metadata=60_000), (3000, 2000)),
        (gif(7, 5), (7, 5)),
        (webp(9, 8), (9, 8)),
        (webp(300, 200, "VP8L"), (300, 200)),
        (webp(300, 200, "VP8 "), (300, 200)),
        (b"BM" + b"\x00" * 12 + (40).to_bytes(4, "little") + b"\x05\0\0\0\xfd\xff\xff\xff" + b"\0" * 9, (5, 3)),
        (MP4 % b"heic" + b"ispe\0\0\0\0\0\0\0\x10\0\0\0\x10ispe\0\0\0\0\0\0\x02\0\0\0\x01\0", (512, 256)),
        (png()[:20], (None, None)),
        (jpeg()[:24], (None, None)),
        (png(0, 5), (None, None)),
    ],
    ids=name_case,
)
def test_the_header_tells_the_size(data: bytes, size: tuple[int | None, int | None]) -> None:
    found = read(data)
    assert (found.width, found.height) == size


def test_the_beginning_of_a_large_file_is_enough() -> None:
    text = b"x" + "é".encode() * HEAD_BYTES
    assert sniff(text[:HEAD_BYTES], len(text), None, "a.md").media_type == "text/markdown"
    assert read(text).media_type == "text/plain"
    assert sniff(jpeg(metadata=60_000)[:HEAD_BYTES], 5_000_000).width == 640
    assert sniff(linearized(12)[:1024], len(linearized(12))).pages == 12


@pytest.mark.parametrize(
    ("data", "pages"),
    [
        (pdf(3), 3),
        (pdf(3, compressed=True), 3),
        (linearized(12), 12),
        (pdf(3, count=2), None),
        (pdf(3) + pdf(3), None),
        (linearized(12) + b"an update", None),
        (pdf(3).replace(b"/Root 1 0 R", b"/Root 1 0 R /Encrypt 9 0 R"), None),
        (pdf(3, compressed=True).replace(b"/FlateDecode", b"/LZWDecodes"), None),
        (pdf(3)[:-20], None),
        (b"%PDF-1.4\nnothing", None),
    ],
    ids=name_case,
)
def test_pages_are_counted_only_if_the_file_confirms_them(data: bytes, pages: int | None) -> None:
    assert read(data).pages == pages


def test_a_bomb_of_pages_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helix.core.pdf_pages.MAX_INFLATED", 100)
    assert read(pdf(30, compressed=True)).pages is None


def test_any_bytes_have_a_type() -> None:
    """No bytes make the reader fail, also those that begin like a known type."""
    rng = random.Random(7)
    starts = [b"", png(), jpeg(), gif(), webp(), webp(form="VP8L"), wav(), pdf(), pdf(compressed=True), linearized(2)]
    starts += [b"BM", b"\xff\xfe", MP4 % b"avif" + b"ispe", b"{", b"<?xml", office("word/x"), b"PK\x03\x04"]
    for _ in range(3_000):
        data = bytearray(rng.choice(starts))
        for _ in range(rng.randrange(4)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        cut = bytes(data[: rng.randrange(len(data) + 1)]) + rng.randbytes(rng.randrange(6))
        found = sniff(cut, len(cut) + rng.choice([0, 0, 100]))
        assert clean_media_type(found.media_type) == found.media_type


@pytest.mark.parametrize("text", ["", "png", "image/", "a b/c", "image/png/x", "é/é", None, "x" * 200])
def test_an_invalid_media_type_counts_as_none(text: str | None) -> None:
    assert clean_media_type(text) is None
