"""Frames are split and joined again, and never exceed the limit."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix.core.errors import ProtocolError
from helix.core.frames import (
    FRAGMENT_BYTES,
    MAX_FRAME_BYTES,
    MAX_PARTS,
    OPEN_TEXTS,
    Joiner,
    fragments,
    message_frames,
    split,
)
from helix.core.wire import StreamMessage

PIECES = st.sampled_from(
    ['"', "\\", "a", "é", "€", "😀", "\n", "\x00", "\x1f", "\u2028", "x" * 997, '{"a":"b\\n"}' * 97]
)


@given(st.lists(PIECES, max_size=60), st.integers(1, 60))
def test_fragments_are_frames_of_whole_characters(pieces: list[str], times: int) -> None:
    text = "".join(pieces) * times
    found = fragments(text)
    assert "".join(piece.decode() for piece in found) == text
    assert all(FRAGMENT_BYTES - 4 < len(piece) <= FRAGMENT_BYTES for piece in found[:-1])
    assert len(found[-1]) <= FRAGMENT_BYTES


@given(st.lists(PIECES, max_size=60), st.integers(1, 60), st.randoms(use_true_random=False))
def test_what_is_split_is_joined_in_any_order_and_with_repeats(
    pieces: list[str], times: int, order: random.Random
) -> None:
    text = "".join(pieces) * times
    frames = split(text, "p1")
    assert all(len(frame) <= MAX_FRAME_BYTES for frame in frames)
    if len(frames) == 1:
        assert frames == [text.encode()]
        return
    shuffled = [*frames[1:], *frames[1:], frames[0]]
    order.shuffle(shuffled)
    joiner = Joiner()
    joined = [whole for frame in shuffled if (whole := joiner.add(json.loads(frame))) is not None]
    assert joined[0] == text


def test_the_worst_text_fits_too() -> None:
    frames = split("\x01" * 50_000, "worst")  # each character takes six bytes in JSON
    assert len(frames) > 1 and max(map(len, frames)) <= MAX_FRAME_BYTES
    joiner = Joiner()
    assert [joiner.add(json.loads(frame)) for frame in frames][-1] == "\x01" * 50_000


def test_what_is_too_long_for_all_parts_is_refused() -> None:
    with pytest.raises(ProtocolError, match="does not fit"):
        split("x" * (MAX_FRAME_BYTES * (MAX_PARTS + 1)), "p")
    with pytest.raises(ProtocolError, match="id"):
        split("x" * (MAX_FRAME_BYTES + 1), "p" * 600)


@pytest.mark.parametrize(
    "part",
    [
        {"part": "p", "index": 0, "total": 0, "data": ""},
        {"part": "p", "index": 2, "total": 2, "data": ""},
        {"part": "p", "index": -1, "total": 2, "data": ""},
        {"part": "p", "index": 0, "total": MAX_PARTS + 1, "data": ""},
        {"part": "p", "index": "0", "total": 2, "data": ""},
        {"part": 1, "index": 0, "total": 2, "data": ""},
        {},
    ],
)
def test_what_is_no_part_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        Joiner().add(part)


def test_parts_that_contradict_each_other_are_refused() -> None:
    joiner = Joiner()
    joiner.add({"part": "p", "index": 0, "total": 3, "data": "a"})
    with pytest.raises(ProtocolError):
        joiner.add({"part": "p", "index": 1, "total": 2, "data": "b"})


def test_texts_that_never_come_are_forgotten() -> None:
    joiner = Joiner()
    for number in range(OPEN_TEXTS + 1):
        joiner.add({"part": f"p{number}", "index": 0, "total": 2, "data": "a"})
    assert joiner.add({"part": "p0", "index": 1, "total": 2, "data": "b"}) is None
    assert joiner.add({"part": f"p{OPEN_TEXTS}", "index": 1, "total": 2, "data": "b"}) == "ab"


def _message(sequence: int, text: str) -> StreamMessage:
    chunk = {"type": "text_delta", "delta": text}
    return StreamMessage(
        stream_id="s", session_id="s", run_id="r", turn=1, sequence=sequence, kind="chunk", chunk=chunk
    )


@given(st.lists(st.integers(0, 20_000), max_size=12))
def test_messages_share_frames_and_keep_their_order(sizes: list[int]) -> None:
    messages = [_message(number, "é" * (size // 2)) for number, size in enumerate(sizes, 1)]
    messages.append(_message(len(sizes) + 1, "x" * 70_000))
    read: list[StreamMessage] = []
    joiner = Joiner()
    frames = message_frames("s", messages)
    for frame in frames:
        assert len(frame) <= MAX_FRAME_BYTES
        value = json.loads(frame)
        if value["type"] == "part":
            text = joiner.add(value)
            value = json.loads(text) if text is not None else {"messages": []}
        read += [StreamMessage.model_validate({"stream_id": "s", **body}) for body in value["messages"]]
    assert read == messages
    assert len(frames) <= sum(sizes) // 12_000 + 5


def test_no_messages_are_no_frames() -> None:
    assert message_frames("s", []) == []
