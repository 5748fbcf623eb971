"""Content of messages becomes a text and files with their places, within the limits."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.support.sample_files import gif, jpeg, pdf, png, wav

from helix import Audio, Document, File, FilePart, Image, Text
from helix.core import file_checks
from helix.core.errors import InvalidFileError, InvalidInputError
from helix.core.file_checks import MAX_BYTES, MAX_FILES, check_message, clean_name
from helix.core.files import Content
from helix.services.file_inputs import has_files, read_content

STORED = FilePart(kind="image", media_type="image/png", sha256="a" * 64, size=10, name="a.png")
LIMIT = "at most|the limit is|which is the limit"


async def refused(*parts: Any) -> str:
    with pytest.raises(InvalidFileError) as caught:
        await read_content(list(parts))
    return str(caught.value)


async def test_texts_and_files_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(pdf(2))
    found = await read_content(["Compare", Image(png()), "with", Text("this"), tmp_path / "report.pdf", wav(), "Why?"])
    assert found.text == "Compare\nwith\nthis\nWhy?"
    assert [(file.part.kind, found.text[: file.part.after_text]) for file in found.files] == [
        ("image", "Compare"),
        ("document", "Compare\nwith\nthis"),
        ("audio", "Compare\nwith\nthis"),
    ]
    report = found.files[1]
    assert report.data == pdf(2)
    assert report.part == FilePart(
        kind="document",
        media_type="application/pdf",
        sha256=hashlib.sha256(pdf(2)).hexdigest(),
        size=len(pdf(2)),
        name="report.pdf",
        pages=2,
        after_text=17,
    )


@pytest.mark.parametrize(
    ("content", "text", "count"),
    [
        ("only a text", "only a text", 0),
        ("", "", 0),
        ([], "", 0),
        (Text("a"), "a", 0),
        (png(), "", 1),
        (bytearray(png()), "", 1),
        (Image(png()), "", 1),
        (STORED, "", 1),
        (["a", "", "b"], "a\nb", 0),
        (("https://example.com/a.png",), "https://example.com/a.png", 0),
    ],
)
async def test_each_form_of_content(content: Content, text: str, count: int) -> None:
    found = await read_content(content)
    assert (found.text, len(found.files)) == (text, count)


async def test_the_same_content_becomes_the_same_message() -> None:
    content: Content = ["a", Image(png(), name="x.png"), "b", jpeg()]
    one, two = await read_content(content), await read_content(content)
    assert one == two


async def test_a_stored_file_is_not_read() -> None:
    found = await read_content([Image(STORED, name="b.png"), File(STORED)])
    assert [(file.part.name, file.data) for file in found.files] == [("b.png", None), ("a.png", None)]
    assert "pass it as Image" in await refused(Document(STORED))


async def test_a_url_is_passed_on() -> None:
    url = "https://example.com/pictures/cat.JPG?size=2"
    found = await read_content(
        [Image(url), Image("https://example.com/x"), File("https://example.com/x"), Document(url[:34])]
    )
    assert [(file.part.kind, file.part.media_type, file.data) for file in found.files] == [
        ("image", "image/jpeg", None),
        ("image", "image/*", None),
        ("file", "application/octet-stream", None),
        ("document", "application/octet-stream", None),
    ]
    assert found.files[0].part.url == url


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.com/a.png", "photo.png", "file:///etc/passwd", "https://", "https://[x", "https://a b/c"),
        *("data:image/png;base64,AAAA", "https://exämple.com/", "https://a.com/\n", "https://a.com:99999/", ""),
    ],
)
async def test_other_urls_are_refused(url: str) -> None:
    assert "https" in await refused(Image(url))


async def test_a_url_has_a_limit() -> None:
    assert "2048" in await refused(Image("https://example.com/" + "a" * 2048))
    assert "not an image" in await refused(Image("https://example.com/a.pdf"))


async def test_the_expected_kind_is_checked_by_the_bytes() -> None:
    message = await refused("look", Image(b"<html><body>no picture", "image/png", "photo.png"))
    assert message == "file 'photo.png' is text/html, not an image: pass it as Document, or convert it"
    assert "file 1 of the message" in await refused(Audio(png()))
    assert "UTF-8" in await refused(Document("Füße".encode("latin-1"), name="a.csv"))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("photo.png", "photo.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\ada\\photo.png", "photo.png"),
        ("/abs/ name .png ", "name .png"),
        ("a\x00b\x1b[31m\u202egnp.exe", "ab[31mgnp.exe"),
        ("cafe\u0301.png", "caf\u00e9.png"),
        ("\ud83d\ude00.png", "\U0001f600.png"),
        ("..", None),
        ("folder/", None),
        (" ", None),
        ("", None),
        (None, None),
    ],
)
def test_a_name_is_no_path(name: str | None, shown: str | None) -> None:
    assert clean_name(name) == shown


async def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert "file 'none.pdf' cannot be read: No such file" in await refused(tmp_path / "none.pdf")
    assert "cannot be read" in await refused(tmp_path)


async def test_each_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "60000 x 60000 pixels; an image has at most 100000000: scale it down" in await refused(png(60_000, 60_000))
    assert f"an image has at most {MAX_BYTES['image']}" in await refused(png() + b"\x00" * MAX_BYTES["image"])
    assert "1001 pages" in await refused(pdf(1001))
    assert "is empty" in await refused(Document(b"", name="a.txt"))
    assert "damaged image/png" in await refused(png()[:20])
    assert "damaged image/gif" in await refused(gif(0, 0))
    assert "255" in await refused(File(png(), name="x" * 256))
    assert f"at most {MAX_FILES}" in await refused(*[STORED] * (MAX_FILES + 1))
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(max(MAX_BYTES.values()) + 1)
    assert "file 'huge.bin' has more than" in await refused(tmp_path / "huge.bin")
    monkeypatch.setattr(file_checks, "MAX_MESSAGE_BYTES", 2 * len(png()) - 1)
    assert "together" in await refused(png(), png(note=b"another"))
    assert len((await read_content([png(), png()])).files) == 2, "the same bytes are stored once"


def test_forty_images_are_within_the_limits() -> None:
    check_message([STORED] * 40)


WRONG: Any = 7


@pytest.mark.parametrize(
    "content", [None, 7, {"type": "text"}, [7], [None], [["a"]], [Image(WRONG)], [Text(WRONG)], object()]
)
async def test_other_content_is_refused(content: Any) -> None:
    with pytest.raises(InvalidInputError):
        await read_content(content)


@pytest.mark.parametrize(
    ("value", "is_content"),
    [
        *(
            ([Text("a"), Image(png())], True),
            (png(), True),
            (Path("a.png"), True),
            (["a", png()], True),
            (STORED, True),
        ),
        *((["a", "b"], False), ("a", False), ([], False), ({"a": png()}, False), ([png(), 7], False), (None, False)),
    ],
)
def test_results_of_tools_with_files_are_known(value: Any, is_content: bool) -> None:
    assert has_files(value) == is_content
