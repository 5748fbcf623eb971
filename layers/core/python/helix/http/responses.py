"""Bodies of responses: server-sent events that a client resumes after the last one it has.

Law: the id of an event is the sequence of the stream's message that it comes from, and its place among the events of that
message: `12.1`. Each reader reads the log for itself, as fast as it takes the events, so a slow one holds up nobody.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import NamedTuple, Protocol

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, dumps
from helix.core.wire import StreamMessage
from helix.http.turns import Turn

HEARTBEAT = b": heartbeat\n\n"
_ID = re.compile(r"(\d{1,18})(?:\.(\d{1,6}))?", re.ASCII)
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
ALL = 10**6


class Position(NamedTuple):
    """After event `place` of the message `sequence`."""

    sequence: int
    place: int


class Encoder(Protocol):
    def feed(self, message: StreamMessage) -> list[JsonObject]: ...

    def close(self) -> list[JsonObject]: ...


class Plain:
    """The stream's own messages."""

    def feed(self, message: StreamMessage) -> list[JsonObject]:
        return [message.model_dump(mode="json", exclude_none=True)]

    def close(self) -> list[JsonObject]:
        return []


def parse_position(text: str | None) -> Position | None:
    """A `Last-Event-ID`, or a sequence: then all events of that message are there. Raises `InvalidInputError`."""
    if text is None:
        return None
    found = _ID.fullmatch(text.strip())
    if found is None:
        raise InvalidInputError(f"after is {text[:80]!r}: give the id of the last event that you have, such as 12.1")
    return Position(int(found[1]), int(found[2]) if found[2] is not None else ALL)


async def encode(
    messages: AsyncIterator[StreamMessage | None], turn: Turn, encoder: Encoder, *, whole: bool, after: Position | None
) -> AsyncGenerator[tuple[Position, JsonObject] | None, None]:
    """The events of a turn; None for a time without any.

    whole: from the beginning of the page's message, however many runs it took. Otherwise a response to a client that has
    all before the run `turn.since`. after: the client has these.
    """
    live, held = whole or after is not None, list[tuple[Position, JsonObject]]()
    async for message in messages:
        if message is None:
            yield None
            continue
        last, own = turn.is_last(message), message.session_id == turn.session.session_id
        events = encoder.feed(message)
        if own and message.kind != "chunk":
            if last or not whole:
                events += encoder.close()  # in a response of several runs too: no event depends on where it began
            if not last and not live:
                held, events = [], []  # a response ended here
        held += [(Position(message.sequence, n), event) for n, event in enumerate(events, 1)]
        live = live or (own and message.turn >= turn.since)
        if live:
            for position, event in held:
                if after is None or position > after:
                    yield position, event
            held = []


async def body(
    events: AsyncGenerator[tuple[Position, JsonObject] | None, None], end: bytes
) -> AsyncGenerator[bytes, None]:
    """Server-sent events; a heartbeat for each time without any; then `end`."""
    async with aclosing(events):
        async for item in events:
            yield HEARTBEAT if item is None else sse(*item)
    yield end


def sse(position: Position, event: JsonObject) -> bytes:
    data = dumps(event).translate(_LINE_ENDS)
    return f"id: {position.sequence}.{position.place}\ndata: {data}\n\n".encode()
