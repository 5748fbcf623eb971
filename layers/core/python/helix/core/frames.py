"""Frames: split texts into pieces that fit the size limit of a WebSocket, and join them again at the other end.

A text that is too long is sent as parts, `{"v":1,"type":"part","part":ID,"index":I,"total":N,"data":TEXT}`. The
receiver joins the `data` of all N parts in order of `index`, and handles the result like a single message.

Law: `Joiner` returns exactly the text given to `split`, even if parts arrive out of order or more than once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from helix.core.errors import ProtocolError
from helix.core.json import dumps, size, text_size

if TYPE_CHECKING:
    from helix.core.wire import StreamMessage  # some processes need only the subprotocol's name, not the chunks

MAX_FRAME_BYTES: Final = 32 * 1024
"""API Gateway's frame size limit. It closes the connection with code 1009 if a frame is longer, and joins the frames of
a message
(https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-execution-service-websocket-limits-table.html)."""
FRAGMENT_BYTES: Final = MAX_FRAME_BYTES - 14
"""The maximum payload of a frame. A frame header has at most 14 bytes."""
SUBPROTOCOL: Final = "helix.v1"
"""The WebSocket subprotocol. The client offers it, and the service echoes it."""
BEARER_SUBPROTOCOL: Final = "bearer."
"""The prefix of a browser's token. The browser sends the token as a second subprotocol, because it cannot set
headers."""
MAX_PARTS: Final = 2048
MAX_PART_ID_BYTES: Final = 512
OPEN_TEXTS: Final = 32
"""The maximum number of incomplete texts that a `Joiner` keeps. It discards the oldest first."""


def fragments(text: str) -> list[bytes]:
    """Return the payloads of the frames of one WebSocket message, for clients that control framing. Each payload is
    valid UTF-8."""
    body, found, start = text.encode(), [], 0
    while len(body) - start > FRAGMENT_BYTES:
        end = start + FRAGMENT_BYTES
        while body[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        found.append(body[start:end])
        start = end
    return [*found, body[start:]]


def split(text: str | bytes, part_id: str) -> list[bytes]:
    """Return `text` as frames of at most `MAX_FRAME_BYTES`: the text itself if it fits, otherwise its parts. `part_id`
    must be unique on the connection and have at most 512 bytes. Raises `ProtocolError` if the id or the text is too
    long."""
    body = text.encode() if isinstance(text, str) else text
    if len(body) <= MAX_FRAME_BYTES:
        return [body]
    if size(part_id) > MAX_PART_ID_BYTES:
        raise ProtocolError(f"a part's id has at most {MAX_PART_ID_BYTES} bytes", "part")
    whole = body.decode()
    envelope = size({"v": 1, "type": "part", "part": part_id, "index": MAX_PARTS, "total": MAX_PARTS, "data": ""})
    pieces = list(_pieces(whole, MAX_FRAME_BYTES - envelope))
    if len(pieces) > MAX_PARTS:
        raise ProtocolError(f"a message has {len(body)} bytes and does not fit {MAX_PARTS} frames", "body")
    return [
        dumps({"v": 1, "type": "part", "part": part_id, "index": i, "total": len(pieces), "data": piece}).encode()
        for i, piece in enumerate(pieces)
    ]


def _pieces(text: str, limit: int) -> Iterable[str]:
    """Yield consecutive pieces of the text, each at most `limit` bytes long inside a JSON string."""
    start = 0
    while start < len(text):
        length = min(limit, len(text) - start)
        while (needed := size(text[start : start + length]) - 2) > limit:
            length = max(1, length * limit // needed)
        yield text[start : start + length]
        start += length


def message_frames(stream_id: str, messages: Iterable[StreamMessage]) -> list[bytes]:
    """Return the messages as frames of type `messages`, in order, with as many per frame as fit. A message that is too
    long is split into parts."""
    frames: list[bytes] = []
    held: list[str] = []
    first, room = 0, 0
    empty = size({"v": 1, "type": "messages", "stream_id": stream_id, "messages": []})
    for message in messages:
        text = dumps(message.model_dump(mode="json", exclude_defaults=True, exclude={"stream_id"}))
        needed = text_size(text) + 1
        if held and needed > room:
            frames += split(_messages_frame(stream_id, held), f"{stream_id}:{first}")
            held = []
        if not held:
            first, room = message.sequence, MAX_FRAME_BYTES - empty
        held.append(text)
        room -= needed
    if held:
        frames += split(_messages_frame(stream_id, held), f"{stream_id}:{first}")
    return frames


def lagging_frame(stream_id: str, after: int) -> bytes:
    """Return a frame that reports missed messages after the sequence `after`."""
    return dumps({"v": 1, "type": "lagging", "stream_id": stream_id, "after": after}).encode()


def _messages_frame(stream_id: str, texts: list[str]) -> str:
    return f'{{"v":1,"type":"messages","stream_id":{dumps(stream_id)},"messages":[{",".join(texts)}]}}'


class Joiner:
    """Joins parts into texts. Each connection has its own joiner, because parts still missing when it closes never
    arrive."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, dict[int, str]] = OrderedDict()
        self._totals: dict[str, int] = {}

    def add(self, part: Mapping[str, Any]) -> str | None:
        """Add a part, and return the text if it is now complete, otherwise None. Raises `ProtocolError` if the part is
        not valid."""
        match part:
            case {"part": str(ident), "index": int(index), "total": int(total), "data": str(data)}:
                pass
            case _:
                raise ProtocolError("a part has part, index, total and data", "part")
        if not (1 <= total <= MAX_PARTS and 0 <= index < total and self._totals.get(ident, total) == total):
            raise ProtocolError(
                f"part {index} of {total} is not valid: index must be below total, and all parts have the same total",
                "index",
            )
        self._totals[ident] = total
        parts = self._open.setdefault(ident, {})
        parts[index] = data
        if len(parts) == total:
            self._forget(ident)
            return "".join(parts[i] for i in range(total))
        while len(self._open) > OPEN_TEXTS:
            self._forget(next(iter(self._open)))
        return None

    def _forget(self, ident: str) -> None:
        del self._open[ident], self._totals[ident]
