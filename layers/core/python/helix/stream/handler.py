"""Serves a stream over HTTP without a web framework, as server-sent events that browsers resume automatically.

Law: an event's `id` is its sequence, so a client resumes after the `Last-Event-ID` that it sends. The body ends with
the message that ends the stream. A later request gets a 204, which makes an EventSource stop reconnecting.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from helix.core.errors import InvalidInputError, StreamNotFoundError
from helix.core.json import dumps
from helix.core.wire import StreamMessage
from helix.ports.clock import Clock
from helix.ports.streams import StreamManager
from helix.stream.reader import read_with_idle

HEARTBEAT_S = 15.0
HEARTBEAT = b": heartbeat\n\n"
EVENT_STREAM: Mapping[str, str] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class StreamResponse:
    """The response for a web framework to send."""

    status: int
    """The HTTP status: 200 with events, 204 at the end of the stream, 404 for an unknown stream."""
    headers: Mapping[str, str]
    """The HTTP headers, with names in lower case."""
    body: AsyncGenerator[bytes, None]
    """The chunks of the body. Close it (`aclose`) when the client disconnects, to stop reading the stream."""


class ResumableStreamHandler:
    def __init__(self, stream_manager: StreamManager, clock: Clock, heartbeat_s: float) -> None:
        if heartbeat_s <= 0:
            raise InvalidInputError(f"heartbeat_s is {heartbeat_s}: it must be more than 0 seconds")
        self._manager, self._clock, self._heartbeat_s = stream_manager, clock, heartbeat_s

    async def handle(self, *, stream_id: str, resume_at: int | str | None = 0) -> StreamResponse:
        """Return a response with the stream after `resume_at`, which may be a raw `Last-Event-ID` header.

        The status is 200 with events, 204 if the stream has ended and nothing is left, or 404 if the stream does not
        exist. The caller must first check whether the client may read the stream.
        """
        position = extract_resume_position(resume_at)
        info = await self._manager.info(stream_id)
        if info is None:
            error = {
                "error": {"code": StreamNotFoundError.code, "message": "there is no such stream, or it has expired"}
            }
            return StreamResponse(404, {"content-type": "application/json"}, _body(dumps(error).encode()))
        if info.status != "active" and position >= info.latest_sequence:
            return StreamResponse(204, {"cache-control": "no-cache"}, _body())
        # an id beyond the end belongs to another stream, so send everything
        position = position if position <= info.latest_sequence else 0
        return StreamResponse(200, EVENT_STREAM, self._events(stream_id, position))

    async def _events(self, stream_id: str, position: int) -> AsyncGenerator[bytes, None]:
        sent = self._clock.now()
        messages = read_with_idle(self._manager, stream_id, from_sequence=position, idle_s=self._heartbeat_s)
        async with aclosing(messages):
            try:
                async for message in messages:
                    if message is not None:
                        sent = self._clock.now()
                        yield format_event(message)
                    elif self._clock.now() - sent >= 0.9 * self._heartbeat_s:  # timers and clocks differ a little
                        sent = self._clock.now()
                        yield HEARTBEAT
            except StreamNotFoundError:
                return  # deleted while it was read


def create_resumable_stream_handler(
    *, stream_manager: StreamManager, clock: Clock, heartbeat_s: float = HEARTBEAT_S
) -> ResumableStreamHandler:
    """Create a handler. After about `heartbeat_s` without events it sends a comment, so that proxies keep the
    connection open."""
    return ResumableStreamHandler(stream_manager, clock, heartbeat_s)


def extract_resume_position(last_event_id: object) -> int:
    """Parse the last sequence that a client has received. Anything but a number of 0 or more means the beginning."""
    if isinstance(last_event_id, bytes):
        last_event_id = last_event_id.decode("latin-1")
    if isinstance(last_event_id, str):
        text = last_event_id.strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
    if isinstance(last_event_id, int) and not isinstance(last_event_id, bool):
        return max(0, last_event_id)
    return 0


def format_event(message: StreamMessage) -> bytes:
    """Return one server-sent event. Unicode line separators are escaped, for clients that split lines by Unicode rules.
    JSON contains no other raw line breaks."""
    data = message.model_dump_json(exclude_none=True).translate(_LINE_ENDS)
    return f"id: {message.sequence}\nevent: {message.kind}\ndata: {data}\n\n".encode()


async def _body(*parts: bytes) -> AsyncGenerator[bytes, None]:
    for part in parts:
        yield part
