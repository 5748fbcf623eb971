"""A body with files is JSON, whatever is read of it, and encodes a file only while it is read."""

from __future__ import annotations

import base64
import json
import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helix.adapters.models.file_parts import Encoded, JsonBody, placed, plain
from helix.core.files import FilePart

FILES = st.builds(Encoded, st.binary(max_size=50), st.sampled_from(["", "data:image/png;base64,", 'a"\\\n é']))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
BODIES = st.recursive(
    st.one_of(FILES, TEXTS, st.integers(), st.none(), st.booleans()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


async def read(body: JsonBody) -> bytes:
    return b"".join([piece async for piece in body])


@given(body=BODIES)
async def test_it_is_the_json_of_the_same_body_with_texts(body: Any) -> None:
    made = JsonBody(body)
    text = await read(made)
    assert json.loads(text) == plain(body) and made.length == len(text)
    assert await read(made) == text, "a redirected request is sent again"


@given(body=BODIES, sizes=st.lists(st.integers(1, 70), min_size=1, max_size=5))
async def test_it_can_be_read_in_pieces_of_any_size(body: Any, sizes: list[int]) -> None:
    made = JsonBody(body)
    whole, read_so_far = await read(made), b""
    while piece := made.read_at(len(read_so_far), sizes[len(read_so_far) % len(sizes)]):
        read_so_far += piece
    assert read_so_far == whole and made.read_at(made.length + 1, 5) == b""


async def test_it_holds_no_copy_of_a_file() -> None:
    made = JsonBody({"file": Encoded(b"x" * 20_000_000)})
    tracemalloc.start()
    try:
        async for _ in made:
            pass
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


async def test_a_released_body_is_empty() -> None:
    made = JsonBody({"a": Encoded(b"x" * 100)})
    made.release()
    assert await read(made) == b"" and made.length == 0


@given(text=TEXTS, places=st.lists(st.integers(0, 7), max_size=4))
def test_files_stand_in_their_places_and_no_text_is_lost(text: str, places: list[int]) -> None:
    files = [
        FilePart(kind="image", media_type="image/png", url=f"https://x/{number}", after_text=place)
        for number, place in enumerate(places)
    ]
    found = list(placed(text, files))
    assert [part for part in found if isinstance(part, FilePart)] == sorted(files, key=lambda file: file.after_text)
    said = [part for part in found if isinstance(part, str)]
    assert all(part.strip() for part in said) and "".join("".join(said).split()) == "".join(text.split())


def test_a_text_of_base64() -> None:
    assert plain([Encoded(b"abc", "data:,")]) == ["data:," + base64.b64encode(b"abc").decode()]
