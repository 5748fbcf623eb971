"""Response bodies: server-sent events that a client can resume after the last event it received.

Law: the id of an event has two parts, as in `12.1`: the sequence of the stream's message, and the event's place among
the events of that message. Events that depend on where a response began do not have their own place. They are numbered
after the preceding event, as in `12.1.1`. Each reader reads the log for itself, at its own pace, so a slow reader does
not delay others.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import NamedTuple, Protocol, TypeAlias

from helix.core.errors import InvalidInputError
from helix.core.json import JsonObject, dumps
from helix.core.wire import StreamMessage
from helix.http.turns import Turn

HEARTBEAT = b": heartbeat\n\n"
_ID = re.compile(r"(\d{1,18})(?:\.(\d{1,6})(?:\.(\d{1,6}))?)?", re.ASCII)
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
ALL = 10**6


class Position(NamedTuple):
    """A position after an event. A client that sends this position receives the events that follow."""

    sequence: int
    """The sequence of the stream's message that the event comes from."""
    place: int
    """The place of the event among the numbered events of that message, from 1. 0: before the first of them."""
    beside: int = 0
    """The number of events without their own place that the client has received after that event."""

    def __str__(self) -> str:
        return f"{self.sequence}.{self.place}" + (f".{self.beside}" if self.beside else "")


Events: TypeAlias = AsyncGenerator[tuple[Position, JsonObject] | None, None]
"""The events of a response with their positions. None is an idle interval."""


class Encoder(Protocol):
    def feed(self, message: StreamMessage) -> list[JsonObject]: ...

    def close(self) -> list[JsonObject]: ...


class Plain:
    """An encoder that returns the stream's own messages."""

    def feed(self, message: StreamMessage) -> list[JsonObject]:
        return [message.model_dump(mode="json", exclude_none=True)]

    def close(self) -> list[JsonObject]:
        return []


def parse_position(text: str | None) -> Position | None:
    """Parse a `Last-Event-ID`, or a bare sequence, which means that the client has received all events of that message.
    Raises `InvalidInputError`."""
    if text is None:
        return None
    found = _ID.fullmatch(text.strip())
    if found is None:
        raise InvalidInputError(f"after is {text[:80]!r}: give the id of the last event that you have, such as 12.1")
    if found[2] is None:
        return Position(int(found[1]), ALL, ALL)
    return Position(int(found[1]), int(found[2]), int(found[3] or 0))


class _Places:
    """A counter that gives each event its position."""

    def __init__(self) -> None:
        self._at, self._before = Position(0, 0), ""

    def of(self, sequence: int, events: Sequence[JsonObject]) -> list[tuple[Position, JsonObject]]:
        found = []
        for event in events:
            last = self._at if self._at.sequence == sequence else Position(sequence, 0)
            kind = str(event.get("type", ""))
            if kind in BESIDE or (kind == "MESSAGES_SNAPSHOT" and self._before in BEGINS):
                self._at = last._replace(beside=last.beside + 1)
            else:
                self._at = Position(sequence, last.place + 1)
            self._before = kind
            found.append((self._at, event))
        return found


BESIDE = frozenset({"start", "finish-step", "STATE_SNAPSHOT"})
"""Events that every response sends at its beginning, or that may safely be repeated."""
BEGINS = frozenset({"RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"})


class Join(Protocol):
    """The state that a reader needs when it joins a turn in the middle."""

    def announce(self, *, messages: bool) -> None:
        """Prepare for the next message, before it is fed. With `messages`, a run that begins with that message sends
        the conversation, because the reader does not have it yet."""

    def seen(self, event: JsonObject) -> None:
        """Record that the reader has this event."""

    def events(self) -> list[JsonObject]:
        """Return the events that the reader needs before the first event that it lacks."""


async def encode(
    messages: AsyncIterator[StreamMessage | None],
    turn: Turn,
    encoder: Encoder,
    *,
    whole: bool,
    after: Position | None,
    join: Join | None = None,
) -> Events:
    """Yield the events of a turn, and None after each idle interval.

    whole: start at the beginning of the page's message, however many runs it spans. Otherwise the response is for a
    client that has everything before the run `turn.since`. after: the client has all events up to this position. join:
    the state for a client that joins the turn without having any of its events.
    """
    places, sequence, goes_on = _Places(), 0, None if join is None else join.events
    live, begun, held = whole or after is not None, False, list[tuple[Position, JsonObject]]()
    async for message in messages:
        if message is None:
            yield None
            continue
        own, ends = message.session_id == turn.session.session_id, turn.is_end(message)
        if join is not None:
            if sequence == 0 and (after is None or message.sequence > after.sequence):
                live, after, goes_on = whole, None, None
            join.announce(messages=after is None or message.sequence == after.sequence)
        sequence = message.sequence
        events = encoder.feed(message)
        if ends and not whole:  # also between two runs, so that no event depends on where the response began
            events += encoder.close()
        held += places.of(sequence, events)
        left = ends and not live and message.turn < turn.since  # an earlier response ended here
        begun = begun or (left and message.turn == turn.since - 1)
        live = live or (own and message.turn >= turn.since) or (begun and sequence > turn.seen)
        if left or (begun and not live):
            held = []
        if not live:
            continue
        rest, held = _drop_seen(held, after, join), []
        if goes_on is not None and after is not None and sequence >= after.sequence:
            rest = [*((after, event) for event in goes_on()), *rest]
            goes_on = None
        for item in rest:
            yield item
    for item in _drop_seen(places.of(sequence, encoder.close()) if live else [], after, join):
        yield item


def _drop_seen(
    events: Sequence[tuple[Position, JsonObject]], after: Position | None, join: Join | None
) -> list[tuple[Position, JsonObject]]:
    """Return the events that the reader lacks."""
    found = []
    for position, event in events:
        if after is None or position > after:
            found.append((position, event))
        elif join is not None:
            join.seen(event)
    return found


async def body(events: Events, end: bytes) -> AsyncGenerator[bytes, None]:
    """Yield server-sent events, a heartbeat for each idle interval, and finally `end`."""
    async with aclosing(events):
        async for item in events:
            yield HEARTBEAT if item is None else sse(*item)
    yield end


def sse(position: Position, event: JsonObject) -> bytes:
    return f"id: {position}\n".encode() + data_line(event)


def data_line(event: JsonObject) -> bytes:
    return f"data: {dumps(event).translate(_LINE_ENDS)}\n\n".encode()
