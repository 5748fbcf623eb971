"""Parse only the messages of a large body that a request can use, at a cost that its size bounds."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from helix.core.errors import BodyTooLargeError, InvalidInputError
from helix.http import bodies
from helix.http.bodies import used_part

LIMIT = 1_000
LAST = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": 'He said "]}, {\\'}]}
FILL = {"id": "a", "role": "assistant", "parts": [{"type": "text", "text": 'x"[{' * 200, "n": [1, [2, {"id": "u9"}]]}]}


def body(*messages: Any, indent: int | None = None, **more: Any) -> bytes:
    return json.dumps({"before": {"messages": [1], "id": "q"}, "messages": messages, **more}, indent=indent).encode()


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_the_newest_message_and_the_named_ones_are_left(kind: Any, indent: int | None) -> None:
    older = {"id": "u1", "role": "user", "parts": []}
    sent = kind(body(FILL, older, FILL, FILL, LAST, indent=indent, messageId="u1", tail=[{}, [], 1, "x"]))
    found = json.loads(used_part(sent, LIMIT))
    assert found["messages"] == [older, LAST] and found["before"] == {"messages": [1], "id": "q"}
    assert (found["messageId"], found["tail"]) == ("u1", [{}, [], 1, "x"])
    assert json.loads(used_part(kind(body(FILL, FILL, LAST, messageId=None)), LIMIT))["messages"] == [LAST]


def test_a_small_body_is_left_as_it_is() -> None:
    assert used_part(b"{", LIMIT) == b"{"


@pytest.mark.parametrize(
    "sent",
    [
        body(FILL, {"id": "u", "text": "x" * LIMIT}),
        body(FILL, FILL, LAST, messageId="a"),
        body(LAST, more="x" * LIMIT),
        body(more="x" * LIMIT),
        b'"' + b"x" * LIMIT + b'"',
        b"[" + b"1," * LIMIT + b"1]",
        b"x" * LIMIT * 2,
    ],
)
def test_what_is_used_has_a_limit_of_its_own(sent: bytes) -> None:
    with pytest.raises(BodyTooLargeError):
        used_part(sent, LIMIT)


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,"])
def test_the_base64_of_files_does_not_count(prefix: str) -> None:
    url = prefix + "QUJD" * 2 * LIMIT + "QQ=="
    with_file = {**LAST, "url": url}
    assert json.loads(used_part(body(FILL, with_file), LIMIT))["messages"] == [with_file]
    plain = json.dumps({"message": "Look", "files": [{"data": url}]}).encode()
    assert used_part(plain, LIMIT) == plain
    for wrong in ({"url": f"{url}!"}, {"url": "Q " * 4 * LIMIT}, {"text": url}):
        with pytest.raises(BodyTooLargeError):
            used_part(body(FILL, {**LAST, **wrong}), LIMIT)


@pytest.mark.parametrize("sent", [body(FILL, FILL, LAST)[:-1], b'{"messages":["' + b'\\"' * LIMIT, b"[" * LIMIT * 2])
def test_a_body_that_was_cut_is_refused(sent: bytes) -> None:
    with pytest.raises(InvalidInputError):
        used_part(sent, LIMIT)


def test_a_history_becomes_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """If they were parsed, these lists would take twenty times the memory of the body."""
    sent = b'{"messages":[{"parts":[' + b"[[]]," * 20_000 + b'1]},{"id":"u"}]}'
    tracemalloc.start()
    try:
        assert json.loads(used_part(sent, LIMIT)) == {"messages": [{"id": "u"}]}
        assert tracemalloc.get_traced_memory()[1] < 60_000
        monkeypatch.setattr(bodies, "MAX_TOKENS", 1_000)
        with pytest.raises(InvalidInputError, match="values"):
            used_part(sent, LIMIT)
    finally:
        tracemalloc.stop()
